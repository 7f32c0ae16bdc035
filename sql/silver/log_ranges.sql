-- Purpose: which offsets a landed log segment holds, and which it proves to be absent.
-- Grain: cluster, segment, first_offset; a range ends where a slice of ten thousand offsets does.
-- Parameters: {record_batches}, rows of silver.record_batches, complete for each segment that is in them.
-- Absent is what lies between two batches of which one begins in the file where the other ends, and between the offset
-- that names the segment and its first batch. Where something stands between them that was not accepted, nothing is
-- proved; nor is anything about what comes behind the last batch, or in another segment. A batch that has fewer records
-- than offsets was compacted. No segment spans more than 2^31 offsets: what says that it does, says nothing.
WITH named AS (
  SELECT
    cluster,
    _source AS segment,
    topic,
    partition,
    base_offset,
    last_offset,
    position,
    position + size_in_bytes AS end_position,
    coalesce(record_count < last_offset - base_offset + 1, false) AS is_thinned,
    try_cast(regexp_extract(_source, '([0-9]+)[.]log$', 1) AS BIGINT) AS segment_offset
  FROM {record_batches}
),
batches AS (
  SELECT
    *,
    bool_or(is_thinned) OVER (PARTITION BY cluster, segment) AS is_compacted,
    lag(last_offset) OVER in_segment AS offset_before,
    lag(end_position) OVER in_segment AS end_before
  FROM named
  WHERE last_offset - segment_offset <= 2147483647
  WINDOW in_segment AS (PARTITION BY cluster, segment ORDER BY position)
),
numbered AS (
  SELECT
    *,
    count_if(offset_before IS NULL OR base_offset > offset_before + 1) OVER (
      PARTITION BY cluster, segment ORDER BY position ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW
    ) AS range_number
  FROM batches
),
ranges AS (
  SELECT
    cluster,
    segment,
    topic,
    partition,
    min(base_offset) AS first_offset,
    max(last_offset) AS last_offset,
    true AS is_present,
    any_value(is_compacted) AS is_compacted
  FROM numbered
  GROUP BY cluster, segment, topic, partition, range_number
  UNION ALL
  SELECT
    cluster,
    segment,
    topic,
    partition,
    coalesce(offset_before + 1, segment_offset) AS first_offset,
    base_offset - 1 AS last_offset,
    false AS is_present,
    is_compacted
  FROM batches
  WHERE base_offset > coalesce(offset_before + 1, segment_offset) AND position = coalesce(end_before, 0)
)
SELECT
  cluster,
  segment,
  topic,
  partition,
  greatest(first_offset, 10000 * place) AS first_offset,
  least(last_offset, 10000 * place + 9999) AS last_offset,
  is_present,
  is_compacted,
  concat(partition, ':', place, ':', topic) AS slice
FROM ranges LATERAL VIEW explode(sequence(first_offset div 10000, last_offset div 10000)) AS place
