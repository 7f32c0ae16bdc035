-- Purpose: facts that must be 0 before silver.dlq_control_markers is written; any other value breaks its gate.
-- Grain: one row, one column per fact.
-- Parameters: {fresh} the new rows; {dlq_records}, rows of silver.dlq_records of the same slices; {log_batches},
-- {log_ranges}.
SELECT
  (SELECT count(*) FROM (SELECT cluster, _bronze_id FROM {fresh} EXCEPT SELECT cluster, _bronze_id FROM {dlq_records}))
    AS `_bronze_id.no_dead_letter`
