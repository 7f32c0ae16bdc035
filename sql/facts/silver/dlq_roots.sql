-- Purpose: facts that must be 0 before silver.dlq_roots is written; any other value breaks its gate.
-- Grain: one row, one column per fact.
-- Parameters: {dlq_hops} rows of silver.dlq_hops of the slices that are refreshed; {fresh} the new rows.
SELECT
  (
    SELECT count(*)
    FROM (
      SELECT cluster, topic, partition, offset FROM {dlq_hops}
      EXCEPT
      SELECT cluster, topic, partition, offset FROM {fresh}
    )
  ) AS `offset.without_root`,
  (SELECT count(*) FROM {fresh}) - (SELECT count(*) FROM {dlq_hops}) AS `offset.difference`
