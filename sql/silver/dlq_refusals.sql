-- Purpose: how many dead letters break which rule, by slice of their DLQ topic and hour, so that suspects and findings
-- need not read them again.
-- Grain: cluster, slice, dlq_topic, hour (UTC), is_held; null counts as a value.
-- Parameters: {quarantined_dlq_records}, {held_dlq_records}, rows of quarantine.dlq_records and held.dlq_records,
-- complete for each slice in them.
-- Engine: duckdb
-- Refresh: slice
--   quarantine.dlq_records: concat(lpad(dlq_offset div 1000, 16, '0'), ':', dlq_partition, ':', dlq_topic)
--   held.dlq_records: concat(lpad(dlq_offset div 1000, 16, '0'), ':', dlq_partition, ':', dlq_topic)
-- The time of a dead letter is what it says, or else Kafka's timestamp. A time after the landing counts as the landing's
-- time: clocks can be wrong. Lines that name no place in a topic share a slice of null.
WITH refused AS (
  SELECT
    cluster, dlq_topic, dlq_partition, dlq_offset, routed_at, dlq_timestamp, _ingested_at, violations, false AS is_held
  FROM {quarantined_dlq_records}
  UNION ALL
  SELECT
    cluster, dlq_topic, dlq_partition, dlq_offset, routed_at, dlq_timestamp, _ingested_at, violations, true AS is_held
  FROM {held_dlq_records}
),
timed AS (
  SELECT
    cluster,
    concat(lpad(dlq_offset div 1000, 16, '0'), ':', dlq_partition, ':', dlq_topic) AS slice,
    dlq_topic,
    date_trunc('HOUR', least(coalesce(routed_at, dlq_timestamp, _ingested_at), _ingested_at)) AS hour,
    is_held,
    least(coalesce(routed_at, dlq_timestamp, _ingested_at), _ingested_at) AS at,
    coalesce(routed_at, dlq_timestamp) AS stated_at,
    array_distinct(violations) AS codes
  FROM refused
),
counted AS (
  SELECT
    cluster,
    slice,
    dlq_topic,
    hour,
    is_held,
    count(*) AS record_count,
    min(at) AS first_at,
    max(at) AS last_at,
    min(stated_at) AS first_stated_at,
    max(stated_at) AS last_stated_at
  FROM timed
  GROUP BY cluster, slice, dlq_topic, hour, is_held
),
by_rule AS (
  SELECT
    cluster,
    slice,
    dlq_topic,
    hour,
    is_held,
    sort_array(collect_list(struct(code, record_count, first_at, last_at))) AS broken_rules
  FROM (
    SELECT
      cluster,
      slice,
      dlq_topic,
      hour,
      is_held,
      code,
      count(*) AS record_count,
      min(at) AS first_at,
      max(at) AS last_at
    FROM timed LATERAL VIEW explode(codes) AS code
    GROUP BY cluster, slice, dlq_topic, hour, is_held, code
  )
  GROUP BY cluster, slice, dlq_topic, hour, is_held
)
SELECT
  counted.cluster,
  counted.slice,
  counted.dlq_topic,
  counted.hour,
  counted.is_held,
  record_count,
  first_at,
  last_at,
  first_stated_at,
  last_stated_at,
  broken_rules
FROM counted
LEFT JOIN by_rule
  ON by_rule.cluster = counted.cluster
    AND by_rule.slice <=> counted.slice
    AND by_rule.dlq_topic <=> counted.dlq_topic
    AND by_rule.hour <=> counted.hour
    AND by_rule.is_held = counted.is_held
