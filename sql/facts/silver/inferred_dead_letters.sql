-- Purpose: facts that must be 0 before silver.inferred_dead_letters is written; any other value breaks its gate.
-- Grain: one row, one column per fact.
-- Parameters: {dlq_records} rows of silver.dlq_records of the slices that are refreshed; {fresh} the new rows.
SELECT
  (
    SELECT count(*)
    FROM (
      SELECT cluster, told_by_topic, told_by_topic_id, told_by_partition, told_by_offset FROM {fresh}
      EXCEPT
      SELECT cluster, dlq_topic, dlq_topic_id, dlq_partition, dlq_offset FROM {dlq_records}
    )
  ) AS `told_by_offset.not_landed`
