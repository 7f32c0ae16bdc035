-- Purpose: facts that must be 0 before gold.topology_changes is written; any other value breaks its gate.
-- Grain: one row, one column per fact.
-- Parameters: {topology_revisions} rows of gold.topology_revisions of the groups that are refreshed; {fresh} the new
-- rows; {topology_nodes}.
SELECT
  (SELECT count_if(revision > 1) FROM {topology_revisions}) - (SELECT count(*) FROM {fresh})
    AS `revision_count.difference`
