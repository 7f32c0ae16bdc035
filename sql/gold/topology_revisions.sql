-- Purpose: the history of each group's accepted description; brokers let one replace another under the same epoch.
-- Grain: cluster, group_id, revision.
-- Parameters: {topology_pushes}, rows of silver.topology_pushes, complete for each group that is in them.
-- A revision begins where the accepted topology differs from the one accepted before, whatever was deleted between.
WITH accepted AS (
  SELECT
    *,
    struct(pushed_at, connection, correlation_id) AS place,
    lag(topology_hash) OVER (PARTITION BY cluster, group_id ORDER BY pushed_at, connection, correlation_id) AS before
  FROM {topology_pushes}
  WHERE error_code = 0
),
numbered AS (
  SELECT
    *,
    CAST(count_if(before IS NULL OR before <> topology_hash) OVER (
      PARTITION BY cluster, group_id ORDER BY pushed_at, connection, correlation_id
      ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW
    ) AS INT) AS revision
  FROM accepted
),
revisions AS (
  SELECT
    cluster,
    group_id,
    revision,
    min(topology_hash) AS topology_hash,
    min_by(struct(topology_epoch, member_id, node_count, defects, description), place) AS first,
    array_sort(collect_set(topology_epoch)) AS topology_epochs,
    min(pushed_at) AS accepted_at,
    max(pushed_at) AS last_accepted_at,
    count(*) AS push_count
  FROM numbered
  GROUP BY cluster, group_id, revision
)
SELECT
  cluster,
  group_id,
  topology_hash,
  revision,
  first.topology_epoch,
  topology_epochs,
  accepted_at,
  last_accepted_at,
  lead(accepted_at) OVER (PARTITION BY cluster, group_id ORDER BY revision) AS replaced_at,
  first.member_id,
  push_count,
  first.node_count,
  first.defects,
  first.description
FROM revisions
