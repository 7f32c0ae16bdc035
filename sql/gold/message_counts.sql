-- Purpose: counts of the ledger's messages and of their dead letters, by slice and hour, for gold.reconciliation.
-- Grain: cluster, slice, hour (UTC), topic, consumer_group; null counts as a value.
-- Parameters: {message_ledger}, rows of gold.message_ledger, complete for each slice that is in them.
-- Engine: duckdb
-- Kept: hour with gold.message_ledger
-- Refresh: slice
-- Sums of these rows are the sums of the ledger. So an hour of millions of messages is added up from few rows, and new
-- messages cost as much as the slices that they are in.
-- Messages count in the hour of their acknowledgement, or of their production if that is unknown, without a group. Dead
-- letters count in the hour when they were routed, with the group.
WITH counted AS (
  SELECT
    cluster,
    slice,
    date_trunc('HOUR', coalesce(acknowledged_at, produced_at)) AS hour,
    topic,
    CAST(NULL AS STRING) AS consumer_group,
    false AS is_letter,
    acknowledged,
    outcome,
    transaction_state,
    CAST(NULL AS STRING) AS disposition,
    false AS is_again,
    false AS lacks_acknowledgement
  FROM {message_ledger}
  WHERE acknowledgement_count > 0
  UNION ALL
  SELECT
    cluster,
    slice,
    date_trunc('HOUR', letter.routed_at) AS hour,
    topic,
    letter.consumer_group AS consumer_group,
    true AS is_letter,
    acknowledged,
    outcome,
    transaction_state,
    letter.disposition AS disposition,
    letter.times > 1 AS is_again,
    NOT acknowledged AND hop_count = 0 AND letter.times = 1 AS lacks_acknowledgement
  FROM {message_ledger} LATERAL VIEW explode(dead_letters) AS letter
)
SELECT
  cluster,
  slice,
  hour,
  topic,
  consumer_group,
  count_if(NOT is_letter AND acknowledged) AS acknowledged_count,
  count_if(NOT is_letter AND outcome = 'FAILED') AS failed_count,
  count_if(NOT is_letter AND outcome = 'UNKNOWN') AS unknown_count,
  count_if(NOT is_letter AND acknowledged AND transaction_state = 'ABORTED') AS aborted_count,
  count_if(NOT is_letter AND acknowledged AND transaction_state = 'OPEN') AS open_count,
  count_if(NOT is_letter AND outcome = 'LOST') AS lost_count,
  count_if(NOT is_letter AND outcome = 'ABSENT') AS absent_count,
  count_if(is_letter) AS dead_lettered_count,
  count_if(is_letter AND disposition = 'CLIENT_REJECTED') AS client_rejected_count,
  count_if(is_letter AND disposition = 'MAX_DELIVERY_ATTEMPTS_REACHED') AS max_delivery_attempts_reached_count,
  count_if(is_letter AND disposition = 'CIRCUIT_BREAKER_ARCHIVED') AS circuit_breaker_archived_count,
  count_if(is_letter AND disposition = 'COORDINATOR_INITIATED') AS coordinator_initiated_count,
  count_if(is_letter AND disposition IS NULL) AS no_disposition_count,
  count_if(is_again) AS dead_lettered_again_count,
  count_if(is_letter AND transaction_state = 'ABORTED') AS dead_lettered_aborted_count,
  count_if(lacks_acknowledgement) AS unacknowledged_count
FROM counted
GROUP BY cluster, slice, hour, topic, consumer_group
