-- Purpose: facts that must be 0 before silver.topology_nodes is written; they break its gate.
-- Grain: one row, one column a fact.
-- Parameters: {topology_pushes} rows of silver.topology_pushes of the groups that are refreshed; {fresh} the new rows.
SELECT
  (SELECT count(*) FROM (
    SELECT 1 FROM {fresh}
    GROUP BY cluster, group_id, topology_hash, part, part_place, subtopology_id, node, occurrence HAVING count(*) > 1
  )) AS `grain.repeated`,
  (SELECT coalesce(sum(node_count), 0) FROM (
    SELECT any_value(node_count) AS node_count FROM {topology_pushes} WHERE error_code = 0
    GROUP BY cluster, group_id, topology_hash
  )) - (SELECT count(*) FROM {fresh}) AS `node_count.difference`
