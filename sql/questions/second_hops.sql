-- Purpose: which dead-letter records were read from a DLQ, and where do they really come from? A share group's second
--   hop replaces the headers. So the origin is what the first DLQ's record at that offset says or, if that did not
--   land, what Connect, Streams or Spring kept of the hop before. A loop is a group whose DLQ is its own input: it
--   never ends by itself.
-- Usage: afterlog ask second_hops
-- Parameters: none.
-- Feeds: dlq.
-- Engine: duckdb
WITH hops AS (
  SELECT *, try_element_at(earlier_hops, -1) AS earlier_hop
  FROM silver.dlq_records
  WHERE
    (cluster, original_topic) IN (SELECT cluster, dlq_topic FROM silver.dlq_records)
    OR size(filter(earlier_hops, hop -> hop.topic IS NOT NULL)) > 0
),
-- A place holds several records if its topic was created again: as in silver.dlq_hops, the latest is the first hop.
first_hops AS (
  SELECT
    *,
    row_number() OVER (
      PARTITION BY cluster, dlq_topic, dlq_partition, dlq_offset
      ORDER BY routed_at DESC, original_topic DESC, original_partition DESC, original_offset DESC, consumer_group DESC
    ) AS place
  FROM silver.dlq_records
)
SELECT
  hops.cluster,
  hops.dlq_topic,
  hops.original_topic AS first_dlq_topic,
  hops.consumer_group,
  coalesce(hops.consumer_group, hops.owner) AS owner,
  hops.dlq_topic = hops.original_topic AS is_loop,
  coalesce(first_hop.original_topic, hops.earlier_hop.topic) AS root_topic,
  IF(first_hop._bronze_id IS NULL, hops.earlier_hop.consumer_group, first_hop.consumer_group) AS first_consumer_group,
  count(*) AS record_count,
  count_if(first_hop._bronze_id IS NULL) AS without_first_hop_count,
  max(hops.routed_at) AS last_routed_at
FROM hops
LEFT JOIN first_hops AS first_hop
  ON first_hop.place = 1
  AND hops.cluster = first_hop.cluster
  AND hops.original_topic = first_hop.dlq_topic
  AND hops.original_partition = first_hop.dlq_partition
  AND hops.original_offset = first_hop.dlq_offset
GROUP BY ALL
ORDER BY
  is_loop DESC,
  record_count DESC,
  hops.cluster,
  hops.dlq_topic,
  first_dlq_topic,
  owner,
  hops.consumer_group,
  root_topic,
  first_consumer_group
