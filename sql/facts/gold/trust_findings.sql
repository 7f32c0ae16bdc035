-- Purpose: facts that must be 0 before gold.trust_findings is written; any other value breaks its gate.
-- Grain: one row, one column per fact.
-- Parameters: {reconciliation} rows of gold.reconciliation of the topics that are refreshed; {fresh} the new rows.
SELECT
  (SELECT coalesce(sum(lost_count), 0) FROM {reconciliation})
  - (SELECT coalesce(sum(amount), 0) FROM {fresh} WHERE kind = 'LOST_MESSAGES') AS `lost_count.difference`
