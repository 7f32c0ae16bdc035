"""silver.topology_nodes: the nodes of each description, with those before them."""

from __future__ import annotations

from typing import Any

from pyspark.sql import SparkSession

from pipelines.settings import Settings
from pipelines.topology.model import Topology
from pipelines.warehouse.tables import Warehouse
from tests.testing.builders import rows
from tests.testing.topology_feed import Ran


def test_predecessors_in_spark_are_those_in_python(spark: SparkSession, captured_requests: Settings) -> None:
    topologies = {
        (row["group_id"], row["topology_hash"]): Topology.parsed(row["description"])
        for row in rows(spark, captured_requests, "gold.topology_revisions")
    }
    found: dict[Any, dict[str, list[str]]] = {}
    for row in rows(spark, captured_requests, "silver.topology_nodes"):
        key = (row["group_id"], row["topology_hash"], row["part"], row["part_place"])
        found.setdefault(key, {})[row["node"]] = row["predecessors"]
    for (group, hash_), topology in topologies.items():
        for place, subtopology in enumerate(topology.subtopologies):
            inverted: dict[str, set[str]] = {}
            for node in subtopology.nodes:
                for successor in node.successors:
                    inverted.setdefault(successor, set()).add(node.name)
            wanted = {node.name: sorted(inverted.get(node.name, ())) for node in subtopology.nodes}
            assert found.get((group, hash_, "subtopology", place), {}) == wanted


def test_a_long_chain_and_a_cycle_take_seconds(spark: SparkSession, mixed_requests: Ran) -> None:
    settings, done = mixed_requests
    nodes = Warehouse(settings, spark).read("silver.topology_nodes").where("group_id IN ('chain', 'ring')")
    assert nodes.where("size(predecessors) = 1 OR node = 'node-00000'").count() == 12_000
    assert done["silver.topology_nodes"].seconds < 60  # quadratic work on 10,000 nodes would take far longer
