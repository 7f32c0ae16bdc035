"""A warehouse at a URI, where inserts are merges and Delta's own readers answer."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from pyspark.sql import SparkSession

from pipelines.commands import incidents
from pipelines.settings import ROOT, Settings
from pipelines.warehouse.tables import Warehouse
from tests.testing.builders import land, line, rows, run

BRONZE, SILVER = "bronze.dlq_records", "silver.dlq_records"


def test_a_batch_in_which_no_line_names_an_offset_is_quarantined(
    spark: SparkSession, settings: Settings, tmp_path: Path
) -> None:
    by_uri = settings.model_copy(update={"warehouse": (tmp_path / "uri").as_uri()})
    land(by_uri, {"a.jsonl": ["no JSON", "no JSON either"]})
    assert run(spark, by_uri, BRONZE, SILVER)[SILVER].quarantined == 2
    land(by_uri, {"b.jsonl": [line(1)]})
    assert run(spark, by_uri, BRONZE, SILVER)[SILVER].accepted == 1
    assert [row["dlq_offset"] for row in rows(spark, by_uri, SILVER)] == [1]


def test_incidents_are_told_as_those_of_a_local_warehouse(spark: SparkSession, settings: Settings) -> None:
    land(settings, {"a.jsonl": [line(offset) for offset in range(3)]})
    run(spark, settings)
    at = "2099-01-01T00:00:00Z"
    by_uri = Path(settings.warehouse).as_uri()
    arguments = ["incidents", "--format", "json", "--at", at, "--warehouse", by_uri]
    program = [sys.executable, "-c", "from pipelines.cli import main; main()"]
    told = subprocess.run([*program, *arguments], cwd=ROOT, capture_output=True, text=True, timeout=300)
    assert told.stdout.splitlines() == incidents.listed(Warehouse(settings), "json", at=at).result.splitlines()
    assert len(told.stdout.splitlines()) == 1
