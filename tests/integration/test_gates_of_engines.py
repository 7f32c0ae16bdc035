"""The gate of a summarised table: DuckDB counts broken rules and facts as Spark does, from the same text."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as arrow  # type: ignore[import-untyped]
import pytest
from pyspark.sql.types import DataType

from expectations.contract import Contract, contract_of
from pipelines.catalog import stages_of_type
from pipelines.engines.choose import suits_duckdb
from pipelines.engines.duckdb import sessions
from pipelines.engines.duckdb.translate import translated
from pipelines.settings import ROOT
from pipelines.stage import Derive, Summarise
from pipelines.steps.refresh import name_of
from tests.testing.engines import (
    MOMENT,
    Known,
    by_duckdb,
    contract_of_input,
    drawn,
    kept,
    selected,
    thorough,
    type_of,
    value,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SUMMARISED = stages_of_type(Summarise)
FRESH = "gold.fresh"
KNOWN: dict[str, Known] = {
    "silver.dlq_episodes": {"first_at": lambda chance: MOMENT + timedelta(microseconds=chance.randrange(10**12))},
    "silver.dlq_gaps": {"offset_count": lambda chance: chance.randint(1, 5)},
    "silver.topology_pushes": {"node_count": lambda _: 3},
    "silver.topology_statuses": {"node_count": lambda _: 3},
}
"""By table: what draws values that facts rely on, and those of which Spark would take any one."""
MATCHING = ("0123456789abcdef", "W8AL-7HDM", "\n", "0", "é", "a" * 15, "WWWW-")
DOUBLES = (0.0, -0.0, 0.5, 1.0, 1.0000000001, -0.5, float("nan"), float("inf"), float("-inf"), None)


def near_its_rules(contract: Contract) -> Known:
    """Return what draws values that the rules on a column speak about, and others."""

    def one_of(values: tuple[Any, ...]) -> Callable[[random.Random], Any]:
        return lambda chance: chance.choice((*values, None, *(f"{values[0]}{end}" for end in ("", "\n", " "))))

    def around(*edges: int | None) -> Callable[[random.Random], Any]:
        known = [edge for edge in edges if edge is not None]
        return lambda chance: chance.choice([None, *(edge + step for edge in known for step in (-1, 0, 1))])

    def matching(chance: random.Random) -> str:
        return "".join(chance.choice(MATCHING) for _ in range(chance.choice((1, 1, 2, 3))))

    known: dict[str, Callable[[random.Random], Any]] = {
        column.name: lambda chance: chance.choice(DOUBLES) for column in contract.columns if column.type == "double"
    }
    for column in contract.columns:
        for rule in column.rules:
            if rule.kind == "one_of":
                known[column.name] = one_of(rule.arguments)
            elif rule.kind == "matches":
                known[column.name] = matching
            elif rule.kind == "between":
                known[column.name] = around(*rule.arguments)
    return known


@thorough
@pytest.mark.parametrize("stage", SUMMARISED, ids=lambda stage: stage.table)
def test_both_engines_count_the_same_broken_rules(spark: SparkSession, stage: Summarise, tmp_path: Path) -> None:
    contract = contract_of(stage.table)
    counts = [f"count_if({rule.breaks()}) AS `{rule.code}`" for rule in contract.rules]
    chance = random.Random(stage.table)
    rows = [drawn(contract, 200, chance, known, 0.0) for known in (near_its_rules(contract), {})]
    rows.append(arrow.Table.from_pylist([{}], rows[0].schema))  # a row of nulls
    files = kept(tmp_path, {FRESH: arrow.concat_tables(rows)})
    expected = spark.read.parquet(str(files[FRESH])).selectExpr(*counts).collect()[0].asDict()
    assert any(expected.values())
    assert counted_by_duckdb(f"SELECT {', '.join(counts)} FROM fresh", files) == expected


@thorough
@pytest.mark.parametrize("stage", SUMMARISED, ids=lambda stage: stage.table)
def test_both_engines_find_the_same_facts(spark: SparkSession, stage: Summarise, tmp_path: Path) -> None:
    """The facts are about drawn rows, and about those that DuckDB itself makes from the inputs."""
    text = (ROOT / "sql" / "facts" / f"{stage.table.replace('.', '/')}.sql").read_text(encoding="utf-8")
    chance = random.Random(stage.table)
    inputs = {
        table: drawn(contract, 40, chance, of_a_table(contract), 0.0)
        for table, contract in ((table, contract_of_input(table)) for table in stage.inputs)
    }
    files = kept(tmp_path, inputs)
    made = [drawn(contract_of(stage.table), 40, chance, KNOWN.get(stage.table, {}), 0.0)]
    if suits_duckdb(stage.table) and not isinstance(stage, Derive):
        made.append(by_duckdb(stage, files))
    for fresh in made:
        files |= kept(tmp_path, {FRESH: fresh})
        named = text.format(**{name_of(table): name_of(table) for table in files})
        assert counted_by_duckdb(named, files) == counted_by_spark(spark, text, files)


def of_a_table(contract: Contract, hostile: float = 0.0) -> Known:
    """Return what draws values of an input, whose rows break no ``not_null``."""

    def no_null(kind: DataType) -> Callable[[random.Random], Any]:
        def draw(chance: random.Random) -> Any:
            found = value(kind, chance, hostile)
            return draw(chance) if found is None else found

        return draw

    given = {rule.subject.strip("`") for rule in contract.rules if rule.kind == "not_null" and not rule.guard}
    kinds = {field.name: field.dataType for field in type_of(contract) if field.name in given}
    return {name: no_null(kind) for name, kind in kinds.items()} | KNOWN.get(contract.table, {})


def counted_by_spark(spark: SparkSession, text: str, files: Mapping[str, Path]) -> dict[str, int | None]:
    frames = {name_of(table): spark.read.parquet(str(file)) for table, file in files.items()}
    counts = selected(spark, text, frames, {})
    (row,) = counts.selectExpr(*(f"CAST(`{name}` AS BIGINT) AS `{name}`" for name in counts.columns)).collect()
    return row.asDict()


def counted_by_duckdb(text: str, files: Mapping[str, Path]) -> dict[str, int | None]:
    with sessions.connected(str(next(iter(files.values())).parent)) as connection:
        for table, file in files.items():
            connection.execute(f"CREATE VIEW {name_of(table)} AS FROM read_parquet('{file}')")
        answered = connection.sql(translated(text))
        (row,) = answered.fetchall()
        return dict(zip(answered.columns, (item if item is None else int(item) for item in row), strict=True))
