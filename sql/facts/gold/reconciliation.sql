-- Purpose: facts that must be 0 before gold.reconciliation is written; any other value breaks its gate.
-- Grain: one row, one column per fact.
-- Parameters: {dead_letters}, {dlq_gaps}, {dlq_write_failures} rows of these silver tables in the hours that are
-- refreshed; {fresh} the new rows; {message_counts}, {acknowledged_topics}.
SELECT
  (SELECT count_if(is_accepted AND is_control_marker) FROM {dead_letters})
    - (SELECT coalesce(sum(control_marker_count), 0) FROM {fresh}) AS `control_marker_count.difference`,
  (
    SELECT coalesce(sum(CAST(offset_count AS DECIMAL(38, 0))), 0)
    FROM (
      SELECT coalesce(try_sum(offset_count), 9223372036854775807) AS offset_count
      FROM {dlq_gaps}
      GROUP BY cluster, date_trunc('HOUR', found_at), dlq_topic
    )
  ) - (SELECT coalesce(sum(CAST(dlq_gap_count AS DECIMAL(38, 0))), 0) FROM {fresh}) AS `dlq_gap_count.difference`,
  (SELECT count(*) FROM {dlq_write_failures}) - (SELECT coalesce(sum(dlq_write_failure_count), 0) FROM {fresh})
    AS `dlq_write_failure_count.difference`
