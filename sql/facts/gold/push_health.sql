-- Purpose: facts that must be 0 before gold.push_health is written; any other value breaks its gate.
-- Grain: one row, one column per fact.
-- Parameters: {topology_pushes}, {topology_solicitations} rows of the groups that are refreshed; {fresh} the new rows;
-- {topology_statuses}, {group_deletions}, {group_heartbeats}.
SELECT
  (SELECT count_if(group_id <> '') FROM {topology_pushes}) - (SELECT coalesce(sum(push_count), 0) FROM {fresh})
    AS `push_count.difference`,
  (SELECT count_if(error_code = 135 AND group_id <> '') FROM {topology_pushes})
    - (SELECT coalesce(sum(permanent_failure_count + transient_failure_count + unknown_failure_count), 0) FROM {fresh})
    AS `plugin_failure_count.difference`,
  (SELECT count(*) FROM {topology_solicitations}) - (SELECT coalesce(sum(solicitation_count), 0) FROM {fresh})
    AS `solicitation_count.difference`
