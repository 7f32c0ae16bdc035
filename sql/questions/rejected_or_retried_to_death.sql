-- Purpose: does a group, or an owner without one, refuse records (its code decided), or do they run out of delivery attempts (it could not
--   decide)? If most_deliveries is near the group's limit and few are rejected, look for time-outs and crashes, not for
--   bad data.
-- Usage: afterlog ask rejected_or_retried_to_death [--param now=2026-11-21T02:00:00Z]
-- Parameters: :now timestamp, the end of the day; default the present.
-- Feeds: dlq.
-- Engine: duckdb
SELECT
  cluster,
  consumer_group,
  coalesce(consumer_group, owner) AS owner,
  dlq_topic,
  count_if(disposition = 'CLIENT_REJECTED') AS rejected,
  count_if(disposition = 'MAX_DELIVERY_ATTEMPTS_REACHED') AS attempts_reached,
  round(count_if(disposition = 'MAX_DELIVERY_ATTEMPTS_REACHED') / count(*), 3) AS attempts_reached_share,
  max(delivery_count) AS most_deliveries,
  array_sort(collect_set(disposition_source)) AS told_by
FROM silver.dlq_records AS records
LEFT ANTI JOIN silver.dlq_control_markers AS markers
  ON markers.is_control_marker AND markers.cluster = records.cluster AND markers._bronze_id = records._bronze_id
WHERE disposition IS NOT NULL AND routed_at > :now - INTERVAL 24 HOURS AND routed_at <= :now
GROUP BY cluster, consumer_group, coalesce(consumer_group, owner), dlq_topic
ORDER BY attempts_reached DESC, rejected DESC, dlq_topic, owner, consumer_group, cluster
