-- Purpose: facts that must be 0 before silver.dlq_gaps is written; any other value breaks its gate.
-- Grain: one row, one column per fact.
-- Parameters: {dlq_ranges} rows of silver.dlq_ranges of the partitions that are refreshed; {fresh} the new rows;
-- {log_batches}, {transactions}, {log_ranges}.
SELECT
  (
    SELECT coalesce(sum(CAST(greatest_offset AS DECIMAL(38, 0)) - least_offset + 1 - record_count), 0)
    FROM (
      SELECT
        CAST(max(last_offset) AS DECIMAL(20, 0)) AS greatest_offset,
        CAST(min(first_offset) AS DECIMAL(20, 0)) AS least_offset,
        sum(last_offset - first_offset + 1) AS record_count
      FROM {dlq_ranges}
      GROUP BY cluster, dlq_topic, dlq_topic_id, dlq_partition
    )
  ) - (SELECT coalesce(sum(CAST(offset_count AS DECIMAL(38, 0))), 0) FROM {fresh}) AS `offset_count.difference`
