"""Answers from a table whose log or files are damaged: one sentence, exit code 3, and no claim that nothing landed."""

from __future__ import annotations

import io
import json
import os
from datetime import UTC, datetime
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from typer.testing import CliRunner

from pipelines.cli import app
from pipelines.commands import query
from pipelines.errors import EnvironmentLacking, readable
from pipelines.settings import Settings
from tests.testing.deliveries import store

SILVER, INCIDENTS = "silver.dlq_records", "gold.dlq_incidents"
AT = datetime(2026, 11, 21, 3, 0, tzinfo=UTC)
PLACE = {"dlq_topic": "dlq.orders", "dlq_partition": 0, "dlq_offset": 5}


@pytest.fixture
def table(settings: Settings) -> Path:
    """The directory of silver.dlq_records, which holds a dead letter."""
    Path(settings.landing).mkdir(exist_ok=True)
    row = {"cluster": settings.cluster, "routed_at": AT, **PLACE}
    store(settings, SILVER, row)
    store(settings, "bronze.dlq_records", {"cluster": settings.cluster, "timestamp": AT, "_ingested_at": AT})
    store(settings, INCIDENTS)
    store(settings, "gold.trust_findings")
    return Path(settings.warehouse, "silver", "dlq_records")


def failure(settings: Settings, *words: str) -> str:
    said = CliRunner().invoke(app, [*words, "--warehouse", settings.warehouse, "--landing", settings.landing])
    assert isinstance(said.exception, Exception)
    known = readable(said.exception)
    assert known.exit_code == EnvironmentLacking.exit_code
    return str(known)


def test_a_damaged_log_is_told_with_its_table(settings: Settings, table: Path) -> None:
    for commit in (table / "_delta_log").glob("*.json"):
        commit.write_text("{")
    sentence = (
        "The Delta log of silver.dlq_records cannot be read: `afterlog doctor` says what is wrong, and what to do."
    )
    assert failure(settings, "show", "dlq.orders:0:5") == sentence


@pytest.mark.parametrize("content", [None, b"PAR1"], ids=["missing", "torn"])
def test_a_damaged_data_file_is_told(settings: Settings, table: Path, content: bytes | None) -> None:
    for file in table.glob("*.parquet"):
        file.unlink()
        if content is not None:
            file.write_bytes(content)
    told = failure(settings, "show", "dlq.orders:0:5")
    assert told == f"A data file of {SILVER} is missing or damaged: `afterlog doctor` says which file, and what to do."


def test_a_statement_is_not_blamed_for_a_missing_file(spark: SparkSession, tmp_path: Path) -> None:
    place = tmp_path / "silver" / "dlq_records"
    spark.range(3).write.parquet(str(place))
    rows = spark.read.parquet(str(place))
    for file in place.glob("*.parquet"):
        file.unlink()
    with pytest.raises(EnvironmentLacking, match=r"^A data file of silver\.dlq_records is missing or damaged"):
        query.write(rows, "csv", io.StringIO())


def test_top_does_not_say_that_nothing_landed_if_it_cannot_be_read(settings: Settings, table: Path) -> None:
    places = ("--warehouse", settings.warehouse, "--landing", settings.landing)
    sound = CliRunner().invoke(app, ["top", *places])
    assert "newest dead letter 2026-11-21" in sound.output
    for commit in (table / "_delta_log").glob("*.json"):
        commit.write_text("{")
    said = CliRunner().invoke(app, ["top", *places])
    assert said.output.splitlines()[0].endswith("; the tables of dead letters cannot be read: see `afterlog doctor`.")
    assert "no dead letter has landed" not in said.output


def test_a_damaged_table_keeps_no_other_from_stats_and_upkeep(settings: Settings, table: Path) -> None:
    for commit in (table / "_delta_log").glob("*.json"):
        commit.write_text("{")
    leftover = Path(settings.warehouse, "bronze", "dlq_records", "part-0-leftover.snappy.parquet")
    leftover.write_bytes(b"of a writer that was killed")
    os.utime(leftover, (0, 0))
    place = ("--warehouse", settings.warehouse)
    costs = CliRunner().invoke(app, ["stats", "--format", "json", *place])
    tended = CliRunner().invoke(app, ["maintain", "--format", "json", *place])
    assert (costs.exit_code, tended.exit_code) == (EnvironmentLacking.exit_code,) * 2
    told = {row["table"]: row for row in map(json.loads, costs.stdout.splitlines())}
    assert (told[SILVER]["rows"], told[SILVER]["bytes"], told["bronze.dlq_records"]["rows"]) == (None, None, 1)
    assert told[SILVER]["unreadable"].startswith(f"The Delta log of {SILVER} cannot be read: ")
    assert told[SILVER]["unreadable"] in costs.stderr
    assert json.loads(tended.stdout)["files"] == 1
    assert not leftover.exists()
    assert told[SILVER]["unreadable"] in tended.stderr
    assert SILVER in CliRunner().invoke(app, ["stats", *place]).stdout
