-- Purpose: facts that must be 0 before silver.record_ranges is written; any other value breaks its gate.
-- Grain: one row, one column per fact.
-- Parameters: {acknowledgements}, {dead_letters} rows of these silver tables of the slices that are refreshed; {fresh}
-- the new rows.
WITH told AS (
  SELECT cluster, slice, offset
  FROM {acknowledgements}
  LEFT SEMI JOIN (
    SELECT cluster, source_slice AS slice FROM {dead_letters} WHERE is_counted
  ) USING (cluster, slice)
  WHERE outcome = 'ACKNOWLEDGED' AND offset IS NOT NULL
)
SELECT
  (
    SELECT count(*) FROM (SELECT cluster, slice FROM told EXCEPT SELECT cluster, slice FROM {fresh})
  ) AS `slice.missing`,
  (
    (SELECT count(DISTINCT cluster, slice, offset) FROM told)
    - (
      SELECT coalesce(sum(one.last_offset - one.first_offset + 1), 0)
      FROM {fresh} LATERAL VIEW explode(acknowledged) AS one
    )
  ) AS `acknowledged.difference`
