-- Purpose: the episodes of each source topic, of which pipelines/gold/dlq_incidents.py makes incidents with verdicts.
-- Grain: cluster, incident_id.
-- Parameters: {dlq_episodes}, {message_attributes}, {record_ranges}, rows of these silver tables, complete for each
-- topic in them.
-- Engine: duckdb
-- Refresh: original_topic
--   silver.dlq_episodes: original_topic
--   silver.message_attributes: topic
--   silver.record_ranges: topic
-- A verdict compares an episode with others of its topic: which partitions it has, and which attributes are common.
-- Where acknowledgements tell clients and headers, it compares with the messages that went through (`delivered`), and
-- knows those of the source records (`told`): of all errors of its owner and disposition in its half hours.
-- The windows of an episode are the offsets from its first to its last source record in each partition. Those of an
-- episode that can be one of poison pills are the slices of 1,000 offsets that have these: neighbours before and after
-- count. `windows` counts which of them hold records, as far as other feeds tell: acknowledged offsets and the ranges
-- that they form, offsets of landed segments, and those among them without a record. It also counts the pills that
-- each of them tells of.
WITH parts AS (
  SELECT cluster, topic, is_dead_lettered, consumer_group, coalesce(consumer_group, owner) AS owner, disposition, half_hour,
    message_count, named_count, headed_count, attributes
  FROM {message_attributes}
  WHERE topic IN (SELECT original_topic FROM {dlq_episodes})
),
halves AS (
  SELECT cluster, incident_id, original_topic AS topic, consumer_group, coalesce(consumer_group, owner) AS owner, disposition,
    part.half_hour
  FROM {dlq_episodes} LATERAL VIEW explode(timeline) AS part
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
      AND parts.owner <=> halves.owner
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
),
placed AS (
  SELECT
    cluster, incident_id, original_topic AS topic, one.original_partition AS partition,
    one.first_offset AS first_offset, one.last_offset AS last_offset
  FROM {dlq_episodes} LATERAL VIEW explode(partitions) AS one
  WHERE NOT {is_few} AND one.source_record_count > 1
),
pills AS (
  SELECT
    cluster, incident_id, original_topic AS topic, one.original_partition AS partition, one.original_offset AS offset,
    one.original_offset div 1000 AS place
  FROM {dlq_episodes} LATERAL VIEW explode(top_records) AS one
  WHERE {is_few}
),
edges AS (
  SELECT cluster, incident_id, topic, partition, first_offset, last_offset FROM placed
  UNION ALL
  SELECT DISTINCT
    cluster, incident_id, topic, partition, place * 1000,
    place * 1000 + least(999, 9223372036854775807 - place * 1000)
  FROM pills
),
overlaps AS (
  SELECT
    edges.cluster,
    incident_id,
    dead_lettered_count,
    acknowledged_dead_lettered_count,
    transform(
      filter(acknowledged, one -> one.first_offset <= edges.last_offset AND one.last_offset >= edges.first_offset),
      one -> least(one.last_offset, edges.last_offset) - greatest(one.first_offset, edges.first_offset) + 1
    ) AS acknowledged,
    transform(
      filter(landed, one -> one.first_offset <= edges.last_offset AND one.last_offset >= edges.first_offset),
      one -> least(one.last_offset, edges.last_offset) - greatest(one.first_offset, edges.first_offset) + 1
    ) AS landed,
    transform(
      filter(without_record, one -> one.first_offset <= edges.last_offset AND one.last_offset >= edges.first_offset),
      one -> one.offset_count
        * (least(one.last_offset, edges.last_offset) - greatest(one.first_offset, edges.first_offset) + 1)
        div (one.last_offset - one.first_offset + 1)
    ) AS without_record
  FROM edges
  JOIN {record_ranges} AS ranges
    ON ranges.cluster = edges.cluster
      AND ranges.topic = edges.topic
      AND ranges.partition = edges.partition
      AND try_cast(left(ranges.slice, 16) AS BIGINT) BETWEEN edges.first_offset div 1000 AND edges.last_offset div 1000
),
windows AS (
  SELECT
    cluster,
    incident_id,
    struct(
      sum(dead_lettered_count) AS dead_lettered_count,
      sum(acknowledged_dead_lettered_count) AS acknowledged_dead_lettered_count,
      sum(aggregate(acknowledged, CAST(0 AS BIGINT), (total, one) -> total + one)) AS acknowledged_count,
      sum(size(acknowledged)) AS acknowledged_range_count,
      sum(aggregate(landed, CAST(0 AS BIGINT), (total, one) -> total + one)) AS landed_count,
      sum(aggregate(without_record, CAST(0 AS BIGINT), (total, one) -> total + one)) AS without_record_count
    ) AS counts
  FROM overlaps
  GROUP BY cluster, incident_id
),
told_of AS (
  SELECT
    pills.cluster,
    incident_id,
    count_if(exists(acknowledged, one -> pills.offset BETWEEN one.first_offset AND one.last_offset))
      AS acknowledged_pill_count,
    count_if(
      exists(landed, one -> pills.offset BETWEEN one.first_offset AND one.last_offset)
      AND NOT exists(without_record, one -> pills.offset BETWEEN one.first_offset AND one.last_offset)
    ) AS landed_pill_count
  FROM pills
  JOIN {record_ranges} AS ranges
    ON ranges.cluster = pills.cluster
      AND ranges.topic = pills.topic
      AND ranges.partition = pills.partition
      AND try_cast(left(ranges.slice, 16) AS BIGINT) = pills.place
  GROUP BY pills.cluster, incident_id
)
SELECT
  episodes.*, delivered.messages AS delivered, told.messages AS told, windows.counts AS windows,
  acknowledged_pill_count, landed_pill_count
FROM {dlq_episodes} AS episodes
LEFT JOIN known AS delivered
  ON delivered.cluster = episodes.cluster
    AND delivered.topic = episodes.original_topic
    AND delivered.incident_id IS NULL
LEFT JOIN known AS told
  ON told.cluster = episodes.cluster
    AND told.topic = episodes.original_topic
    AND told.incident_id = episodes.incident_id
LEFT JOIN windows ON windows.cluster = episodes.cluster AND windows.incident_id = episodes.incident_id
LEFT JOIN told_of ON told_of.cluster = episodes.cluster AND told_of.incident_id = episodes.incident_id
