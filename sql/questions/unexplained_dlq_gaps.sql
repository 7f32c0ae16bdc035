-- Purpose: which offsets of DLQ topics never landed, and what of it do the DLQ's own segments not explain?
-- Usage: afterlog sql --file sql/questions/unexplained_dlq_gaps.sql
-- Parameters: none.
-- Feeds: dlq.
SELECT
  cluster,
  dlq_topic,
  dlq_topic_id,
  dlq_partition,
  first_offset,
  last_offset,
  unexplained_count,
  marker_count,
  aborted_count,
  compacted_count,
  found_at
FROM silver.dlq_gaps
WHERE unexplained_count > 0
ORDER BY unexplained_count DESC, cluster, dlq_topic, dlq_partition, first_offset
