-- Purpose: facts that must be 0 before silver.log_gaps is written; any other value breaks its gate.
-- Grain: one row, one column per fact.
-- Parameters: {log_ranges} rows of silver.log_ranges of the partitions that are refreshed; {fresh} the new rows.
WITH logs AS (
  SELECT
    cluster,
    topic,
    partition,
    CAST(max(last_offset) AS DECIMAL(20, 0)) - min(first_offset) + 1 AS span,
    sum(IF(has_batch, CAST(last_offset AS DECIMAL(20, 0)) - first_offset + 1, 0)) AS read_count
  FROM {log_ranges}
  GROUP BY cluster, topic, partition
),
unread AS (
  SELECT cluster, topic, partition, sum(CAST(last_offset AS DECIMAL(20, 0)) - first_offset + 1) AS offset_count
  FROM {fresh}
  GROUP BY cluster, topic, partition
)
SELECT count(*) AS `offset_count.beyond_log`
FROM unread
LEFT JOIN logs USING (cluster, topic, partition)
WHERE coalesce(read_count + offset_count > span, true)
