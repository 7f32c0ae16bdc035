-- Purpose: facts that must be 0 before silver.dlq_refusals is written; any other value breaks its gate.
-- Grain: one row, one column per fact.
-- Parameters: {quarantined_dlq_records}, {held_dlq_records} rows of quarantine.dlq_records and held.dlq_records in the
-- slices that are refreshed; {fresh} the new rows.
SELECT
  (SELECT count(*) FROM {quarantined_dlq_records})
  + (SELECT count(*) FROM {held_dlq_records})
  - (SELECT coalesce(sum(record_count), 0) FROM {fresh}) AS `record_count.difference`
