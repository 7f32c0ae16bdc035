"""Summarised tables that DuckDB makes of few rows: from whatever rows, they are those that Spark makes."""

from __future__ import annotations

import random
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import duckdb
import pytest

from pipelines.catalog import stages_of_type
from pipelines.stage import Summarise
from pipelines.steps.refresh import suits_duckdb
from pipelines.warehouse.spark_sql import Untranslatable
from tests.testing.engines import MOMENT, Known, by_duckdb, by_spark, contract_of_input, drawn, in_order, kept

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

BY_DUCKDB = [stage for stage in stages_of_type(Summarise) if suits_duckdb(stage.table)]


def among(*values: object) -> Callable[[random.Random], object]:
    """Return what draws one of the values."""
    return lambda chance: chance.choice(values)


def seconds(*after: int) -> Callable[[random.Random], object]:
    """Return what draws a time so many seconds after the moment, seldom an extreme one."""
    extreme = (datetime(1, 1, 1, tzinfo=UTC), datetime(1500, 2, 3, 4, 5, 6, 7, UTC), datetime(9999, 12, 31, tzinfo=UTC))
    return lambda chance: (
        chance.choice(extreme)
        if chance.random() < 0.005
        else MOMENT + timedelta(seconds=chance.choice(after), microseconds=chance.choice((0, 0, 0, 1, 500_000)))
    )


TOPOLOGY = {
    "cluster": among("a", "a", "b"),
    "group_id": among(*"abcdefghijklmnopqrst", "it's \U0001f4a3", ""),
    "member_id": among("m", "n", None),
    "connection": among("1", "2", "3"),
    "correlation_id": among(*range(9)),
    "error_code": among(0, 0, 0, 0, 0, 0, 0, 14, 42, 69, 135),
    "error_name": among("INVALID_REQUEST", "", None),
    "error_message": among("No plugin..", "it's\n.", "", None),
    "status": among(1, 2, 3, 3, 3, 9, None),
    "topology_epoch": among(0, 1, 1, 1, 2, None),
    "topology_hash": among("one", "two", "three", None),
    "member_epoch": among(-2, -1, 0, 1, 5, 5, None),
    "statuses": among(None, [], ["STALE_TOPOLOGY"], ["SHUTDOWN_APPLICATION", None]),
    "revision": among(1, 2, 3),
    "defects": among(None, [], ["no_nodes"], ["no_nodes", "a"]),
    "description_required": among(True, False, None),
    **dict.fromkeys(
        ("pushed_at", "heartbeat_at", "described_at", "deleted_at", "solicited_at"),
        seconds(0, 1, 59, 60, 299, 300, 301, 600, 4319, 4320, 4321, 9000),
    ),
    "steady_since": lambda chance: None if chance.random() < 0.7 else seconds(-5000, -4321, -300, -299, 0)(chance),
    "api_version": among(0, 1, 1),
    "followed": among(True, False, None),
}
KNOWN: dict[str, Known] = {
    "gold.topology_current": TOPOLOGY,
    "gold.push_health": TOPOLOGY,
}
"""By table: what draws the values of columns that need more than their type."""


@pytest.mark.parametrize("stage", BY_DUCKDB, ids=lambda stage: stage.table)
def test_both_engines_make_the_same_rows(spark: SparkSession, stage: Summarise, tmp_path: Path) -> None:
    answered = 0
    for seed in range(6):
        chance = random.Random(f"{stage.table} {seed}")
        most = chance.choice((0, 1, 5, 40, 200))
        tables = {
            table: drawn(contract_of_input(table), chance.randint(0, most), chance, KNOWN.get(table, {}), seed / 20)
            for table in stage.inputs
        }
        files = kept(tmp_path, tables)
        try:
            found = by_duckdb(stage, files)
        except (duckdb.Error, Untranslatable) as error:
            print(seed, most, str(error)[:300])
            continue  # Spark makes the rows
        expected = by_spark(spark, stage, files)
        assert in_order(found, expected.schema) == in_order(expected, expected.schema), f"seed {seed}, {most} rows"
        answered += 1
    assert answered > 3
