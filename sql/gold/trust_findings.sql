-- Purpose: why the answers of other tables may not be the whole truth: one row per finding.
-- Grain: cluster, kind, topic, name.
-- Parameters: {reconciliation}, {delivery_guarantees}, {topology_current}, {push_health}, {dlq_incidents},
-- {dlq_summary}, {dlq_refusals}, rows of these tables, complete for each topic in them; {topology_current} and
-- {push_health} are about no topic.
-- Engine: duckdb
-- Speaks of what is kept: gold.reconciliation, gold.dlq_summary
-- Refresh: topic
--   gold.reconciliation: topic
--   gold.delivery_guarantees: topic
--   gold.topology_current: CAST(NULL AS STRING)
--   gold.push_health: CAST(NULL AS STRING)
--   gold.dlq_incidents: original_topic
--   gold.dlq_summary: dlq_topic
--   silver.dlq_refusals: dlq_topic
-- Held scopes and feeds that fell silent depend on the present: `afterlog top` and `afterlog doctor` add them.
-- A rule's usual share is that of all landed dead letters before the last day on which some broke a rule. A share that
-- rose to three times of it is a finding, if at least 5 break the rule and at least 100 landed before.
-- Dead letters are late if they were accepted more than an hour after their hour, in an hour that also has records that
-- were accepted after records of a later hour. So history that lands in order is not late.
WITH counted AS (
  SELECT
    cluster,
    topic,
    finding.kind AS kind,
    min(hour) AS since,
    max(hour) AS last_at,
    coalesce(try_sum(finding.amount), 9223372036854775807) AS amount
  FROM {reconciliation}
    LATERAL VIEW explode(array(
      struct('LOST_MESSAGES' AS kind, lost_count AS amount),
      struct('ABSENT_MESSAGES' AS kind, absent_count AS amount),
      struct('FAILED_DLQ_WRITES' AS kind, dlq_write_failure_count AS amount),
      struct('MISSING_DLQ_OFFSETS' AS kind, dlq_gap_unexplained_count AS amount),
      struct('ABORTED_DLQ_WRITES' AS kind, aborted_dlq_write_count AS amount),
      struct('MISSING_HEADERS' AS kind, committed_without_headers_count AS amount)
    )) AS finding
  WHERE finding.amount > 0
  GROUP BY cluster, topic, finding.kind
),
refusals AS (
  SELECT * FROM {dlq_refusals} WHERE NOT is_held
),
refused AS (
  SELECT
    cluster,
    dlq_topic AS topic,
    min(first_stated_at) AS since,
    max(last_stated_at) AS last_at,
    sum(record_count) AS amount,
    array_sort(array_distinct(flatten(collect_list(transform(broken_rules, rule -> rule.code))))) AS codes
  FROM refusals
  GROUP BY cluster, dlq_topic
),
accepted AS (
  SELECT cluster, dlq_topic AS topic, sum(record_count) AS amount FROM {dlq_summary} GROUP BY cluster, dlq_topic
),
days AS (
  SELECT cluster, dlq_topic AS topic, date_trunc('HOUR', max(last_at)) - INTERVAL 23 HOURS AS begin
  FROM refusals
  GROUP BY cluster, dlq_topic
),
accepted_by_day AS (
  SELECT
    days.cluster,
    days.topic,
    days.begin,
    sum(IF(hour < begin, record_count, 0)) AS amount_before,
    sum(IF(hour >= begin AND hour < begin + INTERVAL 24 HOURS, record_count, 0)) AS amount
  FROM days
  JOIN {dlq_summary} AS summary ON summary.cluster = days.cluster AND summary.dlq_topic <=> days.topic
  GROUP BY days.cluster, days.topic, days.begin
),
refused_by_day AS (
  SELECT
    days.cluster,
    days.topic,
    sum(IF(hour < begin, record_count, 0)) AS amount_before,
    sum(IF(hour >= begin, record_count, 0)) AS amount
  FROM days
  JOIN refusals ON refusals.cluster = days.cluster AND refusals.dlq_topic <=> days.topic
  GROUP BY days.cluster, days.topic
),
by_rule AS (
  SELECT
    days.cluster,
    days.topic,
    rule.code AS code,
    min(rule.first_at) FILTER (WHERE hour >= begin) AS since,
    max(rule.last_at) AS last_at,
    sum(IF(hour < begin, rule.record_count, 0)) AS amount_before,
    sum(IF(hour >= begin, rule.record_count, 0)) AS amount
  FROM days
  JOIN (SELECT cluster, dlq_topic, hour, rule FROM refusals LATERAL VIEW explode(broken_rules) AS rule) AS of_rules
    ON of_rules.cluster = days.cluster AND of_rules.dlq_topic <=> days.topic
  GROUP BY days.cluster, days.topic, rule.code
),
shares AS (
  SELECT
    by_rule.*,
    accepted_by_day.amount + refused_by_day.amount AS landed,
    accepted_by_day.amount_before + refused_by_day.amount_before AS landed_before,
    by_rule.amount / (accepted_by_day.amount + refused_by_day.amount) AS share,
    try_divide(by_rule.amount_before, accepted_by_day.amount_before + refused_by_day.amount_before) AS share_before
  FROM by_rule
  JOIN accepted_by_day ON accepted_by_day.cluster = by_rule.cluster AND accepted_by_day.topic <=> by_rule.topic
  JOIN refused_by_day ON refused_by_day.cluster = by_rule.cluster AND refused_by_day.topic <=> by_rule.topic
  WHERE by_rule.amount > 0
),
arrived AS (
  SELECT
    cluster,
    dlq_topic AS topic,
    hour,
    sum(late_count) AS late_count,
    min(first_accepted_at) AS first_accepted_at,
    max(last_accepted_at) AS last_accepted_at,
    min(first_routed_at) AS first_routed_at,
    max(last_routed_at) AS last_routed_at
  FROM {dlq_summary}
  WHERE hour IS NOT NULL
  GROUP BY cluster, dlq_topic, hour
),
late AS (
  SELECT cluster, topic, min(first_routed_at) AS since, max(last_routed_at) AS last_at, sum(late_count) AS amount
  FROM (
    SELECT
      *,
      min(first_accepted_at) OVER (
        PARTITION BY cluster, topic ORDER BY hour RANGE BETWEEN INTERVAL 1 HOUR FOLLOWING AND UNBOUNDED FOLLOWING
      ) AS overtaken_at
    FROM arrived
  )
  WHERE late_count > 0 AND last_accepted_at > overtaken_at
  GROUP BY cluster, topic
),
nameless AS (
  SELECT
    cluster,
    dlq_topic AS topic,
    min(first_routed_at) AS since,
    max(last_routed_at) AS last_at,
    sum(record_count) AS amount
  FROM {dlq_summary}
  WHERE consumer_group IS NULL AND owner = concat('unknown writer on ', dlq_topic)
  GROUP BY cluster, dlq_topic
),
inferred AS (
  SELECT
    cluster,
    original_topic AS topic,
    consumer_group AS name,
    min(first_at) AS since,
    max(last_at) AS last_at,
    sum(inferred_count) AS amount,
    sum(record_count) AS record_count
  FROM {dlq_incidents}
  WHERE record_count > 0
  GROUP BY cluster, original_topic, consumer_group
)
SELECT
  cluster,
  kind,
  topic,
  CAST(NULL AS STRING) AS name,
  CASE kind
    WHEN 'LOST_MESSAGES' THEN 'critical'
    WHEN 'FAILED_DLQ_WRITES' THEN 'high'
    WHEN 'MISSING_DLQ_OFFSETS' THEN 'high'
    ELSE 'medium'
  END AS severity,
  since,
  last_at,
  amount,
  concat(
    CASE kind
      WHEN 'LOST_MESSAGES' THEN 'messages that were acknowledged to their producers and are not in the log: '
      WHEN 'ABSENT_MESSAGES' THEN 'acknowledged messages that are not in the log, which may be compacted: '
      WHEN 'FAILED_DLQ_WRITES' THEN 'failed writes to a dead-letter topic, whose records the broker dropped: '
      WHEN 'MISSING_DLQ_OFFSETS' THEN 'offsets of the dead-letter topic that never landed, which nothing explains: '
      WHEN 'ABORTED_DLQ_WRITES' THEN 'dead letters of aborted transactions, which readers saw: '
      ELSE 'committed dead letters without headers that KIP-1317 makes mandatory: '
    END,
    amount
  ) AS evidence,
  CASE kind
    WHEN 'LOST_MESSAGES' THEN 'afterlog ask lost_messages'
    WHEN 'ABSENT_MESSAGES' THEN 'afterlog ask absent_messages'
    WHEN 'FAILED_DLQ_WRITES' THEN 'afterlog ask failed_dlq_writes'
    WHEN 'MISSING_DLQ_OFFSETS' THEN 'afterlog ask unexplained_dlq_gaps'
    WHEN 'ABORTED_DLQ_WRITES' THEN 'afterlog ask dead_lettered_yet_aborted'
    ELSE 'afterlog ask hours_that_do_not_add_up'
  END AS remedy
