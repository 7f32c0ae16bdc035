-- Purpose: facts that must be 0 before silver.dlq_errors is written; any other value breaks its gate.
-- Grain: one row, one column per fact.
-- Parameters: {dlq_records}, {dlq_control_markers} rows of these silver tables in the slices that are refreshed;
-- {fresh} the new rows.
SELECT
  (
    SELECT count(*)
    FROM {dlq_records} AS records
    LEFT ANTI JOIN {dlq_control_markers} AS markers
      ON markers.is_control_marker AND markers.cluster = records.cluster AND markers._bronze_id = records._bronze_id
  ) - (SELECT coalesce(sum(record_count), 0) FROM {fresh}) AS `record_count.difference`
