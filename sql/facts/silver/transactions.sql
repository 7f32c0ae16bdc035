-- Purpose: facts that must be 0 before silver.transactions is written; they break its gate.
-- Grain: one row, one column a fact.
-- Parameters: {record_batches} rows of silver.record_batches of the producers that are refreshed; {fresh} the new rows.
SELECT
  (SELECT count_if(is_transactional AND NOT is_control) FROM {record_batches})
    - (SELECT coalesce(sum(batch_count), 0) FROM {fresh}) AS `batch_count.difference`,
  (SELECT count(*) FROM (
    SELECT 1 FROM {fresh}
    GROUP BY cluster, topic, partition, producer_id, producer_epoch, first_offset HAVING count(*) > 1
  )) AS `grain.repeated`
