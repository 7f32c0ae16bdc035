-- Purpose: which landed batches does a log no longer hold, according to newer copies of it, and what took their place?
-- Usage: afterlog ask superseded_batches
-- Parameters: none.
-- Feeds: segments.
-- Engine: duckdb
SELECT
  cluster,
  topic,
  partition,
  segment,
  superseded_by,
  min(base_offset) AS first_offset,
  max(last_offset) AS last_offset,
  count(*) AS batch_count,
  sum(record_count) AS record_count
FROM silver.log_batches
WHERE superseded_by IS NOT NULL
GROUP BY cluster, topic, partition, segment, superseded_by
ORDER BY cluster, topic, partition, first_offset, segment, superseded_by
