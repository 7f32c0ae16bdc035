"""gold.blast_radius: after each piece of news it is what the incidents and topologies of that moment tell."""

from __future__ import annotations

import random
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from pipelines.gold.blast_radius import told_of
from pipelines.incidents.blast import Graph, Revisions
from pipelines.settings import Settings
from pipelines.steps.refresh import select_of
from pipelines.warehouse import jvmless
from pipelines.warehouse.tables import Warehouse
from tests.testing import engines
from tests.testing.builders import run, warehouse_of
from tests.testing.deliveries import store

INCIDENTS, REVISIONS, NODES, GROUPS, TABLE = (
    "gold.dlq_incidents",
    "gold.topology_revisions",
    "silver.topology_nodes",
    "gold.topology_current",
    "gold.blast_radius",
)
START = datetime(2026, 11, 21, tzinfo=UTC)
TOPICS = ["orders", "paid", "shipped", "audit", "it's \x1b[31m"]
OURS = "default"


def incident(name: str, topic: str | None, hours: float, group: str | None = "g0", **more: Any) -> dict[str, Any]:
    return {
        "cluster": OURS,
        "incident_id": name,
        "original_topic": topic,
        "consumer_group": group,
        "first_at": START + timedelta(hours=hours),
        "record_count": 1,
        **more,
    }


def topology(chance: random.Random, group: str, number: int) -> list[dict[str, Any]]:
    """Return the nodes of a topology that reads and writes some topics, also its own."""
    key = {"cluster": OURS, "group_id": group, "topology_hash": f"{group}-{number}", "occurrence": 1}
    key |= {"part": "subtopology", "part_place": 0, "subtopology_id": "0"}
    rest = {"sink_topic": None, "source_topics": [], "stores": [], "successors": []}
    return [
        {
            **key,
            **rest,
            "node": "in",
            "node_type": 1,
            "source_topics": chance.sample(TOPICS, chance.randint(0, 2)),
            "successors": ["do"],
        },
        {**key, **rest, "node": "do", "node_type": 2, "stores": ["store"], "successors": ["out"]},
        {**key, **rest, "node": "out", "node_type": 3, "sink_topic": chance.choice([*TOPICS, None])},
    ]


def expected(settings: Settings) -> list[dict[str, Any]]:
    """Return the rows that a reader of the incidents and topologies would write."""
    warehouse = Warehouse(settings)
    found = []
    nodes = jvmless.rows(warehouse, NODES, {"cluster": OURS})
    revisions = jvmless.rows(warehouse, REVISIONS, {"cluster": OURS})
    groups = jvmless.rows(warehouse, GROUPS, {"cluster": OURS})
    for row in jvmless.rows(warehouse, INCIDENTS, {"cluster": OURS}):
        if row["first_at"] is None:
            continue
        valid = Revisions(revisions, groups).at(row["first_at"], row["consumer_group"])
        blast = Graph(nodes, valid).blast(row["original_topic"], row["consumer_group"])
        for place, told in enumerate(told_of(blast)):
            found.append({"cluster": row["cluster"], "incident_id": row["incident_id"], "place": place, **told})
    return comparable(found)


