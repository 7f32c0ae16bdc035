-- Purpose: facts that must be 0 before silver.dlq_hops is written; any other value breaks its gate.
-- Grain: one row, one column per fact.
-- Parameters: {dead_letters} and {inferred_dead_letters} rows of these silver tables of the slices that are refreshed;
-- {fresh} the new rows.
SELECT
  (
    SELECT count(*)
    FROM (
      SELECT cluster, topic, partition, offset FROM {fresh}
      EXCEPT
      (
        SELECT cluster, original_topic, original_partition, original_offset FROM {dead_letters}
        UNION ALL
        SELECT cluster, original_topic, original_partition, original_offset FROM {inferred_dead_letters}
      )
    )
  ) AS `offset.not_named`,
  (
    SELECT count(*)
    FROM (
      SELECT cluster, topic, partition, offset, original_topic, original_partition, original_offset FROM {fresh}
      EXCEPT
      (
        SELECT
          cluster, dlq_topic, dlq_partition, dlq_offset, original_topic, original_partition, original_offset
        FROM {dead_letters}
        UNION ALL
        SELECT
          cluster, dlq_topic, dlq_partition, dlq_offset, original_topic, original_partition, original_offset
        FROM {inferred_dead_letters}
      )
    )
  ) AS `offset.not_known`
