"""The DAG `delivery` as Airflow runs it: four landing directories into one ledger."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from pipelines.catalog import LAYERS, stages
from pipelines.demo import Airflow
from pipelines.settings import ROOT
from tests.e2e.runs import counts, told_by_assets

DATA = ROOT / "tests" / "data"
TABLES = [stage.table for stage in stages("delivery")]


@pytest.fixture(scope="module")
def first(airflow: Airflow, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    directory = tmp_path_factory.mktemp("delivery")
    for feed, source in (
        ("acknowledgements", DATA / "acknowledgements"),
        ("segments", DATA / "segments"),
        ("broker-logs", DATA / "broker-logs"),
        ("producers", ROOT / "demo" / "producers"),
    ):
        shutil.copytree(source, directory / "landing" / feed)
    where: dict[str, Path] = {name: directory / name for name in ("landing", "warehouse")}
    return airflow.run("delivery", {name: str(place) for name, place in where.items()})


def test_a_run_fills_the_ledger(first: dict[str, Any]) -> None:
    assert {task: found["state"] for task, found in first["tasks"].items()} == dict.fromkeys(
        [*LAYERS, "reports", "outcome"], "success"
    )
    assert first["state"] == "success"
    assert counts(first, "silver.acknowledgements") == [25, 25, 0, 0, 0]
    assert counts(first, "silver.record_batches") == [40, 40, 0, 0, 0]
    assert counts(first, "silver.producers") == [5, 5, 0, 0, 0]
    read, failures, quarantined, duplicates, skipped = counts(first, "silver.dlq_write_failures")
    assert (failures, quarantined, duplicates, skipped) == (5, 0, 0, read - 5)
    assert counts(first, "gold.message_ledger")[1] == 25
    assert counts(first, "gold.delivery_guarantees")[1] == 5


def test_each_table_is_an_asset_with_its_own_counts(first: dict[str, Any]) -> None:
    assert first["assets"].keys() == {*TABLES, "reports.delivery"}
    assert {name: first["assets"][name] for name in TABLES} == told_by_assets(first)
