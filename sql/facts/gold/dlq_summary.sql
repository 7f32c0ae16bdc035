-- Purpose: facts that must be 0 before gold.dlq_summary is written; any other value breaks its gate.
-- Grain: one row, one column per fact.
-- Parameters: {dlq_counts} rows of gold.dlq_counts in the hours that are refreshed; {fresh} the new summary rows.
SELECT
  (SELECT coalesce(sum(record_count), 0) FROM {dlq_counts})
    - (SELECT coalesce(sum(record_count), 0) FROM {fresh}) AS `record_count.difference`
