-- Purpose: since when does each error occur, and does it still occur? An error is that of incidents: class, pattern of the
--   message and frame. If is_as_known_now is true, dead letters came after :now, and the row counts them.
--   What is stamped after :now counts if all that is known was accepted by then: a clock was ahead.
-- Usage: afterlog ask errors_since_when [--param now=2026-11-21T02:00:00Z]
-- Parameters: :now timestamp, up to which incidents began; default the present.
-- Feeds: dlq.
-- Engine: duckdb
WITH knows_all AS (
  SELECT coalesce(max(last_accepted_at) <= :now, false) AS is_true FROM gold.dlq_summary
),
of_errors AS (
  SELECT
    cluster,
    exception_class,
    error_pattern,
    error_frame,
    min(first_at) AS first_at,
    max(last_at) AS last_at,
    sum(record_count) AS record_count,
    count(*) AS incident_count,
    count_if(last_at > :now - INTERVAL 1 HOUR) AS incidents_of_the_last_hour,
    array_sort(collect_set(coalesce(consumer_group, owner))) AS owners
  FROM gold.dlq_incidents
  CROSS JOIN knows_all
  WHERE record_count > 0 AND (first_at <= :now OR is_true)
  GROUP BY cluster, exception_class, error_pattern, error_frame
),
of_topics AS (
  SELECT cluster, exception_class, error_pattern, error_frame, array_sort(collect_set(dlq.dlq_topic)) AS dlq_topics
  FROM gold.dlq_incidents
    LATERAL VIEW explode(dlq_topics) AS dlq
  WHERE record_count > 0 AND (first_at <= :now OR (SELECT is_true FROM knows_all))
  GROUP BY cluster, exception_class, error_pattern, error_frame
)
SELECT of_errors.*, of_topics.dlq_topics, of_errors.last_at > :now AND NOT is_true AS is_as_known_now
FROM of_errors
CROSS JOIN knows_all
LEFT JOIN of_topics
  ON of_topics.cluster = of_errors.cluster
  AND of_topics.exception_class <=> of_errors.exception_class
  AND of_topics.error_pattern <=> of_errors.error_pattern
  AND of_topics.error_frame <=> of_errors.error_frame
ORDER BY of_errors.first_at DESC, of_errors.exception_class, of_errors.error_pattern, of_errors.error_frame, of_errors.cluster
