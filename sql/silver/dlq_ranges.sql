-- Purpose: which offsets of DLQ topics landed, as ranges without gaps.
-- Grain: cluster, dlq_topic, dlq_topic_id, dlq_partition, first_offset. A range ends at the end of its slice.
-- Parameters: {dead_letters}, rows of silver.dead_letters, complete for each slice in them.
-- Engine: duckdb
-- Refresh: slice
WITH landed AS (
  SELECT
    cluster,
    dlq_topic,
    dlq_topic_id,
    dlq_partition,
    dlq_offset,
    coalesce(routed_at, dlq_timestamp) AS routed_at,
    slice,
    dlq_offset - row_number() OVER (
      PARTITION BY cluster, dlq_topic, dlq_topic_id, dlq_partition, slice ORDER BY dlq_offset
    ) AS stretch
  FROM {dead_letters}
)
SELECT
  cluster,
  dlq_topic,
  dlq_topic_id,
  dlq_partition,
  min(dlq_offset) AS first_offset,
  max(dlq_offset) AS last_offset,
  min_by(routed_at, dlq_offset) AS routed_at,
  slice
FROM landed
GROUP BY cluster, dlq_topic, dlq_topic_id, dlq_partition, stretch, slice
