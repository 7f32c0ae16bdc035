-- Purpose: facts that must be 0 before gold.dlq_misconfigurations is written; any other value breaks its gate.
-- Grain: one row, one column per fact.
-- Parameters: {dlq_settings} rows of silver.dlq_settings of the clusters that are refreshed; {fresh} the new rows.
WITH set_groups AS (
  SELECT cluster, name AS group_id, value AS dlq_topic
  FROM {dlq_settings}
  WHERE kind = 'group' AND setting = 'errors.deadletterqueue.topic.name' AND until IS NULL AND value <> ''
)
SELECT
  (
    SELECT count(*)
    FROM {fresh} AS found
    LEFT ANTI JOIN set_groups
      ON set_groups.cluster = found.cluster
        AND set_groups.group_id = found.group_id
        AND set_groups.dlq_topic = found.dlq_topic
  ) AS `groups.without_the_topic`,
  (SELECT count(*) FROM {fresh} WHERE last_seen_at < since) AS `times.out_of_order`
