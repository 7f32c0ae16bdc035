-- Purpose: what happened to one source record: every time that somebody dead-lettered it, in order.
-- Usage: afterlog ask source_record_history --param topic=orders --param partition=0 --param offset=7
-- Parameters: :topic text, :partition and :offset whole numbers: the record's place in its source topic.
-- Feeds: dlq.
-- Engine: duckdb
WITH markers AS (
  SELECT cluster, _bronze_id, is_control_marker FROM silver.dlq_control_markers
)
SELECT
  routed_at,
  records.cluster,
  consumer_group,
  coalesce(consumer_group, owner) AS owner,
  disposition,
  delivery_count,
  error_message,
  dlq_topic,
  dlq_partition,
  dlq_offset,
  payload_copied,
  coalesce(is_control_marker, false) AS is_control_marker,
  control_marker_suspected AND is_control_marker IS NULL AS control_marker_suspected
FROM silver.dlq_records AS records
LEFT JOIN markers ON markers.cluster = records.cluster AND markers._bronze_id = records._bronze_id
WHERE original_topic = :topic AND original_partition = :partition AND original_offset = :offset
ORDER BY routed_at, dlq_topic, dlq_partition, dlq_offset, records.cluster
