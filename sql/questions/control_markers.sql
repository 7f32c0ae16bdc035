-- Purpose: did a broker dead-letter transaction markers (a trap of read_uncommitted share groups)? Markers that the
--   source's landed log proves are not an application's records: gold does not count them, and you lose nothing by
--   dropping them. Markers that are only suspected, by their bytes, count as dead letters: land the source partition's
--   segments to be sure.
-- Usage: afterlog ask control_markers
-- Parameters: none.
-- Feeds: dlq.
-- Engine: duckdb
WITH proved AS (
  SELECT cluster, _bronze_id, is_control_marker, control_type FROM silver.dlq_control_markers
),
markers AS (
  SELECT
    records.*,
    coalesce(is_control_marker, false) AS is_proved,
    coalesce(control_type, IF(substring(hex(key), 5, 4) = '0001', 'COMMIT', 'ABORT')) AS kind
  FROM silver.dlq_records AS records
  LEFT JOIN proved ON proved.cluster = records.cluster AND proved._bronze_id = records._bronze_id
  WHERE coalesce(is_control_marker, control_marker_suspected)
)
SELECT
  cluster,
  dlq_topic,
  consumer_group,
  original_topic,
  count_if(is_proved) AS marker_count,
  count_if(NOT is_proved) AS suspected_count,
  count_if(kind = 'COMMIT') AS commit_count,
  min(routed_at) AS first_routed_at,
  max(routed_at) AS last_routed_at
FROM markers
GROUP BY cluster, dlq_topic, consumer_group, original_topic
ORDER BY marker_count DESC, suspected_count DESC, dlq_topic, consumer_group, cluster, original_topic
