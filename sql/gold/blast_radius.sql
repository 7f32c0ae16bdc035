-- Purpose: the incidents whose blast radius is computed, and the topologies that tell it.
-- Grain: one row per incident; one without an incident_id per revision, per node and per deleted group.
-- Parameters: {dlq_incidents}, {topology_revisions}, {topology_nodes}, {topology_current}, rows of these tables, of the
-- last three all.
-- Engine: duckdb
-- Refresh: incident_id
--   gold.dlq_incidents: incident_id when cluster, original_topic, consumer_group, first_at change
--   gold.topology_revisions: own rows by cluster where hop = 0
--   silver.topology_nodes: own rows by cluster where hop = 0
--   gold.topology_current: own rows by cluster where hop = 0 when cluster, group_id, deleted_at change
-- pipelines/gold/blast_radius.py follows the topics.
SELECT
  cluster,
  incident_id,
  struct(original_topic, consumer_group, unix_micros(first_at) AS first_at) AS incident,
  NULL AS revision,
  NULL AS node,
  NULL AS deletion
FROM {dlq_incidents}
WHERE first_at IS NOT NULL
UNION ALL
SELECT
  cluster,
  NULL,
  NULL,
  struct(group_id, revision, topology_hash, unix_micros(accepted_at) AS accepted_at),
  NULL,
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
  ),
  NULL
FROM {topology_nodes}
UNION ALL
SELECT
  cluster,
  NULL,
  NULL,
  NULL,
  NULL,
  struct(group_id, unix_micros(deleted_at) AS deleted_at)
FROM {topology_current}
WHERE deleted_at IS NOT NULL
