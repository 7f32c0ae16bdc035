-- Purpose: each dead-letter record with its source record, and whether it counts, which its own topic's log also
-- decides.
-- Grain: cluster, dlq_topic, dlq_topic_id, dlq_partition, dlq_offset.
-- Parameters: {dlq_records}, {quarantined_dlq_records}, {held_dlq_records}, {transactions}, {dlq_control_markers}, rows
-- of silver.dlq_records, quarantine.dlq_records, held.dlq_records, silver.transactions and silver.dlq_control_markers,
-- complete for each slice of a DLQ topic in them.
-- Engine: duckdb
-- Refresh: slice
--   silver.dlq_records: concat(lpad(dlq_offset div 1000, 16, '0'), ':', dlq_partition, ':', dlq_topic)
--   quarantine.dlq_records: each of concat(lpad(dlq_offset div 1000, 16, '0'), ':', dlq_partition, ':', dlq_topic)
--   held.dlq_records: each of concat(lpad(dlq_offset div 1000, 16, '0'), ':', dlq_partition, ':', dlq_topic)
--   silver.transactions: each in slices
--   silver.dlq_control_markers: slice
-- These records do not count: a record that the contract refused or that is held, a transaction marker that the
-- source's log proves, and a record whose transaction was aborted (KIP-1317 with KIP-1289: what was rolled back was
-- never dead-lettered). A record that only looks like a marker counts.
-- The mandatory headers are those of KIP-1317, which binds share groups: Connect, Kafka Streams and Spring never write
-- them.
-- A record can land twice: from a file, which knows no topic id, and from its topic. A refused or held copy then gives
-- no row beside the other copy.
WITH landed AS (
  SELECT
    cluster, dlq_topic, dlq_topic_id, dlq_partition, dlq_offset, _bronze_id, _content_hash, lossy_encoding,
    dlq_timestamp, header_profile,
    disposition, original_topic, original_partition, original_offset, consumer_group, delivery_count, error_message,
    routed_at, payload_copied, control_marker_suspected, owner,
    true AS is_accepted,
    false AS is_held,
    CAST(array() AS ARRAY<STRING>) AS violations
  FROM {dlq_records}
  UNION ALL
  SELECT
    cluster, dlq_topic, dlq_topic_id, dlq_partition, dlq_offset, _bronze_id, _content_hash, lossy_encoding,
    dlq_timestamp, header_profile,
    disposition, original_topic, original_partition, original_offset, consumer_group, delivery_count, error_message,
    routed_at, payload_copied, control_marker_suspected, owner,
    false AS is_accepted,
    false AS is_held,
    violations
  FROM {quarantined_dlq_records}
  WHERE dlq_topic IS NOT NULL AND dlq_partition >= 0 AND dlq_offset >= 0
  UNION ALL
  SELECT
    cluster, dlq_topic, dlq_topic_id, dlq_partition, dlq_offset, _bronze_id, _content_hash, lossy_encoding,
    dlq_timestamp, header_profile,
    disposition, original_topic, original_partition, original_offset, consumer_group, delivery_count, error_message,
    routed_at, payload_copied, control_marker_suspected, owner,
    false AS is_accepted,
    true AS is_held,
    violations
  FROM {held_dlq_records}
  WHERE dlq_topic IS NOT NULL AND dlq_partition >= 0 AND dlq_offset >= 0
),
met AS (
  SELECT
    *,
    collect_set(IF(dlq_topic_id IS NOT NULL, _content_hash, NULL)) OVER at_place AS named,
    max(
      IF(dlq_topic_id IS NULL, struct(is_accepted, lossy_encoding, _content_hash AS content), NULL)
    ) OVER at_place AS nameless
  FROM landed
  WINDOW at_place AS (PARTITION BY cluster, dlq_topic, dlq_partition, dlq_offset)
),
ranked AS (
  SELECT
    *,
    dlq_offset div 256 AS stretch,
    row_number() OVER (
      PARTITION BY cluster, dlq_topic, dlq_topic_id, dlq_partition, dlq_offset
      ORDER BY is_accepted DESC, is_held, _bronze_id
    ) AS place
  FROM met
  WHERE
    is_accepted
    OR IF(
      dlq_topic_id IS NULL,
      NOT coalesce(array_contains(named, _content_hash) OR (lossy_encoding AND size(named) > 0), false),
      NOT coalesce(nameless.is_accepted AND (nameless.content = _content_hash OR nameless.lossy_encoding), false)
    )
),
asked AS (
  SELECT DISTINCT cluster, dlq_topic AS topic, dlq_partition AS partition, dlq_offset div 1000 AS place FROM landed
),
spans AS (
  SELECT cluster, topic, partition, span.first_offset, span.last_offset, state, topic_id, place
  FROM {transactions}
    LATERAL VIEW explode(ranges) AS span
    LATERAL VIEW explode(sequence(span.first_offset div 1000, span.last_offset div 1000)) AS place
),
-- Explode only slices that hold a dead letter: a batch can span two billion offsets.
stretches AS (
  SELECT
    cluster,
    topic,
    partition,
    stretch,
    array_sort(collect_list(struct(first_offset, last_offset, state, topic_id))) AS transactions
  FROM (SELECT * FROM spans LEFT SEMI JOIN asked USING (cluster, topic, partition, place))
    LATERAL VIEW explode(sequence(
      greatest(first_offset, 1000 * place) div 256, least(last_offset, 1000 * place + 999) div 256
    )) AS stretch
  GROUP BY cluster, topic, partition, stretch
),
stated AS (
  SELECT
    ranked.*,
    coalesce(markers.is_control_marker, false) AS is_control_marker,
    coalesce(control_marker_suspected, false) AND markers.is_control_marker IS NULL AS is_suspected,
    get(filter(
      transactions,
      one -> ranked.dlq_offset BETWEEN one.first_offset AND one.last_offset
        AND coalesce(one.topic_id = ranked.dlq_topic_id, true)
    ), 0).state AS write_state
  FROM ranked
  LEFT JOIN stretches
    ON stretches.cluster = ranked.cluster
      AND stretches.topic = ranked.dlq_topic
      AND stretches.partition = ranked.dlq_partition
      AND stretches.stretch = ranked.stretch
  LEFT JOIN {dlq_control_markers} AS markers
    ON ranked.is_accepted
      AND markers.cluster = ranked.cluster
      AND markers.dlq_topic = ranked.dlq_topic
      AND markers.dlq_topic_id <=> ranked.dlq_topic_id
      AND markers.dlq_partition = ranked.dlq_partition
      AND markers.dlq_offset = ranked.dlq_offset
  WHERE ranked.place = 1
)
SELECT
  cluster,
  dlq_topic,
  dlq_topic_id,
  dlq_partition,
  dlq_offset,
  dlq_timestamp,
  header_profile,
  disposition,
  original_topic,
  original_partition,
  original_offset,
  consumer_group,
  delivery_count,
  error_message,
  routed_at,
  payload_copied,
  is_control_marker,
  is_suspected AS control_marker_suspected,
  is_accepted,
  is_held,
  coalesce(header_profile IN ('kip-1317', 'kip-1191'), false) AND (
    header_profile = 'kip-1191'
    OR exists(violations, code -> endswith(code, '.not_null') OR startswith(code, 'header_profile.'))
  ) AS lacks_mandatory_headers,
  write_state,
  is_accepted AND NOT is_control_marker AND NOT (write_state <=> 'ABORTED') AS is_counted,
  concat(lpad(dlq_offset div 1000, 16, '0'), ':', dlq_partition, ':', dlq_topic) AS slice,
  concat(lpad(original_offset div 1000, 16, '0'), ':', original_partition, ':', original_topic) AS source_slice,
  coalesce(consumer_group, owner) AS owner
FROM stated
