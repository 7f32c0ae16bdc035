-- Purpose: the number of dead-lettered records by slice of their source and hour, for gold.dlq_summary.
-- Grain: cluster, source_slice, hour of routed_at (UTC), dlq_topic, original_topic, consumer_group, owner, disposition;
-- null counts as a value.
-- Parameters: {dlq_records}, {dlq_control_markers}, rows of these silver tables, complete for each slice that is in
-- them.
-- Engine: duckdb
-- Kept: hour
-- Refresh: source_slice
--   silver.dlq_records: concat(lpad(original_offset div 1000, 16, '0'), ':', original_partition, ':', original_topic)
--   silver.dlq_control_markers: source_slice
-- A source record is in one slice, so that the numbers of distinct source records of several slices can be added. A
-- storm of dead letters in one hour costs no more with each run. Records whose headers name no source share a slice of
-- null, and each is a source record of its own.
-- A broker can dead-letter transaction markers, which are not an application's records. A marker that the source's
-- landed log proves is not counted. If the log does not tell, a record that looks like a marker counts.
-- A record is late if a run accepted it more than an hour after the end of its hour.
SELECT
  records.cluster,
  concat(lpad(original_offset div 1000, 16, '0'), ':', original_partition, ':', original_topic) AS source_slice,
  date_trunc('HOUR', routed_at) AS hour,
  dlq_topic,
  original_topic,
  consumer_group,
  disposition,
  count(*) AS record_count,
  IF(
    concat(lpad(original_offset div 1000, 16, '0'), ':', original_partition, ':', original_topic) IS NULL,
    count(*),
    count(DISTINCT struct(original_partition, original_offset))
  ) AS source_record_count,
  count_if(NOT payload_copied) AS without_payload_count,
  max(delivery_count) AS most_deliveries,
  min(routed_at) AS first_routed_at,
  max(routed_at) AS last_routed_at,
  count_if(_ingested_at >= date_trunc('HOUR', routed_at) + INTERVAL 2 HOURS) AS late_count,
  min(_ingested_at) AS first_accepted_at,
  max(_ingested_at) AS last_accepted_at,
  coalesce(consumer_group, owner) AS owner
FROM {dlq_records} AS records
LEFT ANTI JOIN {dlq_control_markers} AS markers
  ON markers.is_control_marker AND markers.cluster = records.cluster AND markers._bronze_id = records._bronze_id
GROUP BY
  records.cluster,
  concat(lpad(original_offset div 1000, 16, '0'), ':', original_partition, ':', original_topic),
  date_trunc('HOUR', routed_at),
  dlq_topic,
  original_topic,
  consumer_group,
  coalesce(consumer_group, owner),
  disposition
