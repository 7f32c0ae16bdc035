-- Purpose: which producers have the idempotence that they ask for, and which lack it, perhaps unknowingly (KIP-185).
-- Grain: cluster, client_id, topic.
-- Parameters: {producers}, {log_batches}, rows of these silver tables, complete for each topic that is in them.
-- Engine: duckdb
-- Refresh: topic
-- The client decides first: it may refuse its settings, or turn idempotence off (client_mode). What it asks for then
-- needs message format 2 and brokers that have idempotence: else sends fail. requested means best effort: idempotence
-- is then not in effect, also on brokers that do not tell the format (0.11). Landed batches do not affect the verdict,
-- because those of the topic can be another client's.
WITH judged AS (
  SELECT
    *,
    CASE
      WHEN client_mode <> 'IDEMPOTENT' THEN client_mode
      WHEN requested_mode = 'requested' AND (message_format < 2 OR NOT broker_tells_format) THEN 'PLAIN'
      WHEN message_format < 2 OR NOT broker_has_idempotence THEN 'UNSUPPORTED'
      WHEN client_mode = 'IDEMPOTENT' AND message_format = 2 AND broker_has_idempotence THEN 'IDEMPOTENT'
    END AS effective_mode
  FROM {producers}
),
rated AS (
  SELECT
    *,
    CASE
      WHEN effective_mode IN ('REFUSED', 'UNSUPPORTED') THEN 4
      WHEN effective_mode = 'PLAIN' AND coalesce(requested_mode <> 'off', is_on_by_default) THEN 3
      WHEN effective_mode = 'PLAIN' THEN 2
      WHEN effective_mode IS NULL THEN 1
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
      message_format_version, client_knows_mode, client_mode, contradiction, acks,
      max_in_flight_requests_per_connection AS in_flight, most_in_flight, message_format, broker_has_idempotence
    )) AS latest
  FROM rated
  GROUP BY cluster, client_id, topic
),
explained AS (
  SELECT
    *,
    CASE latest.contradiction
      WHEN 'acks' THEN concat('acks is ', latest.acks, ' and idempotence needs all')
      WHEN 'retries' THEN 'retries is 0 and idempotence needs retries'
      WHEN 'max_in_flight' THEN concat(
        'max.in.flight.requests.per.connection is ', latest.in_flight, ' and idempotence allows at most ',
        latest.most_in_flight
      )
      WHEN 'transactional_id' THEN 'it has a transactional.id and enable.idempotence is false'
      ELSE concat('version ', latest.client_version, ' does not apply that default (3.0.1, 3.1.1 and 3.2.0 do)')
    END AS why
  FROM stated
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
    WHEN 4 THEN 'WOULD_FAIL'
    WHEN 3 THEN 'SILENTLY_OFF'
    WHEN 2 THEN 'DUPLICATES_POSSIBLE'
    WHEN 1 THEN 'UNKNOWN'
    ELSE 'OK'
  END AS verdict,
  CASE
    WHEN latest.effective_mode = 'REFUSED' THEN concat(
      'Its client refuses to start, as ', why, '. Change that setting, or set enable.idempotence to false and do ',
      'without transactions.'
    )
    WHEN latest.effective_mode = 'UNSUPPORTED' THEN concat(
      'It requires idempotence, which message format ', coalesce(latest.message_format_version, '2'),
      ' of the topic on brokers ', coalesce(latest.broker_version, 'of an unknown version'),
      ' does not support: sends fail. Raise the message format to 2 and the brokers to 0.11 or later, or ask for it ',
      'as best effort.'
    )
    WHEN latest.severity = 3 AND latest.requested_mode IS NULL THEN concat(
      'Its client should have idempotence by default, and turns it off without an error, as ', why,
      ': retries can duplicate records. Set enable.idempotence to true: the client then refuses what contradicts it.'
    )
    WHEN latest.severity = 3 AND latest.client_mode = 'PLAIN' THEN concat(
      'It asks for idempotence (', latest.requested_mode, ') in a way that its client, version ', latest.client_version,
      ', does not know: it is not in effect, and retries can duplicate records. Upgrade the client to 1.0 or later.'
    )
    WHEN latest.severity = 3 THEN concat(
      'It asks for idempotence as best effort and does not have it, with message format ',
      coalesce(latest.message_format_version, '2'), ' of the topic on brokers ',
      coalesce(latest.broker_version, 'of an unknown version'),
      ': no error says so, and retries can duplicate records. Raise the message format to 2 and the brokers to 1.0 or ',
      'later, or require idempotence to be told.'
    )
    WHEN latest.severity = 2 THEN concat(
      'Idempotence is off: a retry after a lost answer can duplicate or reorder records. Set enable.idempotence to ',
      'true, or make the consumers recognise duplicates.'
    )
    WHEN latest.severity = 1 THEN concat(
      'It is not known whether idempotence is in effect: that depends on ',
      CASE
        WHEN latest.client_mode IS NULL THEN 'the client, whose library and version the statement does not tell'
        WHEN latest.broker_has_idempotence IS NULL THEN 'the version of the brokers, which the statement does not tell'
        ELSE 'the message format of the topic, which the statement does not tell of brokers before 3.0'
      END,
      '.'
    )
    ELSE 'Idempotence is in effect: retries neither duplicate nor reorder records.'
  END AS sentence,
  latest.client_version AS client_version,
  latest.broker_version AS broker_version,
  latest.message_format_version AS message_format_version,
  latest.stated_at AS stated_at,
  statement_count,
  producer_ids
FROM explained AS stated
LEFT JOIN by_topic ON by_topic.cluster = stated.cluster AND by_topic.topic = stated.topic
LEFT JOIN by_client
  ON by_client.cluster = stated.cluster AND by_client.client_id = stated.client_id AND by_client.topic = stated.topic
