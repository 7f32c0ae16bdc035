-- Purpose: which incidents had dead letters in the last day, how bad are they, what is the first suspect of each, and how
--   many applications do they reach? Those whose first topology came later do not count; null: no topology tells. If
--   is_as_known_now is true, dead letters came after :now, and the row counts them: it is as known now.
--   What is stamped after :now counts if all that is known was accepted by then: a clock was ahead.
-- Usage: afterlog ask incidents_of_the_day [--param now=2026-11-21T03:00:00Z]
-- Parameters: :now timestamp, the end of the day; default the present.
-- Feeds: dlq.
-- Engine: duckdb
WITH knows_all AS (
  SELECT coalesce(max(last_accepted_at) <= :now, false) AS is_true FROM gold.dlq_summary
),
reached AS (
  SELECT
    cluster,
    incident_id,
    count(DISTINCT IF(direction = 'downstream' AND NOT is_later, group_id, NULL)) AS application_count,
    count_if(is_lower_bound) > 0 AS is_lower_bound
  FROM gold.blast_radius
  GROUP BY cluster, incident_id
)
SELECT
  incidents.cluster,
  incidents.incident_id,
  incidents.severity,
  incidents.verdict,
  incidents.consumer_group,
  coalesce(incidents.consumer_group, incidents.owner) AS owner,
  incidents.original_topic,
  incidents.record_count,
  incidents.source_record_count,
  incidents.first_at,
  incidents.last_at,
  incidents.sentence,
  suspects.sentence AS first_suspect,
  IF(application_count = 0 AND is_lower_bound, NULL, application_count) AS applications_reached,
  incidents.last_at > :now AND NOT knows_all.is_true AS is_as_known_now
FROM gold.dlq_incidents AS incidents
CROSS JOIN knows_all
LEFT JOIN gold.incident_suspects AS suspects
  ON suspects.cluster = incidents.cluster AND suspects.incident_id = incidents.incident_id AND suspects.rank = 1
LEFT JOIN reached ON reached.cluster = incidents.cluster AND reached.incident_id = incidents.incident_id
WHERE
  incidents.record_count > 0
  AND incidents.last_at > :now - INTERVAL 24 HOURS
  AND (incidents.first_at <= :now OR knows_all.is_true)
ORDER BY
  array_position(array('critical', 'high', 'medium', 'low'), incidents.severity),
  incidents.first_at DESC,
  incidents.cluster,
  incidents.incident_id
