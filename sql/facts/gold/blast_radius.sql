-- Purpose: facts that must be 0 before gold.blast_radius is written; any other value breaks its gate.
-- Grain: one row, one column per fact.
-- Parameters: {dlq_incidents} rows of gold.dlq_incidents of the incidents that are refreshed; {fresh} the new rows.
SELECT
  (SELECT count(*) FROM {dlq_incidents} WHERE first_at IS NOT NULL)
  - (SELECT count_if(hop = 0) FROM {fresh}) AS `incident_count.difference`
