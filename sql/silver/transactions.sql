-- Purpose: the transactions of a partition's log: the offsets of each, and how it ended.
-- Grain: cluster, topic, partition, producer_id, producer_epoch, first_offset.
-- Parameters: {log_batches}, rows of silver.log_batches, complete for each producer and partition in them.
-- Refresh: producer
--   silver.log_batches: each of concat(lpad(producer_id, 16, '0'), ':', partition, ':', topic)
--     where is_transactional
-- A marker ends what its producer wrote before it. Its epoch is that of the data or the next one: the next one with
-- transaction.version 2, or if a coordinator fenced the producer. If the first marker behind the data has another
-- epoch, the transaction's own marker has not landed or was compacted away: the transaction counts as open.
WITH batches AS (
  SELECT
    cluster,
    topic,
    partition,
    producer_id,
    producer_epoch,
    base_offset,
    last_offset,
    record_count,
    max_timestamp,
    is_control,
    topic_id,
    last_value(
      IF(
        is_control,
        struct(base_offset AS offset, producer_epoch AS epoch, control_type, max_timestamp AS ended_at),
        NULL
      )
    ) IGNORE NULLS OVER (
      PARTITION BY cluster, topic, partition, producer_id ORDER BY base_offset DESC
      ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW
    ) AS marker
  FROM {log_batches}
  WHERE superseded_by IS NULL AND is_transactional AND (NOT is_control OR control_type IN ('COMMIT', 'ABORT'))
),
written AS (
  SELECT
    *,
    IF(marker.epoch IN (producer_epoch, producer_epoch + 1), marker, NULL) AS own_marker
  FROM batches
  WHERE NOT is_control
),
ordered AS (
  SELECT
    *,
    own_marker.offset AS marker_offset,
    coalesce(
      base_offset > 1 + lag(last_offset) OVER (
        PARTITION BY cluster, topic, partition, producer_id, producer_epoch, own_marker.offset ORDER BY base_offset
      ),
      true
    ) AS begins_range
  FROM written
),
numbered AS (
  SELECT
    *,
    count_if(begins_range) OVER (
      PARTITION BY cluster, topic, partition, producer_id, producer_epoch, marker_offset ORDER BY base_offset
      ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW
    ) AS range_number
  FROM ordered
),
ranges AS (
  SELECT
    cluster,
    topic,
    partition,
    producer_id,
    producer_epoch,
    marker_offset,
    any_value(own_marker) AS marker,
    max(topic_id) AS topic_id,
    min(base_offset) AS first_offset,
    max(last_offset) AS last_offset,
    count(*) AS batch_count,
    sum(record_count) AS record_count,
    max(max_timestamp) AS last_written_at
  FROM numbered
  GROUP BY cluster, topic, partition, producer_id, producer_epoch, marker_offset, range_number
),
sliced AS (
  SELECT
    *,
    transform(
      sequence(first_offset div 1000, last_offset div 1000),
      place -> concat(lpad(place, 16, '0'), ':', partition, ':', topic)
    ) AS range_slices
  FROM ranges
)
SELECT
  cluster,
  topic,
  partition,
  producer_id,
  producer_epoch,
  min(first_offset) AS first_offset,
  max(last_offset) AS last_offset,
  CASE any_value(marker).control_type
    WHEN 'COMMIT' THEN 'COMMITTED'
    WHEN 'ABORT' THEN 'ABORTED'
    ELSE 'OPEN'
  END AS state,
  marker_offset,
  any_value(marker).epoch AS marker_epoch,
  any_value(marker).ended_at AS ended_at,
  max(last_written_at) AS last_written_at,
  sum(batch_count) AS batch_count,
  sum(record_count) AS record_count,
  array_sort(collect_list(struct(first_offset, last_offset))) AS ranges,
  array_sort(array_distinct(flatten(collect_list(range_slices)))) AS slices,
  max(topic_id) AS topic_id,
  concat(lpad(producer_id, 16, '0'), ':', partition, ':', topic) AS producer
FROM sliced
GROUP BY cluster, topic, partition, producer_id, producer_epoch, marker_offset
