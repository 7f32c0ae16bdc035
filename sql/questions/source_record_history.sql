-- Purpose: what happened to one source record: every time that a group dead-lettered it, in order.
-- Usage: afterlog sql --file sql/questions/source_record_history.sql --param topic=orders --param partition=0 --param offset=7
-- Parameters: :topic text, :partition and :offset whole numbers: the record's place in its source topic.
SELECT
  routed_at,
  cluster,
  consumer_group,
  disposition,
  delivery_count,
  error_message,
  dlq_topic,
  dlq_partition,
  dlq_offset,
  payload_copied,
  is_control_marker
FROM silver.dlq_records
WHERE original_topic = :topic AND original_partition = :partition AND original_offset = :offset
ORDER BY routed_at, dlq_topic, dlq_partition, dlq_offset
