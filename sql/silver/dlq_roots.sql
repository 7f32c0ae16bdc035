-- Purpose: the source record behind each DLQ record that was itself dead-lettered, hop by hop.
-- Grain: cluster, topic, partition, offset: the place in a DLQ topic that a later dead letter names as its origin.
-- Parameters: {dead_letters}, all rows of silver.dead_letters of a cluster.
-- Refresh: cluster
-- Each step doubles the number of hops that it follows. If more than eight hops lead to the root, the root stays null:
-- a group whose DLQ is its own input makes an endless chain.
WITH accepted AS (
  SELECT
    cluster, dlq_topic, dlq_partition, dlq_offset, original_topic, original_partition, original_offset, routed_at
  FROM {dead_letters}
  WHERE is_accepted AND NOT is_control_marker
),
named AS (
  SELECT DISTINCT
    cluster, original_topic AS topic, original_partition AS partition, original_offset AS offset
  FROM accepted
  WHERE original_topic IN (SELECT dlq_topic FROM accepted)
),
origins AS (
  SELECT
    cluster,
    dlq_topic,
    dlq_partition,
    dlq_offset,
    max(struct(
      routed_at, original_topic AS topic, original_partition AS partition, original_offset AS offset
    )) AS origin
  FROM accepted
  WHERE dlq_topic IN (SELECT topic FROM named)
  GROUP BY cluster, dlq_topic, dlq_partition, dlq_offset
),
one AS (
  SELECT
    named.cluster,
    named.topic,
    named.partition,
    named.offset,
    origins.origin.topic AS root_topic,
    origins.origin.partition AS root_partition,
    origins.origin.offset AS root_offset,
    1 AS hops
  FROM named
  JOIN origins
    ON origins.cluster = named.cluster
      AND origins.dlq_topic = named.topic
      AND origins.dlq_partition = named.partition
      AND origins.dlq_offset = named.offset
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
  concat(lpad(eight.offset div 10000, 15, '0'), ':', eight.partition, ':', eight.topic) AS slice
FROM eight
LEFT JOIN one AS further
  ON further.cluster = eight.cluster
    AND further.topic = eight.root_topic
    AND further.partition = eight.root_partition
    AND further.offset = eight.root_offset
