"""KIP-1331's topology descriptions in the wire schema's JSON -> Spark columns of hash, node count and defects.

Brokers validate only the node type, so any structure can arrive; ``defects`` lists what is recognised.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce
from operator import and_

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from pipelines.columns.once import computed_once

_NODE = (
    "struct<name: string, nodeType: int, sourceTopics: array<string>, sinkTopic: string, stores: array<string>,"
    " successors: array<string>>"
)
SCHEMA = (
    f"subtopologies array<struct<subtopologyId: string, nodes: array<{_NODE}>>>,"
    f" globalStores array<struct<source: {_NODE}, processor: {_NODE}>>"
)
SOURCE, PROCESSOR, SINK = 1, 2, 3


def described(rows: DataFrame, description: Column) -> DataFrame:
    """Add ``_topology``, a description (JSON) as a topology (``SCHEMA``); null if it is not a description."""
    parsed = rows.withColumn("_parsed", computed_once(F.from_json(description, SCHEMA)))
    topology = F.when(is_whole(F.col("_parsed")), F.col("_parsed"))
    return parsed.withColumn("_topology", computed_once(topology))


def is_whole(topology: Column) -> Column:
    """Tell whether parsed JSON is a description: it has all names and types, and no element is null.

    Kafka's serializer always writes them. Other JSON that lands can lack them and is not a description.
    """

    def all_there(values: Column, holds: Callable[[Column], Column]) -> Column:
        return F.forall(_listed(values), lambda value: value.isNotNull() & holds(value))

    def is_node(node: Column) -> Column:
        lists = (node[name] for name in ("sourceTopics", "stores", "successors"))
        is_named = node["name"].isNotNull() & node["nodeType"].isNotNull()
        return reduce(and_, (all_there(values, lambda _: F.lit(True)) for values in lists), is_named)

    def is_subtopology(part: Column) -> Column:
        return part["subtopologyId"].isNotNull() & all_there(part["nodes"], is_node)

    def is_store(store: Column) -> Column:
        nodes = (store["source"], store["processor"])
        return reduce(and_, (node.isNotNull() & is_node(node) for node in nodes))

    subtopologies, stores = topology["subtopologies"], topology["globalStores"]
    is_there = subtopologies.isNotNull() | stores.isNotNull()
    return is_there & all_there(subtopologies, is_subtopology) & all_there(stores, is_store)


def topology_hash(topology: Column) -> Column:
    """Return the SHA-256 of a topology (``SCHEMA``) with sorted sub-topologies, nodes and lists; null if it is null.

    Sub-topologies are sorted by id and nodes by name, and lists are taken as sets: two topologies that differ only in
    order have the same hash.
    """
    subtopologies = F.transform(
        _listed(topology["subtopologies"]),
        lambda part: F.struct(
            part["subtopologyId"].alias("id"),
            F.array_sort(F.transform(_listed(part["nodes"]), _canonical)).alias("nodes"),
        ),
    )
    global_stores = F.transform(
        _listed(topology["globalStores"]),
        lambda store: F.struct(
            _canonical(store["source"]).alias("source"), _canonical(store["processor"]).alias("processor")
        ),
    )
    canonical = F.struct(
        F.array_sort(subtopologies).alias("subtopologies"), F.array_sort(global_stores).alias("global_stores")
    )
    return F.when(topology.isNotNull(), F.sha2(F.to_json(canonical, {"ignoreNullFields": "false"}), 256))


def node_count(topology: Column) -> Column:
    """Return how many nodes a topology has, two for each global store; null if the topology is null."""
    return F.when(topology.isNotNull(), F.size(_nodes(topology)))


def defects(topology: Column) -> Column:
    """Return the defects of a topology, array<string>; empty if it has none or if there is no topology.

    Brokers accept all of them: ``empty_description``, ``unknown_node_type``, ``duplicate_subtopology_id``,
    ``duplicate_node_name``, ``dangling_successor`` (no such node in the sub-topology), ``source_with_predecessors``,
    ``sink_with_successors``, and fields that belong to another type of node: ``topics_outside_source``,
    ``topic_outside_sink``, ``stores_outside_processor``.
    """
    nodes, ids = _nodes(topology), _listed(topology["subtopologies"])["subtopologyId"]
    names = nodes["name"]

    conditions = {
        "empty_description": F.size(nodes) == 0,
        "unknown_node_type": F.exists(
            nodes, lambda node: ~F.coalesce(node["nodeType"].isin(SOURCE, PROCESSOR, SINK), F.lit(False))
        ),
        "duplicate_subtopology_id": F.size(ids) != F.size(F.array_distinct(ids)),
        "duplicate_node_name": F.size(names) != F.size(F.array_distinct(names)),
        "dangling_successor": _in_any_part(
            topology, lambda part: F.size(F.array_except(_successors(part), part["name"])) > 0
        ),
        "source_with_predecessors": _in_any_part(
            topology,
            lambda part: F.arrays_overlap(
                F.filter(part, lambda node: node["nodeType"] == SOURCE)["name"], _successors(part)
            ),
        ),
        "sink_with_successors": F.exists(nodes, lambda node: (node["nodeType"] == SINK) & _some(node["successors"])),
        "topics_outside_source": F.exists(nodes, lambda node: ~_is(node, SOURCE) & _some(node["sourceTopics"])),
        "topic_outside_sink": F.exists(nodes, lambda node: ~_is(node, SINK) & node["sinkTopic"].isNotNull()),
        "stores_outside_processor": F.exists(nodes, lambda node: ~_is(node, PROCESSOR) & _some(node["stores"])),
    }
    codes = F.array(*(F.when(F.coalesce(applies, F.lit(False)), F.lit(code)) for code, applies in conditions.items()))
    return F.when(topology.isNotNull(), F.array_compact(codes)).otherwise(F.array().cast("array<string>"))


def _canonical(node: Column) -> Column:
    return F.struct(
        node["name"].alias("name"),
        node["nodeType"].alias("type"),
        _as_set(node["sourceTopics"]).alias("source_topics"),
        node["sinkTopic"].alias("sink_topic"),
        _as_set(node["stores"]).alias("stores"),
        _as_set(node["successors"]).alias("successors"),
    )


def _listed(values: Column) -> Column:
    return F.coalesce(values, F.array())


def _as_set(values: Column) -> Column:
    return F.array_sort(F.array_distinct(_listed(values)))


def _some(values: Column) -> Column:
    return F.coalesce(F.size(values) > 0, F.lit(False))


def _is(node: Column, node_type: int) -> Column:
    return F.coalesce(node["nodeType"] == node_type, F.lit(False))


def _parts(topology: Column) -> Column:
    """Return the nodes of each sub-topology and of each global store: edges do not leave such a part."""
    subtopologies = F.transform(_listed(topology["subtopologies"]), lambda part: _listed(part["nodes"]))
    stores = F.transform(
        _listed(topology["globalStores"]), lambda store: F.array_compact(F.array(store["source"], store["processor"]))
    )
    return F.concat(subtopologies, stores)


def _nodes(topology: Column) -> Column:
    return F.flatten(_parts(topology))


def _successors(nodes: Column) -> Column:
    return F.flatten(F.transform(nodes, lambda node: _listed(node["successors"])))


def _in_any_part(topology: Column, holds: Callable[[Column], Column]) -> Column:
    return F.exists(_parts(topology), lambda part: F.coalesce(holds(part), F.lit(False)))
