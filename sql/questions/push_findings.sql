-- Purpose: which pushes of topology descriptions fail in the brokers' plugin, and do brokers ask for pushes by the
--   rules?
-- Usage: afterlog ask push_findings
-- Parameters: none.
-- Feeds: streams-requests.
-- Engine: duckdb
SELECT
  cluster,
  group_id,
  permanent_failure_count,
  transient_failure_count,
  unknown_failure_count,
  last_failure,
  too_early_count,
  although_stored_count,
  although_stale_count,
  unanswered_count,
  throttled_count,
  last_pushed_at
FROM gold.push_health
WHERE plugin_failure_count + too_early_count + although_stored_count + although_stale_count + throttled_count > 0
ORDER BY permanent_failure_count DESC, although_stored_count DESC, cluster, group_id
