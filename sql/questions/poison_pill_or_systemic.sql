-- Purpose: is it one poison pill, or is everything failing? One row per group and hour of the last day, worst first.
--   consecutive_share: source records whose predecessor in the partition failed in that hour too; near 1 where all fails.
--   repeated_share: records that are not the first of their source record; near 1 where one record comes back and back.
-- Usage: afterlog sql --file sql/questions/poison_pill_or_systemic.sql [--param now=2026-11-21T02:00:00Z]
-- Parameters: :now timestamp, the end of the day; default the present.
WITH source_records AS (
  SELECT
    cluster,
    dlq_topic,
    consumer_group,
    date_trunc('HOUR', routed_at) AS hour,
    original_topic,
    original_partition,
    original_offset,
    count(*) AS times
  FROM silver.dlq_records
  WHERE routed_at > :now - INTERVAL 24 HOURS AND routed_at <= :now AND NOT is_control_marker
  GROUP BY ALL
),
in_order AS (
  SELECT
    *,
    original_offset - 1 <=> lag(original_offset) OVER (
      PARTITION BY cluster, dlq_topic, consumer_group, hour, original_topic, original_partition
      ORDER BY original_offset
    ) AS follows_a_failure
  FROM source_records
),
hours AS (
  SELECT
    cluster,
    dlq_topic,
    consumer_group,
    hour,
    sum(times) AS record_count,
    count(*) AS source_record_count,
    count(DISTINCT original_topic, original_partition) AS source_partition_count,
    round(count_if(follows_a_failure) / count(*), 2) AS consecutive_share,
    round((sum(times) - count(*)) / sum(times), 2) AS repeated_share,
    max(times) AS most_times_one_record
  FROM in_order
  GROUP BY cluster, dlq_topic, consumer_group, hour
)
SELECT
  CASE
    WHEN consecutive_share >= 0.5 AND source_record_count >= 5 THEN 'systemic'
    WHEN repeated_share >= 0.5 AND most_times_one_record >= 3 THEN 'poison pill'
    ELSE 'single records'
  END AS verdict,
  *
FROM hours
ORDER BY record_count DESC, hour DESC, dlq_topic, consumer_group
