-- Purpose: facts that must be 0 before silver.dlq_roots is written; any other value breaks its gate.
-- Grain: one row, one column per fact.
-- Parameters: {dead_letters} rows of silver.dead_letters of the clusters that are refreshed; {fresh} the new rows.
SELECT
  (SELECT count(*) FROM (SELECT topic FROM {fresh} EXCEPT SELECT dlq_topic FROM {dead_letters})) AS `topic.no_dlq`
