-- Purpose: facts that must be 0 before silver.topology_nodes is written; any other value breaks its gate.
-- Grain: one row, one column per fact.
-- Parameters: {topology_pushes}, {topology_statuses} rows of the silver tables of the groups that are refreshed;
-- {fresh} the new rows.
SELECT
  (SELECT coalesce(sum(node_count), 0) FROM (
    SELECT any_value(node_count) AS node_count
    FROM (
      SELECT cluster, group_id, topology_hash, node_count FROM {topology_pushes} WHERE error_code = 0
      UNION ALL
      SELECT cluster, group_id, topology_hash, node_count FROM {topology_statuses}
      WHERE error_code = 0 AND status = 3 AND topology_hash IS NOT NULL
    )
    GROUP BY cluster, group_id, topology_hash
  )) - (SELECT count(*) FROM {fresh}) AS `node_count.difference`
