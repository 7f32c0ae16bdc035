"""silver.record_ranges: which offsets around dead-lettered records hold records."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from pipelines.columns.slices import name
from pipelines.settings import Settings
from pipelines.warehouse import jvmless
from pipelines.warehouse.tables import Warehouse
from tests.testing.builders import run, warehouse_of
from tests.testing.deliveries import store

TABLE = "silver.record_ranges"
OURS = {"cluster": "default"}
LETTERS, SENT, BATCHES, RANGES = (
    f"silver.{item}" for item in ("dead_letters", "acknowledgements", "log_batches", "log_ranges")
)


def letter(offset: int, number: int, is_counted: bool = True) -> dict[str, Any]:
    place = {"original_topic": "orders", "original_partition": 0, "original_offset": offset}
    dlq = {"dlq_topic": "dlq.orders", "dlq_partition": 0, "dlq_offset": number, "slice": name("dlq.orders", 0, number)}
    return {**OURS, **place, **dlq, "source_slice": name("orders", 0, offset), "is_counted": is_counted}


def sent(offset: int, number: int = 0, outcome: str = "ACKNOWLEDGED") -> dict[str, Any]:
    place = {"topic": "orders", "partition": 0, "offset": offset, "slice": name("orders", 0, offset)}
    return {**OURS, **place, "_bronze_id": f"{offset}/{number}", "outcome": outcome}


def batch(base: int, last: int, count: int, **more: Any) -> dict[str, Any]:
    place = {"topic": "orders", "partition": 0, "segment": "orders-0/0.log", "version": 0, "position": base}
    return {
        **OURS,
        **place,
        "base_offset": base,
        "last_offset": last,
        "record_count": count,
        "is_control": False,
    } | more


def landed(first: int, last: int, is_present: bool | None = True) -> dict[str, Any]:
    place = {"topic": "orders", "partition": 0, "segment": "orders-0/0.log", "slice": name("orders", 0, first)}
    return {**OURS, **place, "first_offset": first, "last_offset": last, "is_present": is_present}


def found(spark: SparkSession, settings: Settings) -> dict[str, tuple[Any, ...]]:
    run(spark, settings, TABLE, feed="delivery")
    return {
        row["slice"]: (
            row["dead_lettered_count"],
            row["acknowledged_dead_lettered_count"],
            [(values["first_offset"], values["last_offset"]) for values in row["acknowledged"]],
            [(values["first_offset"], values["last_offset"]) for values in row["landed"]],
            [
                (values["first_offset"], values["last_offset"], values["offset_count"])
                for values in row["without_record"]
            ],
        )
        for row in jvmless.rows(Warehouse(settings), TABLE, OURS)
    }


def test_acknowledgements_and_segments_tell_which_offsets_hold_records(
    spark: SparkSession, empty_warehouse: Path, tmp_path: Path
) -> None:
    settings = warehouse_of(empty_warehouse, tmp_path)
    store(
        settings,
        SENT,
        *(sent(offset) for offset in (0, 1, 3, 4, 20_000)),
        sent(4, 1),  # told twice
        sent(5, outcome="FAILED"),
        {**sent(-1), "offset": None},
    )
    assert found(spark, settings) == {}  # no dead letter, so no incident asks
    store(settings, LETTERS, letter(1, 0), letter(2, 1), letter(4, 2, is_counted=False), letter(1_000, 3))
    first, second = name("orders", 0, 0), name("orders", 0, 1_000)
    assert found(spark, settings) == {first: (2, 1, [(0, 1), (3, 4)], [], [])}
    store(
        settings,
        BATCHES,
        batch(0, 1, 2),
        batch(2, 2, 1, is_control=True),
        batch(3, 12, 4),  # compacted
        batch(990, 1_009, 10),  # compacted, in two slices
        batch(21, 24, 0),  # without records, as its range says
        batch(25, 25, 0, is_control=True),
        batch(5, 5, 1, is_control=True, version=1, superseded_by="VERSION"),
    )
    store(
        settings,
        RANGES,
        landed(0, 2),
        landed(3, 12, is_present=None),
        landed(13, 20, is_present=False),
        landed(21, 25, is_present=False),
        landed(990, 999, is_present=None),
        landed(1_000, 1_009, is_present=None),
    )
    assert found(spark, settings) == {
        first: (
            2,
            1,
            [(0, 1), (3, 4)],
            [(0, 2), (3, 12), (13, 20), (21, 25), (990, 999)],
            [(2, 2, 1), (3, 12, 6), (13, 20, 8), (21, 25, 5), (990, 999, 5)],
        ),
        second: (1, 0, [], [(1_000, 1_009)], [(1_000, 1_009, 5)]),
    }
