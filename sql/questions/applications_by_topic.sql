-- Purpose: which applications feed which: which topics does one write and another read in their current topologies?
-- Usage: afterlog ask applications_by_topic
-- Parameters: none.
-- Feeds: streams-requests.
-- Engine: duckdb
SELECT
  written.cluster,
  written.group_id AS from_group,
  written.from AS from_node,
  written.topic,
  written.topic_role,
  read.group_id AS to_group,
  read.to AS to_node
FROM gold.topology_edges AS written
JOIN gold.topology_edges AS read
  ON read.cluster = written.cluster AND read.topic = written.topic
WHERE written.direction = 'written' AND read.direction = 'read' AND written.is_current AND read.is_current
ORDER BY written.cluster, from_group, written.topic, to_group, to_node, from_node, written.topic_role
