-- Purpose: is the DLQ filling faster than usual? Records by hour of the last three days, against the median
--   whole hour. The hour of :now is counted until :now; is_complete tells whether it is over.
-- Usage: afterlog ask volume_by_hour [--param now=2026-11-21T02:00:00Z]
-- Parameters: :now timestamp, the end of the three days; default the present.
-- Feeds: dlq.
-- Engine: duckdb
WITH counted AS (
  SELECT cluster, hour, true AS is_complete, dlq_topic, record_count
  FROM gold.dlq_summary
  WHERE hour >= :now - INTERVAL 72 HOURS AND hour < date_trunc('HOUR', :now)
  UNION ALL
  SELECT cluster, date_trunc('HOUR', :now), false, dlq_topic, count(*)
  FROM silver.dlq_records AS records
  LEFT ANTI JOIN silver.dlq_control_markers AS markers
    ON markers.is_control_marker AND markers.cluster = records.cluster AND markers._bronze_id = records._bronze_id
  WHERE routed_at >= date_trunc('HOUR', :now) AND routed_at <= :now
  GROUP BY cluster, dlq_topic
),
hours AS (
  SELECT
    cluster,
    hour,
    is_complete,
    sum(record_count) AS record_count,
    count(DISTINCT dlq_topic) AS dlq_topic_count
  FROM counted
  GROUP BY cluster, hour, is_complete
)
SELECT
  cluster,
  hour,
  is_complete,
  record_count,
  dlq_topic_count,
  round(record_count / median(IF(is_complete, record_count, NULL)) OVER (PARTITION BY cluster), 1) AS times_the_median
FROM hours
ORDER BY hour DESC, cluster
