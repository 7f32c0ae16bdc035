-- Purpose: which streams groups' topologies cannot be trusted, and why? Health is what the broker has of a description;
--   one with defects is listed whatever its health, and else no group that was deleted. The page also lists topologies
--   that changed near an open incident. last_accepted_at is the time of the last accepted push.
-- Usage: afterlog ask topology_health
-- Parameters: none.
-- Feeds: streams-requests.
-- Engine: duckdb
SELECT cluster, group_id, health, defects, sentence, revision, last_pushed_at AS last_accepted_at, last_seen_at
FROM gold.topology_current
WHERE health NOT IN ('OK', 'DELETED') OR size(defects) > 0
ORDER BY
  array_position(
    array('CONFLICT', 'PLUGIN_ERROR', 'LOST', 'REJECTED', 'STALE', 'NOT_PUSHED', 'OK', 'DELETED'), health
  ),
  cluster,
  group_id
