"""Small and large batches take different ways through a stage and give the same tables."""

from __future__ import annotations

from pathlib import Path

import pytest
from deltalake import DeltaTable, write_deltalake
from pyspark.sql import SparkSession

from pipelines.steps import few_split
from pipelines.warehouse.tables import Warehouse
from tests.testing import ways
from tests.testing.builders import land, line, run, tables, warehouse_of

SILVER = "silver.dlq_records"


def landings() -> list[dict[str, list[str]]]:
    bad = [line(offset, topic="dlq.bad", headers=[]) for offset in range(30)]
    refused = line(900, headers=[])
    first = [*(line(offset) for offset in range(60)), refused, line(3), line(4, value=b"other"), "no JSON", *bad]
    second = [*(line(offset) for offset in range(50, 90)), refused, line(7, value=b"other"), bad[0]]
    return [{"a.jsonl": first}, {"b.jsonl": second}]


def test_few_bytes_that_unpack_to_many_take_the_way_of_large_batches(
    spark: SparkSession, empty_warehouse: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(few_split, "MOST_KEPT", 1 << 20)
    settings = warehouse_of(empty_warehouse, tmp_path)
    land(settings, {"a.jsonl": [line(offset, value=bytes(100_000)) for offset in range(20)]})
    with monkeypatch.context() as patched:
        patched.setattr(few_split.FewSplit, "insert", None)  # would be called for a small batch
        one = run(spark, settings, "bronze.dlq_records", SILVER)[SILVER]
    assert (one.read, one.accepted) == (20, 20)


@pytest.mark.parametrize("gone", [["_content_hash"], ["control_marker_suspected", "payload_copied"]])
def test_tables_without_columns_of_the_contract_take_them(
    gone: list[str], spark: SparkSession, empty_warehouse: Path, tmp_path: Path
) -> None:
    refused = line(900, headers=[])
    more = [refused, line(901, headers=[]), line(7, value=b"other")]
    landed = (
        {"a.jsonl": [*(line(offset) for offset in range(40)), refused]},
        {"b.jsonl": [*(line(offset) for offset in range(30, 80)), *more]},
    )
    found, counts = [], []
    for way in (ways.FEW, ways.MANY):
        settings = warehouse_of(empty_warehouse, tmp_path / way)
        with pytest.MonkeyPatch.context() as patched:
            ways.take(way, patched)
            for files in landed:
                land(settings, files)
                one = run(spark, settings, "bronze.dlq_records", SILVER)[SILVER]
                for table in (SILVER, "quarantine.dlq_records") if files is landed[0] else ():  # as a version before
                    location = Warehouse(settings).location(table)
                    kept = DeltaTable(location).to_pyarrow_table().drop_columns(gone)
                    write_deltalake(location, kept, mode="overwrite", schema_mode="overwrite")
        counts.append((one.read, one.accepted, one.quarantined, one.duplicates))
        found.append(tables(settings))
        assert {field.name for field in DeltaTable(Warehouse(settings).location(SILVER)).schema().fields} >= {*gone}
    assert counts[0] == counts[1] == (53, 40, 2, 11)
    assert found[0] == found[1]


def test_small_and_large_batches_give_the_same_tables(
    spark: SparkSession, empty_warehouse: Path, tmp_path: Path
) -> None:
    found, counts = [], []
    for way in ways.WAYS:
        settings = warehouse_of(empty_warehouse, tmp_path / way)
        with pytest.MonkeyPatch.context() as patched:
            ways.take(way, patched)
            for files in landings():
                land(settings, files)
                one = run(spark, settings, "bronze.dlq_records", SILVER)[SILVER]
                counts.append((one.read, one.accepted, one.quarantined, one.duplicates, one.held))
        found.append(tables(settings))
    assert counts[:2] == counts[2:4] == counts[4:]
    assert found[0] == found[1] == found[2]
    assert all(found[0][table] for table in (SILVER, "quarantine.dlq_records", "held.dlq_records"))
