-- Purpose: which rules fail, how often, and how near is each to breaking the gate? One row per table and rule that ever
--   failed.
-- Usage: afterlog ask gate_history
-- Parameters: none.
-- Feeds: none.
-- Engine: duckdb
SELECT
  cluster,
  table,
  expectation,
  count_if(scope IS NULL) AS run_count,
  count(DISTINCT IF(success, NULL, run_id)) AS broken_count,
  sum(failing) FILTER (WHERE scope IS NULL) AS failing_rows,
  round(max(observed), 4) AS worst_share,
  max_by(tolerance, examined_at) AS tolerance,
  max(examined_at) FILTER (WHERE failing > 0) AS last_failing_at,
  max(examined_at) FILTER (WHERE NOT success) AS last_broken_at
FROM quality.expectation_results
GROUP BY cluster, table, expectation
HAVING sum(failing) FILTER (WHERE scope IS NULL) > 0
ORDER BY broken_count DESC, failing_rows DESC, expectation, cluster, table
