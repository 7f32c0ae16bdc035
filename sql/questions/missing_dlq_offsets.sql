-- Purpose: did every record of the DLQ topics land? The rows are gaps in a partition's offsets, over silver, quarantine
--   and held rows. A gap means records that never landed, unless the topic is compacted or was written in transactions.
--   Records of files name no topic id: they are of the topic's only id, if there is just one.
-- Usage: afterlog ask missing_dlq_offsets
-- Parameters: none.
-- Feeds: dlq.
-- Engine: duckdb
WITH landed AS (
  SELECT cluster, dlq_topic, dlq_topic_id, dlq_partition, dlq_offset FROM silver.dlq_records
  UNION
  SELECT cluster, dlq_topic, dlq_topic_id, dlq_partition, dlq_offset FROM quarantine.dlq_records
  WHERE dlq_offset IS NOT NULL
  UNION
  SELECT cluster, dlq_topic, dlq_topic_id, dlq_partition, dlq_offset FROM held.dlq_records
  WHERE dlq_offset IS NOT NULL
),
of_topics AS (
  SELECT DISTINCT
    cluster,
    dlq_topic,
    IF(min(dlq_topic_id) OVER of_name = max(dlq_topic_id) OVER of_name, max(dlq_topic_id) OVER of_name, dlq_topic_id)
      AS dlq_topic_id,
    dlq_partition,
    dlq_offset
  FROM landed
  WINDOW of_name AS (PARTITION BY cluster, dlq_topic, dlq_partition)
),
in_order AS (
  SELECT
    *,
    lag(dlq_offset) OVER (
      PARTITION BY cluster, dlq_topic, dlq_topic_id, dlq_partition
      ORDER BY dlq_offset
    ) AS offset_before
  FROM of_topics
)
SELECT
  cluster,
  dlq_topic,
  dlq_topic_id,
  dlq_partition,
  offset_before + 1 AS first_missing_offset,
  dlq_offset - 1 AS last_missing_offset,
  dlq_offset - offset_before - 1 AS missing_count
FROM in_order
WHERE dlq_offset > offset_before + 1
ORDER BY missing_count DESC, dlq_topic, dlq_partition, first_missing_offset, cluster, dlq_topic_id
