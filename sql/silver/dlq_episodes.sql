-- Purpose: the rows of silver.dlq_errors of each fingerprint, of which pipelines/silver/dlq_episodes.py makes episodes.
-- Grain: that of silver.dlq_errors.
-- Parameters: {dlq_errors}, rows of silver.dlq_errors, complete for each fingerprint in them.
-- Engine: duckdb
-- Refresh: fingerprint
SELECT * FROM {dlq_errors}
