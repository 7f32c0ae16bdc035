"""The DAG `topology` as Airflow runs it: many tables per task, and tables that go on beside broken gates."""

from __future__ import annotations

import gzip
import re
from pathlib import Path
from typing import Any

import pytest

from local.demo import Airflow, delta_log
from pipelines.catalog import LAYERS, stages
from pipelines.settings import ROOT
from tests.e2e.runs import counts, states, tables, told_by_assets

TABLES = [stage.table for stage in stages("topology")]

pytestmark = pytest.mark.thorough  # the DAGs of the other feeds also run


def captured() -> list[str]:
    """A broker's request log: 3 pushes, 6 describes, 5 heartbeats, 7 requests that concern no streams group."""
    packed = ROOT / "tests" / "data" / "streams-requests" / "kafka-request-B.log.gz"
    return gzip.decompress(packed.read_bytes()).decode().splitlines()


def landed(directory: Path, lines: list[str]) -> dict[str, str]:
    feed = directory / "landing" / "streams-requests"
    feed.mkdir(parents=True)
    (feed / "kafka-request.log").write_text("\n".join(lines) + "\n")
    return {"landing": str(directory / "landing"), "warehouse": str(directory / "warehouse")}


@pytest.fixture(scope="module")
def good(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    return landed(tmp_path_factory.mktemp("good"), captured())


@pytest.fixture(scope="module")
def first(airflow: Airflow, good: dict[str, str]) -> dict[str, Any]:
    return airflow.run("topology", good)


@pytest.mark.thorough
def test_a_run_fills_every_table(first: dict[str, Any]) -> None:
    assert first["state"] == "success"
    assert {task: found["state"] for task, found in first["tasks"].items()} == dict.fromkeys(
        [*LAYERS, "reports", "outcome"], "success"
    )
    assert {table: counts(first, table) for table in TABLES if not table.startswith("gold.")} == {
        "bronze.streams_requests": [21, 14, 0, 0, 7],
        "silver.topology_pushes": [14, 3, 0, 0, 11],
        "silver.topology_statuses": [14, 6, 0, 0, 8],
        "silver.group_deletions": [0, 0, 0, 0, 0],
        "silver.group_heartbeats": [14, 5, 0, 0, 9],
        "silver.topology_solicitations": [14, 14, 0, 0, 0],
        "silver.topology_nodes": [7, 7, 0, 0, 0],
    }


@pytest.mark.thorough
def test_each_table_is_an_asset_with_its_own_counts(first: dict[str, Any]) -> None:
    assert first["assets"].keys() == {*TABLES, "reports.topology"}
    assert {name: first["assets"][name] for name in TABLES} == told_by_assets(first)
    assert first["assets"]["reports.topology"]["tables"] == told_by_assets(first)


@pytest.mark.thorough
def test_a_second_run_changes_nothing(airflow: Airflow, first: dict[str, Any], good: dict[str, str]) -> None:
    before = delta_log(Path(good["warehouse"]))
    run = airflow.run("topology", good)
    assert run["state"] == "success"
    assert {table: found["status"] for table, found in tables(run).items()} == dict.fromkeys(TABLES, "idle")
    assert len(before) >= len(TABLES)
    assert delta_log(Path(good["warehouse"])) == before


@pytest.fixture(scope="module")
def broken(airflow: Airflow, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """A run in which 12 of 18 describes and all 12 deletions are cut off."""
    cut = [
        f'[2026-11-21 02:46:00,{number:03}] DEBUG Completed request:{{"requestHeader":{{"requestApiKeyName":"{api}",'
        for api in ("STREAMS_GROUP_DESCRIBE", "DELETE_GROUPS")
        for number in range(12)
    ]
    parameters = landed(tmp_path_factory.mktemp("broken"), [*captured(), *cut])
    said = airflow.log.stat().st_size
    run = airflow.run("topology", parameters)
    with airflow.log.open(encoding="utf-8") as log:
        log.seek(said)
        return {**run, "log": log.read()}


@pytest.mark.thorough
def test_broken_gates_fail_the_run_and_what_does_not_depend_on_them_is_refreshed(broken: dict[str, Any]) -> None:
    assert broken["state"] == "failed"
    assert states(broken) == {
        "bronze": ("success", 1),
        "silver": ("failed", 1),
        "gold": ("success", 1),
        "reports": ("success", 1),
        "outcome": ("upstream_failed", 0),
    }
    statuses = {table: found["status"] for table, found in tables(broken).items()}
    assert {table for table, status in statuses.items() if status == "broken"} == {
        "silver.topology_statuses",
        "silver.group_deletions",
    }
    independent = {"silver.topology_pushes", "silver.topology_nodes", "gold.topology_revisions", "gold.topology_edges"}
    assert {statuses[table] for table in independent} == {"passed"}


@pytest.mark.thorough
def test_a_layer_without_some_of_its_tables_is_no_event_of_an_asset(broken: dict[str, Any]) -> None:
    assert {name for name in broken["assets"] if name.startswith("silver.")} == set()
    told = broken["assets"]["reports.topology"]["tables"]
    assert {table for table, found in told.items() if found["verdict"] and not found["verdict"]["passed"]} == {
        "silver.topology_statuses",
        "silver.group_deletions",
    }


@pytest.mark.thorough
def test_the_failure_names_every_table_whose_gate_broke(broken: dict[str, Any]) -> None:
    (said,) = re.findall(r"silver failed: (.*)", broken["log"])
    assert re.findall(r"The gate of (\S+) broke", said) == ["silver.topology_statuses", "silver.group_deletions"]
