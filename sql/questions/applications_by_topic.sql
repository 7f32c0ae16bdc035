-- Purpose: which applications feed which: which topics does one write and another read in their current topologies?
--   Applications that were deleted do not count.
-- Usage: afterlog ask applications_by_topic
-- Parameters: none.
-- Feeds: streams-requests.
-- Engine: duckdb
WITH edges AS (
  SELECT edges.*
  FROM gold.topology_edges AS edges
  LEFT ANTI JOIN gold.topology_current AS gone
    ON gone.cluster = edges.cluster AND gone.group_id = edges.group_id AND gone.health = 'DELETED'
  WHERE edges.is_current
)
SELECT
  written.cluster,
  written.group_id AS from_group,
  written.from AS from_node,
  written.topic,
  written.topic_role,
  read.group_id AS to_group,
  read.to AS to_node
FROM edges AS written
JOIN edges AS read
  ON read.cluster = written.cluster AND read.topic = written.topic
WHERE written.direction = 'written' AND read.direction = 'read'
ORDER BY written.cluster, from_group, written.topic, to_group, to_node, from_node, written.topic_role
