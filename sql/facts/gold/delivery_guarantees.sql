-- Purpose: facts that must be 0 before gold.delivery_guarantees is written; any other value breaks its gate.
-- Grain: one row, one column per fact.
-- Parameters: {producers} rows of silver.producers of the topics that are refreshed; {fresh} the new rows;
-- {log_batches}.
SELECT
  (SELECT count(*) FROM {producers}) - (SELECT coalesce(sum(statement_count), 0) FROM {fresh})
    AS `statement_count.difference`
