-- Purpose: the outcome of each produced message: acknowledged, committed or aborted, dead-lettered, lost.
-- Grain: cluster, topic, partition, offset if it is known, else acknowledgement_id.
-- Parameters: {acknowledgements}, {dead_letters}, {inferred_dead_letters}, {dlq_roots}, {transactions}, {log_ranges},
-- rows of these silver tables, complete for each slice that is in them; {topic_policies}, all rows of
-- silver.topic_policies.
-- Engine: duckdb, in parts
-- Kept: IF(
--     exists(dead_letters, one -> one.routed_at IS NULL)
--     OR acknowledgement_count > 0 AND acknowledged_at IS NULL AND produced_at IS NULL, NULL,
--     greatest(acknowledged_at, produced_at, array_max(transform(dead_letters, one -> one.routed_at))))
-- Refresh: slice
--   silver.acknowledgements: slice
--   silver.dead_letters: each of source_slice where is_counted
--   silver.inferred_dead_letters: each of source_slice
--   silver.dlq_roots: slice
--   silver.transactions: each in slices
--   silver.log_ranges: slice
--   silver.topic_policies: own rows by topic where NOT in_log
-- A message is lost if it was acknowledged, landed segments of its partition prove it absent, and the log is known not
-- to be compacted. If that is not known, the message is only absent, because the cleaner also removes whole batches. If
-- the log is known to be compacted, its absence says nothing about the message.
-- A trace id never merges rows, because one trace spans many messages. A dead letter belongs to no message if its
-- headers do not name the place of its source record. A dead letter that did not land counts where the headers of a
-- later one tell it; its time, disposition and deliveries are unknown.
WITH acknowledged AS (
  SELECT
    cluster,
    slice,
    topic,
    partition,
    offset,
    IF(offset >= 0, '', _bronze_id) AS acknowledgement_id,
    count(*) AS acknowledgement_count,
    min(struct(
      acknowledged_at IS NULL AS untimed, acknowledged_at, _bronze_id, outcome, `timestamp` AS produced_at, client_id,
      trace_id, error, error_class
    )) AS told
  FROM {acknowledgements}
  GROUP BY cluster, slice, topic, partition, offset, IF(offset >= 0, '', _bronze_id)
),
inferred AS (
  SELECT DISTINCT
    cluster, source_slice, original_topic, original_partition, original_offset, consumer_group, dlq_topic,
    dlq_partition, dlq_offset
  FROM {inferred_dead_letters} AS hops
  LEFT ANTI JOIN {dead_letters} AS landed
    ON landed.cluster = hops.cluster
      AND landed.is_counted
      AND landed.source_slice = hops.source_slice
      AND landed.dlq_topic = hops.dlq_topic
      AND landed.dlq_partition = hops.dlq_partition
      AND landed.dlq_offset = hops.dlq_offset
),
lettered AS (
  SELECT
    cluster, source_slice, original_topic, original_partition, original_offset, consumer_group, dlq_topic,
    dlq_topic_id, dlq_partition, dlq_offset, routed_at, disposition, delivery_count, owner
  FROM {dead_letters}
  WHERE is_counted AND source_slice IS NOT NULL
  UNION ALL
  SELECT
    cluster, source_slice, original_topic, original_partition, original_offset, consumer_group, dlq_topic,
    CAST(NULL AS STRING) AS dlq_topic_id, dlq_partition, dlq_offset, CAST(NULL AS TIMESTAMP) AS routed_at,
    CAST(NULL AS STRING) AS disposition, CAST(NULL AS INT) AS delivery_count, CAST(NULL AS STRING) AS owner
  FROM inferred
),
letters AS (
  SELECT
    *,
    row_number() OVER (
      PARTITION BY
        cluster, original_topic, original_partition, original_offset, consumer_group, coalesce(consumer_group, owner)
      ORDER BY routed_at, dlq_topic, dlq_partition, dlq_offset, dlq_topic_id
    ) AS times
  FROM lettered
),
dead_lettered AS (
  SELECT
    cluster,
    source_slice AS slice,
    original_topic AS topic,
    original_partition AS partition,
    original_offset AS offset,
    '' AS acknowledgement_id,
    count(*) AS dead_lettered_count,
    count_if(times > 1) AS dead_lettered_again_count,
    min(routed_at) AS first_dead_lettered_at,
    array_sort(collect_list(struct(
      routed_at, dlq_topic, dlq_partition, dlq_offset, consumer_group, disposition, delivery_count,
      CAST(times AS INT) AS times
    ))) AS letters
  FROM letters
  GROUP BY cluster, source_slice, original_topic, original_partition, original_offset
),
messages AS (
  SELECT *, offset div 256 AS stretch
  FROM acknowledged
  FULL JOIN dead_lettered USING (cluster, slice, topic, partition, offset, acknowledgement_id)
),
asked AS (
  SELECT cluster, slice FROM {acknowledgements}
  UNION
  SELECT cluster, source_slice AS slice FROM lettered
),
spans AS (
  SELECT
    cluster,
    topic,
    partition,
    greatest(span.first_offset, 1000 * place) AS first_offset,
    least(span.last_offset, 1000 * place + 999) AS last_offset,
    state AS kind,
    producer_id,
    producer_epoch,
    concat(lpad(place, 16, '0'), ':', partition, ':', topic) AS slice
  FROM {transactions}
    LATERAL VIEW explode(ranges) AS span
    LATERAL VIEW explode(sequence(span.first_offset div 1000, span.last_offset div 1000)) AS place
  UNION ALL
  SELECT
    cluster, topic, partition, first_offset, last_offset,
    CASE
      WHEN is_present IS NULL THEN 'THINNED'
      WHEN is_present THEN 'PRESENT'
      WHEN is_compacted THEN 'COMPACTED'
      ELSE 'ABSENT'
    END AS kind,
    CAST(NULL AS BIGINT) AS producer_id, CAST(NULL AS INT) AS producer_epoch, slice
  FROM {log_ranges}
),
-- Explode only slices that hold a message: two batches of one segment can lie two billion offsets apart.
stretches AS (
  SELECT
    cluster,
    topic,
    partition,
    stretch,
    array_sort(collect_list(struct(kind, first_offset, last_offset, producer_id, producer_epoch))) AS spans
  FROM (SELECT * FROM spans LEFT SEMI JOIN asked USING (cluster, slice))
    LATERAL VIEW explode(sequence(first_offset div 256, last_offset div 256)) AS stretch
  GROUP BY cluster, topic, partition, stretch
),
placed AS (
  SELECT
    messages.*,
    filter(spans, span -> offset BETWEEN span.first_offset AND span.last_offset) AS here
  FROM messages
  LEFT JOIN stretches
    ON stretches.cluster = messages.cluster
      AND stretches.topic = messages.topic
      AND stretches.partition = messages.partition
      AND stretches.stretch = messages.stretch
),
known AS (
  SELECT
    *,
    coalesce(told.outcome = 'ACKNOWLEDGED', false) AS acknowledged,
    get(filter(here, span -> span.kind IN ('COMMITTED', 'ABORTED', 'OPEN', 'UNKNOWN')), 0) AS wrote,
    CASE
      WHEN exists(here, span -> span.kind = 'PRESENT') THEN true
      WHEN exists(here, span -> span.kind = 'THINNED') THEN NULL
      WHEN exists(here, span -> span.kind IN ('ABSENT', 'COMPACTED')) THEN false
    END AS in_log,
    coalesce(
      exists(here, span -> span.kind = 'ABSENT')
        AND NOT exists(here, span -> span.kind IN ('PRESENT', 'THINNED', 'COMPACTED')),
      false
    ) AS is_missing
  FROM placed
),
rooted AS (
  SELECT
    known.*,
    acknowledged AND is_missing AND policies.is_compacted <=> false AS is_lost,
    acknowledged AND is_missing AND policies.is_compacted IS NULL AS is_absent,
    roots.root_topic,
    roots.root_partition,
    roots.root_offset,
    roots.hop_count,
    roots.topic AS hop_topic
  FROM known
  LEFT JOIN {topic_policies} AS policies ON policies.cluster = known.cluster AND policies.topic = known.topic
  LEFT JOIN {dlq_roots} AS roots
    ON roots.cluster = known.cluster
      AND roots.topic = known.topic
      AND roots.partition = known.partition
      AND roots.offset = known.offset
)
SELECT
  cluster,
  slice,
  topic,
  nullif(partition, -1) AS partition,
  nullif(offset, -1) AS offset,
  nullif(acknowledgement_id, '') AS acknowledgement_id,
  CASE
    WHEN is_lost THEN 'LOST'
    WHEN wrote.kind = 'ABORTED' THEN 'ABORTED'
    WHEN dead_lettered_count > 0 THEN 'DEAD_LETTERED'
    WHEN is_absent THEN 'ABSENT'
    WHEN told.outcome = 'FAILED' THEN 'FAILED'
    WHEN acknowledged THEN 'ACKNOWLEDGED'
    ELSE 'UNKNOWN'
  END AS outcome,
  acknowledged,
  coalesce(acknowledgement_count, 0) AS acknowledgement_count,
  told.acknowledged_at AS acknowledged_at,
  told.produced_at AS produced_at,
  told.client_id AS client_id,
  told.trace_id AS trace_id,
  told.error AS error,
  told.error_class AS error_class,
  wrote.kind AS transaction_state,
  wrote.producer_id AS producer_id,
  wrote.producer_epoch AS producer_epoch,
  in_log,
  coalesce(dead_lettered_count, 0) AS dead_lettered_count,
  coalesce(dead_lettered_again_count, 0) AS dead_lettered_again_count,
  first_dead_lettered_at,
  coalesce(letters, array()) AS dead_letters,
  CASE WHEN hop_topic IS NOT NULL THEN root_topic WHEN offset >= 0 THEN topic END AS root_topic,
  CASE WHEN hop_topic IS NOT NULL THEN root_partition WHEN offset >= 0 THEN partition END AS root_partition,
  CASE WHEN hop_topic IS NOT NULL THEN root_offset WHEN offset >= 0 THEN offset END AS root_offset,
  IF(hop_topic IS NULL, 0, hop_count) AS hop_count
FROM rooted
