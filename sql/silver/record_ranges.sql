-- Purpose: which offsets around dead-lettered records hold records, as acknowledgements and landed segments tell.
-- Grain: cluster, slice; only slices of source topics with counted dead letters, if anything tells of them.
-- Parameters: {dead_letters}, {acknowledgements}, {log_batches}, {log_ranges}, rows of these silver tables, complete for
-- each slice that is in them.
-- Engine: duckdb
-- Refresh: slice
--   silver.dead_letters: each of source_slice where is_counted
--   silver.acknowledgements: slice
--   silver.log_batches: each of concat(lpad(base_offset div 1000, 16, '0'), ':', partition, ':', topic)
--     and concat(lpad(last_offset div 1000, 16, '0'), ':', partition, ':', topic)
--     where superseded_by IS NULL AND record_count > 0 AND (is_control OR record_count < last_offset - base_offset + 1)
--   silver.log_ranges: slice
-- These offsets hold no record: a transaction marker, and what the segment proves to be absent, batches without records
-- included. Of a thinned batch only the number of its records is known. A slice without dead letters has no row, so that news of other messages
-- judges no incident again.
WITH letters AS (
  SELECT DISTINCT
    cluster, source_slice AS slice, original_topic AS topic, original_partition AS partition, original_offset AS offset
  FROM {dead_letters}
  WHERE is_counted AND source_slice IS NOT NULL
),
dead AS (
  SELECT cluster, slice, topic, partition, count(*) AS dead_lettered_count
  FROM letters
  GROUP BY cluster, slice, topic, partition
),
sent AS (
  SELECT DISTINCT cluster, slice, offset
  FROM {acknowledgements}
  WHERE outcome = 'ACKNOWLEDGED' AND offset IS NOT NULL
),
numbered AS (
  SELECT
    cluster,
    slice,
    offset,
    offset - row_number() OVER (PARTITION BY cluster, slice ORDER BY offset) AS stretch
  FROM sent
  LEFT SEMI JOIN dead USING (cluster, slice)
),
met AS (
  SELECT cluster, slice, count(*) AS acknowledged_dead_lettered_count
  FROM letters
  LEFT SEMI JOIN sent USING (cluster, slice, offset)
  GROUP BY cluster, slice
),
acknowledged AS (
  SELECT cluster, slice, array_sort(collect_list(struct(first_offset, last_offset))) AS ranges
  FROM (
    SELECT cluster, slice, min(offset) AS first_offset, max(offset) AS last_offset
    FROM numbered
    GROUP BY cluster, slice, stretch
  )
  GROUP BY cluster, slice
),
batches AS (
  SELECT
    cluster,
    concat(lpad(place, 16, '0'), ':', partition, ':', topic) AS slice,
    IF(base_offset div 1000 = place, base_offset, 1000 * place) AS first_offset,
    IF(last_offset div 1000 = place, last_offset, 1000 * place + 999) AS last_offset,
    last_offset - base_offset + 1 AS span,
    IF(is_control, last_offset - base_offset + 1, last_offset - base_offset + 1 - record_count) AS empty_count
  FROM {log_batches}
    LATERAL VIEW explode(array_distinct(array(base_offset div 1000, last_offset div 1000))) AS place
  WHERE superseded_by IS NULL AND record_count > 0 AND (is_control OR record_count < last_offset - base_offset + 1)
),
empty AS (
  SELECT cluster, slice, array_sort(collect_list(struct(first_offset, last_offset, offset_count))) AS ranges
  FROM (
    SELECT
      cluster, slice, first_offset, last_offset,
      empty_count * (last_offset - first_offset + 1) div span AS offset_count
    FROM batches
    UNION ALL
    SELECT cluster, slice, first_offset, last_offset, last_offset - first_offset + 1 AS offset_count
    FROM {log_ranges}
    WHERE NOT is_present
  )
  LEFT SEMI JOIN dead USING (cluster, slice)
  GROUP BY cluster, slice
),
landed AS (
  SELECT cluster, slice, array_sort(collect_list(struct(first_offset, last_offset))) AS ranges
  FROM {log_ranges}
  LEFT SEMI JOIN dead USING (cluster, slice)
  GROUP BY cluster, slice
)
SELECT
  cluster,
  slice,
  topic,
  partition,
  dead_lettered_count,
  coalesce(acknowledged_dead_lettered_count, 0) AS acknowledged_dead_lettered_count,
  coalesce(acknowledged.ranges, array()) AS acknowledged,
  coalesce(landed.ranges, array()) AS landed,
  IF(landed.ranges IS NULL, array(), coalesce(empty.ranges, array())) AS without_record
FROM dead
LEFT JOIN met USING (cluster, slice)
LEFT JOIN acknowledged USING (cluster, slice)
LEFT JOIN landed USING (cluster, slice)
LEFT JOIN empty USING (cluster, slice)
WHERE acknowledged.ranges IS NOT NULL OR landed.ranges IS NOT NULL
