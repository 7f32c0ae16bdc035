-- Purpose: what fails now that did not fail before? Causes (owner, topic, disposition, message) first seen in the last
--   hour, and how many records of the same owner were dead-lettered in the 24 hours before.
-- Usage: afterlog ask new_in_the_last_hour [--param now=2026-11-21T02:00:00Z]
-- Parameters: :now timestamp, the end of the hour; default the present.
-- Feeds: dlq.
-- Engine: duckdb
WITH causes AS (
  SELECT
    cluster,
    consumer_group,
    coalesce(consumer_group, owner) AS owner,
    dlq_topic,
    original_topic,
    disposition,
    error_message,
    min(routed_at) AS first_routed_at,
    count_if(routed_at > :now - INTERVAL 1 HOUR) AS record_count
  FROM silver.dlq_records AS records
  LEFT ANTI JOIN silver.dlq_control_markers AS markers
    ON markers.is_control_marker AND markers.cluster = records.cluster AND markers._bronze_id = records._bronze_id
  WHERE routed_at <= :now
  GROUP BY cluster, consumer_group, coalesce(consumer_group, owner), dlq_topic, original_topic, disposition, error_message
),
the_day_before AS (
  SELECT cluster, consumer_group, coalesce(consumer_group, owner) AS owner, dlq_topic, count(*) AS records_before
  FROM silver.dlq_records AS records
  LEFT ANTI JOIN silver.dlq_control_markers AS markers
    ON markers.is_control_marker AND markers.cluster = records.cluster AND markers._bronze_id = records._bronze_id
  WHERE routed_at > :now - INTERVAL 25 HOURS AND routed_at <= :now - INTERVAL 1 HOUR
  GROUP BY cluster, consumer_group, coalesce(consumer_group, owner), dlq_topic
)
SELECT causes.*, coalesce(the_day_before.records_before, 0) AS records_of_group_the_day_before
FROM causes
LEFT JOIN the_day_before
  ON causes.cluster = the_day_before.cluster
  AND causes.consumer_group <=> the_day_before.consumer_group
  AND causes.owner <=> the_day_before.owner
  AND causes.dlq_topic = the_day_before.dlq_topic
WHERE causes.first_routed_at > :now - INTERVAL 1 HOUR
ORDER BY
  record_count DESC,
  first_routed_at,
  cluster,
  owner,
  consumer_group,
  dlq_topic,
  original_topic,
  disposition,
  error_message
