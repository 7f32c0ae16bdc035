-- Purpose: the transactions of a partition's log: the offsets of each, and how it ended.
-- Grain: cluster, topic, partition, producer_id, producer_epoch, first_offset.
-- Parameters: {log_batches}, rows of silver.log_batches, complete for each producer and partition in them; {log_gaps},
-- all rows of silver.log_gaps.
-- Engine: duckdb
-- Refresh: producer
--   silver.log_batches: each of concat(lpad(producer_id, 16, '0'), ':', partition, ':', topic)
--     where is_transactional
--   silver.log_gaps: own rows by topic
--     where state IN ('OPEN', 'UNKNOWN') OR size(ranges) > 1 OR marker_offset > last_offset + 1
-- A marker ends what its producer wrote before it. Its epoch is that of the data or the next one: the next one with
-- transaction.version 2, or if a coordinator fenced the producer. Before transaction.version 2 later transactions have
-- the same epoch, so a marker proves something only about data from which on the log was read without a gap. Behind a
-- gap it may end a later transaction: how the earlier one ended is unknown. That is also unknown if the first marker
-- behind the data has another epoch: the transaction's own marker was compacted away.
WITH landed AS (
  SELECT
    cluster, topic, partition, producer_id, producer_epoch, base_offset, last_offset, record_count, max_timestamp,
    is_control, control_type, topic_id, false AS is_gap
  FROM {log_batches}
  WHERE superseded_by IS NULL AND is_transactional AND (NOT is_control OR control_type IN ('COMMIT', 'ABORT'))
  UNION ALL
  SELECT
    cluster, topic, partition, NULL, NULL, first_offset, last_offset, NULL, NULL,
    NULL, NULL, NULL, true
  FROM {log_gaps}
),
bounded AS (
  SELECT
    *,
    min(IF(is_gap, base_offset, NULL)) OVER (
      PARTITION BY cluster, topic, partition ORDER BY base_offset DESC
      ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW
    ) AS unread_from
  FROM landed
),
batches AS (
  SELECT
    *,
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
  FROM bounded
  WHERE NOT is_gap
),
judged AS (
  SELECT
    *,
    CASE
      WHEN coalesce(unread_from < marker.offset, marker IS NULL AND unread_from IS NOT NULL) THEN 'UNKNOWN'
      WHEN marker IS NULL THEN 'OPEN'
      WHEN marker.epoch NOT IN (producer_epoch, producer_epoch + 1) THEN 'UNKNOWN'
      WHEN marker.control_type = 'COMMIT' THEN 'COMMITTED'
      ELSE 'ABORTED'
    END AS state
  FROM batches
  WHERE NOT is_control
),
written AS (
  SELECT
    *,
    IF(state IN ('COMMITTED', 'ABORTED'), marker, NULL) AS own_marker,
    -- What tells transactions apart: data before the same marker, or up to the same gap, is of one.
    coalesce(IF(marker.offset < unread_from, marker.offset, unread_from), marker.offset) AS until
  FROM judged
),
ordered AS (
  SELECT
    *,
    coalesce(
      base_offset > 1 + lag(last_offset) OVER (
        PARTITION BY cluster, topic, partition, producer_id, producer_epoch, until ORDER BY base_offset
      ),
      true
    ) AS begins_range
  FROM written
),
numbered AS (
  SELECT
    *,
    count_if(begins_range) OVER (
      PARTITION BY cluster, topic, partition, producer_id, producer_epoch, until ORDER BY base_offset
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
    until,
    any_value(state) AS state,
    any_value(own_marker) AS marker,
    max(topic_id) AS topic_id,
    min(base_offset) AS first_offset,
    max(last_offset) AS last_offset,
    count(*) AS batch_count,
    sum(record_count) AS record_count,
    max(max_timestamp) AS last_written_at
  FROM numbered
  GROUP BY cluster, topic, partition, producer_id, producer_epoch, until, range_number
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
  any_value(state) AS state,
  any_value(marker).offset AS marker_offset,
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
GROUP BY cluster, topic, partition, producer_id, producer_epoch, until
