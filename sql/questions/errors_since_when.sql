-- Purpose: since when does each error message occur, and does it still occur?
-- Usage: afterlog ask errors_since_when [--param now=2026-11-21T02:00:00Z]
-- Parameters: :now timestamp, up to which records count; default the present.
-- Feeds: dlq.
-- Engine: duckdb
SELECT
  cluster,
  header_profile,
  exception_class,
  error_message,
  min(routed_at) AS first_routed_at,
  max(routed_at) AS last_routed_at,
  count(*) AS record_count,
  count_if(routed_at > :now - INTERVAL 1 HOUR) AS records_in_the_last_hour,
  count(DISTINCT consumer_group) AS group_count,
  array_sort(collect_set(coalesce(consumer_group, owner))) AS owners,
  array_sort(collect_set(dlq_topic)) AS dlq_topics
FROM silver.dlq_records AS records
LEFT ANTI JOIN silver.dlq_control_markers AS markers
  ON markers.is_control_marker AND markers.cluster = records.cluster AND markers._bronze_id = records._bronze_id
WHERE routed_at <= :now
GROUP BY cluster, header_profile, exception_class, error_message
ORDER BY first_routed_at DESC, header_profile, exception_class, error_message, cluster
