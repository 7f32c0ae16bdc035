-- Purpose: which rows are in quarantine or held, and which rules do they break? A row that breaks two rules counts
--   under both.
-- Grain: cluster, where the rows are (state: quarantine, or held with their topic), rule, topic, profile. The rule is
-- null for held rows that break no rule and wait with the others of their topic.
-- Usage: afterlog ask quarantine_reasons
-- Parameters: none.
-- Feeds: dlq.
-- Engine: duckdb
WITH kept AS (
  SELECT 'quarantine' AS state, cluster, violations, dlq_topic, header_profile, _source, _ingested_at
  FROM quarantine.dlq_records
  UNION ALL
  SELECT 'held' AS state, cluster, violations, dlq_topic, header_profile, _source, _ingested_at
  FROM held.dlq_records
),
broken AS (
  SELECT *, explode(IF(size(violations) > 0, violations, array(NULL))) AS violation
  FROM kept
)
SELECT
  cluster,
  violation,
  dlq_topic,
  header_profile,
  count(*) AS record_count,
  count(DISTINCT _source) AS file_count,
  min(_ingested_at) AS first_ingested_at,
  max(_ingested_at) AS last_ingested_at,
  state
FROM broken
GROUP BY cluster, state, violation, dlq_topic, header_profile
ORDER BY record_count DESC, violation, dlq_topic, state, header_profile, cluster
