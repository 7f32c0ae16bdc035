-- Purpose: facts that must be 0 before silver.topology_solicitations is written; any other value breaks its gate.
-- Grain: one row, one column per fact.
-- Parameters: {group_heartbeats} rows of silver.group_heartbeats of the groups that are refreshed; {fresh} the new
-- rows; {topology_pushes}, {topology_statuses}, {group_deletions}.
SELECT
  (SELECT count_if(description_required) FROM {group_heartbeats}) - (SELECT count(*) FROM {fresh})
    AS `solicitation_count.difference`
