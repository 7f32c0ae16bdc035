-- Purpose: is it one poison pill, or is everything failing? One row per owner and error of the last day, worst first.
--   Each source record is judged by itself. It is systemic if it is one of five neighbours of a partition that nearly
--   all failed, partial if at least one in ten of its neighbours failed, and a poison pill if it was dead-lettered
--   three times or more. Any other record, and one whose headers do not name its place, is single. The verdict is the
--   strongest of these kinds that enough records share; the counts beside it show the others.
-- Usage: afterlog ask poison_pill_or_systemic [--param now=2026-11-21T02:00:00Z]
-- Parameters: :now timestamp, the end of the day; default the present.
-- Feeds: dlq.
-- Engine: duckdb
WITH recent AS (
  SELECT
    * EXCEPT (owner),
    coalesce(consumer_group, owner) AS owner,
    coalesce(exception_class, error_message, disposition) AS error
  FROM silver.dlq_records AS records
  LEFT ANTI JOIN silver.dlq_control_markers AS markers
    ON markers.is_control_marker AND markers.cluster = records.cluster AND markers._bronze_id = records._bronze_id
  WHERE routed_at > :now - INTERVAL 24 HOURS AND routed_at <= :now
),
source_records AS (
  SELECT
    cluster,
    dlq_topic,
    consumer_group,
    owner,
    disposition,
    error,
    original_topic,
    original_partition,
    original_offset,
    IF(original_partition IS NULL OR original_offset IS NULL, _bronze_id, NULL) AS without_place,
    count(*) AS times,
    min(routed_at) AS first_routed_at,
    max(routed_at) AS last_routed_at
  FROM recent
  GROUP BY ALL
),
-- Offsets of the records that failed next to each record: 5 or 9 records, which end with, begin with or surround it.
neighbours AS (
  SELECT
    *,
    lag(original_offset, 8) OVER in_order AS eight_before,
    lag(original_offset, 4) OVER in_order AS four_before,
    lag(original_offset, 2) OVER in_order AS two_before,
    lead(original_offset, 2) OVER in_order AS two_behind,
    lead(original_offset, 4) OVER in_order AS four_behind,
    lead(original_offset, 8) OVER in_order AS eight_behind
  FROM source_records
  WINDOW in_order AS (
    PARTITION BY cluster, dlq_topic, consumer_group, owner, disposition, error, original_topic, original_partition
    ORDER BY original_offset
  )
),
stretched AS (
  SELECT
    *,
    least(four_behind - original_offset, original_offset - four_before, two_behind - two_before) / 4 AS step_of_five,
    least(eight_behind - original_offset, original_offset - eight_before, four_behind - four_before) / 8 AS step_of_nine
  FROM neighbours
),
judged AS (
  SELECT
    *,
    CASE
      WHEN step_of_five <= 1.25 THEN 'systemic'
      WHEN step_of_nine <= 10 THEN 'partial'
      WHEN times >= 3 THEN 'poison pill'
      ELSE 'single'
    END AS kind
  FROM stretched
),
partitions AS (
  SELECT cluster, original_topic, count(DISTINCT original_partition) AS known_partition_count
  FROM recent
  GROUP BY ALL
),
errors AS (
  SELECT
    cluster,
    dlq_topic,
    consumer_group,
    owner,
    disposition,
    error,
    original_topic,
    sum(times) AS record_count,
    count(*) AS source_record_count,
    count_if(kind = 'systemic') AS systemic_count,
    count_if(kind = 'partial') AS partial_count,
    count_if(kind = 'poison pill') AS poison_pill_count,
    count_if(kind = 'single') AS single_count,
    max(times) AS most_times_one_record,
    round(median(step_of_nine) FILTER (WHERE kind = 'partial')) AS partial_step,
    count(DISTINCT original_partition) FILTER (WHERE kind = 'partial') AS partial_partition_count,
    slice(
      array_sort(collect_list(IF(kind = 'poison pill', concat(original_partition, '@', original_offset), NULL))), 1, 5
    ) AS poison_pills,
    min(first_routed_at) AS first_routed_at,
    max(last_routed_at) AS last_routed_at
  FROM judged
  GROUP BY cluster, dlq_topic, consumer_group, owner, disposition, error, original_topic
)
SELECT
  CASE
    WHEN systemic_count >= 5 AND systemic_count >= partial_count THEN 'systemic'
    WHEN partial_count >= 9 THEN concat(
      'partial (1 in ', CAST(partial_step AS INT), ', ',
      IF(
        partial_partition_count = known_partition_count,
        'all partitions',
        concat(partial_partition_count, ' of ', known_partition_count, ' partitions')
      ),
      ')'
    )
    WHEN poison_pill_count > 0 THEN 'poison pill'
    ELSE 'single records'
  END AS verdict,
  errors.* EXCEPT (partial_step, partial_partition_count)
FROM errors
JOIN partitions ON errors.cluster = partitions.cluster AND errors.original_topic <=> partitions.original_topic
ORDER BY
  systemic_count DESC,
  partial_count DESC,
  poison_pill_count DESC,
  record_count DESC,
  dlq_topic,
  owner,
  consumer_group,
  errors.cluster,
  disposition,
  error,
  errors.original_topic
