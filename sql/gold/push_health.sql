-- Purpose: results of the pushes of topology descriptions by group, and how brokers ask for pushes.
-- Grain: cluster, group_id.
-- Parameters: {topology_pushes}, {topology_solicitations}, {topology_statuses}, {group_deletions}, {group_heartbeats},
-- rows of these tables, complete for each group in them; :silent_after_seconds, a setting.
-- Engine: duckdb
-- Refresh: group_id
-- Error 135 does not say whether a plugin's failure is permanent or transient; only the broker knows. After a transient
-- failure it asks again, at the latest when its back-off of 1 h and 20 % jitter is over (KIP-1331). So a failure is
-- transient if the broker asks again at the epoch of the failed push, and permanent if it does not ask in 72 minutes of
-- heartbeats logged without a gap. A row of questions (silver.topology_solicitations) ends when a push is accepted, the
-- group ends or the epoch changes.
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
    min(IF(error_code <> 0, pushed_at, NULL)) AS first_refused_at,
    max(IF(error_code <> 0, pushed_at, NULL)) AS last_refused_at,
    median(total_ms) AS median_ms,
    percentile(total_ms, 0.95) AS p95_ms,
    max(total_ms) AS max_ms,
    count_if(throttle_time_ms > 0) AS throttled_count,
    max(throttle_time_ms) AS max_throttle_time_ms
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
    min(seconds_since_previous) AS shortest_gap_seconds,
    count_if(although_stored) AS although_stored_count,
    count_if(although_stale) AS although_stale_count
  FROM {topology_solicitations}
  GROUP BY cluster, group_id
),
failing AS (
  SELECT DISTINCT cluster, group_id FROM {topology_pushes} WHERE error_code = 135 AND group_id <> ''
),
events AS (
  SELECT
    cluster, group_id, connection, correlation_id, pushed_at AS at, IF(error_code = 135, 'failed', 'pushed') AS event,
    IF(error_code IN (0, 135), topology_epoch, NULL) AS epoch, error_code = 0 AS is_end
  FROM {topology_pushes}
  UNION ALL
  SELECT cluster, group_id, connection, correlation_id, solicited_at, 'asked', topology_epoch, false
  FROM {topology_solicitations}
  UNION ALL
  SELECT
    cluster, group_id, connection, correlation_id, heartbeat_at, 'beat',
    IF(error_code = 0 AND NOT coalesce(array_contains(statuses, 'STALE_TOPOLOGY'), false), topology_epoch, NULL), false
  FROM {group_heartbeats}
  WHERE topology_epoch IS NOT NULL AND NOT description_required AND statuses IS NOT NULL
  UNION ALL
  SELECT
    cluster, group_id, connection, correlation_id, described_at, 'described', IF(error_code = 0, topology_epoch, NULL),
    error_code = 69
  FROM {topology_statuses}
  UNION ALL
  SELECT cluster, group_id, connection, correlation_id, deleted_at, 'deleted', NULL, error_code IN (0, 69)
  FROM {group_deletions}
),
aged AS (
  SELECT
    events.*,
    last_value(epoch) IGNORE NULLS OVER (
      PARTITION BY cluster, group_id ORDER BY at, event, connection, correlation_id
      ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
    ) AS epoch_before
  FROM events
  LEFT SEMI JOIN failing ON failing.cluster = events.cluster AND failing.group_id = events.group_id
),
placed AS (
  SELECT
    *,
    count_if(is_end OR epoch <> epoch_before) OVER (
      PARTITION BY cluster, group_id ORDER BY at, event, connection, correlation_id
      ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW
    ) AS row_of_questions
  FROM aged
),
rows_of_questions AS (
  SELECT
    cluster,
    group_id,
    row_of_questions,
    max(IF(event = 'asked', struct(at, event, connection, correlation_id), NULL)) AS last_asked,
    lead(min(at)) OVER (PARTITION BY cluster, group_id ORDER BY row_of_questions) AS ended_at
  FROM placed
  GROUP BY cluster, group_id, row_of_questions
),
failures AS (
  SELECT
    failed.cluster, failed.group_id, failed.connection, failed.correlation_id, failed.at, ended_at,
    coalesce(last_asked > struct(failed.at, failed.event, failed.connection, failed.correlation_id), false)
      AS is_asked_again
  FROM placed AS failed
  JOIN rows_of_questions AS questions
    ON questions.cluster = failed.cluster
      AND questions.group_id = failed.group_id
      AND questions.row_of_questions = failed.row_of_questions
  WHERE failed.event = 'failed'
),
-- Times of the heartbeats of members that the broker could have asked.
beats AS (
  SELECT
    beat.cluster, beat.group_id, coalesce(steady_since, heartbeat_at) AS from_at, heartbeat_at AS to_at,
    connection, correlation_id
  FROM {group_heartbeats} AS beat
  LEFT SEMI JOIN failing ON failing.cluster = beat.cluster AND failing.group_id = beat.group_id
  WHERE error_code = 0 AND member_epoch >= 0 AND api_version >= 1
    AND NOT coalesce(array_contains(statuses, 'STALE_TOPOLOGY'), false)
),
reached AS (
  SELECT
    *,
    max(to_at) OVER (
      PARTITION BY cluster, group_id ORDER BY from_at, to_at, connection, correlation_id
      ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
    ) AS reached_at
  FROM beats
),
numbered AS (
  SELECT
    *,
    count_if(unix_micros(from_at) - unix_micros(reached_at) > 1e6 * :silent_after_seconds) OVER (
      PARTITION BY cluster, group_id ORDER BY from_at, to_at, connection, correlation_id
      ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW
    ) AS stretch
  FROM reached
),
stretches AS (
  SELECT cluster, group_id, min(from_at) AS from_at, max(to_at) AS to_at
  FROM numbered
  GROUP BY cluster, group_id, stretch
),
classified AS (
  SELECT
    failures.cluster,
    failures.group_id,
    at,
    CASE
      WHEN is_asked_again THEN 'transient'
      WHEN max(
        unix_micros(least(to_at, coalesce(ended_at, to_at))) - unix_micros(greatest(from_at, at))
      ) >= 72 * 60 * 1e6 THEN 'permanent'
      ELSE 'unknown'
    END AS failure
  FROM failures
  LEFT JOIN stretches ON stretches.cluster = failures.cluster AND stretches.group_id = failures.group_id
  GROUP BY failures.cluster, failures.group_id, connection, correlation_id, at, ended_at, is_asked_again
),
plugin_failures AS (
  SELECT
    cluster,
    group_id,
    count_if(failure = 'permanent') AS permanent_failure_count,
    count_if(failure = 'transient') AS transient_failure_count,
    count_if(failure = 'unknown') AS unknown_failure_count,
    max(struct(at, failure)).failure AS last_failure
  FROM classified
  GROUP BY cluster, group_id
)
SELECT
  coalesce(pushes.cluster, solicitations.cluster) AS cluster,
  coalesce(pushes.group_id, solicitations.group_id) AS group_id,
  coalesce(push_count, 0) AS push_count,
  coalesce(accepted_count, 0) AS accepted_count,
  coalesce(refused_count, 0) AS refused_count,
  coalesce(plugin_failure_count, 0) AS plugin_failure_count,
  coalesce(permanent_failure_count, 0) AS permanent_failure_count,
  coalesce(transient_failure_count, 0) AS transient_failure_count,
  coalesce(unknown_failure_count, 0) AS unknown_failure_count,
  last_failure,
  coalesce(error_names, array()) AS error_names,
  first_pushed_at,
  last_pushed_at,
  median_ms,
  p95_ms,
  max_ms,
  coalesce(throttled_count, 0) AS throttled_count,
  max_throttle_time_ms,
  coalesce(solicitation_count, 0) AS solicitation_count,
  coalesce(followed_count, 0) AS followed_count,
  coalesce(unanswered_count, 0) AS unanswered_count,
  median_seconds_to_push,
  coalesce(most_attempts, 0) AS most_attempts,
  coalesce(too_early_count, 0) AS too_early_count,
  shortest_gap_seconds,
  coalesce(although_stored_count, 0) AS although_stored_count,
  coalesce(although_stale_count, 0) AS although_stale_count,
  first_refused_at,
  last_refused_at
FROM pushes
FULL JOIN solicitations ON solicitations.cluster = pushes.cluster AND solicitations.group_id = pushes.group_id
LEFT JOIN plugin_failures
  ON plugin_failures.cluster = coalesce(pushes.cluster, solicitations.cluster)
    AND plugin_failures.group_id = coalesce(pushes.group_id, solicitations.group_id)
