-- Purpose: which transactions have no end in the landed log? An old one holds back every reader of committed records.
--   The states are as known now; seconds_since is null if the transaction was written after :now.
-- Usage: afterlog ask open_transactions [--param now=2026-11-21T03:00:00Z]
-- Parameters: :now timestamp, at which the age is taken; default the present.
-- Feeds: segments.
-- Engine: duckdb
SELECT
  cluster,
  topic,
  partition,
  producer_id,
  producer_epoch,
  first_offset,
  last_offset,
  record_count,
  last_written_at,
  IF(last_written_at > :now, NULL, (unix_micros(:now) - unix_micros(last_written_at)) DIV 1000000) AS seconds_since
FROM silver.transactions
WHERE state = 'OPEN'
ORDER BY last_written_at, cluster, topic, partition, first_offset, producer_id, producer_epoch
