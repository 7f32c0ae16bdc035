-- Purpose: what is known of each streams group's topology, and whether it can be trusted.
-- Grain: cluster, group_id.
-- Parameters: {topology_revisions}, {topology_pushes}, {topology_statuses}, {group_deletions}, {group_heartbeats}, rows
-- of these tables, complete for each group that is in them.
-- A group lives from its first sign of life (an accepted push or heartbeat, a describe that finds it) until it is
-- deleted, or a describe no longer finds it; what was before does not count for the health of what came after.
WITH events AS (
  SELECT
    cluster, group_id, pushed_at AS at, connection, correlation_id, 'push' AS kind, member_id, topology_epoch,
    topology_hash, error_code, error_name, error_message, node_count, defects,
    CAST(NULL AS INT) AS member_epoch, CAST(NULL AS BOOLEAN) AS asked, CAST(NULL AS INT) AS status
  FROM {topology_pushes}
  WHERE group_id <> ''
  UNION ALL
  SELECT
    cluster, group_id, heartbeat_at, connection, correlation_id, 'heartbeat', member_id, topology_epoch,
    NULL, error_code, NULL, NULL, NULL, NULL, member_epoch, description_required, NULL
  FROM {group_heartbeats}
  UNION ALL
  SELECT
    cluster, group_id, described_at, connection, correlation_id, 'describe', NULL, topology_epoch,
    topology_hash, error_code, NULL, NULL, NULL, defects, NULL, NULL, IF(description_requested, status, NULL)
  FROM {topology_statuses}
  UNION ALL
  SELECT
    cluster, group_id, deleted_at, connection, correlation_id, 'deletion', NULL, NULL,
    NULL, error_code, NULL, NULL, NULL, NULL, NULL, NULL, NULL
  FROM {group_deletions}
),
signed AS (
  SELECT
    *,
    struct(at, connection, correlation_id) AS place,
    kind <> 'deletion' AND error_code = 0 AS is_sign,
    (kind = 'deletion' AND error_code = 0) OR (kind = 'describe' AND error_code = 69) AS is_end,
    kind = 'push' AND error_code = 0 AS is_accepted,
    min(IF(kind <> 'deletion' AND error_code = 0, at, NULL)) OVER of_group AS first_seen_at,
    max(IF(kind <> 'deletion' AND error_code = 0, at, NULL)) OVER of_group AS last_seen_at
  FROM events
  WINDOW of_group AS (PARTITION BY cluster, group_id)
),
ended AS (
  SELECT
    *,
    max(IF(is_end AND at >= first_seen_at, at, NULL)) OVER of_group AS ended_at,
    min(IF(is_end AND at >= last_seen_at, struct(at, kind), NULL)) OVER of_group AS ending,
    max(IF(kind = 'heartbeat' AND error_code = 0 AND member_epoch IN (-1, -2), at, NULL)) OVER of_member AS left_at,
    max(IF(kind = 'heartbeat' AND error_code = 0 AND member_epoch >= 0, at, NULL)) OVER of_member AS beat_at
  FROM signed
  WINDOW
    of_group AS (PARTITION BY cluster, group_id),
    of_member AS (PARTITION BY cluster, group_id, member_id)
),
lived AS (
  SELECT
    *,
    ending IS NULL AND (ended_at IS NULL OR at > ended_at) AS is_alive,
    max(IF(
      is_sign AND (ending IS NOT NULL OR ended_at IS NULL OR at > ended_at)
        AND (kind <> 'heartbeat' OR member_epoch = 0),
      topology_epoch, NULL
    )) OVER (PARTITION BY cluster, group_id) AS group_topology_epoch
  FROM ended
),
held AS (
  SELECT
    *,
    is_accepted
      AND is_alive
      AND topology_epoch = group_topology_epoch
      AND (left_at IS NULL OR beat_at > left_at OR at > left_at)
      AND place = max(IF(is_accepted AND topology_epoch = group_topology_epoch, place, NULL)) OVER (
        PARTITION BY cluster, group_id, member_id
      ) AS is_held,
    max(IF(is_accepted, place, NULL)) OVER (PARTITION BY cluster, group_id) AS last_accepted
  FROM lived
),
groups AS (
  SELECT
    cluster,
    group_id,
    any_value(first_seen_at) AS first_seen_at,
    any_value(last_seen_at) AS last_seen_at,
    any_value(ending) AS ending,
    any_value(group_topology_epoch) AS group_topology_epoch,
    any_value(last_accepted).at AS last_pushed_at,
    max_by(member_id, place) FILTER (WHERE is_accepted) AS last_pushed_by,
    max_by(topology_epoch, place) FILTER (WHERE is_accepted) AS pushed_epoch,
    max_by(topology_epoch, place) FILTER (WHERE is_accepted AND is_alive) AS stored_epoch,
    max_by(node_count, place) FILTER (WHERE is_accepted) AS node_count,
    max(struct(place, error_code, error_name, error_message)) FILTER (
      WHERE kind = 'push' AND (is_alive OR first_seen_at IS NULL)
    ) AS attempted,
    max(struct(place, status, topology_epoch)) FILTER (
      WHERE kind = 'describe' AND error_code = 0 AND status IS NOT NULL
        AND (ending IS NOT NULL OR ended_at IS NULL OR at > ended_at)
    ) AS last_describe,
    min(at) FILTER (
      WHERE kind = 'describe' AND error_code = 0 AND status = 1 AND place > last_accepted
    ) AS lost_at,
    count_if(asked AND (ending IS NOT NULL OR ended_at IS NULL OR at > ended_at)) AS solicitation_count,
    max(at) FILTER (WHERE asked) AS last_solicited_at,
    array_sort(collect_set(member_id) FILTER (WHERE is_held)) AS holding_members,
    count(DISTINCT IF(is_held, topology_hash, NULL)) AS held_count
  FROM held
  GROUP BY cluster, group_id
  HAVING any_value(first_seen_at) IS NOT NULL OR count_if(kind = 'push') > 0
),
latest AS (
  SELECT cluster, group_id, max(struct(revision, topology_hash, defects, description)) AS revision
  FROM {topology_revisions}
  GROUP BY cluster, group_id
),
described AS (
  SELECT
    cluster,
    group_id,
    max(struct(described_at, connection, correlation_id, topology_epoch, topology_hash, defects, description)) AS last
  FROM {topology_statuses}
  WHERE error_code = 0 AND description IS NOT NULL
  GROUP BY cluster, group_id
),
facts AS (
  SELECT
    groups.*,
    attempted.place.at AS attempted_at,
    last_describe.place.at AS described_at,
    IF(held_count > 1, holding_members, array()) AS conflicting_members,
    latest.revision.revision,
    described.last IS NOT NULL AS was_available,
    coalesce(latest.revision.topology_hash, described.last.topology_hash) AS topology_hash,
    coalesce(pushed_epoch, described.last.topology_epoch) AS topology_epoch,
    coalesce(latest.revision.defects, described.last.defects, array()) AS defects,
    coalesce(latest.revision.description, described.last.description) AS description
  FROM groups
  LEFT JOIN latest ON latest.cluster = groups.cluster AND latest.group_id = groups.group_id
  LEFT JOIN described ON described.cluster = groups.cluster AND described.group_id = groups.group_id
),
judged AS (
  SELECT
    *,
    CASE
      WHEN ending IS NOT NULL THEN 'DELETED'
      WHEN size(conflicting_members) > 0 THEN 'CONFLICT'
      WHEN last_describe.status = 2 THEN 'PLUGIN_ERROR'
      WHEN last_describe.status = 1
        AND described_at > last_pushed_at
        AND last_describe.topology_epoch = stored_epoch THEN 'LOST'
      WHEN attempted.error_code <> 0 THEN 'REJECTED'
      WHEN stored_epoch < group_topology_epoch THEN 'STALE'
      WHEN attempted IS NULL AND NOT was_available THEN 'NOT_PUSHED'
      ELSE 'OK'
    END AS health,
    CASE
      WHEN ending IS NOT NULL THEN 1
      WHEN described_at > coalesce(last_pushed_at, TIMESTAMP '1970-01-01 00:00:00Z')
        AND last_describe.status IN (1, 2, 3) THEN last_describe.status
      WHEN stored_epoch = group_topology_epoch THEN 3
      ELSE 1
    END AS status
  FROM facts
)
SELECT
  cluster,
  group_id,
  health,
  CASE health
    WHEN 'DELETED' THEN concat(
      IF(ending.kind = 'deletion', 'The group was deleted at ', 'A describe no longer found the group at '),
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
      'The last push was refused at ', date_format(attempted_at, 'yyyy-MM-dd HH:mm:ss'), ' UTC with ',
      attempted.error_code, coalesce(concat(' ', attempted.error_name), ''),
      coalesce(concat(': ', attempted.error_message), '.')
    )
    WHEN 'STALE' THEN concat(
      'The stored description is of epoch ', stored_epoch, ', the group is at epoch ', group_topology_epoch,
      ': no member of the new epoch has pushed yet.'
    )
    WHEN 'NOT_PUSHED' THEN IF(
      solicitation_count > 0,
      concat(
        'Members were asked ', solicitation_count, ' times, last at ',
        date_format(last_solicited_at, 'yyyy-MM-dd HH:mm:ss'),
        ' UTC, and never pushed: is topology.description.push.enabled false?'
      ),
      'No member was asked for a description: the brokers have no plugin, or the members speak an older version.'
    )
    ELSE IF(
      size(defects) > 0,
      concat('The description is stored, but malformed: ', array_join(defects, ', '), '.'),
      'The description is stored and current.'
    )
  END AS sentence,
  revision,
  topology_hash,
  topology_epoch,
  group_topology_epoch,
  status,
  CASE status WHEN 1 THEN 'NOT_STORED' WHEN 2 THEN 'ERROR' WHEN 3 THEN 'AVAILABLE' END AS status_name,
  first_seen_at,
  last_seen_at,
  last_pushed_at,
  last_pushed_by,
  attempted_at AS last_attempted_at,
  attempted.error_code AS last_error_code,
  attempted.error_name AS last_error_name,
  attempted.error_message AS last_error_message,
  described_at AS last_described_at,
  last_describe.status AS described_status,
  solicitation_count,
  last_solicited_at,
  conflicting_members,
  IF(health = 'LOST', lost_at, NULL) AS lost_at,
  ending.at AS deleted_at,
  node_count,
  defects,
  description
FROM judged