FROM counted
UNION ALL
SELECT
  cluster,
  verdict,
  topic,
  client_id,
  IF(verdict = 'DUPLICATES_POSSIBLE', 'low', 'high'),
  stated_at,
  stated_at,
  statement_count,
  sentence,
  'afterlog ask guarantees_not_in_effect'
FROM {delivery_guarantees}
WHERE verdict IN ('SILENTLY_OFF', 'WOULD_FAIL', 'DUPLICATES_POSSIBLE')
UNION ALL
SELECT
  cluster,
  concat('TOPOLOGY_', health),
  CAST(NULL AS STRING),
  group_id,
  IF(health IN ('CONFLICT', 'LOST', 'PLUGIN_ERROR'), 'high', 'medium'),
  since,
  greatest(since, last_seen_at),
  CAST(1 AS BIGINT),
  sentence,
  'afterlog ask topology_health'
FROM (
  SELECT *, coalesce(lost_at, last_attempted_at, last_solicited_at, last_described_at, first_seen_at) AS since
  FROM {topology_current}
)
WHERE health NOT IN ('OK', 'DELETED')
UNION ALL
SELECT
  cluster,
  'REFUSED_PUSHES',
  CAST(NULL AS STRING),
  group_id,
  'medium',
  first_refused_at,
  last_refused_at,
  refused_count,
  concat(refused_count, ' of ', push_count, IF(push_count = 1, ' push', ' pushes'), ' of the topology ',
    IF(refused_count = 1, 'was', 'were'), ' refused'),
  'afterlog ask pushes_refused'
