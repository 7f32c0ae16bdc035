-- Purpose: every landed batch, and what superseded it in its log, if anything.
-- Grain: cluster, segment, version, position.
-- Parameters: {record_batches}, {log_copies}, rows of these silver tables, complete for each segment in them.
-- Engine: duckdb
-- Refresh: segment
--   silver.record_batches: _source
--   silver.log_copies: segment
-- A batch counts if superseded_by is null. No two such batches of a log have an offset in common.
SELECT
  batches.cluster,
  _source AS segment,
  coalesce(batches.version, 0) AS version,
  position,
  size_in_bytes,
  topic,
  partition,
  copies.topic_id AS topic_id,
  base_offset,
  batches.last_offset,
  record_count,
  max_timestamp,
  partition_leader_epoch AS leader_epoch,
  is_transactional,
  is_control,
  control_type,
  producer_id,
  producer_epoch,
  CASE
    WHEN coalesce(batches.version, 0) < copies.first_version THEN 'VERSION'
    WHEN copies.is_of_older_topic THEN 'TOPIC'
    WHEN exists(
      copies.ranges, one -> one.first_offset <= batches.last_offset AND base_offset <= one.last_offset
    ) THEN 'COPY'
    WHEN base_offset >= copies.truncated_from THEN 'LEADER'
  END AS superseded_by
FROM {record_batches} AS batches
LEFT JOIN (
  SELECT
    cluster, segment, topic_id, first_version, is_of_older_topic, truncated_from, superseded_ranges AS ranges
  FROM {log_copies}
) AS copies
  ON copies.cluster = batches.cluster AND copies.segment = batches._source
-- Tables of earlier releases also have rows of files.
WHERE base_offset IS NOT NULL
