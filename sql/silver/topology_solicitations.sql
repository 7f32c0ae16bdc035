-- Purpose: when brokers asked members for their description, whether a push followed, and whether the broker was
-- allowed to ask.
-- Grain: cluster, group_id, connection, correlation_id, solicited_at.
-- Parameters: {group_heartbeats} (not steady ones), {topology_pushes}, {topology_statuses}, {group_deletions}, rows
-- of the silver tables, complete for each group that is in them.
-- Engine: duckdb
-- Refresh: group_id
--   silver.group_heartbeats: each of group_id where steady_since IS NULL
--   silver.topology_pushes: group_id
--   silver.topology_statuses: group_id
--   silver.group_deletions: group_id
-- A broker asks a member that is not STALE_TOPOLOGY, if no description of the group's epoch is stored and no back-off
-- runs (KIP-1331, broker side). Each question arms the back-off: 30 s doubling to 1 h, with 20 % jitter. An accepted
-- push, another epoch and the end of the group clear it.
WITH events AS (
  SELECT
    cluster, group_id, member_id, connection, correlation_id, heartbeat_at AS at,
    IF(description_required, 'asked', 'beat') AS event, error_code,
    coalesce(array_contains(statuses, 'STALE_TOPOLOGY'), false) AS is_stale, total_ms,
    IF(error_code = 0 AND NOT coalesce(array_contains(statuses, 'STALE_TOPOLOGY'), false), topology_epoch, NULL)
      AS group_epoch,
    statuses IS NOT NULL AS is_sure, CAST(NULL AS INT) AS word, false AS is_end
  FROM {group_heartbeats}
  WHERE steady_since IS NULL
  UNION ALL
  SELECT
    cluster, group_id, member_id, connection, correlation_id, pushed_at, 'pushed', error_code, false, NULL,
    IF(error_code IN (0, 135), topology_epoch, NULL), true, IF(error_code = 0, 3, NULL), false
  FROM {topology_pushes}
  UNION ALL
  SELECT
    cluster, group_id, NULL, connection, correlation_id, described_at, 'described', error_code, false, NULL,
    IF(error_code = 0, topology_epoch, NULL), true, IF(error_code = 0 AND status IN (1, 2, 3), status, NULL),
    error_code = 69
  FROM {topology_statuses}
  UNION ALL
  SELECT
    cluster, group_id, NULL, connection, correlation_id, deleted_at, 'deleted', error_code, false, NULL,
    NULL, true, NULL, error_code IN (0, 69)
  FROM {group_deletions}
),
lived AS (
  SELECT *, coalesce(count_if(is_end) OVER before, 0) AS life
  FROM events
  WINDOW before AS (
    PARTITION BY cluster, group_id ORDER BY at, event, connection, correlation_id
    ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
  )
),
compared AS (
  SELECT
    *,
    max(group_epoch) OVER before AS highest_before,
    last_value(IF(word IS NOT NULL, struct(at, word, group_epoch), NULL)) IGNORE NULLS OVER before AS last_word
  FROM lived
  WINDOW before AS (
    PARTITION BY cluster, group_id, life ORDER BY at, event, connection, correlation_id
    ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
  )
),
aged AS (
  SELECT
    *,
    last_value(
      IF(is_sure OR group_epoch >= coalesce(highest_before, group_epoch), group_epoch, NULL)
    ) IGNORE NULLS OVER (
      PARTITION BY cluster, group_id, life ORDER BY at, event, connection, correlation_id
      ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW
    ) AS epoch
  FROM compared
),
changed AS (
  SELECT
    *,
    is_end
      OR (event = 'pushed' AND error_code = 0)
      OR coalesce(epoch <> lag(epoch) OVER (
        PARTITION BY cluster, group_id, life ORDER BY at, event, connection, correlation_id
      ), false) AS clears
  FROM aged
),
placed AS (
  SELECT
    *,
    count_if(clears) OVER (
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
  FROM changed
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
  epoch AS topology_epoch,
  CAST(attempt AS INT) AS attempt,
  seconds_since_previous,
  IF(attempt > 1, 0.8 * least(3600, 30 * pow(2, attempt - 2)), NULL) AS least_back_off_seconds,
  coalesce(seconds_since_previous < 0.8 * least(3600, 30 * pow(2, attempt - 2)), false) AS too_early,
  -- A description that was stored while the broker handled the heartbeat may have come after the broker decided.
  coalesce(
    last_word.word IN (2, 3)
      AND coalesce(last_word.group_epoch = epoch, true)
      AND unix_micros(last_word.at) <= unix_micros(at) - 1e3 * coalesce(total_ms, 0),
    false
  ) AS although_stored,
  is_stale AS although_stale,
  answer.at AS pushed_at,
  answer.error_code AS push_error_code,
  answer IS NOT NULL AS followed,
  (unix_micros(answer.at) - unix_micros(at)) / 1e6 AS seconds_to_push
FROM asked
