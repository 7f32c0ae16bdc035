-- Purpose: facts that must be 0 before silver.dlq_gaps is written; they break its gate.
-- Grain: one row, one column a fact.
-- Parameters: {dead_letters} rows of silver.dead_letters of the partitions that are refreshed; {fresh} the new rows;
-- {transactions}, {log_ranges}.
SELECT
  (
    SELECT coalesce(sum(greatest_offset - least_offset + 1 - record_count), 0)
    FROM (
      SELECT max(dlq_offset) AS greatest_offset, min(dlq_offset) AS least_offset, count(*) AS record_count
      FROM {dead_letters}
      GROUP BY cluster, dlq_topic, dlq_topic_id, dlq_partition
    )
  ) - (SELECT coalesce(sum(offset_count), 0) FROM {fresh}) AS `offset_count.difference`,
  (SELECT count(*) FROM (
    SELECT 1 FROM {fresh} GROUP BY cluster, dlq_topic, dlq_topic_id, dlq_partition, first_offset HAVING count(*) > 1
  )) AS `grain.repeated`
