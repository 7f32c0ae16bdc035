-- Purpose: which clients and headers acknowledged messages have: those that were dead-lettered, by owner, disposition and
-- half hour, and those that were not. So an incident is compared with what went through.
-- Grain: cluster, slice, is_dead_lettered, consumer_group, owner, disposition, half_hour; null counts as a value.
-- Parameters: {acknowledgements}, {dead_letters}, rows of these silver tables, complete for each slice that is in them.
-- Engine: duckdb, in parts
-- Refresh: slice
--   silver.acknowledgements: slice
--   silver.dead_letters: each of source_slice where is_counted
-- Acknowledgements that name neither a client nor headers tell nothing here. They never tell keys and values. If no dead
-- letter of a message tells when it was dead-lettered, the message did not go through either: its half hour is null.
WITH letters AS (
  SELECT DISTINCT
    cluster,
    source_slice AS slice,
    original_topic AS topic,
    original_partition AS partition,
    original_offset AS offset,
    consumer_group,
    coalesce(consumer_group, owner) AS owner,
    disposition,
    unix_micros(coalesce(routed_at, dlq_timestamp))
      - pmod(unix_micros(coalesce(routed_at, dlq_timestamp)), 1800000000) AS half_hour
  FROM {dead_letters}
  WHERE is_counted AND source_slice IS NOT NULL
),
sent AS (
  SELECT
    sent.cluster,
    sent.slice,
    sent.topic,
    letters.offset IS NOT NULL AS is_dead_lettered,
    consumer_group,
    owner,
    disposition,
    half_hour,
    concat(
      array(struct('message' AS kind, '' AS name, CAST(0 AS BIGINT) AS value)),
      IF(
        client_id IS NULL,
        array(),
        array(
          struct('named' AS kind, '' AS name, CAST(0 AS BIGINT) AS value),
          struct('client' AS kind, client_id AS name, xxhash64(client_id) AS value)
        )
      ),
      IF(
        coalesce(size(headers), 0) = 0,
        array(),
        concat(
          array(struct('headed' AS kind, '' AS name, CAST(0 AS BIGINT) AS value)),
          array_distinct(transform(
            slice(headers, 1, 32), one -> struct('header' AS kind, one.key AS name, xxhash64(one.value) AS value)
          ))
        )
      )
    ) AS facts
  FROM {acknowledgements} AS sent
  LEFT JOIN letters
    ON letters.cluster = sent.cluster
      AND letters.slice = sent.slice
      AND letters.topic = sent.topic
      AND letters.partition = sent.partition
      AND letters.offset = sent.offset
  WHERE outcome = 'ACKNOWLEDGED' AND (client_id IS NOT NULL OR size(headers) > 0)
),
counted AS (
  SELECT
    cluster, slice, topic, is_dead_lettered, consumer_group, owner, disposition, half_hour, fact.kind, fact.name, fact.value,
    count(*) AS message_count
  FROM sent LATERAL VIEW explode(facts) AS fact
  GROUP BY
    cluster, slice, topic, is_dead_lettered, consumer_group, owner, disposition, half_hour, fact.kind, fact.name, fact.value
)
SELECT
  cluster,
  slice,
  topic,
  is_dead_lettered,
  consumer_group,
  owner,
  disposition,
  timestamp_micros(half_hour) AS half_hour,
  sum(message_count) FILTER (WHERE kind = 'message') AS message_count,
  coalesce(sum(message_count) FILTER (WHERE kind = 'named'), 0) AS named_count,
  coalesce(sum(message_count) FILTER (WHERE kind = 'headed'), 0) AS headed_count,
  slice(sort_array(
    collect_list(struct(-message_count AS negative, kind, name, value)) FILTER (WHERE kind IN ('client', 'header'))
  ), 1, 32) AS attributes
FROM counted
GROUP BY cluster, slice, topic, is_dead_lettered, consumer_group, owner, disposition, half_hour
