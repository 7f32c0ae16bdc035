-- Purpose: when members were asked for their topology description, whether a push followed, whether it was too early.
-- Grain: cluster, group_id, connection, correlation_id, solicited_at.
-- Parameters: {group_heartbeats}, {topology_pushes}, {group_deletions}, rows of the silver tables, complete for each
-- group that is in them.
-- Back-off (KIP-1331, broker side): armed each time that a member is asked, 30 s doubling to 1 h, with 20 % jitter; an
-- accepted push or the group's deletion clears it.
WITH events AS (
  SELECT
    cluster, group_id, member_id, connection, correlation_id, heartbeat_at AS at, 'asked' AS event,
    CAST(NULL AS INT) AS error_code
  FROM {group_heartbeats}
  WHERE description_required
  UNION ALL
  SELECT cluster, group_id, member_id, connection, correlation_id, pushed_at, 'pushed', error_code FROM {topology_pushes}
  UNION ALL
  SELECT cluster, group_id, CAST(NULL AS STRING), connection, correlation_id, deleted_at, 'deleted', error_code
  FROM {group_deletions}
  WHERE error_code = 0
),
placed AS (
  SELECT
    *,
    count_if(event = 'deleted' OR (event = 'pushed' AND error_code = 0)) OVER (
      PARTITION BY cluster, group_id ORDER BY at, event, connection, correlation_id
      ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW
    ) AS row_of_questions,
    first_value(IF(event = 'pushed', struct(at, error_code), NULL)) IGNORE NULLS OVER (
      PARTITION BY cluster, group_id, member_id ORDER BY at, event, connection, correlation_id
      ROWS BETWEEN 1 FOLLOWING AND UNBOUNDED FOLLOWING
    ) AS next_push,
    first_value(IF(event = 'asked', at, NULL)) IGNORE NULLS OVER (
      PARTITION BY cluster, group_id, member_id ORDER BY at, event, connection, correlation_id
      ROWS BETWEEN 1 FOLLOWING AND UNBOUNDED FOLLOWING
    ) AS asked_again_at
  FROM events
),
asked AS (
  SELECT
    *,
    row_number() OVER row_of_attempts AS attempt,
    (unix_micros(at) - unix_micros(lag(at) OVER row_of_attempts)) / 1e6 AS seconds_since_previous,
    IF(asked_again_at IS NULL OR next_push.at <= asked_again_at, next_push, NULL) AS answer
  FROM placed
  WHERE event = 'asked'
  WINDOW row_of_attempts AS (
    PARTITION BY cluster, group_id, row_of_questions ORDER BY at, connection, correlation_id
  )
)
SELECT
  cluster,
  group_id,
  member_id,
  connection,
  correlation_id,
  at AS solicited_at,
  CAST(attempt AS INT) AS attempt,
  seconds_since_previous,
  IF(attempt > 1, 0.8 * least(3600, 30 * pow(2, attempt - 2)), NULL) AS least_back_off_seconds,
  coalesce(seconds_since_previous < 0.8 * least(3600, 30 * pow(2, attempt - 2)), false) AS too_early,
  answer.at AS pushed_at,
  answer.error_code AS push_error_code,
  answer IS NOT NULL AS followed,
  (unix_micros(answer.at) - unix_micros(at)) / 1e6 AS seconds_to_push
FROM asked
