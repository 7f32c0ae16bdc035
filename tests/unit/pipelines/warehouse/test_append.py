"""Rows appended without a JVM: every type of the contracts, created as Spark would create the table."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest
from deltalake.exceptions import DeltaError

from expectations.contract import Column, Contract, contract_of
from expectations.replays import TABLES
from pipelines.errors import UsageError
from pipelines.settings import ROOT, Settings, load
from pipelines.warehouse import jvmless
from pipelines.warehouse.append import append
from pipelines.warehouse.tables import Warehouse

AT = datetime(2026, 11, 21, 2, 0, 0, 123_456, tzinfo=UTC)
CONTRACT = Contract(
    table="gold.every_type",
    description="One row per test.",
    columns=(
        Column("cluster", "string", "A text."),
        Column("number", "int", "An int."),
        Column("large", "bigint", "A long."),
        Column("is_true", "boolean", "A boolean."),
        Column("content", "binary", "Bytes."),
        Column("at", "timestamp", "A time."),
        Column("names", "array<string>", "Texts."),
        Column("headers", "array<struct<key: string, value: binary>>", "Headers."),
        Column(
            "nested", "array<struct<topic: string, ends: array<bigint>, inner: struct<a: int, b: string>>>", "More."
        ),
    ),
    grain=("cluster",),
)
ROW: dict[str, Any] = {
    "cluster": "o'brien\" --\u202e",
    "number": -(2**31),
    "large": 2**63 - 1,
    "is_true": True,
    "content": b"\x00\xff",
    "at": AT,
    "names": ["a", ""],
    "headers": (("h", b"\xff"), ("h", None), ("", b"")),
    "nested": [{"topic": "t", "ends": [1, 2**62], "inner": {"a": 1, "b": "x"}}],
}


def test_rows_come_back_as_they_were(settings: Settings) -> None:
    warehouse = Warehouse(settings)
    nothing = dict.fromkeys(ROW) | {"cluster": "nothing"}
    append(warehouse, CONTRACT, [ROW])
    append(warehouse, CONTRACT, [nothing])
    append(warehouse, CONTRACT, [])
    (row,) = jvmless.rows(warehouse, CONTRACT.table, {"cluster": ROW["cluster"]})
    assert row == ROW | {"headers": [{"key": name, "value": content} for name, content in ROW["headers"]]}
    assert jvmless.rows(warehouse, CONTRACT.table, {"cluster": "nothing"}) == [nothing]
    assert warehouse.last_version(CONTRACT.table) == 2  # creation, and a commit for each append with rows

    append(warehouse, CONTRACT, [nothing], "overwrite")
    assert jvmless.values(warehouse, CONTRACT.table, "cluster", 10) == {"nothing"}


def test_no_value_is_left_out(settings: Settings) -> None:
    warehouse = Warehouse(settings)
    append(warehouse, CONTRACT, [ROW])
    with pytest.raises(KeyError):
        append(warehouse, CONTRACT, [{name: value for name, value in ROW.items() if name != "content"}])
    grown = replace(CONTRACT, columns=(*CONTRACT.columns, Column("more", "string", "A column of a later version.")))
    with pytest.raises(DeltaError):  # the table lacks the column
        append(warehouse, grown, [ROW | {"more": "a value"}])
    assert jvmless.values(warehouse, CONTRACT.table, "content", 10) == {ROW["content"]}


def test_a_warehouse_that_only_spark_opens_is_refused(settings: Settings) -> None:
    remote = Warehouse(load(warehouse="hdfs://name/warehouse"))
    with pytest.raises(UsageError, match="Only Spark opens hdfs://name/warehouse"):
        append(remote, CONTRACT, [ROW])


CREATES = """
import sys
from expectations.contract import contract_of
from pipelines.settings import load
from pipelines.warehouse.append import append
from pipelines.warehouse.tables import Warehouse
for table in sys.argv[2:]:
    append(Warehouse(load(warehouse=sys.argv[1])), contract_of(table), [])
print("pyspark" in sys.modules)
"""


def test_the_tables_of_replays_are_created_without_spark(settings: Settings) -> None:
    done = subprocess.run(
        [sys.executable, "-c", CREATES, settings.warehouse, *TABLES],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.strip() == "False", done.stderr
    for table in TABLES:
        stored = Warehouse(settings).opened_table(table)
        contract = contract_of(table)
        assert [field.name for field in stored.schema().fields] == [column.name for column in contract.stored]
        comments = [field.metadata["comment"] for field in stored.schema().fields]
        assert comments == [column.comment for column in contract.stored]
        assert stored.metadata().description == contract.description
