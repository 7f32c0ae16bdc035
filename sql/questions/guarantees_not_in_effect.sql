-- Purpose: which producers can send duplicates, would fail or cannot be judged, and what should their owners be told?
-- Usage: afterlog ask guarantees_not_in_effect
-- Parameters: none.
-- Feeds: producers.
-- Engine: duckdb
SELECT
  cluster,
  verdict,
  client_id,
  topic,
  sentence,
  requested_mode,
  effective_mode,
  observed_mode,
  observed_by
FROM gold.delivery_guarantees
WHERE verdict <> 'OK'
ORDER BY
  array_position(array('WOULD_FAIL', 'SILENTLY_OFF', 'DUPLICATES_POSSIBLE', 'UNKNOWN'), verdict), cluster, client_id, topic
