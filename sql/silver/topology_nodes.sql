-- Purpose: the nodes of every topology that brokers accepted or showed, with predecessors, which the wire schema omits.
-- Grain: cluster, group_id, topology_hash, part, part_place, subtopology_id, node, occurrence.
-- Parameters: {topology_pushes}, {topology_statuses}, rows of the silver tables, complete for each group in them.
-- Refresh: group_id
--   silver.topology_pushes: group_id
--   silver.topology_statuses: each of group_id where topology_hash IS NOT NULL
-- A describe without a description shows no topology.
-- An edge stays within its sub-topology or global store. A successor that does not exist there is dangling and has no
-- row.
WITH seen AS (
  SELECT cluster, group_id, topology_hash, struct(pushed_at AS at, connection, correlation_id, description) AS described
  FROM {topology_pushes}
  WHERE error_code = 0
  UNION ALL
  SELECT cluster, group_id, topology_hash, struct(described_at AS at, connection, correlation_id, description)
  FROM {topology_statuses}
  WHERE error_code = 0 AND status = 3 AND topology_hash IS NOT NULL
),
topologies AS (
  SELECT
    cluster,
    group_id,
    topology_hash,
    from_json(
      min(described).description,
      'subtopologies ARRAY<STRUCT<subtopologyId: STRING, nodes: ARRAY<STRUCT<name: STRING, nodeType: INT,
        sourceTopics: ARRAY<STRING>, sinkTopic: STRING, stores: ARRAY<STRING>, successors: ARRAY<STRING>>>>>,
       globalStores ARRAY<STRUCT<
         source: STRUCT<name: STRING, nodeType: INT, sourceTopics: ARRAY<STRING>, sinkTopic: STRING,
           stores: ARRAY<STRING>, successors: ARRAY<STRING>>,
         processor: STRUCT<name: STRING, nodeType: INT, sourceTopics: ARRAY<STRING>, sinkTopic: STRING,
           stores: ARRAY<STRING>, successors: ARRAY<STRING>>>>'
    ) AS topology
  FROM seen
  GROUP BY cluster, group_id, topology_hash
),
parts AS (
  SELECT
    cluster, group_id, topology_hash, 'subtopology' AS part, part_place, sub.subtopologyId AS subtopology_id, sub.nodes
  FROM topologies LATERAL VIEW posexplode(topology.subtopologies) AS part_place, sub
  UNION ALL
  SELECT
    cluster,
    group_id,
    topology_hash,
    'global_store' AS part,
    part_place,
    CAST(NULL AS STRING) AS subtopology_id,
    array_compact(array(store.source, store.processor)) AS nodes
  FROM topologies LATERAL VIEW posexplode(topology.globalStores) AS part_place, store
),
listed AS (
  SELECT cluster, group_id, topology_hash, part, part_place, subtopology_id, node_place, described
  FROM parts LATERAL VIEW posexplode(nodes) AS node_place, described
  WHERE described.name IS NOT NULL
),
predecessors AS (
  SELECT cluster, group_id, topology_hash, part, part_place, successor, array_sort(collect_set(described.name)) AS nodes
  FROM listed LATERAL VIEW explode(described.successors) AS successor
  GROUP BY cluster, group_id, topology_hash, part, part_place, successor
)
SELECT
  listed.cluster,
  listed.group_id,
  listed.topology_hash,
  listed.part,
  listed.part_place,
  listed.subtopology_id,
  described.name AS node,
  CAST(row_number() OVER (
    PARTITION BY
      listed.cluster, listed.group_id, listed.topology_hash, listed.part, listed.part_place, described.name
    ORDER BY node_place
  ) AS INT) AS occurrence,
  described.nodeType AS node_type,
  CASE described.nodeType WHEN 1 THEN 'SOURCE' WHEN 2 THEN 'PROCESSOR' WHEN 3 THEN 'SINK' END AS node_type_name,
  coalesce(described.sourceTopics, array()) AS source_topics,
  described.sinkTopic AS sink_topic,
  coalesce(described.stores, array()) AS stores,
  coalesce(predecessors.nodes, array()) AS predecessors,
  coalesce(described.successors, array()) AS successors
FROM listed
LEFT JOIN predecessors
  ON predecessors.cluster = listed.cluster
    AND predecessors.group_id = listed.group_id
    AND predecessors.topology_hash = listed.topology_hash
    AND predecessors.part = listed.part
    AND predecessors.part_place = listed.part_place
    AND predecessors.successor = listed.described.name
