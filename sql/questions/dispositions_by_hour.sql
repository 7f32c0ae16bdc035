-- Purpose: how do dispositions shift over time, by owner and hour of the last day? The hour of :now is counted until
--   :now; is_complete tells whether it is over.
-- Usage: afterlog ask dispositions_by_hour [--param now=2026-11-21T02:00:00Z]
-- Parameters: :now timestamp, the end of the day; default the present.
-- Feeds: dlq.
-- Engine: duckdb
WITH counted AS (
  SELECT
    cluster,
    hour,
    true AS is_complete,
    consumer_group,
    coalesce(consumer_group, owner) AS owner,
    dlq_topic,
    disposition,
    record_count
  FROM gold.dlq_summary
  WHERE hour >= :now - INTERVAL 24 HOURS AND hour < date_trunc('HOUR', :now)
  UNION ALL
  SELECT
    cluster,
    date_trunc('HOUR', :now),
    false,
    consumer_group,
    coalesce(consumer_group, owner),
    dlq_topic,
    disposition,
    count(*)
  FROM silver.dlq_records AS records
  LEFT ANTI JOIN silver.dlq_control_markers AS markers
    ON markers.is_control_marker AND markers.cluster = records.cluster AND markers._bronze_id = records._bronze_id
  WHERE routed_at >= date_trunc('HOUR', :now) AND routed_at <= :now
  GROUP BY cluster, consumer_group, coalesce(consumer_group, owner), dlq_topic, disposition
)
SELECT
  cluster,
  hour,
  is_complete,
  consumer_group,
  owner,
  dlq_topic,
  sum(record_count) AS record_count,
  coalesce(sum(record_count) FILTER (WHERE disposition = 'CLIENT_REJECTED'), 0) AS rejected,
  coalesce(sum(record_count) FILTER (WHERE disposition = 'MAX_DELIVERY_ATTEMPTS_REACHED'), 0) AS attempts_reached,
  coalesce(sum(record_count) FILTER (WHERE disposition = 'CIRCUIT_BREAKER_ARCHIVED'), 0) AS archived,
  coalesce(sum(record_count) FILTER (WHERE disposition = 'COORDINATOR_INITIATED'), 0) AS by_coordinator,
  coalesce(sum(record_count) FILTER (WHERE disposition IS NULL), 0) AS unknown
FROM counted
GROUP BY cluster, hour, is_complete, consumer_group, owner, dlq_topic
ORDER BY hour DESC, record_count DESC, cluster, owner, consumer_group, dlq_topic