FROM {push_health}
WHERE refused_count > 0
UNION ALL
SELECT
  refused.cluster,
  'QUARANTINED',
  refused.topic,
  CAST(NULL AS STRING),
  IF(20 * refused.amount >= refused.amount + coalesce(accepted.amount, 0), 'high', 'medium'),
  since,
  last_at,
  refused.amount,
  concat(
    IF(refused.amount = 1, '1 dead letter breaks', concat(refused.amount, ' dead letters break')),
    ' a rule, beside ', coalesce(accepted.amount, 0), ' accepted: ', array_join(slice(codes, 1, 3), ', '),
    IF(size(codes) > 3, concat(' and ', size(codes) - 3, IF(size(codes) = 4, ' more rule', ' more rules')), '')
  ),
  'afterlog ask quarantine_reasons'
FROM refused
LEFT JOIN accepted ON accepted.cluster = refused.cluster AND accepted.topic <=> refused.topic
UNION ALL
SELECT
  cluster,
  'QUARANTINE_RISING',
  topic,
  code,
  'high',
  since,
  last_at,
  amount,
  concat(
    amount, ' of ', landed, ' dead letters of the last day with any break the rule ', code, ' (',
    round(100 * share, 1), ' %), before it ', amount_before, ' of ', landed_before, ' (',
    round(100 * share_before, 1), ' %)'
  ),
  'afterlog ask quarantine_reasons'
FROM shares
WHERE amount >= 5 AND landed_before >= 100 AND share >= 0.01 AND share >= 3 * share_before
UNION ALL
SELECT
  cluster,
  'UNKNOWN_WRITER',
  topic,
  CAST(NULL AS STRING),
  'medium',
  since,
  last_at,
  amount,
  concat(
    IF(amount = 1, '1 dead letter names no writer', concat(amount, ' dead letters name no writer')),
    ', so their source, group and error are unknown: if Kafka Connect writes them, its connector needs '
    'errors.deadletterqueue.context.headers.enable=true'
  ),
  'afterlog doctor'
FROM nameless
UNION ALL
SELECT
  cluster,
  'INFERRED_DISPOSITIONS',
  topic,
  name,
  'low',
  since,
  last_at,
  amount,
  concat(amount, ' of ', record_count, ' dispositions are inferred from the error message, no header tells them'),
  'afterlog ask rejected_or_retried_to_death'
FROM inferred
WHERE amount > 0
UNION ALL
SELECT
  cluster,
  'LATE_DATA',
  topic,
  CAST(NULL AS STRING),
  'low',
  since,
  last_at,
  amount,
  concat(
    IF(amount = 1, '1 dead letter was', concat(amount, ' dead letters were')),
    ' accepted more than an hour late, after later ones: earlier answers about that time lacked them'
  ),
  'afterlog ask volume_by_hour'
FROM late
