-- Purpose: which applications changed their topology in the last week, and what changed?
-- Usage: afterlog ask topology_changes [--param now=2026-11-21T03:00:00Z]
-- Parameters: :now timestamp, the end of the week; default the present.
-- Feeds: streams-requests.
-- Engine: duckdb
SELECT
  cluster,
  group_id,
  revision,
  changed_at,
  nodes_added,
  nodes_removed,
  nodes_changed,
  size(edges_added) AS edges_added_count,
  size(edges_removed) AS edges_removed_count,
  stores_added,
  stores_removed,
  topics_added,
  topics_removed
FROM gold.topology_changes
WHERE changed_at > :now - INTERVAL 7 DAYS AND changed_at <= :now
ORDER BY changed_at DESC, cluster, group_id, revision
