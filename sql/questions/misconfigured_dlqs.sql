-- Purpose: which settings of groups and topics would lose dead letters or make them useless, since when, and which
--   command fixes each? `afterlog collect` asks the cluster again.
-- Usage: afterlog ask misconfigured_dlqs
-- Parameters: none.
-- Feeds: cluster-settings.
-- Engine: duckdb
SELECT cluster, severity, kind, group_id, dlq_topic, source_topic, since, last_seen_at, evidence, remedy
FROM gold.dlq_misconfigurations
ORDER BY
  array_position(array('critical', 'high', 'medium', 'low'), severity),
  since,
  cluster,
  kind,
  group_id
