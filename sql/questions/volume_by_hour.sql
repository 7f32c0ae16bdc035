-- Purpose: is the DLQ filling faster than usual? Records by hour of the last three days, against the median
--   whole hour. The hour of :now is counted whole, as known now; is_complete tells whether it is over.
-- Usage: afterlog ask volume_by_hour [--param now=2026-11-21T02:00:00Z]
-- Parameters: :now timestamp, the end of the three days; default the present.
-- Feeds: dlq.
-- Engine: duckdb
WITH hours AS (
  SELECT
    cluster,
    hour,
    hour < date_trunc('HOUR', :now) AS is_complete,
    sum(record_count) AS record_count,
    count(DISTINCT dlq_topic) AS dlq_topic_count
  FROM gold.dlq_summary
  WHERE hour >= :now - INTERVAL 72 HOURS AND hour <= :now
  GROUP BY cluster, hour
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
