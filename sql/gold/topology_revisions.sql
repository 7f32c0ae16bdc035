-- Purpose: the history of each group's topology description, which can change under the same epoch.
-- Grain: cluster, group_id, revision.
-- Parameters: {topology_pushes}, {topology_statuses}, rows of the silver tables, complete for each group in them.
-- Engine: duckdb
-- Refresh: group_id
--   silver.topology_pushes: group_id
--   silver.topology_statuses: each of group_id where topology_hash IS NOT NULL
-- A describe without a description shows no topology.
-- A description is seen if a push of it is accepted or if a describe shows it. Describes count because the request log
-- is mostly on only for a while, so that pushes are missed. A revision begins when the description differs from the one
-- seen before, even if the group was deleted in between.
WITH seen AS (
  SELECT
    cluster, group_id, pushed_at AS at, connection, correlation_id, 'pushed' AS source, member_id, topology_epoch,
    topology_hash, node_count, defects, description
  FROM {topology_pushes}
  WHERE error_code = 0
  UNION ALL
  SELECT
    cluster, group_id, described_at, connection, correlation_id, 'observed', NULL, topology_epoch,
    topology_hash, node_count, defects, description
  FROM {topology_statuses}
  WHERE error_code = 0 AND status = 3 AND topology_hash IS NOT NULL
),
compared AS (
  SELECT
    *,
    struct(at, connection, correlation_id, source) AS place,
    lag(topology_hash) OVER (
      PARTITION BY cluster, group_id ORDER BY at, connection, correlation_id, source
    ) AS before
  FROM seen
),
numbered AS (
  SELECT
    *,
    CAST(count_if(before IS NULL OR before <> topology_hash) OVER (
      PARTITION BY cluster, group_id ORDER BY at, connection, correlation_id, source
      ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW
    ) AS INT) AS revision
  FROM compared
),
revisions AS (
  SELECT
    cluster,
    group_id,
    revision,
    min(topology_hash) AS topology_hash,
    min_by(struct(topology_epoch, node_count, defects, description), place) AS first,
    max(source) AS source, -- pushed, if any push of it was accepted
    min_by(member_id, place) FILTER (WHERE source = 'pushed') AS member_id,
    array_sort(collect_set(topology_epoch)) AS topology_epochs,
    min(at) AS accepted_at,
    max(at) AS last_accepted_at,
    count_if(source = 'pushed') AS push_count,
    count_if(source = 'observed') AS observed_count
  FROM numbered
  GROUP BY cluster, group_id, revision
)
SELECT
  cluster,
  group_id,
  topology_hash,
  revision,
  source,
  first.topology_epoch,
  topology_epochs,
  accepted_at,
  last_accepted_at,
  lead(accepted_at) OVER (PARTITION BY cluster, group_id ORDER BY revision) AS replaced_at,
  member_id,
  push_count,
  observed_count,
  first.node_count,
  first.defects,
  first.description
FROM revisions
