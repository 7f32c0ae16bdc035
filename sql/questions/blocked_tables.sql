-- Purpose: which tables are blocked, as what breaks their contract is held: since when, why, and what did their last run do?
--   quality.freshness also tells which tables merely lag.
-- Usage: afterlog ask blocked_tables
-- Parameters: none.
-- Feeds: none.
-- Engine: duckdb
WITH last_runs AS (
  SELECT
    cluster,
    table,
    max_by(status, started_at) AS last_status,
    max(started_at) AS last_started_at,
    max(finished_at) FILTER (WHERE status = 'passed') AS last_passed_at
  FROM quality.stage_runs
  GROUP BY cluster, table
)
SELECT
  freshness.cluster,
  freshness.table,
  freshness.blocked_since,
  freshness.held_scopes,
  freshness.unread_files,
  freshness.unread_offsets,
  freshness.unread_versions,
  last_runs.last_status,
  last_runs.last_started_at,
  last_runs.last_passed_at,
  freshness.message
FROM quality.freshness
LEFT JOIN last_runs ON freshness.cluster = last_runs.cluster AND freshness.table = last_runs.table
WHERE freshness.blocked_since IS NOT NULL
ORDER BY freshness.blocked_since, freshness.table
