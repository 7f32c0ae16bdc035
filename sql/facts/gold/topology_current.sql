-- Purpose: facts that must be 0 before gold.topology_current is written; any other value breaks its gate.
-- Grain: one row, one column per fact.
-- Parameters: {topology_revisions} rows of gold.topology_revisions of the groups that are refreshed; {fresh} the new
-- rows; {topology_pushes}, {topology_statuses}, {group_deletions}, {group_heartbeats}.
SELECT
  (SELECT count(DISTINCT cluster, group_id) FROM {topology_revisions})
    - (SELECT count(*) FROM {fresh} WHERE revision IS NOT NULL) AS `group_count.difference`
