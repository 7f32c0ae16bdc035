"""silver.dlq_refusals: over runs that add and remove refused dead letters, it counts what a model counts."""

from __future__ import annotations

import random
from collections import defaultdict
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from deltalake import DeltaTable
from pyspark.sql import SparkSession

from pipelines.columns.slices import OFFSETS, name
from pipelines.settings import Settings
from pipelines.warehouse import jvmless
from pipelines.warehouse.tables import Warehouse
from tests.testing.builders import run, warehouse_of
from tests.testing.deliveries import store

TABLE, QUARANTINE, HELD = "silver.dlq_refusals", "quarantine.dlq_records", "held.dlq_records"
AT = datetime(2026, 11, 21, 12, tzinfo=UTC)
MINUTE = timedelta(minutes=1)
Row = dict[str, Any]


def refused(chance: random.Random, number: int) -> Row:
    """A dead letter that breaks up to two rules; some name no place, some say a time after their landing."""
    landed = AT + chance.randrange(300) * MINUTE
    place: Row = {"dlq_topic": chance.choice(("dlq.a", "dlq.b")), "dlq_partition": chance.randrange(2)}
    return {
        "_bronze_id": str(number),
        "cluster": "default",
        **(place | {"dlq_offset": chance.randrange(3 * OFFSETS)} if chance.random() < 0.9 else {}),
        "routed_at": chance.choice((None, landed - chance.randrange(90) * MINUTE, landed + 900 * MINUTE)),
        "dlq_timestamp": chance.choice((None, landed - chance.randrange(90) * MINUTE)),
        "_ingested_at": landed,
        "violations": chance.sample(("a.not_null", "b.utf8", "c.required"), chance.randrange(3)),
    }


def model(refusals: dict[str, list[Row]]) -> list[Row]:
    """What the table should hold, from all rows of its inputs."""
    groups: dict[tuple[Any, ...], list[tuple[datetime, Row]]] = defaultdict(list)
    for table, rows in refusals.items():
        for row in rows:
            stated = row["routed_at"] or row["dlq_timestamp"]
            at = min(stated or row["_ingested_at"], row["_ingested_at"])
            topic = row.get("dlq_topic")
            slice_ = topic and name(topic, row["dlq_partition"], row["dlq_offset"])
            groups[slice_, topic, at.replace(minute=0), table == HELD].append((at, row | {"stated": stated}))
    made = []
    for (slice_, topic, hour, is_held), rows_of in groups.items():
        times = [at for at, _ in rows_of]
        stated_at = [row["stated"] for _, row in rows_of if row["stated"]]
        broken: dict[str, list[datetime]] = defaultdict(list)
        for at, row in rows_of:
            for code in row["violations"]:
                broken[code].append(at)
        made.append(
            {
                "cluster": "default",
                "slice": slice_,
                "dlq_topic": topic,
                "hour": hour,
                "is_held": is_held,
                "record_count": len(rows_of),
                "first_at": min(times),
                "last_at": max(times),
                "first_stated_at": min(stated_at, default=None),
                "last_stated_at": max(stated_at, default=None),
                "broken_rules": [
                    {"code": code, "record_count": len(at), "first_at": min(at), "last_at": max(at)}
                    for code, at in sorted(broken.items())
                ]
                or None,
            }
        )
    return sorted(made, key=by_grain)


def by_grain(row: Row) -> str:
    return str([row[column] for column in ("slice", "dlq_topic", "hour", "is_held")])


def found(settings: Settings) -> list[Row]:
    return sorted(jvmless.rows(Warehouse(settings), TABLE, {"cluster": "default"}), key=by_grain)


def test_counts_over_runs_that_add_and_remove_dead_letters_are_those_of_a_model(
    spark: SparkSession, empty_warehouse: Path, tmp_path: Path
) -> None:
    settings = warehouse_of(empty_warehouse, tmp_path)
    chance = random.Random(20261127)
    stored: dict[str, list[Row]] = {QUARANTINE: [], HELD: []}
    for step in range(3):
        for table, rows in stored.items():
            new = [refused(chance, 1000 * step + number) for number in range(chance.choice((2, 60)))]
            leaving = {row["_bronze_id"] for row in rows if chance.random() < 0.3}
            if leaving:  # readmitted, or judged again
                ids = ", ".join(f"'{item}'" for item in sorted(leaving))
                DeltaTable(Warehouse(settings).location(table)).delete(f"_bronze_id IN ({ids})")
            store(settings, table, *new)
            stored[table] = [row for row in rows if row["_bronze_id"] not in leaving] + new
        done = run(spark, settings, TABLE)[TABLE]
        assert done.status == "passed", done.message
        assert found(settings) == model(stored)


def test_a_run_counts_only_the_slices_with_news(spark: SparkSession, empty_warehouse: Path, tmp_path: Path) -> None:
    settings = warehouse_of(empty_warehouse, tmp_path)
    place = {"cluster": "default", "dlq_topic": "dlq.a", "dlq_partition": 0, "_ingested_at": AT, "violations": ["a"]}
    store(settings, QUARANTINE, *({**place, "dlq_offset": offset} for offset in range(0, 50 * OFFSETS, 100)))
    first = run(spark, settings, TABLE)[TABLE]
    store(settings, QUARANTINE, {**place, "dlq_offset": 7 * OFFSETS + 1})
    second = run(spark, settings, TABLE)[TABLE]
    assert [(done.read, done.message) for done in (first, second)] == [
        (500, "50 rows refreshed"),
        (1, "1 row refreshed"),
    ]
    assert [row["record_count"] for row in found(settings)] == [10] * 7 + [11] + [10] * 42


def test_offsets_below_0_are_in_the_slices_that_they_are_counted_in(
    spark: SparkSession, empty_warehouse: Path, tmp_path: Path
) -> None:
    settings = warehouse_of(empty_warehouse, tmp_path)
    place = {"cluster": "default", "dlq_topic": "dlq.a", "dlq_partition": 0, "_ingested_at": AT, "violations": ["a"]}
    for offset in (-5, 3, -1005, 7):
        store(settings, QUARANTINE, {**place, "dlq_offset": offset})
        run(spark, settings, TABLE)
    assert sum(row["record_count"] for row in found(settings)) == 4
