-- Purpose: which offsets of DLQ topics never landed, between offsets that did, and what explains them.
-- Grain: cluster, dlq_topic, dlq_topic_id, dlq_partition, first_offset.
-- Parameters: {dlq_ranges}, {log_batches}, {transactions}, {log_ranges}, rows of these silver tables, complete for each
-- partition in them.
-- Engine: duckdb
-- Refresh: dlq_log
--   silver.dlq_ranges: concat(dlq_partition, ':', dlq_topic)
--   silver.log_batches: each of concat(partition, ':', topic) where is_control AND superseded_by IS NULL
--   silver.transactions: concat(partition, ':', topic)
--   silver.log_ranges: concat(partition, ':', topic)
-- The DLQ topic's own landed segments can explain an offset: by a transaction marker, also one whose data did not land,
-- by a record of an aborted transaction, which readers of committed records do not see, or by compaction. The cleaner
-- also empties batches of markers and of aborted transactions: these explain their offsets already.
-- Records of files name no topic id. If the partition's other records name one topic id only, these are taken to be of the
-- same topic: what landed from a file did land. A file's record can then be at the offset of one with an id.
-- The offsets of a kind up to a place are the offsets of all ranges that begin at or before it, minus the part of the
-- last range that lies beyond it. This holds because ranges of one kind do not overlap.
WITH known AS (
  SELECT cluster, topic, partition, topic_id, base_offset AS first_offset, last_offset, 'marker' AS kind
  FROM {log_batches}
  WHERE is_control AND superseded_by IS NULL
  UNION ALL
  SELECT
    cluster, topic, partition, topic_id, span.first_offset AS first_offset, span.last_offset AS last_offset,
    'aborted' AS kind
  FROM {transactions} LATERAL VIEW explode(ranges) AS span
  WHERE state = 'ABORTED'
  UNION ALL
  SELECT DISTINCT cluster, topic, partition, topic_id, first_offset, last_offset, 'compacted' AS kind
  FROM {log_ranges}
  WHERE NOT is_present AND is_compacted
),
of_topics AS (
  SELECT
    cluster,
    dlq_topic,
    IF(min(dlq_topic_id) OVER of_name = max(dlq_topic_id) OVER of_name, max(dlq_topic_id) OVER of_name, dlq_topic_id)
      AS dlq_topic_id,
    dlq_partition,
    first_offset,
    last_offset,
    routed_at
  FROM {dlq_ranges}
  WINDOW of_name AS (PARTITION BY cluster, dlq_topic, dlq_partition)
),
reaching AS (
  SELECT
    *,
    max(last_offset) OVER (
      PARTITION BY cluster, dlq_topic, dlq_topic_id, dlq_partition ORDER BY first_offset, last_offset, routed_at
      ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
    ) AS reached
  FROM of_topics
),
landed AS (
  SELECT
    cluster,
    dlq_topic,
    dlq_topic_id,
    dlq_partition,
    greatest(first_offset, try_add(reached, 1)) AS first_offset,
    last_offset,
    routed_at
  FROM reaching
  WHERE reached IS NULL OR last_offset > reached
),
partitions AS (
  SELECT DISTINCT cluster, dlq_topic, dlq_topic_id, dlq_partition FROM landed
),
placed AS (
  SELECT
    partitions.cluster, dlq_topic, dlq_topic_id, dlq_partition, first_offset, last_offset, kind,
    max(last_offset) OVER (
      PARTITION BY partitions.cluster, dlq_topic, dlq_topic_id, dlq_partition ORDER BY first_offset, last_offset, kind
      ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
    ) AS reached
  FROM partitions
  JOIN known
    ON known.cluster = partitions.cluster
      AND known.topic = partitions.dlq_topic
      AND known.partition = partitions.dlq_partition
      AND coalesce(known.topic_id = partitions.dlq_topic_id, true)
),
places AS (
  SELECT
    cluster, dlq_topic, dlq_topic_id, dlq_partition, edge.place, CAST(NULL AS BIGINT) AS last_offset, edge.kind, routed_at
  FROM landed
    LATERAL VIEW explode(array(
      struct(first_offset AS place, 'landed from' AS kind), struct(last_offset AS place, 'landed to' AS kind)
    )) AS edge
  UNION ALL
  SELECT
    cluster, dlq_topic, dlq_topic_id, dlq_partition, first_offset AS place, last_offset, kind,
    CAST(NULL AS TIMESTAMP) AS routed_at
  FROM placed
  WHERE kind <> 'compacted'
  UNION ALL
  -- The union of all that explains offsets, without those that are in two of its ranges.
  SELECT
    cluster, dlq_topic, dlq_topic_id, dlq_partition, greatest(first_offset, try_add(reached, 1)) AS place, last_offset,
    'explained' AS kind, CAST(NULL AS TIMESTAMP) AS routed_at
  FROM placed
  WHERE reached IS NULL OR last_offset > reached
),
begun AS (
  SELECT
    *,
    sum(IF(kind = 'marker', last_offset - place + 1, 0)) OVER so_far AS markers,
    max(IF(kind = 'marker', last_offset, NULL)) OVER so_far AS last_marker,
    sum(IF(kind = 'aborted', last_offset - place + 1, 0)) OVER so_far AS aborted,
    max(IF(kind = 'aborted', last_offset, NULL)) OVER so_far AS last_aborted,
    sum(IF(kind = 'explained', last_offset - place + 1, 0)) OVER so_far AS explained,
    max(IF(kind = 'explained', last_offset, NULL)) OVER so_far AS last_explained
  FROM places
  WINDOW so_far AS (
    PARTITION BY cluster, dlq_topic, dlq_topic_id, dlq_partition ORDER BY place, startswith(kind, 'landed')
    ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW
  )
),
counted AS (
  SELECT
    cluster,
    dlq_topic,
    dlq_topic_id,
    dlq_partition,
    place,
    kind,
    routed_at,
    markers - greatest(0, coalesce(last_marker, -1) - place) AS markers,
    IF(last_marker >= place, 1, 0) AS is_marker,
    aborted - greatest(0, coalesce(last_aborted, -1) - place) AS aborted,
    IF(last_aborted >= place, 1, 0) AS is_aborted,
    explained - greatest(0, coalesce(last_explained, -1) - place) AS explained,
    IF(last_explained >= place, 1, 0) AS is_explained
  FROM begun
  WHERE startswith(kind, 'landed')
),
gaps AS (
  SELECT
    cluster,
    dlq_topic,
    dlq_topic_id,
    dlq_partition,
    1 + lag(place) OVER in_partition AS first_offset,
    place - 1 AS last_offset,
    kind,
    routed_at AS found_at,
    markers - is_marker - lag(markers) OVER in_partition AS marker_count,
    aborted - is_aborted - lag(aborted) OVER in_partition AS aborted_count,
    explained - is_explained - lag(explained) OVER in_partition AS explained_count
  FROM counted
  WINDOW in_partition AS (PARTITION BY cluster, dlq_topic, dlq_topic_id, dlq_partition ORDER BY place, kind)
)
SELECT
  cluster,
  dlq_topic,
  dlq_topic_id,
  dlq_partition,
  first_offset,
  last_offset,
  found_at,
  last_offset - first_offset + 1 AS offset_count,
  marker_count,
  aborted_count,
  greatest(0, explained_count - marker_count - aborted_count) AS compacted_count,
  greatest(0, last_offset - first_offset + 1 - explained_count) AS unexplained_count,
  concat(dlq_partition, ':', dlq_topic) AS dlq_log
FROM gaps
WHERE kind = 'landed from' AND first_offset <= last_offset
