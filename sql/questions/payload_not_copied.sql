-- Purpose: which records cannot be replayed from the DLQ because their payload was not copied, and why? If it is all
--   records of a group, record copy is off (errors.deadletterqueue.copy.record.enable). If it is some, they were larger
--   than the DLQ topic allows, or the source had deleted them.
-- Usage: afterlog ask payload_not_copied
-- Parameters: none.
-- Feeds: dlq.
-- Engine: duckdb
SELECT
  cluster,
  dlq_topic,
  consumer_group,
  count_if(NOT payload_copied) AS without_payload_count,
  count(*) AS record_count,
  if(count_if(payload_copied) = 0, 'record copy is off', 'too large, or deleted from the source') AS likely_cause,
  min(routed_at) FILTER (WHERE NOT payload_copied) AS first_routed_at,
  max(routed_at) FILTER (WHERE NOT payload_copied) AS last_routed_at
FROM silver.dlq_records AS records
LEFT ANTI JOIN silver.dlq_control_markers AS markers
  ON markers.is_control_marker AND markers.cluster = records.cluster AND markers._bronze_id = records._bronze_id
GROUP BY cluster, dlq_topic, consumer_group
HAVING count_if(NOT payload_copied) > 0
ORDER BY without_payload_count DESC, dlq_topic, consumer_group, cluster
