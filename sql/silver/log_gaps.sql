-- Purpose: offsets between the landed segments of a partition that no landed segment tells of: what stood there is not
-- known.
-- Grain: cluster, topic, partition, first_offset.
-- Parameters: {log_ranges}, rows of silver.log_ranges, complete for each partition in them.
-- Engine: duckdb
-- Refresh: log
--   silver.log_ranges: concat(partition, ':', topic)
-- A segment may be missing there, or hold something that cannot be read. In a compacted log the cleaner may also have
-- removed the end of a segment.
WITH met AS (
  SELECT
    cluster,
    topic,
    partition,
    first_offset,
    max(last_offset) OVER (
      PARTITION BY cluster, topic, partition ORDER BY first_offset
      ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
    ) AS read_to
  FROM {log_ranges}
)
SELECT
  cluster,
  topic,
  partition,
  read_to + 1 AS first_offset,
  first_offset - 1 AS last_offset,
  concat(partition, ':', topic) AS log
FROM met
WHERE first_offset > read_to + 1
