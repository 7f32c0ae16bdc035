-- Purpose: which records were archived but are in no DLQ, because the write failed? No consumer is notified of it.
-- Usage: afterlog ask failed_dlq_writes
-- Parameters: none.
-- Feeds: broker-logs.
-- Engine: duckdb
SELECT
  cluster,
  consumer_group,
  dlq_topic,
  error_class,
  reason,
  original_topic,
  original_partition,
  count(*) AS write_count,
  sum(offset_count) AS record_count,
  min(first_offset) AS first_offset,
  max(last_offset) AS last_offset,
  count_if(NOT is_attributed) AS unattributed_count,
  min(failed_at) AS first_failed_at,
  max(failed_at) AS last_failed_at
FROM silver.dlq_write_failures
GROUP BY cluster, consumer_group, dlq_topic, error_class, reason, original_topic, original_partition
ORDER BY
  last_failed_at DESC,
  cluster,
  consumer_group,
  original_topic,
  original_partition,
  dlq_topic,
  error_class,
  reason
