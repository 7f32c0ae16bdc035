-- Purpose: how much was dead-lettered, where, by whom and why, hour by hour.
-- Grain: cluster, hour of routed_at (UTC), dlq_topic, original_topic, consumer_group, disposition; null is a value of its own.
-- Parameters: {dlq_records}, rows of silver.dlq_records, complete for each hour that is in them.
-- Transaction markers that a broker dead-lettered are no records of anybody: they are not counted.
SELECT
  cluster,
  date_trunc('HOUR', routed_at) AS hour,
  dlq_topic,
  original_topic,
  consumer_group,
  disposition,
  count(*) AS record_count,
  count(DISTINCT original_partition, original_offset) AS source_record_count,
  count_if(NOT payload_copied) AS without_payload_count,
  max(delivery_count) AS most_deliveries,
  min(routed_at) AS first_routed_at,
  max(routed_at) AS last_routed_at
FROM {dlq_records}
WHERE NOT is_control_marker
GROUP BY cluster, date_trunc('HOUR', routed_at), dlq_topic, original_topic, consumer_group, disposition
