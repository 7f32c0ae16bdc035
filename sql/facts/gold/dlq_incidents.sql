-- Purpose: facts that must be 0 before gold.dlq_incidents is written; any other value breaks its gate.
-- Grain: one row, one column per fact.
-- Parameters: {dlq_episodes} rows of silver.dlq_episodes of the topics that are refreshed; {fresh} the new rows.
SELECT
  (SELECT count(*) FROM {dlq_episodes}) - (SELECT count(*) FROM {fresh}) AS `incident_count.difference`,
  (SELECT coalesce(sum(record_count), 0) FROM {dlq_episodes})
  - (SELECT coalesce(sum(record_count), 0) FROM {fresh}) AS `record_count.difference`
