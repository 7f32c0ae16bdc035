-- Purpose: what changed from one revision of a group's topology to the next.
-- Grain: cluster, group_id, revision (from 2 on).
-- Parameters: {topology_revisions}, {topology_nodes}, rows of these tables, complete for each group that is in them.
-- Engine: duckdb
-- Refresh: group_id
-- The name identifies a node. If a malformed description repeats a name, all nodes of that name are compared as one.
WITH pairs AS (
  SELECT
    cluster, group_id, revision, accepted_at, topology_hash,
    lag(topology_hash) OVER (PARTITION BY cluster, group_id ORDER BY revision) AS previous_hash
  FROM {topology_revisions}
),
changed AS (
  SELECT * FROM pairs WHERE revision > 1
),
sides AS (
  SELECT cluster, group_id, revision, topology_hash, 'after' AS side FROM changed
  UNION ALL
  SELECT cluster, group_id, revision, previous_hash, 'before' FROM changed
),
nodes AS (
  SELECT sides.revision, sides.side, node.*
  FROM sides
  JOIN {topology_nodes} AS node
    ON node.cluster = sides.cluster AND node.group_id = sides.group_id AND node.topology_hash = sides.topology_hash
),
shapes AS (
  SELECT
    cluster, group_id, revision, node, side,
    array_sort(collect_list(struct(
      part, subtopology_id, node_type, array_sort(array_distinct(source_topics)) AS source_topics, sink_topic,
      array_sort(array_distinct(stores)) AS stores
    ))) AS shape
  FROM nodes
  GROUP BY cluster, group_id, revision, node, side
),
things AS (
  SELECT
    cluster, group_id, revision, 'node' AS kind, node AS name, CAST(NULL AS STRING) AS leads_to,
    any_value(shape) FILTER (WHERE side = 'before') AS before, any_value(shape) FILTER (WHERE side = 'after') AS after
  FROM shapes
  GROUP BY cluster, group_id, revision, node
),
named AS (
  SELECT cluster, group_id, revision, side, 'edge' AS kind, node AS name, successor AS leads_to
  FROM nodes LATERAL VIEW explode(successors) AS successor
  UNION
  SELECT cluster, group_id, revision, side, 'store', store, NULL FROM nodes LATERAL VIEW explode(stores) AS store
  UNION
  SELECT cluster, group_id, revision, side, 'topic', topic, NULL FROM nodes LATERAL VIEW explode(source_topics) AS topic
  UNION
  SELECT cluster, group_id, revision, side, 'topic', sink_topic, NULL FROM nodes WHERE sink_topic IS NOT NULL
),
all_things AS (
  SELECT
    cluster, group_id, revision, kind, name, leads_to,
    before IS NOT NULL AS was, after IS NOT NULL AS is, before <> after AS differs
  FROM things
  UNION ALL
  SELECT
    cluster, group_id, revision, kind, name, leads_to,
    bool_or(side = 'before') AS was, bool_or(side = 'after') AS is, false AS differs
  FROM named
  GROUP BY cluster, group_id, revision, kind, name, leads_to
),
counted AS (
  SELECT
    cluster, group_id, revision,
    array_sort(collect_list(struct(name AS from, leads_to AS to)) FILTER (WHERE kind = 'node' AND NOT was)).from AS nodes_added,
    array_sort(collect_list(struct(name AS from, leads_to AS to)) FILTER (WHERE kind = 'node' AND NOT is)).from AS nodes_removed,
    array_sort(collect_list(struct(name AS from, leads_to AS to)) FILTER (WHERE kind = 'node' AND differs)).from AS nodes_changed,
    array_sort(collect_list(struct(name AS from, leads_to AS to)) FILTER (WHERE kind = 'edge' AND NOT was)) AS edges_added,
    array_sort(collect_list(struct(name AS from, leads_to AS to)) FILTER (WHERE kind = 'edge' AND NOT is)) AS edges_removed,
    array_sort(collect_list(struct(name AS from, leads_to AS to)) FILTER (WHERE kind = 'store' AND NOT was)).from AS stores_added,
    array_sort(collect_list(struct(name AS from, leads_to AS to)) FILTER (WHERE kind = 'store' AND NOT is)).from AS stores_removed,
    array_sort(collect_list(struct(name AS from, leads_to AS to)) FILTER (WHERE kind = 'topic' AND NOT was)).from AS topics_added,
    array_sort(collect_list(struct(name AS from, leads_to AS to)) FILTER (WHERE kind = 'topic' AND NOT is)).from AS topics_removed
  FROM all_things
  GROUP BY cluster, group_id, revision
)
SELECT
  changed.cluster,
  changed.group_id,
  changed.revision,
  changed.revision - 1 AS previous_revision,
  changed.accepted_at AS changed_at,
  coalesce(nodes_added, array()) AS nodes_added,
  coalesce(nodes_removed, array()) AS nodes_removed,
  coalesce(nodes_changed, array()) AS nodes_changed,
  coalesce(edges_added, array()) AS edges_added,
  coalesce(edges_removed, array()) AS edges_removed,
  coalesce(stores_added, array()) AS stores_added,
  coalesce(stores_removed, array()) AS stores_removed,
  coalesce(topics_added, array()) AS topics_added,
  coalesce(topics_removed, array()) AS topics_removed
FROM changed
LEFT JOIN counted
  ON counted.cluster = changed.cluster AND counted.group_id = changed.group_id AND counted.revision = changed.revision
