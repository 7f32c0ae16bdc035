"""gold.topology_revisions: one for each change of what a broker accepted or showed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from pipelines.commands import describe as describe_command
from pipelines.settings import Settings
from pipelines.topology.model import Topology
from pipelines.warehouse.tables import Warehouse
from tests.testing.builders import rows, warehouse_of
from tests.testing.requests import at, describe, described, heartbeat, push
from tests.testing.topology_feed import FIRST, HISTORICAL, SECOND, Ran, current, landed, revisions, run


def test_each_revision_is_a_change_of_the_accepted_description(
    spark: SparkSession, captured_requests: Settings
) -> None:
    found = [
        row for row in rows(spark, captured_requests, "gold.topology_revisions") if row["group_id"] == "orders-app"
    ]
    found.sort(key=lambda row: row["revision"])
    topologies = [Topology.parsed(row["description"]) for row in found]
    assert [(row["revision"], row["push_count"], row["node_count"]) for row in found] == [
        (1, 2, 21),
        (2, 1, len(list(topologies[1].nodes))),
        (3, 1, 0),
        (4, 1, len(list(topologies[3].nodes))),
        (5, 0, 3),
        (6, 1, 21),
    ]
    assert found[0]["topology_hash"] == found[5]["topology_hash"]
    # brokers keep less of a malformed description, so a describe shows something else than was pushed
    assert [row["source"] for row in found] == ["pushed"] * 4 + ["observed", "pushed"]
    assert found[3]["topology_hash"] != found[4]["topology_hash"]
    assert found[2]["defects"] == ["empty_description"]
    assert set(found[3]["defects"]) >= {"dangling_successor", "duplicate_node_name", "stores_outside_processor"}


def test_a_revision_is_a_change_whatever_the_order_or_a_deletion(spark: SparkSession, mixed_requests: Ran) -> None:
    assert revisions(spark, mixed_requests[0], "revised") == [
        (1, "a", "10:01"),
        (2, "c", "10:03"),
        (3, "d", "10:04"),
        (4, "g", "10:08"),
    ]
    found = rows(spark, mixed_requests[0], "gold.topology_revisions")
    epochs = {row["revision"]: row["topology_epochs"] for row in found if row["group_id"] == "revised"}
    assert epochs == {1: [0], 2: [0], 3: [0, 3], 4: [3]}


def test_a_description_that_a_describe_shows_is_a_revision(spark: SparkSession, mixed_requests: Ran) -> None:
    settings = mixed_requests[0]
    found = {
        row["revision"]: row for row in rows(spark, settings, "gold.topology_revisions") if row["group_id"] == "seen"
    }
    assert [
        (row["source"], row["member_id"], row["topology_epochs"], row["observed_count"])
        for _, row in sorted(found.items())
    ] == [
        ("observed", None, [0, 2], 2),
        ("pushed", "b", [2], 0),
        ("observed", None, [1], 1),
        ("observed", None, [0], 1),
    ]
    now = current(spark, settings)["seen"]
    assert (now["revision"], now["source"], now["node_count"], now["topology_epoch"]) == (4, "observed", 0, 0)
    changes = [row for row in rows(spark, settings, "gold.topology_changes") if row["group_id"] == "seen"]
    assert sorted((row["revision"], row["topics_added"], row["topics_removed"]) for row in changes) == [
        (2, ["elsewhere"], ["out"]),
        (3, ["out"], ["elsewhere"]),
        (4, [], ["in", "out"]),
    ]
    edges = [row for row in rows(spark, settings, "gold.topology_edges") if row["group_id"] == "seen"]
    assert {(row["topology_hash"], row["is_current"]) for row in edges} == {
        (found[1]["topology_hash"], False),
        (found[2]["topology_hash"], False),
    }

    def shown(**selector: Any) -> str:
        answer = describe_command.answer(Warehouse(settings), "seen", "json", **selector)
        assert answer.exit_code == 0, answer
        return str(json.loads(answer.result).get("topologyDescription") == FIRST)

    for selector in ({"revision": 1}, {"epoch": 1}, {"at": at(650.5).isoformat()}, {"revision": 3}):
        assert shown(**selector) == "True"
    (remark,) = describe_command.answer(Warehouse(settings), "seen", revision=1).remarks
    assert remark.startswith(
        "Revision 1: first shown by a describe at 2026-11-21T02:10:50.000Z under epoch 0, replaced"
    )
    assert "elsewhere" in describe_command.answer(Warehouse(settings), "seen", diff=(1, 2)).result


def test_a_log_file_that_lands_late_gives_the_numbers_of_one_in_time(
    spark: SparkSession, empty_warehouse: Path, tmp_path: Path
) -> None:
    early = [push(1, member="a", topology=FIRST), push(2, "other"), heartbeat(3, member_epoch=-1, topology_epoch=None)]
    late = [push(4, member="b", topology=SECOND), push(5, member="c", topology=FIRST), describe(6, described())]
    tables = []
    for name, runs in (("in time", [{"early": early, "late": late}]), ("late", [{"late": late}, {"early": early}])):
        settings = warehouse_of(empty_warehouse, tmp_path / name)
        for files in runs:
            landed(settings, **files)
            run(spark, settings, *HISTORICAL)
        tables.append({table: rows(spark, settings, table) for table in HISTORICAL})
    assert tables[0] == tables[1]
    assert revisions(spark, settings) == [(1, "a", "00:01"), (2, "b", "00:04"), (3, "c", "00:05")]
