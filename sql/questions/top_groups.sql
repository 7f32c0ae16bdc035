-- Purpose: which groups, or owners without a group, dead-lettered most in the last day, and what is their share of all records?
-- Usage: afterlog ask top_groups [--param now=2026-11-21T02:00:00Z]
-- Parameters: :now timestamp, the end of the day; default the present.
-- Feeds: dlq.
-- Engine: duckdb
SELECT
  cluster,
  consumer_group,
  coalesce(consumer_group, owner) AS owner,
  dlq_topic,
  count(*) AS record_count,
  round(count(*) / sum(count(*)) OVER (), 3) AS share,
  count(DISTINCT IF(
    original_topic IS NULL OR original_partition IS NULL OR original_offset IS NULL,
    _bronze_id,
    concat(original_topic, ':', original_partition, ':', original_offset)
  )) AS source_record_count,
  count_if(routed_at > :now - INTERVAL 1 HOUR) AS records_in_the_last_hour,
  max(routed_at) AS last_routed_at
FROM silver.dlq_records AS records
LEFT ANTI JOIN silver.dlq_control_markers AS markers
  ON markers.is_control_marker AND markers.cluster = records.cluster AND markers._bronze_id = records._bronze_id
WHERE routed_at > :now - INTERVAL 24 HOURS AND routed_at <= :now
GROUP BY cluster, consumer_group, coalesce(consumer_group, owner), dlq_topic
ORDER BY record_count DESC, dlq_topic, owner, consumer_group, cluster
LIMIT 20
