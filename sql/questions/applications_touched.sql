-- Purpose: which streams applications, stores and output topics do the incidents of the last day reach, by the topologies
--   that were valid at the first record of each? If is_later is true, only a topology that was accepted later tells it.
--   If is_as_known_now is true, dead letters came after :now, and record_count counts them: it is as known now.
--   What is stamped after :now counts if all that is known was accepted by then: a clock was ahead.
-- Usage: afterlog ask applications_touched [--param now=2026-11-21T03:00:00Z]
-- Parameters: :now timestamp, the end of the day; default the present.
-- Feeds: dlq, streams-requests.
-- Engine: duckdb
WITH knows_all AS (
  SELECT coalesce(max(last_accepted_at) <= :now, false) AS is_true FROM gold.dlq_summary
)
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
  reached.is_lower_bound,
  reached.is_later,
  incidents.last_at > :now AND NOT knows_all.is_true AS is_as_known_now
FROM gold.blast_radius AS reached
JOIN gold.dlq_incidents AS incidents
  ON incidents.cluster = reached.cluster AND incidents.incident_id = reached.incident_id
CROSS JOIN knows_all
WHERE
  reached.direction = 'downstream'
  AND incidents.last_at > :now - INTERVAL 24 HOURS
  AND (incidents.first_at <= :now OR knows_all.is_true)
ORDER BY incidents.record_count DESC, reached.cluster, reached.incident_id, reached.place
