-- Purpose: what became of the messages of each topic, of what is in the ledger?
-- Usage: afterlog sql --file sql/questions/messages_by_outcome.sql
-- Parameters: none.
SELECT
  cluster,
  topic,
  outcome,
  count(*) AS message_count,
  round(count(*) / sum(count(*)) OVER (PARTITION BY cluster, topic), 4) AS share,
  count_if(acknowledgement_count = 0) AS without_acknowledgement_count,
  count_if(in_log) AS in_landed_log_count,
  max(coalesce(acknowledged_at, produced_at, first_dead_lettered_at)) AS last_at
FROM gold.message_ledger
GROUP BY cluster, topic, outcome
ORDER BY
  cluster,
  topic,
  array_position(array('LOST', 'ABORTED', 'DEAD_LETTERED', 'ABSENT', 'FAILED', 'ACKNOWLEDGED', 'UNKNOWN'), outcome)
