-- Purpose: facts that must be 0 before silver.log_copies is written; any other value breaks its gate.
-- Grain: one row, one column per fact.
-- Parameters: {record_batches} rows of silver.record_batches of the topics that are refreshed; {fresh} the new rows.
SELECT
  (SELECT count(DISTINCT cluster, _source) FROM {record_batches} WHERE file IS NOT NULL)
    - (SELECT count(*) FROM {fresh}) AS `segment_count.difference`
