-- Purpose: each DLQ record that was itself dead-lettered, with the place of the record that it came from. If its
-- headers do not name that place, which only a profile of the settings can permit, it is no hop: the chain begins
-- with it.
-- Grain: cluster, topic, partition, offset: the place in a DLQ topic that a later dead letter names as its origin.
-- Parameters: {dead_letters}, rows of silver.dead_letters, complete for each slice of places and of origins in them.
-- Engine: duckdb
-- Refresh: slice
--   silver.dead_letters: each of slice and source_slice where is_accepted AND NOT is_control_marker
WITH accepted AS (
  SELECT
    cluster, dlq_topic, dlq_partition, dlq_offset, original_topic, original_partition, original_offset, routed_at, slice
  FROM {dead_letters}
  WHERE is_accepted AND NOT is_control_marker AND source_slice IS NOT NULL
),
named AS (
  SELECT DISTINCT
    cluster, original_topic AS topic, original_partition AS partition, original_offset AS offset
  FROM accepted
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
