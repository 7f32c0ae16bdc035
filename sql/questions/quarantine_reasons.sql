-- Purpose: which rows of which table are in quarantine or held, and which rules do they break? A row that breaks two
--   rules counts under both.
-- Grain: cluster, table that lacks the rows, where they are (state: quarantine, or held with their topic), rule, topic
-- (of dead letters the DLQ topic), profile. The rule is null for held rows that break no rule and wait with the others
-- of their topic.
-- Usage: afterlog ask quarantine_reasons
-- Parameters: none.
-- Feeds: dlq.
-- Engine: duckdb
WITH kept AS (
  SELECT 'quarantine' AS state, 'silver.dlq_records' AS table, cluster, violations, dlq_topic AS topic, header_profile, _source, _ingested_at
  FROM quarantine.dlq_records
  UNION ALL
  SELECT 'held' AS state, 'silver.dlq_records' AS table, cluster, violations, dlq_topic AS topic, header_profile, _source, _ingested_at
  FROM held.dlq_records
  UNION ALL
  SELECT 'quarantine' AS state, 'silver.topology_pushes' AS table, cluster, violations, CAST(NULL AS STRING) AS topic, CAST(NULL AS STRING) AS header_profile, _source, _ingested_at
  FROM quarantine.topology_pushes
  UNION ALL
  SELECT 'quarantine' AS state, 'silver.topology_statuses' AS table, cluster, violations, CAST(NULL AS STRING) AS topic, CAST(NULL AS STRING) AS header_profile, _source, _ingested_at
  FROM quarantine.topology_statuses
  UNION ALL
  SELECT 'quarantine' AS state, 'silver.group_deletions' AS table, cluster, violations, CAST(NULL AS STRING) AS topic, CAST(NULL AS STRING) AS header_profile, _source, _ingested_at
  FROM quarantine.group_deletions
  UNION ALL
  SELECT 'quarantine' AS state, 'silver.group_heartbeats' AS table, cluster, violations, CAST(NULL AS STRING) AS topic, CAST(NULL AS STRING) AS header_profile, _source, _ingested_at
  FROM quarantine.group_heartbeats
  UNION ALL
  SELECT 'quarantine' AS state, 'silver.cluster_settings' AS table, cluster, violations, CAST(NULL AS STRING) AS topic, CAST(NULL AS STRING) AS header_profile, _source, _ingested_at
  FROM quarantine.cluster_settings
  UNION ALL
  SELECT 'quarantine' AS state, 'silver.acknowledgements' AS table, cluster, violations, topic, CAST(NULL AS STRING) AS header_profile, _source, _ingested_at
  FROM quarantine.acknowledgements
  UNION ALL
  SELECT 'held' AS state, 'silver.acknowledgements' AS table, cluster, violations, topic, CAST(NULL AS STRING) AS header_profile, _source, _ingested_at
  FROM held.acknowledgements
  UNION ALL
  SELECT 'quarantine' AS state, 'silver.record_batches' AS table, cluster, violations, topic, CAST(NULL AS STRING) AS header_profile, _source, _ingested_at
  FROM quarantine.record_batches
  UNION ALL
  SELECT 'held' AS state, 'silver.record_batches' AS table, cluster, violations, topic, CAST(NULL AS STRING) AS header_profile, _source, _ingested_at
  FROM held.record_batches
  UNION ALL
  SELECT 'quarantine' AS state, 'silver.log_files' AS table, cluster, violations, topic, CAST(NULL AS STRING) AS header_profile, _source, _ingested_at
  FROM quarantine.log_files
  UNION ALL
  SELECT 'quarantine' AS state, 'silver.producers' AS table, cluster, violations, topic, CAST(NULL AS STRING) AS header_profile, _source, _ingested_at
  FROM quarantine.producers
  UNION ALL
  SELECT 'quarantine' AS state, 'silver.changes' AS table, cluster, violations, CAST(NULL AS STRING) AS topic, CAST(NULL AS STRING) AS header_profile, _source, _ingested_at
  FROM quarantine.changes
  UNION ALL
  SELECT 'quarantine' AS state, 'silver.dlq_write_failures' AS table, cluster, violations, dlq_topic AS topic, CAST(NULL AS STRING) AS header_profile, _source, _ingested_at
  FROM quarantine.dlq_write_failures
  UNION ALL
  SELECT 'quarantine' AS state, 'silver.broker_starts' AS table, cluster, violations, CAST(NULL AS STRING) AS topic, CAST(NULL AS STRING) AS header_profile, _source, _ingested_at
  FROM quarantine.broker_starts
),
broken AS (
  SELECT *, explode(IF(size(violations) > 0, violations, array(NULL))) AS violation
  FROM kept
)
SELECT
  cluster,
  table,
  violation,
  topic,
  header_profile,
  count(*) AS record_count,
  count(DISTINCT _source) AS file_count,
  min(_ingested_at) AS first_ingested_at,
  max(_ingested_at) AS last_ingested_at,
  state
FROM broken
GROUP BY cluster, table, state, violation, topic, header_profile
ORDER BY record_count DESC, table, violation, topic, state, header_profile, cluster
