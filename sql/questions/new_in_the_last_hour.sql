-- Purpose: what fails now that did not fail before? Incidents of the last hour whose error came for the first time, and
--   how many records of the same owner were dead-lettered in the 24 hours before. If is_as_known_now is true, dead
--   letters came after :now, and the row counts them. What is stamped after :now is left out: it would stay new for ever.
-- Usage: afterlog ask new_in_the_last_hour [--param now=2026-11-21T02:00:00Z]
-- Parameters: :now timestamp, the end of the hour; default the present.
-- Feeds: dlq.
-- Engine: duckdb
WITH errors AS (
  SELECT *, min(first_at) OVER (PARTITION BY cluster, fingerprint) AS error_first_at
  FROM gold.dlq_incidents
  WHERE record_count > 0
),
the_day_before AS (
  SELECT cluster, consumer_group, coalesce(consumer_group, owner) AS owner, count(*) AS records_before
  FROM silver.dlq_records AS records
  LEFT ANTI JOIN silver.dlq_control_markers AS markers
    ON markers.is_control_marker AND markers.cluster = records.cluster AND markers._bronze_id = records._bronze_id
  WHERE routed_at > :now - INTERVAL 25 HOURS AND routed_at <= :now - INTERVAL 1 HOUR
  GROUP BY cluster, consumer_group, coalesce(consumer_group, owner)
)
SELECT
  errors.cluster,
  errors.incident_id,
  errors.severity,
  errors.verdict,
  errors.consumer_group,
  coalesce(errors.consumer_group, errors.owner) AS owner,
  errors.original_topic,
  errors.disposition,
  errors.exception_class,
  errors.error_pattern,
  errors.first_at,
  errors.record_count,
  coalesce(the_day_before.records_before, 0) AS records_of_owner_the_day_before,
  errors.last_at > :now AS is_as_known_now
FROM errors
LEFT JOIN the_day_before
  ON errors.cluster = the_day_before.cluster
  AND errors.consumer_group <=> the_day_before.consumer_group
  AND coalesce(errors.consumer_group, errors.owner) <=> the_day_before.owner
WHERE errors.error_first_at > :now - INTERVAL 1 HOUR AND errors.first_at <= :now
ORDER BY errors.record_count DESC, errors.first_at, errors.cluster, errors.incident_id
