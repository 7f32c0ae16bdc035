-- Purpose: facts that must be 0 before silver.message_attributes is written; any other value breaks its gate.
-- Grain: one row, one column per fact.
-- Parameters: {acknowledgements} rows of silver.acknowledgements of the slices that are refreshed; {fresh} the new rows.
SELECT
  (
    SELECT count(*)
    FROM (
      SELECT cluster, slice
      FROM {acknowledgements}
      WHERE outcome = 'ACKNOWLEDGED' AND (client_id IS NOT NULL OR size(headers) > 0)
      EXCEPT
      SELECT cluster, slice FROM {fresh}
    )
  ) AS `slice.missing`,
  (
    SELECT
      greatest(
        count_if(outcome = 'ACKNOWLEDGED' AND client_id IS NOT NULL)
          - (SELECT coalesce(sum(named_count), 0) FROM {fresh}),
        0
      )
    FROM {acknowledgements}
  ) AS `named_count.missing`
