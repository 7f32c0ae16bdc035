-- Purpose: the episodes of each source topic, of which pipelines/gold/dlq_incidents.py makes incidents with verdicts.
-- Grain: cluster, incident_id.
-- Parameters: {dlq_episodes}, {message_attributes}, rows of these silver tables, complete for each topic in them.
-- Refresh: original_topic
--   silver.dlq_episodes: original_topic
--   silver.message_attributes: topic
-- A verdict compares an episode with others of its topic: which partitions it has, and which attributes are common.
-- Where acknowledgements tell clients and headers, it compares with the messages that went through (`delivered`), and
-- knows those of the source records (`told`): of all errors of its group and disposition in its half hours.
WITH parts AS (
  SELECT cluster, topic, is_dead_lettered, consumer_group, disposition, half_hour, message_count, named_count,
    headed_count, attributes
  FROM {message_attributes}
  WHERE topic IN (SELECT original_topic FROM {dlq_episodes})
),
halves AS (
  SELECT cluster, incident_id, original_topic AS topic, consumer_group, disposition, half_hour
  FROM {dlq_episodes} LATERAL VIEW explode(timeline.half_hour) AS half_hour
),
owned AS (
  SELECT parts.cluster, topic, CAST(NULL AS STRING) AS incident_id, message_count, named_count, headed_count, attributes
  FROM parts
  WHERE NOT is_dead_lettered
  UNION ALL
  SELECT parts.cluster, parts.topic, incident_id, message_count, named_count, headed_count, attributes
  FROM halves
  JOIN parts
    ON is_dead_lettered
      AND parts.cluster = halves.cluster
      AND parts.topic = halves.topic
      AND parts.consumer_group <=> halves.consumer_group
      AND parts.disposition <=> halves.disposition
      AND unix_micros(parts.half_hour) = halves.half_hour
),
sums AS (
  SELECT
    cluster,
    topic,
    incident_id,
    sum(message_count) AS message_count,
    sum(named_count) AS named_count,
    sum(headed_count) AS headed_count
  FROM owned
  GROUP BY cluster, topic, incident_id
),
common AS (
  SELECT
    cluster,
    topic,
    incident_id,
    slice(sort_array(collect_list(struct(negative, kind, name, value))), 1, 64) AS attributes
  FROM (
    SELECT cluster, topic, incident_id, one.kind, one.name, one.value, sum(one.negative) AS negative
    FROM owned LATERAL VIEW explode(attributes) AS one
    GROUP BY cluster, topic, incident_id, one.kind, one.name, one.value
  )
  GROUP BY cluster, topic, incident_id
),
known AS (
  SELECT
    sums.cluster,
    sums.topic,
    sums.incident_id,
    struct(message_count, named_count, headed_count, attributes) AS messages
  FROM sums
  LEFT JOIN common
    ON common.cluster = sums.cluster AND common.topic = sums.topic AND common.incident_id <=> sums.incident_id
)
SELECT episodes.*, delivered.messages AS delivered, told.messages AS told
FROM {dlq_episodes} AS episodes
LEFT JOIN known AS delivered
  ON delivered.cluster = episodes.cluster
    AND delivered.topic = episodes.original_topic
    AND delivered.incident_id IS NULL
LEFT JOIN known AS told
  ON told.cluster = episodes.cluster
    AND told.topic = episodes.original_topic
    AND told.incident_id = episodes.incident_id
