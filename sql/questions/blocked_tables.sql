-- Purpose: which tables are blocked, as what breaks their contract is held: since when, why, and what did their last run do?
--   quality.freshness also tells which tables merely lag.
-- Usage: afterlog ask blocked_tables
-- Parameters: none.
-- Feeds: none.
-- Engine: duckdb
WITH last_runs AS (
  SELECT
    freshness.cluster,
    freshness.table,
    max_by(runs.status, runs.started_at) AS last_status,
    max(runs.started_at) AS last_started_at,
    max(runs.finished_at) FILTER (WHERE runs.status = 'passed') AS last_passed_at
  FROM quality.freshness
  INNER JOIN quality.stage_runs AS runs
    ON runs.table = freshness.table
    AND coalesce(runs.cluster, freshness.cluster) = freshness.cluster -- a run of several clusters names none
  GROUP BY freshness.cluster, freshness.table
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
