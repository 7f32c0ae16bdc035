-- Purpose: which streams applications, stores and output topics do the incidents of the last day reach, by the topologies
--   that were valid at the first record of each?
-- Usage: afterlog ask applications_touched [--param now=2026-11-21T03:00:00Z]
-- Parameters: :now timestamp, the end of the day; default the present.
-- Feeds: dlq, streams-requests.
-- Engine: duckdb
SELECT
  reached.cluster,
  reached.incident_id,
  incidents.original_topic,
  incidents.record_count,
  reached.hop,
  reached.topic,
  reached.group_id,
  reached.subtopology_id,
  reached.revision,
  reached.stores,
  reached.topics AS output_topics,
  reached.is_lower_bound
FROM gold.blast_radius AS reached
JOIN gold.dlq_incidents AS incidents
  ON incidents.cluster = reached.cluster AND incidents.incident_id = reached.incident_id
WHERE
  reached.direction = 'downstream'
  AND incidents.last_at > :now - INTERVAL 24 HOURS
  AND incidents.first_at <= :now
ORDER BY incidents.record_count DESC, reached.cluster, reached.incident_id, reached.place
