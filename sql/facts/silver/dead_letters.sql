-- Purpose: facts that must be 0 before silver.dead_letters is written; any other value breaks its gate.
-- Grain: one row, one column per fact.
-- Parameters: {dlq_records} rows of silver.dlq_records of the slices that are refreshed; {fresh} the new rows;
-- {quarantined_dlq_records}, {held_dlq_records}, {transactions}, {dlq_control_markers}.
SELECT
  (SELECT count(*) FROM {dlq_records}) - (SELECT count_if(is_accepted) FROM {fresh}) AS `record_count.difference`
