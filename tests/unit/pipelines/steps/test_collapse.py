"""Outcomes of candidates: Spark and DuckDB tell the same, whatever repeats, exists or is in quarantine."""

from __future__ import annotations

import random
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pyarrow as arrow  # type: ignore[import-untyped]
import pytest

from expectations.contract import Contract, contract_of
from pipelines.catalog import stages_of_type
from pipelines.engines.duckdb import sessions
from pipelines.engines.duckdb.translate import translated
from pipelines.stage import Split
from pipelines.steps.batch_rows import ArrowRows, SparkRows, without_zones
from pipelines.steps.collapse import SKIPPED, census, contested, decided

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

KINDS = {
    "string": arrow.string(),
    "bigint": arrow.int64(),
    "int": arrow.int32(),
    "boolean": arrow.bool_(),
    "timestamp": arrow.timestamp("us", "UTC"),
}
TABLES = [stage.table for stage in stages_of_type(Split)]
SEEDS = [0, *(pytest.param(seed, marks=pytest.mark.thorough) for seed in range(1, 4))]


def known_values(contract: Contract, rng: random.Random) -> dict[str, list[Any]]:
    """Return the few values that columns have in all rows of a case, so that they meet."""
    kinds = {column.name: column.type for column in contract.columns}
    values: dict[str, list[Any]] = {
        "string": ["", "a", "ä", "\U0001f600", None],
        "bigint": [-(2**63), 0, 1, 2**63 - 1, None],
        "int": [0, 1, None],
        "boolean": [True, False, None],
        "timestamp": [datetime(1970, 1, 1, tzinfo=UTC), datetime(2026, 11, 21, 3, 0, 0, 7, tzinfo=UTC), None],
    }
    known = {}
    for name in (*contract.row, *contract.grain, *filter(None, (contract.content, contract.lossy))):
        there = values[kinds[name]]
        if name in contract.row or rng.random() < 0.8:
            there = [value for value in there if value is not None]
        known[name] = rng.sample(there, min(len(there), rng.choice((1, 1, 2, 3))))
    known["_bronze_id"] = [f"{number:02}" for number in range(40)]
    if contract.late_key:
        known[contract.late_key] = ["a", "b", None, None]
    return known


def drawn(contract: Contract, rng: random.Random, known: dict[str, list[Any]], count: int) -> arrow.Table:
    """Return rows in the columns that decide."""
    kinds = {column.name: KINDS[column.type] for column in contract.columns if column.name in known}
    columns = {
        name: arrow.array([rng.choice(values) for _ in range(count)], kinds[name]) for name, values in known.items()
    }
    bits = [0] * 4 * len(contract.rules) + [1 << bit for bit in range(len(contract.rules))]
    columns["_broken_rules"] = arrow.array([rng.choice(bits) for _ in range(count)], arrow.int64())
    columns[SKIPPED] = arrow.array([rng.random() < 0.1 for _ in range(count)], arrow.bool_())
    return arrow.table(columns)


def one_of_each(table: arrow.Table, names: tuple[str, ...]) -> arrow.Table:
    """Return the first row with each value of some columns: neither rows of a batch nor those of a table repeat."""
    seen: set[tuple[Any, ...]] = set()
    places = []
    for place, row in enumerate(table.select(list(names)).to_pylist()):
        key = tuple(row[name] for name in names)
        if key not in seen:
            seen.add(key)
            places.append(place)
    return table.take(arrow.array(places, arrow.int64()))


def in_order(rows: arrow.Table) -> list[str]:
    return sorted(repr(tuple(row[name] for name in sorted(row))) for row in rows.to_pylist())


@pytest.mark.parametrize("table", TABLES)
@pytest.mark.parametrize("seed", SEEDS)
def test_both_engines_tell_the_same_outcomes(spark: SparkSession, tmp_path: Path, table: str, seed: int) -> None:
    contract, rng = contract_of(table), random.Random(f"{table}{seed}")
    known = known_values(contract, rng)
    rows = one_of_each(drawn(contract, rng, known, rng.choice((1, 5, 60))), contract.row)
    existing = (
        one_of_each(drawn(contract, rng, known, rng.choice((3, 30))), contract.grain) if rng.random() < 0.7 else None
    )
    quarantined = one_of_each(drawn(contract, rng, known, 20), contract.identity) if rng.random() < 0.7 else None
    columns = None if existing is None else [name for name in existing.column_names if rng.random() < 0.9]
    if columns is not None:
        columns += [name for name in (*contract.row, *contract.grain, contract.lossy) if name and name not in columns]
    others = {"existing_rows": existing, "quarantined": quarantined}
    text = decided(contract, True, columns, quarantined is not None)
    in_spark: dict[str, Any] = {name: spark.createDataFrame(item) for name, item in others.items() if item is not None}
    of_spark = spark.sql(text, rows=spark.createDataFrame(rows), **in_spark).toArrow()
    with sessions.connected(str(tmp_path)) as connection:
        for name, item in {"rows_given": rows, **others}.items():
            if item is not None:
                connection.register(name, without_zones(item))
        names = {name: name for name in others}
        of_duckdb = connection.sql(translated(text.format(rows="rows_given", **names))).to_arrow_table()
    assert in_order(of_duckdb) == in_order(of_spark)


@pytest.mark.parametrize("table", TABLES)
@pytest.mark.parametrize("seed", SEEDS)
def test_both_engines_count_the_same(spark: SparkSession, tmp_path: Path, table: str, seed: int) -> None:
    contract, rng = contract_of(table), random.Random(f"{table}{seed}")
    rows = drawn(contract, rng, known_values(contract, rng), rng.choice((1, 5, 200)))
    of_spark = census(SparkRows(spark.createDataFrame(rows)), contract)
    with sessions.connected(str(tmp_path)) as connection:
        connection.register("given", without_zones(rows))
        few = ArrowRows(rows, None, connection, "given")  # type: ignore[arg-type]  # without Spark
        of_duckdb = census(few, contract)
    assert (of_duckdb.rows, of_duckdb.repeats, of_duckdb.skipped) == (of_spark.rows, of_spark.repeats, of_spark.skipped)
    assert sorted(map(repr, of_duckdb.ranges)) == sorted(map(repr, of_spark.ranges))


@pytest.mark.parametrize("table", TABLES)
@pytest.mark.parametrize("seed", SEEDS[:2])
def test_outcomes_depend_on_contested_rows_alone(spark: SparkSession, table: str, seed: int) -> None:
    contract, rng = contract_of(table), random.Random(f"contested {table}{seed}")
    rows = one_of_each(drawn(contract, rng, known_values(contract, rng), rng.choice((1, 5, 60))), contract.row)
    frame, text = spark.createDataFrame(rows), decided(contract, True)
    few = spark.sql(contested(contract), rows=frame)
    assert few.columns == frame.columns
    assert in_order(spark.sql(text, rows=few).toArrow()) == in_order(spark.sql(text, rows=frame).toArrow())
