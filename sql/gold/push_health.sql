-- Purpose: how pushes of topology descriptions fare, group by group, and how brokers ask for them.
-- Grain: cluster, group_id.
-- Parameters: {topology_pushes}, {topology_solicitations}, rows of these tables, complete for each group in them.
WITH pushes AS (
  SELECT
    cluster,
    group_id,
    count(*) AS push_count,
    count_if(error_code = 0) AS accepted_count,
    count_if(error_code <> 0) AS refused_count,
    count_if(error_code = 135) AS plugin_failure_count,
    array_sort(collect_set(IF(error_code <> 0, coalesce(error_name, CAST(error_code AS STRING)), NULL))) AS error_names,
    min(pushed_at) AS first_pushed_at,
    max(pushed_at) AS last_pushed_at,
    median(total_ms) AS median_ms,
    percentile(total_ms, 0.95) AS p95_ms,
    max(total_ms) AS max_ms
  FROM {topology_pushes}
  WHERE group_id <> ''
  GROUP BY cluster, group_id
),
solicitations AS (
  SELECT
    cluster,
    group_id,
    count(*) AS solicitation_count,
    count_if(followed) AS followed_count,
    count_if(NOT followed) AS unanswered_count,
    median(seconds_to_push) AS median_seconds_to_push,
    max(attempt) AS most_attempts,
    count_if(too_early) AS too_early_count,
    min(seconds_since_previous) AS shortest_gap_seconds
  FROM {topology_solicitations}
  GROUP BY cluster, group_id
)
SELECT
  coalesce(pushes.cluster, solicitations.cluster) AS cluster,
  coalesce(pushes.group_id, solicitations.group_id) AS group_id,
  coalesce(push_count, 0) AS push_count,
  coalesce(accepted_count, 0) AS accepted_count,
  coalesce(refused_count, 0) AS refused_count,
  coalesce(plugin_failure_count, 0) AS plugin_failure_count,
  coalesce(error_names, array()) AS error_names,
  first_pushed_at,
  last_pushed_at,
  median_ms,
  p95_ms,
  max_ms,
  coalesce(solicitation_count, 0) AS solicitation_count,
  coalesce(followed_count, 0) AS followed_count,
  coalesce(unanswered_count, 0) AS unanswered_count,
  median_seconds_to_push,
  coalesce(most_attempts, 0) AS most_attempts,
  coalesce(too_early_count, 0) AS too_early_count,
  shortest_gap_seconds
FROM pushes
FULL JOIN solicitations ON solicitations.cluster = pushes.cluster AND solicitations.group_id = pushes.group_id
