-- Purpose: facts that must be 0 before silver.transactions is written; any other value breaks its gate.
-- Grain: one row, one column per fact.
-- Parameters: {log_batches} rows of silver.log_batches of the producers that are refreshed; {fresh} the new rows;
-- {log_gaps}.
SELECT
  (SELECT count_if(superseded_by IS NULL AND is_transactional AND NOT is_control) FROM {log_batches})
    - (SELECT coalesce(sum(batch_count), 0) FROM {fresh}) AS `batch_count.difference`
