"""Batches in silver: their times, and the one rule that each kind of damage breaks."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pytest

from expectations.bronze.record_batches import UNREAD
from expectations.silver.record_batches import CONTRACT
from pipelines.bronze.record_batches import parse
from pipelines.settings import load
from pipelines.silver.record_batches import transform
from pipelines.sources.landing import LandedFile
from pipelines.sources.log_dirs import Segment
from pipelines.sources.record_batches import ERRORS
from pipelines.sources.segments import SCHEMA, Work, rows
from tests.testing.segments import AT, assembled, batch, marker, message, record

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from pyspark.sql import Row, SparkSession

FIRST = datetime.fromtimestamp(AT / 1000, UTC).replace(tzinfo=None)


def judged(spark: SparkSession, path: Path, data: bytes, source: str = "t-3/0.log") -> list[Row]:
    """The candidates of a segment that is not the newest, each with its violations."""
    return all_judged(spark, path, {source: data})


def all_judged(spark: SparkSession, path: Path, segments: Mapping[str, bytes]) -> list[Row]:
    """The candidates of such segments, by their names."""
    from pyspark.sql import functions as F

    found: list[Any] = []
    for source, data in segments.items():
        path.write_bytes(data)
        found += rows(Work(Segment.of(source), LandedFile(source, len(data), 0), str(path), False))
    bronze = parse(spark.createDataFrame(found, SCHEMA), load()).where("file IS NULL")
    bronze = bronze.withColumns({"_ingested_at": F.lit(None).cast("timestamp"), "_run_id": F.lit("run")})
    candidates = transform(bronze, load()).withColumn("mask", CONTRACT.broken_rules())
    judged = candidates.withColumn("violations", CONTRACT.violations(F.col("mask")))
    return judged.orderBy("partition", "position").collect()


def test_every_error_breaks_one_rule() -> None:
    broken = {code: [rule.code for rule in CONTRACT.rules if f"'{code}'" in rule.subject] for code in ERRORS}
    assert {code for code, rules in broken.items() if len(rules) != 1} == UNREAD.keys()


def test_sound_batches_of_every_format_break_no_rule(spark: SparkSession, tmp_path: Path) -> None:
    segment = b"".join(
        [
            batch(0, 2, producer=(7, 0, 0), flags=0x10),
            marker(2, True),
            message(3, 0),
            message(4, 1),
            batch(5, records=[], record_count=0, last_delta=3),
            batch(9, flags=0x30, producer=(7, 0, -1), records=[], record_count=0),
        ]
    )
    assert [row["violations"] for row in judged(spark, tmp_path / "a", segment)] == [[]] * 6


def cases(spark: SparkSession, factory: pytest.TempPathFactory, segments: Mapping[str, bytes]) -> dict[str, list[Row]]:
    """The candidates of cases, each of which is a partition's segment, by name."""
    names = {f"t-{number}/0.log": name for number, name in enumerate(segments)}
    found: dict[str, list[Row]] = {name: [] for name in segments}
    for row in all_judged(spark, factory.mktemp("cases") / "a", dict(zip(names, segments.values(), strict=True))):
        found[names[row["_source"]]].append(row)
    return found


NEXT = batch(90)


DAMAGED = {
    "wrong checksum": (batch(0)[:-1] + b"\xff" + NEXT, [["crc.correct"], []]),
    "unknown magic": (assembled(0, b"v" * 20, magic=3) + NEXT, [["magic.known"], []]),
    "torn": (batch(0) + NEXT[:-1], [[], ["size_in_bytes.complete"]]),
    "filled with zeros": (batch(0) + bytes(100), [[], ["size_in_bytes.complete"]]),
    "size below zero": (batch(0) + b"\xff" * 17, [[], ["size_in_bytes.plausible"]]),
    "out of order": (batch(5) + batch(5), [[], ["base_offset.in_order"]]),
    "unknown codec": (batch(0, flags=6) + NEXT, [["header.consistent"], []]),
    "offset below zero": (message(-1, 0) + NEXT, [["header.consistent"], []]),
    "no control key": (batch(0, flags=0x30, records=[record(0)]) + NEXT, [["header.consistent"], []]),
}


@pytest.fixture(scope="module")
def damaged(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[Row]]:
    return cases(spark, tmp_path_factory, {name: segment for name, (segment, _) in DAMAGED.items()})


@pytest.mark.parametrize("name", DAMAGED)
def test_damage_breaks_the_rule_that_names_it(name: str, damaged: dict[str, list[Row]]) -> None:
    assert [row["violations"] for row in damaged[name]] == DAMAGED[name][1]


def test_a_file_that_is_no_segment_breaks_the_rule_that_says_so(spark: SparkSession, tmp_path: Path) -> None:
    (row,) = judged(spark, tmp_path / "a", b"", "t-0/<b>\n.log")
    assert row["violations"] == ["topic.readable"]


@pytest.mark.parametrize(
    ("segment", "code"),
    [
        pytest.param(batch(0, flags=0x10), "producer_id.of_transaction", id="transaction without a producer"),
        pytest.param(batch(0, producer=(7, 0, -1)), "base_sequence.numbered", id="producer without sequence"),
    ],
)
def test_what_brokers_do_not_write_is_counted_and_kept(
    spark: SparkSession, tmp_path: Path, segment: bytes, code: str
) -> None:
    (row,) = judged(spark, tmp_path / "a", segment)
    assert row["violations"] == [code]
    assert not next(rule for rule in CONTRACT.rules if rule.code == code).refuses


TIMED = {
    "times": (batch(0), (FIRST, FIRST, None)),
    "delete horizon": (batch(0, flags=0x40), (None, FIRST, FIRST)),
    "magic 0": (message(0, 0), (None, None, None)),
    "no timestamp": (message(0, 1, timestamp=-1), (None, None, None)),
    "beyond all years": (message(0, 1, timestamp=2**63 - 1), (None, None, None)),
    "least int64": (message(0, 1, timestamp=-(2**63)), (None, None, None)),
}


@pytest.fixture(scope="module")
def timed(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[Row]]:
    return cases(spark, tmp_path_factory, {name: segment for name, (segment, _) in TIMED.items()})


@pytest.mark.parametrize("name", TIMED)
def test_times(name: str, timed: dict[str, list[Row]]) -> None:
    (row,) = timed[name]
    assert row["violations"] == []
    assert (row["base_timestamp"], row["max_timestamp"], row["delete_horizon_at"]) == TIMED[name][1]


def test_a_batchs_content_is_its_header(spark: SparkSession, tmp_path: Path) -> None:
    same, copy = (judged(spark, tmp_path / "a", batch(4))[0], judged(spark, tmp_path / "b", batch(2) + batch(4))[1])
    (other,) = judged(spark, tmp_path / "a", batch(4, records=[record(0, b"other")]))
    assert same["_content_hash"] == copy["_content_hash"] != other["_content_hash"]
