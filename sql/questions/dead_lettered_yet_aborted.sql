-- Purpose: which groups dead-lettered messages of aborted transactions? They read records that were never committed:
--   their share.isolation.level is read_uncommitted, the default.
-- Usage: afterlog ask dead_lettered_yet_aborted
-- Parameters: none.
-- Feeds: dlq, segments.
-- Engine: duckdb
SELECT
  cluster,
  topic,
  letter.consumer_group AS consumer_group,
  letter.dlq_topic AS dlq_topic,
  count(*) AS record_count,
  count(DISTINCT partition, offset) AS message_count,
  min(letter.routed_at) AS first_routed_at,
  max(letter.routed_at) AS last_routed_at
FROM gold.message_ledger LATERAL VIEW explode(dead_letters) AS letter
WHERE transaction_state = 'ABORTED'
GROUP BY cluster, topic, letter.consumer_group, letter.dlq_topic
ORDER BY record_count DESC, cluster, topic, consumer_group, dlq_topic
