-- Purpose: which messages were acknowledged to their producer, but are not in their partition's log?
--   For topics whose log may be compacted, see the question absent_messages.
-- Usage: afterlog ask lost_messages
-- Parameters: none.
-- Feeds: acknowledgements, segments.
-- Engine: duckdb
SELECT
  cluster,
  topic,
  partition,
  min(offset) AS first_lost_offset,
  max(offset) AS last_lost_offset,
  count(*) AS lost_count,
  array_sort(collect_set(client_id)) AS client_ids,
  slice(array_sort(collect_set(trace_id)), 1, 20) AS trace_ids,
  min(coalesce(acknowledged_at, produced_at)) AS first_acknowledged_at,
  max(coalesce(acknowledged_at, produced_at)) AS last_acknowledged_at
FROM gold.message_ledger
WHERE outcome = 'LOST'
GROUP BY cluster, topic, partition
ORDER BY lost_count DESC, cluster, topic, partition
