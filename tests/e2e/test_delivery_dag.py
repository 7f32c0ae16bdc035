"""The DAG `delivery` as Airflow runs it: four landing directories into one ledger."""

from __future__ import annotations

import shutil
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from local.demo import Airflow
from pipelines.catalog import LAYERS, stages
from pipelines.settings import ROOT, load
from pipelines.warehouse import jvmless
from pipelines.warehouse.tables import Warehouse
from tests.e2e.runs import counts, told_by_assets

DATA = ROOT / "tests" / "data"
pytestmark = pytest.mark.thorough  # the DAG of the feed `dlq` also runs, and each stage runs in other tests
TABLES = [stage.table for stage in stages("delivery")]


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("delivery")
    for feed, source in (
        ("acknowledgements", DATA / "acknowledgements"),
        ("segments", DATA / "segments"),
        ("broker-logs", DATA / "broker-logs"),
        ("producers", ROOT / "demo" / "producers"),
    ):
        shutil.copytree(source, directory / "landing" / feed)
    return directory


@pytest.fixture(scope="module")
def first(airflow: Airflow, directory: Path) -> dict[str, Any]:
    return airflow.run("delivery", {name: str(directory / name) for name in ("landing", "warehouse")})


def test_a_run_fills_the_ledger(first: dict[str, Any], directory: Path) -> None:
    assert {task: found["state"] for task, found in first["tasks"].items()} == dict.fromkeys(
        [*LAYERS, "reports", "outcome"], "success"
    )
    assert first["state"] == "success"
    assert counts(first, "silver.acknowledgements") == [25, 25, 0, 0, 0]
    assert counts(first, "silver.record_batches") == [43, 40, 0, 0, 3]
    assert counts(first, "silver.log_files") == [43, 3, 0, 0, 40]
    assert counts(first, "silver.producers") == [5, 5, 0, 0, 0]
    read, failures, quarantined, duplicates, skipped = counts(first, "silver.dlq_write_failures")
    assert (failures, quarantined, duplicates, skipped) == (5, 0, 0, read - 5)
    settings = load(warehouse=str(directory / "warehouse"))
    ledger = jvmless.rows(Warehouse(settings), "gold.message_ledger", {"cluster": settings.cluster}, ["outcome"])
    assert Counter(row["outcome"] for row in ledger) == {"ACKNOWLEDGED": 10, "FAILED": 14, "UNKNOWN": 1}
    assert len(jvmless.rows(Warehouse(settings), "gold.delivery_guarantees", {"cluster": settings.cluster})) == 5


def test_each_table_is_an_asset_with_its_own_counts(first: dict[str, Any]) -> None:
    assert first["assets"].keys() == {*TABLES, "reports.delivery"}
    assert {name: first["assets"][name] for name in TABLES} == told_by_assets(first)
