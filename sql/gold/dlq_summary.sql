-- Purpose: the number of dead-lettered records by hour, topics, owner and disposition.
-- Grain: cluster, hour of routed_at (UTC), dlq_topic, original_topic, consumer_group, owner, disposition; null
-- counts as a value.
-- Parameters: {dlq_counts}, rows of gold.dlq_counts, complete for each hour that is in them.
-- Engine: duckdb
-- Kept: hour with gold.dlq_counts
-- Refresh: hour
-- gold.dlq_counts says which records count.
SELECT
  cluster,
  hour,
  dlq_topic,
  original_topic,
  consumer_group,
  disposition,
  sum(record_count) AS record_count,
  sum(source_record_count) AS source_record_count,
  sum(without_payload_count) AS without_payload_count,
  max(most_deliveries) AS most_deliveries,
  min(first_routed_at) AS first_routed_at,
  max(last_routed_at) AS last_routed_at,
  sum(late_count) AS late_count,
  min(first_accepted_at) AS first_accepted_at,
  max(last_accepted_at) AS last_accepted_at,
  coalesce(consumer_group, owner) AS owner
FROM {dlq_counts}
GROUP BY cluster, hour, dlq_topic, original_topic, consumer_group, coalesce(consumer_group, owner), disposition
