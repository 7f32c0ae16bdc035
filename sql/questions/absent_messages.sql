-- Purpose: which acknowledged messages are absent from their partition's log, either lost or removed by compaction? To
--   decide which, set the topic's cleanup.policy under [[segments.cleanup_policy]] of the settings, or grant Afterlog
--   DescribeConfigs on the topic; the next run decides.
-- Usage: afterlog ask absent_messages
-- Parameters: none.
-- Feeds: acknowledgements, segments.
-- Engine: duckdb
SELECT
  cluster,
  topic,
  count(DISTINCT partition) AS partition_count,
  count(*) AS absent_count,
  array_sort(collect_set(client_id)) AS client_ids,
  min(coalesce(acknowledged_at, produced_at)) AS first_acknowledged_at,
  max(coalesce(acknowledged_at, produced_at)) AS last_acknowledged_at
FROM gold.message_ledger
WHERE outcome = 'ABSENT'
GROUP BY cluster, topic
ORDER BY absent_count DESC, cluster, topic
