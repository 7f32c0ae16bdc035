-- Purpose: the number of dead-lettered records by hour, topics, consumer group and disposition.
-- Grain: cluster, hour of routed_at (UTC), dlq_topic, original_topic, consumer_group, disposition; null counts as a
-- value.
-- Parameters: {dlq_records}, {dlq_control_markers}, rows of these silver tables, complete for each hour that is in them.
-- Refresh: hour, a span of 1 hour of routed_at
--   silver.dlq_records: date_trunc('HOUR', routed_at)
--   silver.dlq_control_markers: date_trunc('HOUR', routed_at)
-- A broker can dead-letter transaction markers, which are not an application's records. A marker that the source's
-- landed log proves is not counted. If the log does not tell, a record that looks like a marker counts.
SELECT
  cluster,
  date_trunc('HOUR', routed_at) AS hour,
  dlq_topic,
  original_topic,
  consumer_group,
  disposition,
  count(*) AS record_count,
  count(DISTINCT struct(original_partition, original_offset)) AS source_record_count,
  count_if(NOT payload_copied) AS without_payload_count,
  max(delivery_count) AS most_deliveries,
  min(routed_at) AS first_routed_at,
  max(routed_at) AS last_routed_at
FROM {dlq_records} AS records
LEFT ANTI JOIN {dlq_control_markers} AS markers
  ON markers.is_control_marker AND markers.cluster = records.cluster AND markers._bronze_id = records._bronze_id
GROUP BY cluster, date_trunc('HOUR', routed_at), dlq_topic, original_topic, consumer_group, disposition
