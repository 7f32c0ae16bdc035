-- Purpose: how many messages of each topic in the ledger have which outcome? A count is null if no acknowledgement or
--   no segment of the topic landed that could tell it. last_message_at: when the latest of the messages was
--   acknowledged, produced or, if neither is known, dead-lettered for the first time.
-- Usage: afterlog ask messages_by_outcome
-- Parameters: none.
-- Feeds: acknowledgements, dlq.
-- Engine: duckdb
SELECT
  cluster,
  topic,
  outcome,
  count(*) AS message_count,
  round(count(*) / sum(count(*)) OVER (PARTITION BY cluster, topic), 4) AS share,
  IF(
    sum(sum(acknowledgement_count)) OVER (PARTITION BY cluster, topic) > 0, count_if(acknowledgement_count = 0), NULL
  ) AS without_acknowledgement_count,
  IF(sum(count(in_log)) OVER (PARTITION BY cluster, topic) > 0, count_if(in_log), NULL) AS in_landed_log_count,
  max(coalesce(acknowledged_at, produced_at, first_dead_lettered_at)) AS last_message_at
FROM gold.message_ledger
GROUP BY cluster, topic, outcome
ORDER BY
  cluster,
  topic,
  array_position(array('LOST', 'ABORTED', 'DEAD_LETTERED', 'ABSENT', 'FAILED', 'ACKNOWLEDGED', 'UNKNOWN'), outcome)
