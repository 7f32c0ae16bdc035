-- Purpose: dead letters that the headers of later dead letters tell, so that a message is found by each of its hops,
-- also where only the last DLQ landed. A hop's place in its DLQ is the source that the next hop names.
-- Grain: cluster, told_by_topic, told_by_topic_id, told_by_partition, told_by_offset, hop.
-- Parameters: {dlq_records}, rows of silver.dlq_records, complete for each slice of a DLQ topic in them.
-- Engine: duckdb
-- Refresh: slice
--   silver.dlq_records: concat(lpad(dlq_offset div 1000, 16, '0'), ':', dlq_partition, ':', dlq_topic)
WITH chains AS (
  SELECT
    cluster,
    dlq_topic AS told_by_topic,
    dlq_topic_id AS told_by_topic_id,
    dlq_partition AS told_by_partition,
    dlq_offset AS told_by_offset,
    earlier_hops,
    original_topic,
    original_partition,
    original_offset
  FROM {dlq_records}
  WHERE size(earlier_hops) > 0
),
numbered AS (
  SELECT *, get(earlier_hops, number) AS told, get(earlier_hops, number + 1) AS further
  FROM chains LATERAL VIEW explode(sequence(0, size(earlier_hops) - 1)) AS number
),
placed AS (
  SELECT
    *,
    number = size(earlier_hops) - 1 AS is_last,
    told.topic AS source_topic,
    told.partition AS source_partition,
    told.offset AS source_offset
  FROM numbered
),
hops AS (
  SELECT
    *,
    IF(is_last, original_topic, further.topic) AS dlq_topic,
    IF(is_last, original_partition, further.partition) AS dlq_partition,
    IF(is_last, original_offset, further.offset) AS dlq_offset
  FROM placed
)
SELECT
  cluster,
  told_by_topic,
  told_by_topic_id,
  told_by_partition,
  told_by_offset,
  CAST(number AS INT) AS hop,
  told.profile AS header_profile,
  source_topic AS original_topic,
  source_partition AS original_partition,
  source_offset AS original_offset,
  told.consumer_group AS consumer_group,
  dlq_topic,
  dlq_partition,
  dlq_offset,
  concat(lpad(told_by_offset div 1000, 16, '0'), ':', told_by_partition, ':', told_by_topic) AS slice,
  concat(lpad(source_offset div 1000, 16, '0'), ':', source_partition, ':', source_topic) AS source_slice,
  concat(lpad(dlq_offset div 1000, 16, '0'), ':', dlq_partition, ':', dlq_topic) AS dlq_slice
FROM hops
WHERE
  source_topic IS NOT NULL AND source_partition IS NOT NULL AND source_offset IS NOT NULL
  AND dlq_topic IS NOT NULL AND dlq_partition IS NOT NULL AND dlq_offset IS NOT NULL
