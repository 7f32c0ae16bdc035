-- Purpose: which offsets a landed log segment holds records at, and which it proves to be absent.
-- Grain: cluster, segment, first_offset; ranges are cut at slices of a thousand offsets.
-- Parameters: {log_batches}, {log_copies}, rows of these silver tables, complete for each segment that is in them.
-- Engine: duckdb
-- Refresh: segment
-- Offsets are proved absent if they lie between two batches that are adjacent in the file, or between the offset that
-- names the segment and its first batch. Nothing is proved if something that was not accepted stands between them, or
-- if another copy of the log supersedes an offset between them. Nothing is proved about offsets behind the last batch
-- or in another segment. A segment counts as compacted if one of its batches has fewer records than offsets.
WITH batches AS (
  SELECT
    cluster,
    segment,
    topic,
    partition,
    topic_id,
    base_offset,
    last_offset,
    position,
    CASE WHEN record_count >= last_offset - base_offset + 1 THEN true WHEN record_count = 0 THEN false END
      AS is_present,
    superseded_by IS NULL AS speaks,
    coalesce(try_cast(regexp_extract(segment, '([0-9]+)[.]log$', 1) AS BIGINT), base_offset) AS segment_offset,
    bool_or(superseded_by IS NULL AND coalesce(record_count < last_offset - base_offset + 1, false)) OVER (
      PARTITION BY cluster, segment
    ) AS is_compacted,
    lag(last_offset) OVER in_segment AS offset_before,
    coalesce(lag(position + size_in_bytes) OVER in_segment, 0) AS end_before,
    coalesce(lag(superseded_by IS NULL) OVER in_segment, true) AS spoke_before
  FROM {log_batches}
  WHERE superseded_by IS DISTINCT FROM 'VERSION'
  WINDOW in_segment AS (PARTITION BY cluster, segment ORDER BY position)
),
ordered AS (
  SELECT
    *,
    lag(is_present) OVER (PARTITION BY cluster, segment ORDER BY position) IS DISTINCT FROM is_present AS differs
  FROM batches
  WHERE speaks
),
numbered AS (
  SELECT
    *,
    count_if(differs OR offset_before IS NULL OR NOT spoke_before OR base_offset > offset_before + 1) OVER (
      PARTITION BY cluster, segment ORDER BY position ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW
    ) AS range_number
  FROM ordered
),
holes AS (
  SELECT
    cluster,
    segment,
    topic,
    partition,
    topic_id,
    coalesce(offset_before + 1, segment_offset) AS first_offset,
    base_offset - 1 AS last_offset,
    is_compacted
  FROM batches
  WHERE speaks
    AND spoke_before
    AND base_offset > coalesce(offset_before + 1, segment_offset)
    AND position = end_before
),
ranges AS (
  SELECT
    cluster,
    segment,
    topic,
    partition,
    max(topic_id) AS topic_id,
    min(base_offset) AS first_offset,
    max(last_offset) AS last_offset,
    true AS has_batch,
    any_value(is_present) AS is_present,
    any_value(is_compacted) AS is_compacted
  FROM numbered
  GROUP BY cluster, segment, topic, partition, range_number
  UNION ALL
  SELECT
    holes.cluster,
    holes.segment,
    holes.topic,
    holes.partition,
    holes.topic_id,
    holes.first_offset,
    holes.last_offset,
    false AS has_batch,
    false AS is_present,
    is_compacted
  FROM holes
  LEFT JOIN {log_copies} AS copies ON copies.cluster = holes.cluster AND copies.segment = holes.segment
  WHERE NOT coalesce(exists(
    superseded_ranges, one -> one.first_offset <= holes.last_offset AND holes.first_offset <= one.last_offset
  ), false)
)
SELECT
  cluster,
  segment,
  topic,
  partition,
  greatest(first_offset, 1000 * place) AS first_offset,
  least(last_offset, 1000 * place + 999) AS last_offset,
  has_batch,
  is_present,
  is_compacted,
  concat(lpad(place, 16, '0'), ':', partition, ':', topic) AS slice,
  topic_id
FROM ranges LATERAL VIEW explode(sequence(first_offset div 1000, last_offset div 1000)) AS place
