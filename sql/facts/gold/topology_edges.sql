-- Purpose: facts that must be 0 before gold.topology_edges is written; any other value breaks its gate.
-- Grain: one row, one column per fact.
-- Parameters: {topology_nodes} rows of silver.topology_nodes of the groups that are refreshed; {fresh} the new rows;
-- {topology_revisions}.
SELECT
  (SELECT count(*) FROM (
    SELECT DISTINCT cluster, group_id, topology_hash, subtopology_id, node, successor
    FROM {topology_nodes} LATERAL VIEW explode(successors) AS successor
    WHERE successor IS NOT NULL
  )) - (SELECT count_if(kind = 'internal') FROM {fresh}) AS `edge_count.difference`
