-- Purpose: counts of sent and dead-lettered messages by hour, and what of them does not add up.
-- Grain: cluster, hour (UTC), topic, consumer_group; null counts as a value.
-- Parameters: {message_counts}, {dead_letters}, {dlq_gaps}, {dlq_write_failures}, rows of gold.message_counts and of
-- the silver tables, complete for each hour that is in them; {acknowledged_topics}, all rows of
-- silver.acknowledged_topics. If a topic is not in it, no acknowledgement of the topic has ever landed. Whether its
-- dead letters lack one is then unknown, and unacknowledged_count is null in their hours.
-- Engine: duckdb
-- Kept: hour with gold.message_counts
-- Refresh: hour
--   gold.message_counts: hour
--   silver.dead_letters: date_trunc('HOUR', coalesce(routed_at, dlq_timestamp))
--   silver.dlq_gaps: date_trunc('HOUR', found_at)
--   silver.dlq_write_failures: date_trunc('HOUR', failed_at)
--   silver.acknowledged_topics: own rows by topic where unacknowledged_count IS NULL
-- Messages and dead letters count in the hours of gold.message_counts, under their source topic. Markers and findings
-- about a DLQ topic count in the hour when they were routed, or in that of the DLQ record if it is unknown. Failed DLQ
-- writes count in the hour of the failure, under the source topic and group. Findings about a DLQ topic itself count
-- under that topic, without a group.
-- Landed records can name any offset, so counts of offsets are capped at the greatest BIGINT.
WITH messages AS (
  SELECT
    counts.cluster,
    hour,
    counts.topic,
    consumer_group,
    array(
      struct('acknowledged' AS what, sum(acknowledged_count) AS amount),
      struct('failed' AS what, sum(failed_count) AS amount),
      struct('unknown' AS what, sum(unknown_count) AS amount),
      struct('aborted' AS what, sum(aborted_count) AS amount),
      struct('open' AS what, sum(open_count) AS amount),
      struct('lost' AS what, sum(lost_count) AS amount),
      struct('absent' AS what, sum(absent_count) AS amount),
      struct('dead_lettered' AS what, sum(dead_lettered_count) AS amount),
      struct('client_rejected' AS what, sum(client_rejected_count) AS amount),
      struct('max_attempts' AS what, sum(max_delivery_attempts_reached_count) AS amount),
      struct('circuit_breaker' AS what, sum(circuit_breaker_archived_count) AS amount),
      struct('coordinator' AS what, sum(coordinator_initiated_count) AS amount),
      struct('no_disposition' AS what, sum(no_disposition_count) AS amount),
      struct('again' AS what, sum(dead_lettered_again_count) AS amount),
      struct('dead_lettered_aborted' AS what, sum(dead_lettered_aborted_count) AS amount),
      struct(
        'unacknowledged' AS what,
        IF(
          any_value(acknowledged_topics.topic) IS NOT NULL OR sum(unacknowledged_count) = 0,
          sum(unacknowledged_count),
          NULL
        ) AS amount
      )
    ) AS counts
  FROM {message_counts} AS counts
  LEFT JOIN {acknowledged_topics} AS acknowledged_topics
    ON acknowledged_topics.cluster = counts.cluster AND acknowledged_topics.topic = counts.topic
  GROUP BY counts.cluster, hour, counts.topic, consumer_group
),
markers AS (
  SELECT
    cluster,
    date_trunc('HOUR', coalesce(routed_at, dlq_timestamp)) AS hour,
    original_topic AS topic,
    consumer_group,
    array(
      struct('control_marker' AS what, count_if(is_control_marker) AS amount),
      struct('suspected_marker' AS what, count_if(control_marker_suspected AND is_counted) AS amount)
    ) AS counts
  FROM {dead_letters}
  WHERE is_accepted AND (is_control_marker OR (control_marker_suspected AND is_counted))
  GROUP BY cluster, date_trunc('HOUR', coalesce(routed_at, dlq_timestamp)), original_topic, consumer_group
),
dlq_findings AS (
  SELECT
    cluster,
    date_trunc('HOUR', coalesce(routed_at, dlq_timestamp)) AS hour,
    dlq_topic AS topic,
    CAST(NULL AS STRING) AS consumer_group,
    array(
      struct('aborted_seen' AS what, count_if(write_state = 'ABORTED') AS amount),
      struct('without_headers' AS what, count_if(write_state = 'COMMITTED' AND lacks_mandatory_headers) AS amount)
    ) AS counts
  FROM {dead_letters}
  WHERE NOT is_control_marker AND (write_state = 'ABORTED' OR (write_state = 'COMMITTED' AND lacks_mandatory_headers))
  GROUP BY cluster, date_trunc('HOUR', coalesce(routed_at, dlq_timestamp)), dlq_topic
),
gaps AS (
  SELECT
    cluster,
    date_trunc('HOUR', found_at) AS hour,
    dlq_topic AS topic,
    CAST(NULL AS STRING) AS consumer_group,
    array(
      struct('gap' AS what, coalesce(try_sum(offset_count), 9223372036854775807) AS amount),
      struct('gap_marker' AS what, coalesce(try_sum(marker_count), 9223372036854775807) AS amount),
      struct('gap_aborted' AS what, coalesce(try_sum(aborted_count), 9223372036854775807) AS amount),
      struct('gap_compacted' AS what, coalesce(try_sum(compacted_count), 9223372036854775807) AS amount),
      struct('gap_unexplained' AS what, coalesce(try_sum(unexplained_count), 9223372036854775807) AS amount)
    ) AS counts
  FROM {dlq_gaps}
  GROUP BY cluster, date_trunc('HOUR', found_at), dlq_topic
),
failures AS (
  SELECT
    cluster,
    date_trunc('HOUR', failed_at) AS hour,
    original_topic AS topic,
    consumer_group,
    array(
      struct('write_failure' AS what, count(*) AS amount),
      struct(
        'write_failure_offsets' AS what, coalesce(try_sum(coalesce(offset_count, 0)), 9223372036854775807) AS amount
      ),
      struct('unattributed' AS what, count_if(NOT is_attributed) AS amount)
    ) AS counts
  FROM {dlq_write_failures}
  GROUP BY cluster, date_trunc('HOUR', failed_at), original_topic, consumer_group
),
counted AS (
  SELECT cluster, hour, topic, consumer_group, counts FROM messages
  UNION ALL
  SELECT cluster, hour, topic, consumer_group, counts FROM markers
  UNION ALL
  SELECT cluster, hour, topic, consumer_group, counts FROM dlq_findings
  UNION ALL
  SELECT cluster, hour, topic, consumer_group, counts FROM gaps
  UNION ALL
  SELECT cluster, hour, topic, consumer_group, counts FROM failures
),
facts AS (
  SELECT cluster, hour, topic, consumer_group, fact.what AS what, fact.amount AS amount
  FROM counted LATERAL VIEW explode(counts) AS fact
)
SELECT
  cluster,
  hour,
  topic,
  consumer_group,
  sum(IF(what = 'acknowledged', amount, 0)) AS acknowledged_count,
  sum(IF(what = 'failed', amount, 0)) AS failed_count,
  sum(IF(what = 'unknown', amount, 0)) AS unknown_count,
  sum(IF(what = 'aborted', amount, 0)) AS aborted_count,
  sum(IF(what = 'open', amount, 0)) AS open_count,
  sum(IF(what = 'lost', amount, 0)) AS lost_count,
  sum(IF(what = 'absent', amount, 0)) AS absent_count,
  sum(IF(what = 'dead_lettered', amount, 0)) AS dead_lettered_count,
  sum(IF(what = 'client_rejected', amount, 0)) AS client_rejected_count,
  sum(IF(what = 'max_attempts', amount, 0)) AS max_delivery_attempts_reached_count,
  sum(IF(what = 'circuit_breaker', amount, 0)) AS circuit_breaker_archived_count,
  sum(IF(what = 'coordinator', amount, 0)) AS coordinator_initiated_count,
  sum(IF(what = 'no_disposition', amount, 0)) AS no_disposition_count,
  sum(IF(what = 'again', amount, 0)) AS dead_lettered_again_count,
  sum(IF(what = 'dead_lettered_aborted', amount, 0)) AS dead_lettered_aborted_count,
  IF(
    count_if(what = 'unacknowledged' AND amount IS NULL) = 0, sum(IF(what = 'unacknowledged', amount, 0)), NULL
  ) AS unacknowledged_count,
  sum(IF(what = 'control_marker', amount, 0)) AS control_marker_count,
  sum(IF(what = 'suspected_marker', amount, 0)) AS suspected_marker_count,
  sum(IF(what = 'gap', amount, 0)) AS dlq_gap_count,
  sum(IF(what = 'gap_marker', amount, 0)) AS dlq_gap_marker_count,
  sum(IF(what = 'gap_aborted', amount, 0)) AS dlq_gap_aborted_count,
  sum(IF(what = 'gap_compacted', amount, 0)) AS dlq_gap_compacted_count,
  sum(IF(what = 'gap_unexplained', amount, 0)) AS dlq_gap_unexplained_count,
  sum(IF(what = 'write_failure', amount, 0)) AS dlq_write_failure_count,
  sum(IF(what = 'write_failure_offsets', amount, 0)) AS dlq_write_failure_offset_count,
  sum(IF(what = 'unattributed', amount, 0)) AS dlq_write_failure_unattributed_count,
  sum(IF(what = 'aborted_seen', amount, 0)) AS aborted_dlq_write_count,
  sum(IF(what = 'without_headers', amount, 0)) AS committed_without_headers_count
FROM facts
GROUP BY cluster, hour, topic, consumer_group
