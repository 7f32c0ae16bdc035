-- Purpose: the edges of every known topology: node to node, sink to its topic, topic to the source that reads it.
-- Grain: cluster, group_id, topology_hash, from, to, kind, direction, subtopology_id.
-- Parameters: {topology_nodes}, {topology_revisions}, rows of these tables, complete for each group that is in them.
-- Engine: duckdb
-- Refresh: group_id
-- A topic that one group writes and another reads connects the two applications. New input of one group does not change
-- the rows of the other.
-- Streams begins its own topics with the application id. It writes and reads all of them in one topology, except the
-- changelogs of the topology's stores. So orders-app-totals-repartition is external for a group "orders".
WITH latest AS (
  SELECT cluster, group_id, max_by(topology_hash, revision) AS topology_hash
  FROM {topology_revisions}
  GROUP BY cluster, group_id
),
edges AS (
  SELECT
    cluster, group_id, topology_hash, subtopology_id, node AS from, successor AS to,
    'internal' AS kind, CAST(NULL AS STRING) AS direction, CAST(NULL AS STRING) AS topic
  FROM {topology_nodes} LATERAL VIEW explode(successors) AS successor
  UNION
  SELECT cluster, group_id, topology_hash, subtopology_id, node, sink_topic, 'topic', 'written', sink_topic
  FROM {topology_nodes}
  WHERE sink_topic IS NOT NULL
  UNION
  SELECT cluster, group_id, topology_hash, subtopology_id, source_topic, node, 'topic', 'read', source_topic
  FROM {topology_nodes} LATERAL VIEW explode(source_topics) AS source_topic
),
looped AS (
  SELECT cluster, group_id, topology_hash, topic
  FROM edges
  WHERE startswith(topic, concat(group_id, '-'))
  GROUP BY cluster, group_id, topology_hash, topic
  HAVING count(DISTINCT direction) = 2
),
changelogs AS (
  SELECT DISTINCT cluster, group_id, topology_hash, concat(group_id, '-', store, '-changelog') AS topic
  FROM {topology_nodes} LATERAL VIEW explode(stores) AS store
)
SELECT
  edges.cluster,
  edges.group_id,
  edges.topology_hash,
  edges.from,
  edges.to,
  edges.kind,
  edges.direction,
  edges.topic,
  CASE
    WHEN changelogs.topic IS NOT NULL THEN 'changelog'
    WHEN looped.topic LIKE '%-repartition' THEN 'repartition'
    -- The topics of a foreign-key join, named by Streams or with the join's own name.
    WHEN
      looped.topic RLIKE '-KTABLE-FK-JOIN-SUBSCRIPTION-(REGISTRATION|RESPONSE)-[0-9]+-topic$'
      OR looped.topic RLIKE '-subscription-(registration|response)-topic$'
      THEN 'internal'
    WHEN edges.topic IS NOT NULL THEN 'external'
  END AS topic_role,
  edges.subtopology_id,
  coalesce(latest.topology_hash = edges.topology_hash, false) AS is_current
FROM edges
LEFT JOIN latest ON latest.cluster = edges.cluster AND latest.group_id = edges.group_id
LEFT JOIN looped
  ON looped.cluster = edges.cluster
    AND looped.group_id = edges.group_id
    AND looped.topology_hash = edges.topology_hash
    AND looped.topic = edges.topic
LEFT JOIN changelogs
  ON changelogs.cluster = edges.cluster
    AND changelogs.group_id = edges.group_id
    AND changelogs.topology_hash = edges.topology_hash
    AND changelogs.topic = edges.topic
WHERE edges.from IS NOT NULL AND edges.to IS NOT NULL
