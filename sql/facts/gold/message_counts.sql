-- Purpose: facts that must be 0 before gold.message_counts is written; any other value breaks its gate.
-- Grain: one row, one column per fact.
-- Parameters: {message_ledger} rows of gold.message_ledger in the slices that are refreshed; {fresh} the new rows.
SELECT
  (SELECT count_if(acknowledged) FROM {message_ledger})
    - (SELECT coalesce(sum(acknowledged_count), 0) FROM {fresh}) AS `acknowledged_count.difference`,
  (SELECT coalesce(sum(size(dead_letters)), 0) FROM {message_ledger})
    - (SELECT coalesce(sum(dead_lettered_count), 0) FROM {fresh}) AS `dead_lettered_count.difference`
