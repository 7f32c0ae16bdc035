-- Purpose: which streams applications, stores and output topics do the dead letters of the last day touch?
-- Usage: afterlog ask applications_touched [--param now=2026-11-21T03:00:00Z]
-- Parameters: :now timestamp, the end of the day; default the present.
-- Feeds: dlq, streams-requests.
-- Engine: duckdb
WITH failing AS (
  SELECT cluster, original_topic, count(*) AS record_count
  FROM silver.dlq_records AS records
  LEFT ANTI JOIN silver.dlq_control_markers AS markers
    ON markers.is_control_marker AND markers.cluster = records.cluster AND markers._bronze_id = records._bronze_id
  WHERE routed_at > :now - INTERVAL 24 HOURS AND routed_at <= :now
  GROUP BY cluster, original_topic
),
readers AS (
  SELECT DISTINCT cluster, group_id, topology_hash, topic, subtopology_id
  FROM gold.topology_edges
  WHERE direction = 'read' AND is_current
)
SELECT
  failing.cluster,
  failing.original_topic,
  any_value(failing.record_count) AS record_count,
  readers.group_id,
  readers.subtopology_id,
  array_sort(array_distinct(flatten(collect_list(node.stores)))) AS stores,
  array_sort(collect_set(node.sink_topic)) AS output_topics
FROM failing
JOIN readers ON readers.cluster = failing.cluster AND readers.topic = failing.original_topic
JOIN silver.topology_nodes AS node
  ON node.cluster = readers.cluster
    AND node.group_id = readers.group_id
    AND node.topology_hash = readers.topology_hash
    AND node.subtopology_id <=> readers.subtopology_id
GROUP BY failing.cluster, failing.original_topic, readers.group_id, readers.subtopology_id
ORDER BY record_count DESC, failing.original_topic, readers.group_id, readers.subtopology_id, failing.cluster
