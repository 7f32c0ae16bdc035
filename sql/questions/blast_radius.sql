-- Purpose: which source topics were hit in the last day, in how many partitions, and for which consumer groups?
-- Usage: afterlog ask blast_radius [--param now=2026-11-21T02:00:00Z]
-- Parameters: :now timestamp, the end of the day; default the present.
-- Feeds: dlq.
-- Engine: duckdb
SELECT
  cluster,
  original_topic,
  count(*) AS record_count,
  count(DISTINCT IF(
    original_topic IS NULL OR original_partition IS NULL OR original_offset IS NULL,
    _bronze_id,
    concat(original_partition, ':', original_offset)
  )) AS source_record_count,
  count(DISTINCT original_partition) AS partition_count,
  array_sort(collect_set(consumer_group)) AS consumer_groups,
  array_sort(collect_set(dlq_topic)) AS dlq_topics,
  min(routed_at) AS first_routed_at,
  max(routed_at) AS last_routed_at
FROM silver.dlq_records AS records
LEFT ANTI JOIN silver.dlq_control_markers AS markers
  ON markers.is_control_marker AND markers.cluster = records.cluster AND markers._bronze_id = records._bronze_id
WHERE routed_at > :now - INTERVAL 24 HOURS AND routed_at <= :now
GROUP BY cluster, original_topic
ORDER BY record_count DESC, original_topic, cluster
