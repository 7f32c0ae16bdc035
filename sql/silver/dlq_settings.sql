-- Purpose: how the settings that dead letters depend on changed: of topics, groups, brokers and the cluster.
-- Grain: cluster, kind, name, setting, since.
-- Parameters: {cluster_settings}, rows of silver.cluster_settings, complete for each name that is in them.
-- Engine: duckdb
-- Refresh: name
-- A statement that leaves a setting out says nothing about it. A value that becomes unknown is a change, too.
-- The name state belongs to the statement itself: a setting of that name does not count.
WITH told AS (
  SELECT cluster, kind, name, observed_at, told.name AS setting, told.value, told.source
  FROM {cluster_settings}
    LATERAL VIEW explode(concat(
      filter(settings, one -> one.name <> 'state'),
      array(named_struct('name', 'state', 'value', state, 'source', CAST(NULL AS STRING)))
    )) AS told
),
compared AS (
  SELECT
    *,
    lag(observed_at) OVER in_order AS observed_before,
    lag(value) OVER in_order AS value_before,
    lag(source) OVER in_order AS source_before
  FROM told
  WINDOW in_order AS (PARTITION BY cluster, kind, name, setting ORDER BY observed_at)
),
changes AS (
  SELECT *
  FROM compared
  WHERE observed_before IS NULL OR NOT (value <=> value_before AND source <=> source_before)
)
SELECT
  cluster,
  kind,
  name,
  setting,
  observed_at AS since,
  lead(observed_at) OVER (PARTITION BY cluster, kind, name, setting ORDER BY observed_at) AS until,
  value,
  source,
  value_before AS previous_value
FROM changes
