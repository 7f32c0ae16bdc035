-- Purpose: facts that must be 0 before gold.dlq_counts is written; else they break the gate between silver and gold.
-- Grain: one row, one column per fact.
-- Parameters: {dlq_records}, {dlq_control_markers} rows of these silver tables in the slices that are refreshed;
-- {fresh} the new rows.
SELECT
  (
    SELECT count(*)
    FROM (
      SELECT 1
      FROM {dlq_records}
      GROUP BY cluster, dlq_topic, dlq_topic_id, dlq_partition, dlq_offset
      HAVING count(*) > 1
    )
  ) AS `silver_grain.repeated`,
  (
    SELECT count(*)
    FROM {dlq_records} AS records
    LEFT ANTI JOIN {dlq_control_markers} AS markers
      ON markers.is_control_marker AND markers.cluster = records.cluster AND markers._bronze_id = records._bronze_id
  ) - (SELECT coalesce(sum(record_count), 0) FROM {fresh}) AS `record_count.difference`
