-- Purpose: facts that must be 0 before gold.topology_revisions is written; any other value breaks its gate.
-- Grain: one row, one column per fact.
-- Parameters: {topology_pushes}, {topology_statuses} rows of the silver tables of the groups that are refreshed;
-- {fresh} the new rows.
SELECT
  (SELECT count_if(error_code = 0) FROM {topology_pushes}) - (SELECT coalesce(sum(push_count), 0) FROM {fresh})
    AS `push_count.difference`,
  (SELECT count_if(error_code = 0 AND status = 3 AND topology_hash IS NOT NULL) FROM {topology_statuses})
    - (SELECT coalesce(sum(observed_count), 0) FROM {fresh}) AS `observed_count.difference`,
  (SELECT count(*) FROM (
    SELECT 1 FROM {fresh} GROUP BY cluster, group_id
    HAVING min(revision) <> 1 OR max(revision) <> count(*) OR count(DISTINCT revision) <> count(*)
  )) AS `revision.not_consecutive`
