-- Purpose: facts that must be 0 before gold.message_ledger is written; any other value breaks its gate.
-- Grain: one row, one column per fact.
-- Parameters: {acknowledgements} and {dead_letters} rows of these silver tables in the slices that are refreshed;
-- {fresh} the new rows; {dlq_roots}, {transactions}, {log_ranges}, {topic_policies}.
SELECT
  (SELECT count(*) FROM {acknowledgements}) - (SELECT coalesce(sum(acknowledgement_count), 0) FROM {fresh})
    AS `acknowledgement_count.difference`,
  (SELECT count_if(is_counted AND source_slice IS NOT NULL) FROM {dead_letters})
    - (SELECT coalesce(sum(dead_lettered_count), 0) FROM {fresh}) AS `dead_lettered_count.difference`
