-- Purpose: what each dead-letter record says of which source record, and whether it counts, by its own topic's log too.
-- Grain: cluster, dlq_topic, dlq_topic_id, dlq_partition, dlq_offset.
-- Parameters: {dlq_records}, {quarantined_dlq_records}, {transactions}, rows of silver.dlq_records,
-- quarantine.dlq_records and silver.transactions, complete for each slice of a DLQ topic in them.
-- A record that its contract refused does not count, nor does a transaction's marker, nor a record whose transaction
-- was aborted (KIP-1317 with KIP-1289: what was rolled back was never dead-lettered).
WITH landed AS (
  SELECT
    cluster, dlq_topic, dlq_topic_id, dlq_partition, dlq_offset, _bronze_id, dlq_timestamp, header_profile,
    disposition, original_topic, original_partition, original_offset, consumer_group, delivery_count, error_message,
    routed_at, payload_copied, is_control_marker,
    true AS is_accepted,
    CAST(array() AS ARRAY<STRING>) AS violations
  FROM {dlq_records}
  UNION ALL
  SELECT
    cluster, dlq_topic, dlq_topic_id, dlq_partition, dlq_offset, _bronze_id, dlq_timestamp, header_profile,
    disposition, original_topic, original_partition, original_offset, consumer_group, delivery_count, error_message,
    routed_at, payload_copied, is_control_marker,
    false AS is_accepted,
    violations
  FROM {quarantined_dlq_records}
  WHERE dlq_topic IS NOT NULL AND dlq_partition >= 0 AND dlq_offset >= 0
),
ranked AS (
  SELECT
    *,
    dlq_offset div 256 AS stretch,
    row_number() OVER (
      PARTITION BY cluster, dlq_topic, dlq_topic_id, dlq_partition, dlq_offset ORDER BY is_accepted DESC, _bronze_id
    ) AS place
  FROM landed
),
stretches AS (
  SELECT
    cluster,
    topic,
    partition,
    stretch,
    array_sort(collect_list(
      struct(span.first_offset AS first_offset, span.last_offset AS last_offset, state)
    )) AS transactions
  FROM {transactions}
    LATERAL VIEW explode(ranges) AS span
    LATERAL VIEW explode(sequence(span.first_offset div 256, span.last_offset div 256)) AS stretch
  GROUP BY cluster, topic, partition, stretch
),
stated AS (
  SELECT
    ranked.*,
    get(filter(transactions, one -> dlq_offset BETWEEN one.first_offset AND one.last_offset), 0).state AS write_state
  FROM ranked
  LEFT JOIN stretches
    ON stretches.cluster = ranked.cluster
      AND stretches.topic = ranked.dlq_topic
      AND stretches.partition = ranked.dlq_partition
      AND stretches.stretch = ranked.stretch
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
  coalesce(is_control_marker, false) AS is_control_marker,
  is_accepted,
  NOT (header_profile <=> 'kip-1317')
    OR exists(violations, code -> endswith(code, '.not_null') OR startswith(code, 'header_profile.'))
    AS lacks_mandatory_headers,
  write_state,
  is_accepted AND NOT coalesce(is_control_marker, false) AND NOT (write_state <=> 'ABORTED') AS counts,
  concat(dlq_partition, ':', dlq_offset div 10000, ':', dlq_topic) AS slice,
  concat(original_partition, ':', original_offset div 10000, ':', original_topic) AS source_slice
FROM stated
