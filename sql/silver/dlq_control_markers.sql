-- Purpose: which dead-letter records are transaction control markers, as the landed log of their source shows, and
-- which only look like one.
-- Grain: cluster, dlq_topic, dlq_topic_id, dlq_partition, dlq_offset.
-- Parameters: {dlq_records}, {log_batches}, {log_ranges}, rows of these silver tables, complete for each slice of a
-- source topic in them.
-- Engine: duckdb
-- Refresh: source_slice
--   silver.dlq_records: each of
--     concat(lpad(original_offset div 1000, 16, '0'), ':', original_partition, ':', original_topic)
--   silver.log_batches: each of concat(lpad(base_offset div 1000, 16, '0'), ':', partition, ':', topic)
--     where is_control
--   silver.log_ranges: slice
-- A broker can dead-letter a marker without its payload: if a control batch stands at the offset, a record without a
-- payload is a marker. A record with a payload whose key is not one of a control record is data and has no row here: the
-- offset was that of another record before, as in a topic that was created again or a log that was truncated. So it was
-- if the record was dead-lettered before the control batch was written, by an hour at least, as clocks differ: it has no
-- row either. A record with a marker's bytes is data if a batch stands at the offset that is no control batch. If no landed
-- segment has a batch there, the record has no row here.
WITH letters AS (
  SELECT
    cluster, _bronze_id, dlq_topic, dlq_topic_id, dlq_partition, dlq_offset, original_topic, original_partition,
    original_offset, routed_at, control_marker_suspected
  FROM {dlq_records}
  WHERE
    original_offset >= 0
    -- The key of a control record is version and type (int16 each).
    AND NOT (coalesce(payload_copied AND NOT lossy_encoding, false) AND coalesce(length(key) <> 4, true))
),
controls AS (
  SELECT
    cluster, topic, partition, base_offset AS offset, max(control_type) AS control_type,
    max(max_timestamp) AS written_at
  FROM {log_batches}
  WHERE is_control AND superseded_by IS NULL
  GROUP BY cluster, topic, partition, base_offset
),
held AS (
  SELECT DISTINCT letters.cluster, letters._bronze_id
  FROM letters
  JOIN {log_ranges} AS ranges
    ON ranges.has_batch
      AND ranges.cluster = letters.cluster
      AND ranges.topic = letters.original_topic
      AND ranges.partition = letters.original_partition
      AND letters.original_offset BETWEEN ranges.first_offset AND ranges.last_offset
  WHERE letters.control_marker_suspected
)
SELECT
  letters.cluster,
  letters._bronze_id,
  dlq_topic,
  dlq_topic_id,
  dlq_partition,
  dlq_offset,
  original_topic,
  original_partition,
  original_offset,
  routed_at,
  controls.offset IS NOT NULL AS is_control_marker,
  control_type,
  concat(lpad(dlq_offset div 1000, 16, '0'), ':', dlq_partition, ':', dlq_topic) AS slice,
  concat(lpad(original_offset div 1000, 16, '0'), ':', original_partition, ':', original_topic) AS source_slice
FROM letters
LEFT JOIN controls
  ON controls.cluster = letters.cluster
    AND controls.topic = letters.original_topic
    AND controls.partition = letters.original_partition
    AND controls.offset = letters.original_offset
LEFT JOIN held ON held.cluster = letters.cluster AND held._bronze_id = letters._bronze_id
WHERE IF(
  controls.offset IS NULL,
  held._bronze_id IS NOT NULL,
  coalesce(routed_at > written_at - INTERVAL 1 HOUR, true)
)
