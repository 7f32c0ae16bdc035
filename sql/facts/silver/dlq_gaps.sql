-- Purpose: facts that must be 0 before silver.dlq_gaps is written; any other value breaks its gate.
-- Grain: one row, one column per fact.
-- Parameters: {dlq_ranges} rows of silver.dlq_ranges of the partitions that are refreshed; {fresh} the new rows;
-- {log_batches}, {transactions}, {log_ranges}.
WITH only AS (
  SELECT cluster, dlq_topic, dlq_partition, max(dlq_topic_id) AS topic_id
  FROM {dlq_ranges}
  GROUP BY cluster, dlq_topic, dlq_partition
  HAVING count(DISTINCT dlq_topic_id) = 1
),
ranges AS (
  SELECT cluster, dlq_topic, dlq_partition, coalesce(topic_id, dlq_topic_id) AS topic_id, first_offset, last_offset
  FROM {dlq_ranges}
  LEFT JOIN only USING (cluster, dlq_topic, dlq_partition)
),
reaching AS (
  SELECT
    *,
    max(last_offset) OVER (
      PARTITION BY cluster, dlq_topic, topic_id, dlq_partition ORDER BY first_offset
      ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
    ) AS reached
  FROM ranges
)
SELECT
  (
    SELECT coalesce(sum(CAST(greatest_offset AS DECIMAL(38, 0)) - least_offset + 1 - record_count), 0)
    FROM (
      SELECT
        CAST(max(last_offset) AS DECIMAL(20, 0)) AS greatest_offset,
        CAST(min(first_offset) AS DECIMAL(20, 0)) AS least_offset,
        sum(greatest(0, last_offset - greatest(first_offset - 1, reached))) AS record_count
      FROM reaching
      GROUP BY cluster, dlq_topic, topic_id, dlq_partition
    )
  ) - (SELECT coalesce(sum(CAST(offset_count AS DECIMAL(38, 0))), 0) FROM {fresh}) AS `offset_count.difference`
