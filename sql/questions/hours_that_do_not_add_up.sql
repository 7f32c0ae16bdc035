-- Purpose: in which hours do the sent messages, the dead letters and the logs not add up?
-- Usage: afterlog ask hours_that_do_not_add_up
-- Parameters: none.
-- Feeds: acknowledgements, dlq, segments, broker-logs.
-- Engine: duckdb
SELECT
  cluster,
  hour,
  topic,
  consumer_group,
  lost_count,
  absent_count,
  dead_lettered_aborted_count,
  dead_lettered_again_count,
  unacknowledged_count,
  control_marker_count,
  suspected_marker_count,
  dlq_gap_unexplained_count,
  dlq_write_failure_count,
  dlq_write_failure_unattributed_count,
  aborted_dlq_write_count,
  committed_without_headers_count
FROM gold.reconciliation
WHERE
  greatest(
    lost_count, absent_count, dead_lettered_aborted_count, dead_lettered_again_count, unacknowledged_count,
    control_marker_count, suspected_marker_count, dlq_gap_unexplained_count, dlq_write_failure_count,
    aborted_dlq_write_count, committed_without_headers_count
  ) > 0
ORDER BY hour DESC, cluster, topic, consumer_group
