-- Purpose: which rules fail, how often, and how near is each to breaking the gate? One row per table and rule that ever
--   failed. A gate whose failing rows a person accepted did not break. failing_rows are those that were decided: rows of
--   a scope that is held count once they are accepted or pass.
-- Usage: afterlog ask gate_history
-- Parameters: none.
-- Feeds: none.
-- Engine: duckdb
WITH judged AS (
  SELECT
    results.cluster,
    results.table,
    results.expectation,
    results.scope,
    results.run_id,
    results.failing,
    results.observed,
    results.tolerance,
    results.examined_at,
    NOT results.success AND coalesce(runs.status, 'broken') <> 'passed' AS is_broken
  FROM quality.expectation_results AS results
  LEFT JOIN quality.stage_runs AS runs
    ON runs.run_id = results.run_id
    AND runs.table = results.table
    AND runs.finished_at = results.examined_at
),
by_gate AS (
  SELECT
    cluster,
    table,
    expectation,
    run_id,
    examined_at,
    count_if(scope IS NULL) AS run_count,
    count_if(is_broken) > 0 AS is_broken,
    sum(IF(scope IS NULL, failing, 0)) AS failing,
    sum(IF(scope IS NOT NULL AND is_broken, failing, 0)) AS held,
    max(observed) AS worst_share,
    max(tolerance) AS tolerance
  FROM judged
  GROUP BY cluster, table, expectation, run_id, examined_at
)
SELECT
  cluster,
  table,
  expectation,
  sum(run_count) AS run_count,
  count(DISTINCT IF(is_broken, run_id, NULL)) AS broken_count,
  sum(greatest(failing - held, 0)) AS failing_rows,
  round(max(worst_share), 4) AS worst_share,
  max_by(tolerance, examined_at) AS tolerance,
  max(examined_at) FILTER (WHERE failing > 0) AS last_failing_at,
  max(examined_at) FILTER (WHERE is_broken) AS last_broken_at
FROM by_gate
GROUP BY cluster, table, expectation
HAVING sum(failing) > 0
ORDER BY broken_count DESC, failing_rows DESC, expectation, cluster, table
