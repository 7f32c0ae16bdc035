-- Purpose: facts that must be 0 before silver.log_ranges is written; they break its gate.
-- Grain: one row, one column a fact.
-- Parameters: {record_batches} rows of silver.record_batches of the segments that are refreshed; {fresh} the new rows.
SELECT
  (
    SELECT coalesce(sum(last_offset - base_offset + 1), 0)
    FROM {record_batches}
    WHERE last_offset - try_cast(regexp_extract(_source, '([0-9]+)[.]log$', 1) AS BIGINT) <= 2147483647
  ) - (SELECT coalesce(sum(last_offset - first_offset + 1), 0) FROM {fresh} WHERE is_present)
    AS `offset_count.difference`,
  (SELECT count(*) FROM (SELECT 1 FROM {fresh} GROUP BY cluster, segment, first_offset HAVING count(*) > 1))
    AS `grain.repeated`
