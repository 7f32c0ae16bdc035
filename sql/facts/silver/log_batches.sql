-- Purpose: facts that must be 0 before silver.log_batches is written; any other value breaks its gate.
-- Grain: one row, one column per fact.
-- Parameters: {record_batches} rows of silver.record_batches of the segments that are refreshed; {fresh} the new rows;
-- {log_copies}.
SELECT
  (SELECT count(base_offset) FROM {record_batches}) - (SELECT count(*) FROM {fresh}) AS `batch_count.difference`
