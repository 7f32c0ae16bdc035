"""gold.topology_edges: where applications meet; a topic's role follows the application id and Kafka Streams' names."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as arrow  # type: ignore[import-untyped]
import pytest
from pyspark.sql import SparkSession

from pipelines.engines.duckdb import sessions
from pipelines.engines.duckdb.translate import translated
from pipelines.settings import Settings
from pipelines.steps.refresh import select_of
from pipelines.topology.model import Topology
from tests.testing.builders import rows
from tests.testing.topologies import CAPTURED

ROW = arrow.schema(
    [
        *((name, arrow.string()) for name in ("cluster", "group_id", "topology_hash", "subtopology_id", "node")),
        *(("sink_topic", arrow.string()), ("revision", arrow.int32())),
        *((name, arrow.list_(arrow.string())) for name in ("source_topics", "stores", "successors")),
    ]
)


def node(group: str, reads: tuple[str, ...] = (), writes: str | None = None, **more: Any) -> dict[str, Any]:
    """A row of silver.topology_nodes."""
    known = {"cluster": "c", "group_id": group, "topology_hash": f"{group}'s", "subtopology_id": "0", "successors": []}
    return {**known, "node": f"{reads} {writes}", "source_topics": reads, "sink_topic": writes, "stores": [], **more}


def roles(directory: Path, *nodes: dict[str, Any]) -> dict[tuple[str, str], set[str]]:
    """The roles of topics, by group and topic."""
    select = select_of("gold.topology_edges").format(topology_nodes="nodes", topology_revisions="revisions")
    with sessions.connected(str(directory)) as connection:
        connection.register("nodes", arrow.Table.from_pylist(list(nodes), ROW))
        connection.register("revisions", arrow.Table.from_pylist([], ROW))
        edges = connection.sql(translated(select)).to_arrow_table().to_pylist()
    found: dict[tuple[str, str], set[str]] = {}
    for edge in edges:
        if edge["topic"] is not None:
            found.setdefault((edge["group_id"], edge["topic"]), set()).add(edge["topic_role"])
    return found


def described(name: str, directory: str = "printed") -> list[dict[str, Any]]:
    """The nodes of a stored description."""
    topology = Topology.parsed((CAPTURED / directory / f"{name}.json").read_text(encoding="utf-8"))
    names = ("source_topics", "sink_topic", "stores", "successors")
    return [
        {**node(name), "node": part.name, **{field: getattr(part, field) for field in names}} for part in topology.nodes
    ]


def test_topics_that_streams_makes_are_told_from_those_of_others(tmp_path: Path) -> None:
    apps = ("fk-join-app", "external-suffix-app", "audit-reader", "globals-app")
    found = roles(tmp_path, *(row for name in apps for row in described(name)))
    internal = {topic: role for (_, topic), role in found.items() if role != {"external"}}
    assert internal == {
        "fk-join-app-KTABLE-FK-JOIN-SUBSCRIPTION-REGISTRATION-0000000004-topic": {"internal"},
        "fk-join-app-KTABLE-FK-JOIN-SUBSCRIPTION-RESPONSE-0000000010-topic": {"internal"},
    }
    assert found["external-suffix-app", "crm.customers-changelog"] == {"external"}
    assert found["external-suffix-app", "audit-repartition"] == found["audit-reader", "audit-repartition"]


@pytest.mark.parametrize(
    ("topic", "role"),
    [
        pytest.param("app-by-currency-repartition", "repartition", id="repartition"),
        pytest.param("app-KSTREAM-KEY-SELECT-0000000001-repartition", "repartition", id="repartition without a name"),
        pytest.param("app-names-subscription-registration-topic", "internal", id="a named join's registration"),
        pytest.param("app-names-subscription-response-topic", "internal", id="a named join's response"),
        pytest.param("app-KTABLE-FK-JOIN-SUBSCRIPTION-RESPONSE-0000000010-topic", "internal", id="a join's response"),
        pytest.param("app-KTABLE-FK-JOIN-SUBSCRIPTION-RESPONSE-x-topic", "external", id="without a number"),
        pytest.param("app-orders-topic", "external", id="an application's own topic"),
        pytest.param("by-currency-repartition", "external", id="without the application id"),
        pytest.param("apps-by-currency-repartition", "external", id="a longer application id"),
    ],
)
def test_a_topic_that_a_topology_writes_and_reads(tmp_path: Path, topic: str, role: str) -> None:
    assert roles(tmp_path, node("app", writes=topic), node("app", reads=(topic,))) == {("app", topic): {role}}


def test_an_application_id_that_another_one_begins_with(tmp_path: Path) -> None:
    repartition, changelog = "orders-app-totals-repartition", "orders-app-totals-changelog"
    found = roles(
        tmp_path,
        node("orders-app", writes=repartition, stores=["totals"]),
        node("orders-app", reads=(repartition, changelog)),
        node("orders", reads=(repartition, changelog)),
    )
    assert found == {
        ("orders-app", repartition): {"repartition"},
        ("orders-app", changelog): {"changelog"},
        ("orders", repartition): {"external"},
        ("orders", changelog): {"external"},
    }


def test_the_roles_are_of_one_topology(tmp_path: Path) -> None:
    topic = "app-by-currency-repartition"
    before = node("app", writes=topic, topology_hash="before")
    assert roles(tmp_path, before, node("app", reads=(topic,))) == {("app", topic): {"external"}}


def test_applications_meet_at_topics(spark: SparkSession, captured_requests: Settings) -> None:
    edges = [row for row in rows(spark, captured_requests, "gold.topology_edges") if row["kind"] == "topic"]
    written = {(row["group_id"], row["topic"]) for row in edges if row["direction"] == "written"}
    read = {(row["group_id"], row["topic"]) for row in edges if row["direction"] == "read"}
    assert ("orders-app", "valid-orders") in written
    assert ("orders-app", "orders") in read
    assert {row["topic_role"] for row in edges if row["topic"] == "orders-app-by-currency-repartition"} == {
        "repartition"
    }
