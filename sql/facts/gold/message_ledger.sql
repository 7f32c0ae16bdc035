-- Purpose: facts that must be 0 before gold.message_ledger is written; any other value breaks its gate.
-- Grain: one row, one column per fact.
-- Parameters: {acknowledgements}, {dead_letters} and {inferred_dead_letters} rows of these silver tables in the slices
-- that are refreshed; {fresh} the new rows; {dlq_roots}, {transactions}, {log_ranges}, {topic_policies}.
SELECT
  (SELECT count(*) FROM {acknowledgements}) - (SELECT coalesce(sum(acknowledgement_count), 0) FROM {fresh})
    AS `acknowledgement_count.difference`,
  (SELECT count_if(is_counted AND source_slice IS NOT NULL) FROM {dead_letters})
    + (
      SELECT count(*)
      FROM (
        SELECT
          cluster, original_topic, original_partition, original_offset, consumer_group, dlq_topic, dlq_partition,
          dlq_offset
        FROM (
          SELECT hops.*
          FROM {inferred_dead_letters} AS hops
          LEFT ANTI JOIN {dead_letters} AS landed
            ON landed.cluster = hops.cluster
              AND landed.is_counted
              AND landed.source_slice = hops.source_slice
              AND landed.dlq_topic = hops.dlq_topic
              AND landed.dlq_partition = hops.dlq_partition
              AND landed.dlq_offset = hops.dlq_offset
        )
        GROUP BY ALL
      )
    )
    - (SELECT coalesce(sum(dead_lettered_count), 0) FROM {fresh}) AS `dead_lettered_count.difference`
