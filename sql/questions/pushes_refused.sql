-- Purpose: which pushes of topology descriptions were refused in the last day, and with what error?
-- Usage: afterlog ask pushes_refused [--param now=2026-11-21T03:00:00Z]
-- Parameters: :now timestamp, the end of the day; default the present.
-- Feeds: streams-requests.
-- Engine: duckdb
SELECT
  cluster,
  group_id,
  error_code,
  error_name,
  max_by(error_message, pushed_at) AS last_message,
  count(*) AS push_count,
  count(DISTINCT member_id) AS member_count,
  min(pushed_at) AS first_at,
  max(pushed_at) AS last_at
FROM silver.topology_pushes
WHERE error_code <> 0 AND pushed_at > :now - INTERVAL 24 HOURS AND pushed_at <= :now
GROUP BY cluster, group_id, error_code, error_name
ORDER BY push_count DESC, cluster, group_id, error_code, error_name
