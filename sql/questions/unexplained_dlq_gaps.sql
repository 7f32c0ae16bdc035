-- Purpose: which offsets of DLQ topics never landed, and how many of them do the DLQ's own segments not explain? If
--   log_has_landed is false, no segment of the partition landed: markers and compaction may explain the whole gap. If
--   log_is_compacted is true or unknown (null), the cleaner may have removed whole batches. next_routed_at: when the record
--   behind the gap was dead-lettered, as it is stamped. Lines in quarantine that cannot be read can be some of the offsets.
-- Usage: afterlog ask unexplained_dlq_gaps
-- Parameters: none.
-- Feeds: dlq.
-- Engine: duckdb
SELECT
  gaps.cluster,
  dlq_topic,
  dlq_topic_id,
  dlq_partition,
  first_offset,
  last_offset,
  unexplained_count,
  marker_count,
  aborted_count,
  compacted_count,
  logs.topic IS NOT NULL AS log_has_landed,
  policies.is_compacted AS log_is_compacted,
  found_at AS next_routed_at
FROM silver.dlq_gaps AS gaps
LEFT JOIN (SELECT DISTINCT cluster, topic, partition FROM silver.log_ranges) AS logs
  ON logs.cluster = gaps.cluster AND logs.topic = gaps.dlq_topic AND logs.partition = gaps.dlq_partition
LEFT JOIN silver.topic_policies AS policies ON policies.cluster = gaps.cluster AND policies.topic = gaps.dlq_topic
WHERE unexplained_count > 0
ORDER BY
  log_has_landed DESC, unexplained_count DESC, gaps.cluster, dlq_topic, dlq_partition, first_offset, dlq_topic_id
