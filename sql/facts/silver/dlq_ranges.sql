-- Purpose: facts that must be 0 before silver.dlq_ranges is written; any other value breaks its gate.
-- Grain: one row, one column per fact.
-- Parameters: {dead_letters} rows of silver.dead_letters of the slices that are refreshed; {fresh} the new rows.
SELECT
  (SELECT count(*) FROM {dead_letters})
  - (SELECT coalesce(sum(last_offset - first_offset + 1), 0) FROM {fresh}) AS `last_offset.difference`
