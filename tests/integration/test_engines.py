"""Summarised tables that DuckDB makes of few rows: from whatever rows, they are those that Spark makes."""

from __future__ import annotations

import random
from pathlib import Path
from typing import TYPE_CHECKING

import duckdb
import pytest

from pipelines.catalog import stages_of_type
from pipelines.stage import Summarise
from pipelines.steps.refresh import suits_duckdb
from pipelines.warehouse.spark_sql import Untranslatable
from tests.testing.engines import Known, by_duckdb, by_spark, contract_of_input, drawn, in_order, kept

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

BY_DUCKDB = [stage for stage in stages_of_type(Summarise) if suits_duckdb(stage.table)]
KNOWN: dict[str, Known] = {}
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
