-- Purpose: is it one poison pill, or is everything failing? The verdict on each incident with dead letters in the last
--   day, as `afterlog incident` tells it, with its severity, the reasons for both and the figures behind them, worst
--   first. A figure is null where nothing tells it; key_count is an estimate unless
--   is_key_count_exact. If is_as_known_now is true, dead letters came after :now, and the row counts them: it is as
--   known now.
--   What is stamped after :now counts if all that is known was accepted by then: a clock was ahead.
-- Usage: afterlog ask poison_pill_or_systemic [--param now=2026-11-21T02:00:00Z]
-- Parameters: :now timestamp, the end of the day; default the present.
-- Feeds: dlq.
-- Engine: duckdb
WITH knows_all AS (
  SELECT coalesce(max(last_accepted_at) <= :now, false) AS is_true FROM gold.dlq_summary
)
SELECT
  cluster,
  incident_id,
  verdict,
  severity,
  coalesce(consumer_group, owner) AS owner,
  original_topic,
  transform(dlq_topics, one -> one.dlq_topic) AS dlq_topics,
  sentence,
  severity_reasons,
  would_change,
  record_count,
  source_record_count,
  partition_count_hit,
  key_count,
  is_key_count_exact,
  offset_share,
  offset_share_of,
  partition_share,
  key_share,
  first_at,
  last_at,
  last_at > :now AND NOT is_true AS is_as_known_now
FROM gold.dlq_incidents
CROSS JOIN knows_all
WHERE record_count > 0 AND last_at > :now - INTERVAL 24 HOURS AND (first_at <= :now OR is_true)
ORDER BY
  array_position(array('critical', 'high', 'medium', 'low'), severity),
  record_count DESC,
  cluster,
  incident_id
