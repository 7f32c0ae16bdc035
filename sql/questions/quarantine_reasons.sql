-- Purpose: what is in quarantine, and which rules does it break? A row that breaks two rules is counted under both.
-- Usage: afterlog sql --file sql/questions/quarantine_reasons.sql
-- Parameters: none.
-- Feeds: dlq.
SELECT
  violation,
  dlq_topic,
  header_profile,
  count(*) AS record_count,
  count(DISTINCT _source) AS file_count,
  min(_ingested_at) AS first_ingested_at,
  max(_ingested_at) AS last_ingested_at
FROM quarantine.dlq_records
LATERAL VIEW explode(violations) AS violation
GROUP BY violation, dlq_topic, header_profile
ORDER BY record_count DESC, violation, dlq_topic
