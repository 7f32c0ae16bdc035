-- Purpose: each DLQ record that was itself dead-lettered, with the place of the record that it came from. If its
-- headers do not name that place, it is no hop: the chain begins with it. A record that did not land is a hop if the
-- headers of a later dead letter tell where it came from.
-- Grain: cluster, topic, partition, offset: the place in a DLQ topic that a later dead letter names as its origin.
-- Parameters: {dead_letters}, {inferred_dead_letters}, rows of silver.dead_letters and silver.inferred_dead_letters,
-- complete for each slice of places and of origins in them.
-- Engine: duckdb
-- Refresh: slice
--   silver.dead_letters: each of slice and source_slice where is_accepted AND NOT is_control_marker
--   silver.inferred_dead_letters: each of dlq_slice and source_slice
WITH landed_letters AS (
  SELECT
    cluster, dlq_topic, dlq_partition, dlq_offset, original_topic, original_partition, original_offset, routed_at, slice
  FROM {dead_letters}
  WHERE is_accepted AND NOT is_control_marker AND source_slice IS NOT NULL
),
accepted AS (
  SELECT * FROM landed_letters
  UNION ALL
  SELECT
    inferred.cluster, inferred.dlq_topic, inferred.dlq_partition, inferred.dlq_offset, inferred.original_topic,
    inferred.original_partition, inferred.original_offset, CAST(NULL AS TIMESTAMP) AS routed_at,
    inferred.dlq_slice AS slice
  FROM {inferred_dead_letters} AS inferred
  LEFT ANTI JOIN {dead_letters} AS landed
    ON landed.cluster = inferred.cluster
      AND landed.dlq_topic = inferred.dlq_topic
      AND landed.dlq_partition = inferred.dlq_partition
      AND landed.dlq_offset = inferred.dlq_offset
      AND landed.is_accepted
      AND NOT landed.is_control_marker
),
named AS (
  SELECT cluster, original_topic AS topic, original_partition AS partition, original_offset AS offset FROM landed_letters
  UNION
  SELECT cluster, original_topic AS topic, original_partition AS partition, original_offset AS offset
  FROM {inferred_dead_letters}
),
origins AS (
  SELECT
    accepted.cluster,
    accepted.dlq_topic,
    accepted.dlq_partition,
    accepted.dlq_offset,
    accepted.slice,
    max(struct(routed_at, original_topic AS topic, original_partition AS partition, original_offset AS offset)) AS origin
  FROM accepted
  LEFT SEMI JOIN named
    ON named.cluster = accepted.cluster
      AND named.topic = accepted.dlq_topic
      AND named.partition = accepted.dlq_partition
      AND named.offset = accepted.dlq_offset
  GROUP BY accepted.cluster, accepted.dlq_topic, accepted.dlq_partition, accepted.dlq_offset, accepted.slice
)
SELECT
  cluster,
  dlq_topic AS topic,
  dlq_partition AS partition,
  dlq_offset AS offset,
  origin.topic AS original_topic,
  origin.partition AS original_partition,
  origin.offset AS original_offset,
  slice
FROM origins
