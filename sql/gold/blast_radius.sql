-- Purpose: the incidents whose blast radius is computed, and the topologies that tell it.
-- Grain: one row per incident; one without an incident_id per revision and per node.
-- Parameters: {dlq_incidents}, {topology_revisions}, {topology_nodes}, rows of these tables, of the last two all.
-- Refresh: incident_id
--   gold.dlq_incidents: incident_id when cluster, original_topic, consumer_group, first_at change
--   gold.topology_revisions: own rows by cluster where hop = 0
--   silver.topology_nodes: own rows by cluster where hop = 0
-- pipelines/gold/blast_radius.py follows the topics.
SELECT
  cluster,
  incident_id,
  struct(original_topic, consumer_group, unix_micros(first_at) AS first_at) AS incident,
  NULL AS revision,
  NULL AS node
FROM {dlq_incidents}
WHERE first_at IS NOT NULL
UNION ALL
SELECT
  cluster,
  NULL,
  NULL,
  struct(group_id, revision, topology_hash, unix_micros(accepted_at) AS accepted_at),
  NULL
FROM {topology_revisions}
UNION ALL
SELECT
  cluster,
  NULL,
  NULL,
  NULL,
  struct(
    group_id, topology_hash, part, part_place, subtopology_id, node, node_type, source_topics, sink_topic, stores, successors
  )
FROM {topology_nodes}
