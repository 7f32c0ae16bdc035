-- Purpose: which producers have the idempotence that they ask for, and which lack it, perhaps unknowingly (KIP-185).
-- Grain: cluster, client_id, topic.
-- Parameters: {producers}, {log_batches}, rows of these silver tables, complete for each topic that is in them.
-- Engine: duckdb
-- Refresh: topic
-- requested means best effort: idempotence is not in effect if the topic's message format is older than 2, or if the
-- brokers are 0.11.0 or older, which do not tell the format. required fails if the format or the brokers have no
-- idempotence. A mode that the client's version does not know is not in effect; if the client tells no version, the
-- mode counts as known. Landed batches do not affect the verdict, because those of the topic can be another client's.
WITH judged AS (
  SELECT
    *,
    CASE
      WHEN requested_mode = 'off' OR NOT client_knows_mode THEN 'PLAIN'
      WHEN requested_mode = 'requested' AND (message_format < 2 OR NOT broker_tells_format) THEN 'PLAIN'
      WHEN requested_mode = 'required' AND (message_format < 2 OR NOT broker_has_idempotence) THEN 'UNSUPPORTED'
      ELSE 'IDEMPOTENT'
    END AS effective_mode
  FROM {producers}
),
rated AS (
  SELECT
    *,
    CASE
      WHEN effective_mode = 'UNSUPPORTED' THEN 3
      WHEN effective_mode = 'PLAIN' AND requested_mode <> 'off' THEN 2
      WHEN effective_mode = 'PLAIN' THEN 1
      ELSE 0
    END AS severity
  FROM judged
),
stated AS (
  SELECT
    cluster,
    client_id,
    topic,
    count(*) AS statement_count,
    array_sort(collect_set(producer_id)) AS producer_ids,
    max(struct(
      stated_at, severity, _bronze_id, client_version, requested_mode, effective_mode, broker_version,
      message_format_version, client_knows_mode
    )) AS latest
  FROM rated
  GROUP BY cluster, client_id, topic
),
written AS (
  SELECT cluster, topic, producer_id, count(*) AS batch_count
  FROM {log_batches}
  WHERE superseded_by IS NULL AND NOT is_control
  GROUP BY cluster, topic, producer_id
),
by_topic AS (
  SELECT
    cluster,
    topic,
    sum(IF(producer_id >= 0, batch_count, 0)) AS idempotent_count,
    sum(IF(producer_id >= 0, 0, batch_count)) AS plain_count
  FROM written
  GROUP BY cluster, topic
),
by_client AS (
  SELECT stated.cluster, stated.client_id, stated.topic, sum(batch_count) AS batch_count
  FROM stated
  JOIN written
    ON written.cluster = stated.cluster
      AND written.topic = stated.topic
      AND array_contains(stated.producer_ids, written.producer_id)
  GROUP BY stated.cluster, stated.client_id, stated.topic
)
SELECT
  stated.cluster,
  stated.client_id,
  stated.topic,
  latest.requested_mode AS requested_mode,
  latest.effective_mode AS effective_mode,
  CASE
    WHEN by_client.batch_count > 0 OR (idempotent_count > 0 AND plain_count = 0) THEN 'IDEMPOTENT'
    WHEN idempotent_count = 0 AND plain_count > 0 THEN 'PLAIN'
    WHEN idempotent_count > 0 THEN 'MIXED'
  END AS observed_mode,
  CASE WHEN by_client.batch_count > 0 THEN 'producer' WHEN idempotent_count + plain_count > 0 THEN 'topic' END
    AS observed_by,
  CASE latest.severity
    WHEN 3 THEN 'WOULD_FAIL'
    WHEN 2 THEN 'SILENTLY_OFF'
    WHEN 1 THEN 'DUPLICATES_POSSIBLE'
    ELSE 'OK'
  END AS verdict,
  CASE latest.severity
    WHEN 3 THEN concat(
      'It requires idempotence, which message format ', latest.message_format_version, ' of the topic on brokers ',
      latest.broker_version,
      ' does not support: sends fail. Raise the message format to 2 and the brokers to 0.11 or later, or ask for it ',
      'as best effort.'
    )
    WHEN 2 THEN IF(latest.client_knows_mode <=> false, concat(
      'It asks for idempotence (', latest.requested_mode, ') in a way that its client, version ', latest.client_version,
      ', does not know: it is not in effect, and retries can duplicate records. Upgrade the client to 1.0 or later.'
    ), concat(
      'It asks for idempotence as best effort and does not have it, with message format ',
      latest.message_format_version, ' of the topic on brokers ', latest.broker_version,
      ': no error says so, and retries can duplicate records. Raise the message format to 2 and the brokers to 1.0 or ',
      'later, or require idempotence to be told.'
    ))
    WHEN 1 THEN concat(
      'Idempotence is off: a retry after a lost answer can duplicate or reorder records. Set enable.idempotence to ',
      'true, or make the consumers recognise duplicates.'
    )
    ELSE 'Idempotence is in effect: retries neither duplicate nor reorder records.'
  END AS sentence,
  latest.client_version AS client_version,
  latest.broker_version AS broker_version,
  latest.message_format_version AS message_format_version,
  latest.stated_at AS stated_at,
  statement_count,
  producer_ids
FROM stated
LEFT JOIN by_topic ON by_topic.cluster = stated.cluster AND by_topic.topic = stated.topic
LEFT JOIN by_client
  ON by_client.cluster = stated.cluster AND by_client.client_id = stated.client_id AND by_client.topic = stated.topic
