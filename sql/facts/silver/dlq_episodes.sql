-- Purpose: facts that must be 0 before silver.dlq_episodes is written; any other value breaks its gate.
-- Grain: one row, one column per fact.
-- Parameters: {dlq_errors} rows of silver.dlq_errors of the fingerprints that are refreshed; {fresh} the new rows.
SELECT
  (SELECT coalesce(sum(record_count), 0) FROM {dlq_errors})
  - (SELECT coalesce(sum(record_count), 0) FROM {fresh}) AS `record_count.difference`,
  (
    SELECT count(*)
    FROM (
      SELECT first_at, max(last_at) OVER (
        PARTITION BY fingerprint ORDER BY first_at ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
      ) AS last_before
      FROM {fresh}
      WHERE record_count > 0
    )
    WHERE first_at <= last_before
  ) AS `episodes.overlapping`
