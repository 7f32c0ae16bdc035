-- Purpose: what is known of each streams group's topology, and whether it can be trusted.
-- Grain: cluster, group_id.
-- Parameters: {topology_revisions}, {topology_pushes}, {topology_statuses}, {group_deletions}, {group_heartbeats}, rows
-- of these tables, complete for each group that is in them; :silent_after_seconds, a setting.
-- Engine: duckdb
-- Refresh: group_id
-- A group's life begins with its first sign of life (an accepted push or heartbeat, a describe that finds it) and ends
-- when the group is deleted or no longer found. Events of an earlier life do not affect the health of a later one.
-- The broker tells about the description in the status of a describe and in the acceptance of a push. The last of these
-- counts, unless the group has moved to another epoch: brokers serve only the description of the group's epoch.
-- The group's epoch is the last one that a describe, an accepted push or a joining member names. A member can join with
-- an older topology: then the heartbeat's status is STALE_TOPOLOGY or, if no status is logged, its epoch is lower.
WITH events AS (
  SELECT
    cluster, group_id, pushed_at AS at, connection, correlation_id, 'push' AS kind, member_id, topology_epoch,
    topology_hash, error_code, error_name, error_message,
    CAST(NULL AS INT) AS member_epoch, CAST(NULL AS BOOLEAN) AS asked, IF(error_code = 0, 3, NULL) AS word,
    false AS is_unreadable, IF(error_code = 0, topology_epoch, NULL) AS group_epoch, true AS is_sure,
    pushed_at AS since
  FROM {topology_pushes}
  WHERE group_id <> ''
  UNION ALL
  SELECT
    cluster, group_id, heartbeat_at, connection, correlation_id, 'heartbeat', member_id, topology_epoch,
    NULL, error_code, NULL, NULL, member_epoch, description_required, NULL, false,
    IF(error_code = 0 AND NOT coalesce(array_contains(statuses, 'STALE_TOPOLOGY'), false), topology_epoch, NULL),
    statuses IS NOT NULL, coalesce(steady_since, heartbeat_at)
  FROM {group_heartbeats}
  UNION ALL
  SELECT
    cluster, group_id, described_at, connection, correlation_id, 'describe', NULL, topology_epoch,
    topology_hash, error_code, NULL, NULL, NULL, NULL,
    IF(error_code = 0 AND (status IN (1, 2) OR (status = 3 AND topology_hash IS NOT NULL)), status, NULL),
    error_code = 0 AND status = 3 AND topology_hash IS NULL,
    IF(error_code = 0, topology_epoch, NULL), true, described_at
  FROM {topology_statuses}
  UNION ALL
  SELECT
    cluster, group_id, deleted_at, connection, correlation_id, 'deletion', NULL, NULL,
    NULL, error_code, NULL, NULL, NULL, NULL, NULL, false, NULL, true, deleted_at
  FROM {group_deletions}
),
signed AS (
  SELECT
    *,
    struct(at, connection, correlation_id, kind) AS place,
    kind <> 'deletion' AND error_code = 0 AS is_sign,
    (kind = 'deletion' AND error_code IN (0, 69)) OR (kind = 'describe' AND error_code = 69) AS is_end,
    kind = 'push' AND error_code = 0 AS is_accepted,
    kind IN ('push', 'heartbeat') AND error_code = 0 AND coalesce(member_epoch, 0) >= 0 AS is_member
  FROM events
),
spanned AS (
  SELECT
    *,
    min(IF(is_sign, since, NULL)) OVER of_group AS first_seen_at,
    max(IF(is_sign, at, NULL)) OVER of_group AS last_seen_at,
    max(at) OVER of_group AS last_logged_at,
    -- A member that leaves does not revive a group that was deleted at the same moment.
    coalesce(
      max(IF(is_sign AND coalesce(member_epoch, 0) >= 0, place, NULL)) OVER of_group,
      max(IF(is_sign, place, NULL)) OVER of_group
    ) AS last_sign,
    max(IF(is_end, place, NULL)) OVER of_group AS last_end,
    max(IF(kind = 'heartbeat' AND error_code = 0 AND member_epoch < 0, place, NULL)) OVER of_member AS left_at,
    max(IF(is_member, place, NULL)) OVER of_member AS last_beat
  FROM signed
  WINDOW
    of_group AS (PARTITION BY cluster, group_id),
    of_member AS (PARTITION BY cluster, group_id, member_id)
),
bounded AS (
  SELECT
    *,
    max(IF(is_end AND place < last_sign, place, NULL)) OVER of_group AS begun_after,
    min(IF(is_end AND place > last_sign, place, NULL)) OVER of_group AS ending
  FROM spanned
  WINDOW of_group AS (PARTITION BY cluster, group_id)
),
lived AS (
  SELECT
    *,
    begun_after IS NULL OR place > begun_after AS is_of_life,
    last_end IS NULL OR place > last_end OR last_sign IS NULL AS is_since_end
  FROM bounded
),
aged AS (
  SELECT
    *,
    max(IF(is_of_life, group_epoch, NULL)) OVER so_far AS highest_before
  FROM lived
  WINDOW so_far AS (
    PARTITION BY cluster, group_id ORDER BY at, connection, correlation_id, kind
    ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
  )
),
told AS (
  SELECT
    *,
    max_by(
      group_epoch,
      IF(
        is_of_life AND group_epoch IS NOT NULL AND (is_sure OR group_epoch >= coalesce(highest_before, group_epoch)),
        place, NULL
      )
    ) OVER of_group AS group_topology_epoch,
    max(IF(is_of_life AND word IN (2, 3), struct(place, topology_epoch), NULL)) OVER of_group AS last_stored,
    max(IF(is_of_life AND word = 3, place, NULL)) OVER of_group AS last_served
  FROM aged
  WINDOW of_group AS (PARTITION BY cluster, group_id)
),
held AS (
  SELECT
    *,
    is_accepted
      AND is_of_life
      AND ending IS NULL
      AND topology_epoch = group_topology_epoch
      AND (left_at IS NULL OR last_beat > left_at)
      AND unix_micros(last_logged_at) - unix_micros(last_beat.at) < 1e6 * :silent_after_seconds
      AND place = max(IF(is_accepted AND is_of_life AND topology_epoch = group_topology_epoch, place, NULL)) OVER (
        PARTITION BY cluster, group_id, member_id
      ) AS is_held
  FROM told
),
groups AS (
  SELECT
    cluster,
    group_id,
    any_value(first_seen_at) AS first_seen_at,
    any_value(last_seen_at) AS last_seen_at,
    any_value(ending) AS ending,
    max_by(error_code, place) FILTER (WHERE place = ending) AS ending_code,
    any_value(group_topology_epoch) AS group_topology_epoch,
    any_value(last_stored) AS last_stored,
    max(struct(place, topology_epoch)) FILTER (WHERE word = 3) AS last_known,
    max(at) FILTER (WHERE is_accepted) AS last_pushed_at,
    max_by(member_id, place) FILTER (WHERE is_accepted) AS last_pushed_by,
    max(at) FILTER (WHERE word = 3 AND kind = 'describe') AS last_observed_at,
    max(struct(place, error_code, error_name, error_message)) FILTER (
      WHERE kind = 'push' AND is_since_end
    ) AS attempted,
    -- If a description is stored, errors that clients retry by themselves (COORDINATOR_LOAD_IN_PROGRESS,
    -- COORDINATOR_NOT_AVAILABLE, NOT_COORDINATOR) are no refusals.
    max(struct(place, error_code, error_name, error_message)) FILTER (
      WHERE kind = 'push' AND error_code <> 0 AND is_since_end
        AND (last_served IS NULL OR place > last_served)
        AND (last_stored IS NULL OR error_code NOT IN (14, 15, 16))
    ) AS refusal,
    max(struct(place, word, topology_epoch)) FILTER (WHERE is_of_life AND word IS NOT NULL) AS last_word,
    max(struct(place, word)) FILTER (WHERE is_of_life AND word IS NOT NULL AND kind = 'describe') AS last_describe,
    min(at) FILTER (WHERE is_of_life AND word = 1 AND place > last_stored.place) AS lost_at,
    coalesce(bool_or(is_unreadable AND is_of_life), false) AS is_unreadable,
    count_if(asked AND is_of_life) AS solicitation_count,
    max(at) FILTER (WHERE asked AND is_of_life) AS last_solicited_at,
    array_sort(collect_set(member_id) FILTER (WHERE is_held)) AS holding_members,
    count(DISTINCT IF(is_held, topology_hash, NULL)) AS held_count
  FROM held
  GROUP BY cluster, group_id
  HAVING any_value(first_seen_at) IS NOT NULL OR count_if(kind = 'push') > 0
),
latest AS (
  SELECT
    cluster,
    group_id,
    max_by(struct(revision, source, topology_hash, node_count, defects, description), revision) AS revision
  FROM {topology_revisions}
  GROUP BY cluster, group_id
),
known AS (
  SELECT
    groups.*,
    latest.revision.revision,
    latest.revision.source,
    latest.revision.topology_hash,
    latest.revision.node_count,
    latest.revision.defects,
    latest.revision.description,
    IF(held_count > 1, holding_members, array()) AS conflicting_members,
    CASE
      WHEN ending IS NOT NULL THEN 1
      WHEN last_word.word IN (2, 3) AND last_word.topology_epoch <> group_topology_epoch THEN 1
      ELSE coalesce(last_word.word, 1)
    END AS status
  FROM groups
  LEFT JOIN latest ON latest.cluster = groups.cluster AND latest.group_id = groups.group_id
),
judged AS (
  SELECT
    *,
    CASE
      WHEN ending IS NOT NULL THEN 'DELETED'
      WHEN size(conflicting_members) > 0 THEN 'CONFLICT'
      WHEN status = 2 THEN 'PLUGIN_ERROR'
      WHEN last_word.word = 1
        AND last_stored IS NOT NULL
        AND coalesce(last_stored.topology_epoch = group_topology_epoch, true) THEN 'LOST'
      WHEN refusal IS NOT NULL THEN 'REJECTED'
      WHEN status = 1 AND last_stored IS NOT NULL THEN 'STALE'
      WHEN status = 1 THEN 'NOT_PUSHED'
      ELSE 'OK'
    END AS health
  FROM known
)
SELECT
  cluster,
  group_id,
  health,
  CASE health
    WHEN 'DELETED' THEN concat(
      CASE
        WHEN ending.kind = 'describe' THEN 'A describe no longer found the group at '
        WHEN ending_code = 0 THEN 'The group was deleted at '
        ELSE 'A deletion no longer found the group at '
      END,
      date_format(ending.at, 'yyyy-MM-dd HH:mm:ss'), ' UTC',
      IF(revision IS NULL, '.', concat('; revision ', revision, ' is its last topology.'))
    )
    WHEN 'CONFLICT' THEN concat(
      size(conflicting_members), ' members that have not left pushed different topologies under epoch ',
      group_topology_epoch, ': the application runs in two versions, or with a topology that is not deterministic.'
    )
    WHEN 'PLUGIN_ERROR' THEN
      'The broker could not read the description from its plugin when it was last described: check the broker logs.'
    WHEN 'LOST' THEN concat(
      'The description was stored, but a describe at ', date_format(lost_at, 'yyyy-MM-dd HH:mm:ss'),
      ' UTC says that it is not: the plugin forgot it, and the broker does not ask again before the epoch changes.'
    )
    WHEN 'REJECTED' THEN concat(
      IF(refusal.place = attempted.place, 'The last push', 'A push'), ' was refused at ',
      date_format(refusal.place.at, 'yyyy-MM-dd HH:mm:ss'), ' UTC with ',
      refusal.error_code, coalesce(concat(' ', refusal.error_name), ''),
      coalesce(concat(': ', trim(TRAILING '.' FROM refusal.error_message)), ''), '.',
      IF(status = 3, ' What was stored before still is.', '')
    )
    WHEN 'STALE' THEN concat(
      'The stored description is of epoch ', last_stored.topology_epoch, ', the group is at epoch ',
      group_topology_epoch, ': no member of the new epoch has pushed yet.'
    )
    WHEN 'NOT_PUSHED' THEN CASE
      WHEN is_unreadable THEN 'A describe said that a description is stored, but showed none that can be read.'
      WHEN solicitation_count > 0 THEN concat(
        'Members were asked ', solicitation_count, ' times, last at ',
        date_format(last_solicited_at, 'yyyy-MM-dd HH:mm:ss'),
        ' UTC, and never pushed: is topology.description.push.enabled false?'
      )
      ELSE 'No member was asked for a description: the brokers have no plugin, or the members speak an older version.'
    END
    ELSE IF(
      size(defects) > 0,
      concat('The description is stored, but malformed: ', array_join(defects, ', '), '.'),
      'The description is stored and current.'
    )
  END AS sentence,
  revision,
  source,
  topology_hash,
  last_known.topology_epoch,
  group_topology_epoch,
  status,
  CASE status WHEN 1 THEN 'NOT_STORED' WHEN 2 THEN 'ERROR' WHEN 3 THEN 'AVAILABLE' END AS status_name,
  first_seen_at,
  last_seen_at,
  last_pushed_at,
  last_pushed_by,
  last_observed_at,
  attempted.place.at AS last_attempted_at,
  attempted.error_code AS last_error_code,
  attempted.error_name AS last_error_name,
  attempted.error_message AS last_error_message,
  last_describe.place.at AS last_described_at,
  last_describe.word AS described_status,
  solicitation_count,
  last_solicited_at,
  conflicting_members,
  IF(health = 'LOST', lost_at, NULL) AS lost_at,
  ending.at AS deleted_at,
  node_count,
  coalesce(defects, array()) AS defects,
  description
FROM judged
