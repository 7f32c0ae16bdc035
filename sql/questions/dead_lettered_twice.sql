-- Purpose: which source records did the same group, or owner without one, dead-letter more than once (poison pills, replays that failed again,
--   a broker that wrote twice)? dlq_coordinates has the first 20, as partition:offset.
-- Usage: afterlog ask dead_lettered_twice
-- Parameters: none.
-- Feeds: dlq.
-- Engine: duckdb
SELECT
  cluster,
  consumer_group,
  coalesce(consumer_group, owner) AS owner,
  original_topic,
  original_partition,
  original_offset,
  count(*) AS times,
  min(routed_at) AS first_routed_at,
  max(routed_at) AS last_routed_at,
  array_sort(collect_set(disposition)) AS dispositions,
  dlq_topic,
  slice(array_sort(collect_list(concat(dlq_partition, ':', dlq_offset))), 1, 20) AS dlq_coordinates
FROM silver.dlq_records AS records
LEFT ANTI JOIN silver.dlq_control_markers AS markers
  ON markers.is_control_marker AND markers.cluster = records.cluster AND markers._bronze_id = records._bronze_id
WHERE original_topic IS NOT NULL AND original_partition IS NOT NULL AND original_offset IS NOT NULL
GROUP BY cluster, consumer_group, coalesce(consumer_group, owner), original_topic, original_partition, original_offset, dlq_topic
HAVING count(*) > 1
ORDER BY
  times DESC,
  last_routed_at DESC,
  cluster,
  owner,
  consumer_group,
  original_topic,
  original_partition,
  original_offset,
  dlq_topic