def comparable(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    shown = [{name: value for name, value in row.items() if value is not None} for row in rows]
    return sorted(shown, key=lambda row: (row["incident_id"], row["place"]))


def stored(settings: Settings) -> list[dict[str, Any]]:
    rows = jvmless.rows(Warehouse(settings), TABLE, {"cluster": OURS})
    return comparable([{k: v for k, v in row.items() if not k.startswith("_")} for row in rows])


def version(settings: Settings) -> int:
    return int(Warehouse(settings).state(TABLE)[1])


def grow(settings: Settings, **values: Any) -> None:
    """Change a column of all incidents, as a run that finds more records does."""
    Warehouse(settings).opened_table(INCIDENTS).update(updates=values)


@engines.compared
@pytest.mark.parametrize(("seed", "steps"), [(6, 6), pytest.param(20261123, 10, marks=pytest.mark.thorough)])
def test_after_random_news_it_is_what_the_incidents_and_topologies_tell(
    spark: SparkSession, empty_warehouse: Path, tmp_path: Path, seed: int, steps: int
) -> None:
    chance = random.Random(seed)
    settings = warehouse_of(empty_warehouse, tmp_path)
    numbers: dict[str, int] = {}
    for step in range(steps):
        for news in chance.sample(("incident", "topology", "deletion", "return"), chance.randint(1, 3)):
            if news == "incident":
                topic, group = chance.choice([*TOPICS, None]), chance.choice(("g0", "g9", None))
                store(settings, INCIDENTS, incident(f"I{step:07}", topic, chance.randint(0, 9), group))
            elif news == "deletion":
                deleted = START + timedelta(hours=chance.randint(0, 9))
                store(settings, GROUPS, {"cluster": OURS, "group_id": f"g{step}", "deleted_at": deleted})
            elif news == "return":
                came = {"predicate": f"group_id = 'g{chance.randint(0, 3)}'", "updates": {"deleted_at": "NULL"}}
                Warehouse(settings).opened_table(GROUPS).update(**came)
            else:
                group = f"g{chance.randint(0, 5)}"
                number = numbers[group] = numbers.get(group, 0) + 1
                store(settings, NODES, *topology(chance, group, number))
                accepted = START + timedelta(hours=chance.randint(0, 9))  # also before, when a log landed late
                key = {"cluster": OURS, "group_id": group, "topology_hash": f"{group}-{number}"}
                store(settings, REVISIONS, {**key, "revision": number, "accepted_at": accepted})
        assert run(spark, settings, TABLE)[TABLE].status == "passed"
        assert stored(settings) == expected(settings)
    assert {row["direction"] for row in stored(settings)} == {"origin", "downstream", "upstream"}
    assert {row["is_lower_bound"] for row in stored(settings)} >= {True}


def test_records_that_change_only_counts_change_nothing(
    spark: SparkSession, empty_warehouse: Path, tmp_path: Path
) -> None:
    settings = warehouse_of(empty_warehouse, tmp_path)
    store(settings, INCIDENTS, incident("A0000001", "orders", 0), incident("A0000002", "paid", 1))
    run(spark, settings, TABLE)
    before, rows = version(settings), stored(settings)
    assert [(row["incident_id"], row["topic"]) for row in rows] == [("A0000001", "orders"), ("A0000002", "paid")]
    grow(settings, record_count="5")
    run(spark, settings, TABLE)
    assert version(settings) == before
    grow(settings, original_topic="'audit'")
    run(spark, settings, TABLE)
    assert [row["topic"] for row in stored(settings)] == ["audit", "audit"]


def test_an_incident_without_records_leaves_it(spark: SparkSession, empty_warehouse: Path, tmp_path: Path) -> None:
    settings = warehouse_of(empty_warehouse, tmp_path)
    store(settings, INCIDENTS, incident("A0000001", "orders", 0), incident("A0000002", "paid", 1))
    run(spark, settings, TABLE)
    Warehouse(settings).opened_table(INCIDENTS).update(
        predicate="incident_id = 'A0000001'", updates={"first_at": "NULL", "record_count": "0"}
    )
    run(spark, settings, TABLE)
    assert [row["incident_id"] for row in stored(settings)] == ["A0000002"]


def test_the_select_reads_what_its_head_counts() -> None:
    from pipelines.catalog import CATALOG
    from pipelines.steps.refresh import refresh_of

    (stage,) = (stage for stage in CATALOG if stage.table == TABLE)
    counted: Mapping[str, tuple[str, ...]] = refresh_of(stage).counted  # type: ignore[arg-type]
    assert counted == {
        INCIDENTS: ("cluster", "original_topic", "consumer_group", "first_at"),
        GROUPS: ("cluster", "group_id", "deleted_at"),
    }
    assert "record_count" not in select_of(TABLE)
