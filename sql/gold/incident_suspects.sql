-- Purpose: what changed in the day before an incident's first record, and what its records share, ranked.
-- Grain: cluster, incident_id, kind, name.
-- Parameters: {dlq_incidents}, {topology_revisions}, {topology_edges}, {producers}, {dlq_write_failures},
-- {broker_starts}, {dlq_refusals}, {changes}, rows of these tables, complete for each cluster in them.
-- Engine: duckdb
-- Refresh: cluster
-- The score of a change falls with its distance: it halves in an hour. A minute after the first record is allowed for
-- clocks that differ. An attribute scores by how much more common it is in the incident than elsewhere: in messages
-- that went through, where acknowledgements tell, or else in other dead letters. If neither tells, it is no suspect:
-- most topics have headers that are always the same.
-- A broker's start tells something if the cluster was at work before: a start that precedes all that is known of it is
-- the start of everything.
-- A deployment concerns an incident if it names the owner, a group or client that writes the topic, or a group that may
-- read it; or if it names nothing, and so concerns everything.
-- Headers that name no group can be of any application that reads the topic, as those of Kafka Streams, unless they name
-- another owner.
-- A writer that names no group is new only if no incident of the topic is from before owners were known.
-- Mandatory headers went missing when a dead letter of a topic lacks one, and none did in the day before it. Such dead
-- letters are in quarantine, or held if they are many.
WITH incidents AS (
  SELECT
    * EXCEPT (owner),
    coalesce(consumer_group, owner) AS owner,
    coalesce(NOT exists(dlq_topics, one -> endswith(owner, concat(' on ', one.dlq_topic))), false) AS is_owner_named
  FROM {dlq_incidents}
  WHERE record_count > 0
),
readers AS (
  SELECT DISTINCT cluster, topic, group_id FROM {topology_edges} WHERE direction = 'read'
),
writers AS (
  SELECT DISTINCT cluster, topic, group_id FROM {topology_edges} WHERE direction = 'written'
),
of_incident AS (
  SELECT cluster, incident_id, first_at, consumer_group AS group_id, 'topology' AS kind
  FROM incidents
  WHERE consumer_group IS NOT NULL
  UNION
  SELECT incidents.cluster, incident_id, first_at, group_id, 'topology'
  FROM incidents
  JOIN readers ON readers.cluster = incidents.cluster AND readers.topic = incidents.original_topic
  WHERE consumer_group IS NULL AND NOT is_owner_named
  UNION
  SELECT incidents.cluster, incident_id, first_at, group_id, 'writer_topology'
  FROM incidents
  JOIN writers ON writers.cluster = incidents.cluster AND writers.topic = incidents.original_topic
),
of_topology AS (
  SELECT
    of_incident.cluster,
    incident_id,
    IF(revision = 1 AND kind = 'topology', 'new_group', kind) AS kind,
    of_incident.group_id AS name,
    accepted_at AS changed_at,
    first_at,
    IF(kind = 'topology', 1.0D, 0.9D) AS weight,
    concat(
      IF(revision = 1, 'the first topology of ', concat('revision ', revision, ' of the topology of ')),
      of_incident.group_id,
      IF(kind = 'topology', '', ', which writes the topic,')
    ) AS what
  FROM of_incident
  JOIN {topology_revisions} AS revisions
    ON revisions.cluster = of_incident.cluster AND revisions.group_id = of_incident.group_id
  WHERE accepted_at IS NOT NULL
),
stated AS (
  SELECT
    *,
    lag(struct(requested_mode, broker_version, message_format_version, client_version)) OVER (
      PARTITION BY cluster, client_id, topic ORDER BY stated_at, _bronze_id
    ) AS before,
    struct(requested_mode, broker_version, message_format_version, client_version) AS now
  FROM {producers}
  WHERE stated_at IS NOT NULL
),
of_producers AS (
  SELECT
    incidents.cluster,
    incident_id,
    IF(before IS NULL, 'new_client', 'producer') AS kind,
    client_id AS name,
    stated_at AS changed_at,
    first_at,
    IF(before IS NULL, 0.6D, 0.8D) AS weight,
    concat(IF(before IS NULL, 'the first settings of producer ', 'changed settings of producer '), client_id) AS what
  FROM incidents
  JOIN stated ON stated.cluster = incidents.cluster AND stated.topic = incidents.original_topic
  WHERE before IS NULL OR before <> now
),
owners AS (
  SELECT cluster, consumer_group, owner, min(first_at) AS first_at FROM incidents GROUP BY cluster, consumer_group, owner
),
topics AS (
  SELECT
    cluster,
    original_topic,
    min(first_at) AS first_at,
    count_if(owner IS NULL) > 0 AS has_unknown_owners
  FROM incidents
  GROUP BY cluster, original_topic
),
of_groups AS (
  SELECT
    incidents.cluster,
    incident_id,
    'new_group' AS kind,
    incidents.owner AS name,
    owners.first_at AS changed_at,
    incidents.first_at,
    0.35D AS weight,
    concat('the first dead letter of ', IF(incidents.consumer_group IS NULL, '', 'group '), incidents.owner) AS what
  FROM incidents
  JOIN owners
    ON owners.cluster = incidents.cluster
      AND owners.consumer_group <=> incidents.consumer_group
      AND owners.owner = incidents.owner
  JOIN topics ON topics.cluster = incidents.cluster AND topics.original_topic <=> incidents.original_topic
  WHERE topics.first_at < owners.first_at - INTERVAL 1 HOUR
    AND owners.first_at < incidents.first_at  -- the first dead letter is no suspect of itself
    AND (incidents.consumer_group IS NOT NULL OR NOT topics.has_unknown_owners)
),
of_brokers AS (
  SELECT
    incidents.cluster,
    incident_id,
    'dlq_write_failure' AS kind,
    coalesce(failures.consumer_group, failures.dlq_topic) AS name,
    min(failed_at) AS changed_at,
    incidents.first_at,
    0.4D AS weight,
    concat(count(*), ' failed writes to a dead-letter topic') AS what
  FROM incidents
  JOIN {dlq_write_failures} AS failures
    ON failures.cluster = incidents.cluster
      AND (failures.consumer_group = incidents.consumer_group OR failures.original_topic = incidents.original_topic)
      AND failures.failed_at BETWEEN incidents.first_at - INTERVAL 24 HOURS AND incidents.first_at + INTERVAL 1 MINUTE
  GROUP BY incidents.cluster, incident_id, coalesce(failures.consumer_group, failures.dlq_topic), incidents.first_at
),
signs_of_work AS (
  SELECT cluster, first_at AS at FROM incidents
  UNION ALL
  SELECT cluster, accepted_at FROM {topology_revisions}
  UNION ALL
  SELECT cluster, stated_at FROM {producers}
  UNION ALL
  SELECT cluster, failed_at FROM {dlq_write_failures}
),
of_nodes AS (
  SELECT *, min(started_at) OVER (PARTITION BY cluster, node_id, component) AS first_started_at FROM {broker_starts}
),
restarts AS (
  SELECT starts.cluster, node_id, started_at
  FROM of_nodes AS starts
  LEFT JOIN (SELECT cluster, min(at) AS at FROM signs_of_work GROUP BY cluster) AS began ON began.cluster = starts.cluster
  WHERE least(began.at, first_started_at) < started_at
),
of_starts AS (
  SELECT
    cluster,
    incident_id,
    'broker_restart' AS kind,
    CAST(latest.node_id AS STRING) AS name,
    latest.started_at AS changed_at,
    first_at,
    0.5D AS weight,
    concat(
      'the start of broker ', latest.node_id,
      IF(broker_count > 1, concat(', the last of ', broker_count, ' that started within a day,'), '')
    ) AS what
  FROM (
    SELECT
      incidents.cluster,
      incident_id,
      first_at,
      max(struct(started_at, node_id)) AS latest,
      count(DISTINCT node_id) AS broker_count
    FROM incidents
    JOIN restarts AS starts
      ON starts.cluster = incidents.cluster
        AND started_at BETWEEN first_at - INTERVAL 24 HOURS AND first_at + INTERVAL 1 MINUTE
    GROUP BY incidents.cluster, incident_id, first_at
  )
),
refused AS (
  SELECT cluster, dlq_topic, hour, min(rule.first_at) AS at, max(rule.last_at) AS last_at
  FROM {dlq_refusals} LATERAL VIEW explode(broken_rules) AS rule
  WHERE dlq_topic IS NOT NULL AND rule.code IN (
    'header_profile.not_null', 'header_profile.required', 'header_profile.mandatory', 'disposition.not_null',
    'original_topic.not_null', 'original_partition.not_null', 'original_offset.not_null', 'consumer_group.not_null',
    'routed_at.not_null'
  )
  GROUP BY cluster, dlq_topic, hour
),
went_missing AS (
  SELECT cluster, dlq_topic, at
  FROM (
    SELECT cluster, dlq_topic, at, lag(last_at) OVER (PARTITION BY cluster, dlq_topic ORDER BY hour) AS before
    FROM refused
  )
  WHERE before IS NULL OR before < at - INTERVAL 24 HOURS
),
of_headers AS (
  SELECT
    incidents.cluster,
    incident_id,
    'missing_headers' AS kind,
    incidents.dlq_topic AS name,
    at AS changed_at,
    first_at,
    0.55D AS weight,
    concat('mandatory headers that are missing in ', incidents.dlq_topic) AS what
  FROM (
    SELECT cluster, incident_id, first_at, counted.dlq_topic
    FROM incidents LATERAL VIEW explode(dlq_topics) AS counted
  ) AS incidents
  JOIN went_missing ON went_missing.cluster = incidents.cluster AND went_missing.dlq_topic = incidents.dlq_topic
),
concerned AS (
  SELECT cluster, incident_id, first_at, application, max(weight) AS weight
  FROM (
    SELECT cluster, incident_id, first_at, group_id AS application, IF(kind = 'topology', 1.0D, 0.9D) AS weight
    FROM of_incident
    UNION ALL
    SELECT
      cluster,
      incident_id,
      first_at,
      IF(consumer_group IS NULL AND is_owner_named, substring(owner, instr(owner, ' ') + 1), owner),
      1.0D
    FROM incidents
    UNION ALL
    SELECT cluster, incident_id, first_at, attribute_name, 1.0D FROM incidents WHERE attribute_kind = 'client'
    UNION ALL
    SELECT incidents.cluster, incident_id, first_at, client_id, 0.9D
    FROM incidents
    JOIN {producers} AS producers
      ON producers.cluster = incidents.cluster AND producers.topic = incidents.original_topic
  )
  GROUP BY cluster, incident_id, first_at, application
),
of_deployments AS (
  SELECT
    deployed.cluster,
    incident_id,
    'deployment' AS kind,
    coalesce(deployed.application, what, commit) AS name,
    changed_at,
    first_at,
    weight,
    concat(
      coalesce(deployed.application, 'a change'),
      IF(is_short, concat(' ', what), ''),
      ' was deployed',
      IF(environment IS NULL, '', concat(' to ', environment))
    ) AS what,
    concat_ws(', ', IF(is_short, NULL, concat('"', what, '"')), concat('commit ', left(commit, 7))) AS details
  FROM (
    SELECT
      cluster,
      application,
      left(what, 200) AS what,
      coalesce(application IS NOT NULL AND instr(what, ' ') = 0, false) AS is_short,
      commit,
      environment,
      changed_at
    FROM {changes}
  ) AS deployed
  JOIN (
    SELECT cluster, incident_id, first_at, application, weight FROM concerned WHERE application IS NOT NULL
    UNION ALL
    SELECT cluster, incident_id, first_at, NULL, 0.5D FROM incidents
  ) AS concerned
    ON concerned.cluster = deployed.cluster AND concerned.application <=> deployed.application
),
changes AS (
  SELECT
    cluster,
    incident_id,
    kind,
    name,
    changed_at,
    greatest(CAST(0 AS BIGINT), timestampdiff(SECOND, changed_at, first_at)) AS distance_seconds,
    weight,
    timestampdiff(SECOND, first_at, changed_at) AS seconds_after,
    what,
    details
  FROM (
    SELECT cluster, incident_id, kind, name, changed_at, first_at, weight, concat(what, ' came') AS what, '' AS details
    FROM (
      SELECT * FROM of_topology
      UNION ALL
      SELECT * FROM of_producers
      UNION ALL
      SELECT * FROM of_groups
      UNION ALL
      SELECT * FROM of_brokers
      UNION ALL
      SELECT * FROM of_starts
      UNION ALL
      SELECT * FROM of_headers
    )
    UNION ALL
    SELECT * FROM of_deployments
  )
  WHERE changed_at BETWEEN first_at - INTERVAL 24 HOURS AND first_at + INTERVAL 1 MINUTE
),
found AS (
  SELECT
    cluster,
    incident_id,
    kind,
    name,
    changed_at,
    distance_seconds,
    CAST(NULL AS BIGINT) AS record_count,
    CAST(NULL AS DOUBLE) AS share,
    CAST(NULL AS DOUBLE) AS share_elsewhere,
    weight * power(0.5D, distance_seconds / 3600D) AS score,
    concat(
      what,
      CASE
        WHEN seconds_after > 0 THEN concat(
          ' ', seconds_after, IF(seconds_after = 1, ' second', ' seconds'), ' after the first record'
        )
        WHEN distance_seconds < 60 THEN ' at about the same time'
        WHEN distance_seconds < 120 THEN ' 1 minute before'
        WHEN distance_seconds < 7200 THEN concat(' ', distance_seconds div 60, ' minutes before')
        ELSE concat(' ', distance_seconds div 3600, ' hours before')
      END,
      IF(details = '', '', concat(' (', details, ')'))
    ) AS sentence
  FROM changes
  UNION ALL
  SELECT
    cluster,
    incident_id,
    attribute_kind,
    attribute_name,
    CAST(NULL AS TIMESTAMP),
    CAST(NULL AS BIGINT),
    IF(attribute_kind = 'client', NULL, CAST(round(attribute_share * record_count) AS BIGINT)),
    attribute_share,
    attribute_share_elsewhere,
    1.2D * (attribute_share - attribute_share_elsewhere) * IF(attribute_kind = 'key_prefix', 0.6D, 1D),
    concat(
      CASE
        WHEN attribute_kind = 'client' AND attribute_share < 1 THEN
          concat('at least ', CAST(floor(100 * attribute_share) AS BIGINT), ' %')
        WHEN attribute_share >= 0.995D AND attribute_share < 1 THEN 'more than 99 %'
        ELSE concat(CAST(round(100 * attribute_share) AS BIGINT), ' %')
      END,
      CASE attribute_kind
        WHEN 'client' THEN concat(' of the source records were produced by client ', attribute_name)
        WHEN 'header' THEN concat(' share one value of header ', attribute_name)
        WHEN 'schema_id' THEN concat(' share one schema id of the ', attribute_name)
        ELSE ' share one prefix of the key'
      END,
      ', and ',
      CASE
        WHEN attribute_share_elsewhere > 0 AND attribute_share_elsewhere < 0.005D THEN 'less than 1'
        ELSE CAST(CAST(round(100 * attribute_share_elsewhere) AS BIGINT) AS STRING)
      END,
      ' % of ', attribute_compared_with,
      IF(attribute_kind = 'client', '', ' have it')
    )
  FROM incidents
  WHERE attribute_kind IS NOT NULL AND attribute_share_elsewhere IS NOT NULL
),
nearest AS (
  SELECT
    *,
    row_number() OVER (
      PARTITION BY cluster, incident_id, kind, name ORDER BY score DESC, changed_at DESC, sentence
    ) AS place
  FROM found
)
SELECT
  cluster,
  incident_id,
  CAST(row_number() OVER (PARTITION BY cluster, incident_id ORDER BY score DESC, kind, name) AS INT) AS rank,
  kind,
  name,
  changed_at,
  distance_seconds,
  record_count,
  share,
  share_elsewhere,
  round(score, 6) AS score,
  sentence
FROM nearest
WHERE place = 1
