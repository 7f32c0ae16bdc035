-- Purpose: who writes headers under reserved names? Afterlog took the values of the profile shown, the last of each
--   name. Check such records before a replay relies on them.
-- Usage: afterlog ask header_collisions
-- Parameters: none.
-- Feeds: dlq.
-- Engine: duckdb
SELECT
  cluster,
  dlq_topic,
  header_profile,
  array_sort(array_distinct(flatten(collect_list(transform(user_headers, header -> header.key))))) AS user_header_names,
  count(*) AS record_count,
  min(routed_at) AS first_routed_at,
  max(routed_at) AS last_routed_at
FROM silver.dlq_records
WHERE reserved_header_collision
GROUP BY cluster, dlq_topic, header_profile
ORDER BY record_count DESC, dlq_topic, cluster, header_profile
