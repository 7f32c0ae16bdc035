-- Purpose: facts that must be 0 before silver.log_ranges is written; any other value breaks its gate.
-- Grain: one row, one column per fact.
-- Parameters: {log_batches} rows of silver.log_batches of the segments that are refreshed; {fresh} the new rows;
-- {log_copies}.
SELECT
  (SELECT coalesce(sum(last_offset - base_offset + 1), 0) FROM {log_batches} WHERE superseded_by IS NULL)
    - (SELECT coalesce(sum(last_offset - first_offset + 1), 0) FROM {fresh} WHERE has_batch)
    AS `offset_count.difference`,
  (
    SELECT coalesce(sum(last_offset - base_offset + 1), 0)
    FROM {log_batches}
    WHERE superseded_by IS NULL AND record_count >= last_offset - base_offset + 1
  ) - (SELECT coalesce(sum(last_offset - first_offset + 1), 0) FROM {fresh} WHERE is_present)
    AS `present_count.difference`
