"""A batch of many rows is made once: its candidates are staged in the warehouse, and are gone when it is written."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from pyspark.sql import functions as F

from expectations.contract import ORIGIN, Column, Contract
from expectations.rules import at_least
from pipelines.settings import load
from pipelines.steps.split import SplitBatch
from pipelines.warehouse.staging import STAGED, staged
from pipelines.warehouse.tables import Warehouse, quarantine_contract

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

ROWS = 1_000
CONTRACT = Contract(
    table="silver.staging",
    description="-",
    columns=(
        *(Column(name, "string", "-") for name in ORIGIN),
        Column("number", "bigint", "-", (at_least(10),)),
        Column("payload", "binary", "-"),
    ),
    grain=("number",),
    tolerance=1.0,
)


@pytest.fixture(params=["warehouse", "ware[h]ouse {1}*"])
def warehouse(request: pytest.FixtureRequest, tmp_path: Path, spark: SparkSession) -> Warehouse:
    return Warehouse(load(warehouse=str(tmp_path / request.param), landing=str(tmp_path / "landing")), spark)


def candidates(spark: SparkSession) -> DataFrame:
    number = F.col("id")
    origin = [F.concat(F.lit(name), number).alias(name) for name in ORIGIN]
    return spark.range(0, ROWS, 1, 4).select(*origin, number.alias("number"), F.lit(b"x" * 99).alias("payload"))


def test_each_candidate_is_made_once_and_nothing_of_it_is_left(warehouse: Warehouse, spark: SparkSession) -> None:
    made = spark.sparkContext.accumulator(0)

    def counting(number: int) -> int:
        made.add(1)
        return number

    for contract in (CONTRACT, quarantine_contract(CONTRACT)):
        warehouse.ensure(contract)
    rows = candidates(spark).withColumn("number", F.udf(counting, "bigint")("number"))
    with SplitBatch.between(warehouse, CONTRACT, rows, rows) as batch:
        assert batch.gate("a run").passed
        counts = batch.write()
        assert (Path(warehouse.root) / STAGED / CONTRACT.table).is_dir()
    assert (counts.read, counts.accepted, counts.quarantined) == (ROWS, ROWS - 10, 10)
    assert made.value == ROWS
    assert not [*(Path(warehouse.root) / STAGED / CONTRACT.table).iterdir()]
    stored = warehouse.read(CONTRACT.table)
    assert stored.columns == [column.name for column in CONTRACT.stored]  # no marks
    assert stored.count() == ROWS - 10


def test_the_next_batch_of_a_table_removes_what_a_killed_process_left(
    warehouse: Warehouse, spark: SparkSession
) -> None:
    left = Path(warehouse.root) / STAGED / "silver.staging" / "a killed one" / "part.parquet"
    other = Path(warehouse.root) / STAGED / "silver.other" / "a killed one" / "part.parquet"
    for file in (left, other):
        file.parent.mkdir(parents=True)
        file.write_bytes(b"payloads")
    with staged(warehouse, "silver.staging", candidates(spark)) as rows:
        assert rows.count() == ROWS
        assert not left.exists()
        assert other.exists()  # a run of another feed may write it now


def test_rows_are_gone_after_an_error_too(warehouse: Warehouse, spark: SparkSession) -> None:
    with pytest.raises(ZeroDivisionError), staged(warehouse, "silver.staging", candidates(spark)):
        raise ZeroDivisionError
    assert not [path for path in (Path(warehouse.root) / STAGED).rglob("*") if path.is_file()]
