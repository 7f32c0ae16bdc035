-- Purpose: facts that must be 0 before silver.dlq_settings is written; any other value breaks its gate.
-- Grain: one row, one column per fact.
-- Parameters: {cluster_settings} rows of silver.cluster_settings of the names that are refreshed; {fresh} the new rows.
SELECT
  (SELECT count(DISTINCT cluster, kind, name) FROM {cluster_settings})
  - (SELECT count(*) FROM {fresh} WHERE setting = 'state' AND until IS NULL) AS `name_count.difference`,
  (
    SELECT count(*) FROM {fresh} WHERE until <= since
  ) AS `changes.out_of_order`
