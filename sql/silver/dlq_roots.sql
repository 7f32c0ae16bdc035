-- Purpose: the source record behind each DLQ record that was itself dead-lettered, hop by hop.
-- Grain: cluster, topic, partition, offset: the place in a DLQ topic that a later dead letter names as its origin.
-- Parameters: {dlq_hops}, rows of silver.dlq_hops, complete for each slice in them, with the next eight hops of each.
-- Engine: duckdb
-- Refresh: slice
--   silver.dlq_hops: slice along
--     concat(lpad(original_offset div 1000, 16, '0'), ':', original_partition, ':', original_topic) at most 8 times
-- Each step doubles the number of hops that it follows. If more than eight hops lead to the root, the root stays null:
-- a group whose DLQ is its own input makes an endless chain.
WITH one AS (
  SELECT
    cluster,
    topic,
    partition,
    offset,
    original_topic AS root_topic,
    original_partition AS root_partition,
    original_offset AS root_offset,
    1 AS hops
  FROM {dlq_hops}
),
two AS (
  SELECT
    near.cluster,
    near.topic,
    near.partition,
    near.offset,
    coalesce(far.root_topic, near.root_topic) AS root_topic,
    coalesce(far.root_partition, near.root_partition) AS root_partition,
    coalesce(far.root_offset, near.root_offset) AS root_offset,
    near.hops + coalesce(far.hops, 0) AS hops
  FROM one AS near
  LEFT JOIN one AS far
    ON far.cluster = near.cluster
      AND far.topic = near.root_topic
      AND far.partition = near.root_partition
      AND far.offset = near.root_offset
),
four AS (
  SELECT
    near.cluster,
    near.topic,
    near.partition,
    near.offset,
    coalesce(far.root_topic, near.root_topic) AS root_topic,
    coalesce(far.root_partition, near.root_partition) AS root_partition,
    coalesce(far.root_offset, near.root_offset) AS root_offset,
    near.hops + coalesce(far.hops, 0) AS hops
  FROM two AS near
  LEFT JOIN two AS far
    ON far.cluster = near.cluster
      AND far.topic = near.root_topic
      AND far.partition = near.root_partition
      AND far.offset = near.root_offset
),
eight AS (
  SELECT
    near.cluster,
    near.topic,
    near.partition,
    near.offset,
    coalesce(far.root_topic, near.root_topic) AS root_topic,
    coalesce(far.root_partition, near.root_partition) AS root_partition,
    coalesce(far.root_offset, near.root_offset) AS root_offset,
    near.hops + coalesce(far.hops, 0) AS hops
  FROM four AS near
  LEFT JOIN four AS far
    ON far.cluster = near.cluster
      AND far.topic = near.root_topic
      AND far.partition = near.root_partition
      AND far.offset = near.root_offset
)
SELECT
  eight.cluster,
  eight.topic,
  eight.partition,
  eight.offset,
  IF(further.topic IS NULL, eight.root_topic, NULL) AS root_topic,
  IF(further.topic IS NULL, eight.root_partition, NULL) AS root_partition,
  IF(further.topic IS NULL, eight.root_offset, NULL) AS root_offset,
  CAST(IF(further.topic IS NULL, eight.hops, NULL) AS INT) AS hop_count,
  concat(lpad(eight.offset div 1000, 16, '0'), ':', eight.partition, ':', eight.topic) AS slice
FROM eight
LEFT JOIN one AS further
  ON further.cluster = eight.cluster
    AND further.topic = eight.root_topic
    AND further.partition = eight.root_partition
    AND further.offset = eight.root_offset
