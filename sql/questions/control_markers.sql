-- Purpose: did a broker dead-letter transaction markers (a trap of read_uncommitted share groups)? They are no records of
--   anybody: gold does not count them and nothing is lost when they are dropped.
-- Usage: afterlog sql --file sql/questions/control_markers.sql
-- Parameters: none.
SELECT
  cluster,
  dlq_topic,
  consumer_group,
  original_topic,
  count(*) AS marker_count,
  count_if(substring(key, 3, 2) = X'0001') AS commit_count,
  min(routed_at) AS first_routed_at,
  max(routed_at) AS last_routed_at
FROM silver.dlq_records
WHERE is_control_marker
GROUP BY cluster, dlq_topic, consumer_group, original_topic
ORDER BY marker_count DESC, dlq_topic, consumer_group
