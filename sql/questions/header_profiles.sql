-- Purpose: does every DLQ topic still get the same headers as before? If a topic has more than one profile, or one
--   profile ends while another begins, a broker was upgraded, rolled back, or had
--   share.group.dlq.disposition.header.enable turned off.
-- Usage: afterlog ask header_profiles
-- Parameters: none.
-- Feeds: dlq.
-- Engine: duckdb
SELECT
  cluster,
  dlq_topic,
  header_profile,
  count(*) AS record_count,
  round(count(*) / sum(count(*)) OVER (PARTITION BY cluster, dlq_topic), 3) AS share_of_topic,
  count(*) OVER (PARTITION BY cluster, dlq_topic) AS profiles_of_topic,
  count_if(disposition IS NULL) AS without_disposition_count,
  min(routed_at) AS first_routed_at,
  max(routed_at) AS last_routed_at
FROM silver.dlq_records
GROUP BY cluster, dlq_topic, header_profile
ORDER BY profiles_of_topic DESC, dlq_topic, first_routed_at, cluster, header_profile
