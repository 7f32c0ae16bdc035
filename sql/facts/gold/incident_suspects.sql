-- Purpose: facts that must be 0 before gold.incident_suspects is written; any other value breaks its gate.
-- Grain: one row, one column per fact.
-- Parameters: {dlq_incidents} rows of gold.dlq_incidents of the clusters that are refreshed; {fresh} the new rows.
SELECT
  (
    SELECT count(*)
    FROM {fresh} AS fresh
    LEFT ANTI JOIN {dlq_incidents} AS incidents
      ON incidents.cluster = fresh.cluster AND incidents.incident_id = fresh.incident_id AND incidents.record_count > 0
  ) AS `incident_id.unknown`
