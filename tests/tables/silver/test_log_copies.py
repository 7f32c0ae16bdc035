"""silver.log_copies and what follows from it: of copies of a log that contradict each other the newest decides."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from pipelines.settings import Settings
from pipelines.warehouse.quality import StageRun
from tests.testing import builders
from tests.testing.builders import needed_by, rows, warehouse_of
from tests.testing.logs import ID, METADATA, NEXT_ID, OF_LOGS, Landed, T, lands, one, segment, stated
from tests.testing.segments import marker, record

ZERO, FIVE, EIGHT = segment(0), segment(5), segment(8)

# For each run the files that land; then the batches that count, those superseded and by what, and proved holes.
CASES: dict[str, tuple[list[Landed], list[tuple[int, int, int]], list[tuple[int, int, str]], list[tuple[int, int]]]] = {
    "nothing-in-common": (
        [{ZERO: (one(0, 5), T), FIVE: (one(5, 5), T - 9)}],
        [(0, 4, 0), (5, 9, 0)],
        [],
        [],
    ),
    "merged-into-an-earlier-segment": (
        [{ZERO: (one(0, 5) + one(9), T + 1), FIVE: (one(5, 3) + one(9), T)}],
        [(0, 4, 0), (9, 9, 0)],
        [(5, 0, "COPY"), (9, 0, "COPY")],
        [(5, 8)],
    ),
    "the-later-modified-one": (
        [{ZERO: (one(0, 5) + one(9), T), FIVE: (one(5, 3) + one(9), T + 1)}],
        [(0, 4, 0), (5, 7, 0), (9, 9, 0)],
        [(9, 0, "COPY")],
        [(8, 8)],
    ),
    "an-old-copy-that-came-late": (
        [{ZERO: (one(0, 5, epoch=1) + one(5, 3, epoch=2), T)}, {FIVE: (one(5, 2, epoch=1), T + 1)}],
        [(0, 4, 1), (5, 7, 2)],
        [(5, 1, "COPY")],
        [],
    ),
    "an-old-copy-whose-batches-lie-elsewhere": (
        [
            {ZERO: (one(0, 5, epoch=1) + one(5, 3, epoch=2), T), FIVE: (one(5, epoch=1) + one(6, 2, epoch=1), T + 1)},
        ],
        [(0, 4, 1), (5, 7, 2)],
        [(5, 1, "COPY"), (6, 1, "COPY")],
        [],
    ),
    "an-old-copy-is-later-than-an-older-one": (
        [
            {
                ZERO: (one(0, 5, epoch=1) + one(5, 3, epoch=3), T + 5),
                FIVE: (one(5, 4, epoch=2), T + 9),
                "5.log": (one(5, 4, epoch=1), T),
            }
        ],
        [(0, 4, 1), (5, 7, 3)],
        [(5, 1, "COPY"), (5, 2, "COPY")],
        [],
    ),
    "later-timestamps-are-no-old-copy": (
        [{ZERO: (one(0, 5, epoch=1) + one(5, 3, epoch=2), T), FIVE: (one(5, 2, later=1), T + 1)}],
        [(0, 4, 1), (5, 6, 0)],
        [(5, 2, "COPY")],
        [],
    ),
    "truncated-by-a-later-leader": (
        [{ZERO: (one(0, 5) + one(5, epoch=3), T + 1), EIGHT: (one(8, 2, epoch=2) + one(10, epoch=2), T)}],
        [(0, 4, 0), (5, 5, 3)],
        [(8, 2, "LEADER"), (10, 2, "LEADER")],
        [],
    ),
    "a-later-leaders-segment": (
        [{ZERO: (one(0, 5) + one(5, epoch=3), T), EIGHT: (one(8, 2, epoch=4), T - 1)}],
        [(0, 4, 0), (5, 5, 3), (8, 9, 4)],
        [],
        [],
    ),
    "grown": (
        [{ZERO: (one(0, 3) + one(3), T)}, {ZERO: (one(0, 3) + one(3) + one(5), T + 1)}],
        [(0, 2, 0), (3, 3, 0), (5, 5, 0)],
        [],
        [(4, 4)],
    ),
    "truncated-and-rewritten": (
        [{ZERO: (one(0, 3) + one(3, 3), T)}, {ZERO: (one(0, 3) + one(3, epoch=1), T + 1)}],
        [(0, 2, 0), (3, 3, 1)],
        [(0, 0, "VERSION"), (3, 0, "VERSION")],
        [],
    ),
    "truncated-and-copied-back": (
        [{ZERO: (one(0) + one(1), T)}, {ZERO: (one(0), T + 1)}, {ZERO: (one(0) + one(1), T)}],
        [(0, 0, 0), (1, 1, 0)],
        [(0, 0, "VERSION"), (1, 0, "VERSION")],
        [],
    ),
    "emptied": (
        [{ZERO: (one(0) + one(1), T)}, {ZERO: (b"", T + 1)}],
        [],
        [(0, 0, "VERSION"), (1, 0, "VERSION")],
        [],
    ),
    "cleaned": (
        [
            {ZERO: (one(0, 3) + one(3, 3) + one(6), T)},
            {ZERO: (one(0, 3, flags=0x40, records=[record(0)], record_count=1) + one(6), T + 1)},
        ],
        [(0, 2, 0), (6, 6, 0)],
        [(0, 0, "VERSION"), (3, 0, "VERSION"), (6, 0, "VERSION")],
        [(3, 5)],
    ),
    "deleted": ([{ZERO: (one(0), T)}, {ZERO: None, FIVE: (one(5), T)}], [(0, 0, 0), (5, 5, 0)], [], []),
    "copied-again-as-it-was": (
        [
            {ZERO: (one(0, 5) + one(5, 5), T), FIVE: (one(5, later=1) + one(6, 4), T + 1)},
            {ZERO: (one(0, 5) + one(5, 5), T + 2)},
        ],
        [(0, 4, 0), (5, 9, 0)],
        [(5, 0, "COPY"), (6, 0, "COPY")],
        [],
    ),
    "created-again": (
        [
            {METADATA: (stated(ID), T), ZERO: (one(0, 5), T), FIVE: (one(5, 5, epoch=7), T)},
            {METADATA: (stated(NEXT_ID), T + 5), ZERO: (one(0, 2, later=9), T + 6)},
        ],
        [(0, 1, 0)],
        [(0, 0, "VERSION"), (5, 7, "TOPIC")],
        [],
    ),
    "created-again-without-a-topic-id": (
        [{ZERO: (one(0, 5), T), FIVE: (one(5, 5), T)}, {ZERO: (one(0, 2, later=9), T + 6)}],
        [(0, 1, 0), (5, 9, 0)],
        [(0, 0, "VERSION")],
        [],
    ),
    "a-topic-id-that-lands-later": (
        [
            {ZERO: (one(0, 5), T), FIVE: (one(5, 5), T)},
            {METADATA: (stated(ID), T - 9)},
            {METADATA: (stated(NEXT_ID), T + 5), ZERO: (one(0, 2, later=9), T + 6)},
        ],
        [(0, 1, 0)],
        [(0, 0, "VERSION"), (5, 0, "TOPIC")],
        [],
    ),
    "a-segment-that-lands-before-its-topic-id": (
        [
            {METADATA: (stated(ID), T - 9), ZERO: (one(0, 5), T), FIVE: (one(5, 5), T)},
            {ZERO: (one(0, 2, later=9), T + 6)},
            {METADATA: (stated(NEXT_ID), T + 5)},
        ],
        [(0, 1, 0)],
        [(0, 0, "VERSION"), (5, 0, "TOPIC")],
        [],
    ),
    "a-hole-that-nothing-proves": (
        [{ZERO: (one(0) + one(3)[:-1] + b"\xff" + one(6), T), "1.log": (one(1, 5), T - 1)}],
        [(0, 0, 0), (1, 5, 0), (6, 6, 0)],
        [],
        [],
    ),
}


def run(spark: SparkSession, settings: Settings, *only: str) -> dict[str, StageRun]:
    """Run the tables about logs, or some of them; no table may wait or break, and no row may be lost."""
    done = builders.run(spark, settings, *(only or OF_LOGS), feed="delivery")
    assert {one.status for one in done.values()} <= {"passed", "idle"}, done
    split = done["silver.record_batches"]
    assert split.read == split.accepted + split.quarantined + split.duplicates + split.skipped
    return done


@pytest.fixture(scope="module")
def lenient(empty_warehouse: Path, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Settings]:
    """Return a maker of settings in which no gate of a split table breaks: the tests are about later tables."""

    def made(name: str) -> Settings:
        return warehouse_of(empty_warehouse, tmp_path_factory.mktemp(name), tolerance=1.0)

    return made


@pytest.fixture(scope="module")
def cases(spark: SparkSession, lenient: Callable[[str], Settings]) -> dict[str, list[list[dict[str, Any]]]]:
    """Rows of silver.log_batches and silver.log_ranges by topic, after all steps of all cases."""
    settings = lenient("cases")
    for step in range(max(len(steps) for steps, *_ in CASES.values())):
        for topic, (steps, *_) in CASES.items():
            if step < len(steps):
                lands(settings, topic, steps[step])
        run(spark, settings, *(stage.table for stage in needed_by("silver.log_ranges")))
    tables = [rows(spark, settings, f"silver.{name}") for name in ("log_batches", "log_ranges")]
    return {topic: [[row for row in table if row["topic"] == topic] for table in tables] for topic in CASES}


@pytest.mark.parametrize("topic", CASES)
def test_which_copy_speaks(topic: str, cases: dict[str, list[list[dict[str, Any]]]]) -> None:
    _, speaks, gone, holes = CASES[topic]
    batches, ranges = cases[topic]
    names = ("base_offset", "last_offset", "leader_epoch")
    assert sorted(tuple(row[name] for name in names) for row in batches if row["superseded_by"] is None) == speaks
    assert (
        sorted((r["base_offset"], r["leader_epoch"], r["superseded_by"]) for r in batches if r["superseded_by"]) == gone
    )
    assert sorted((row["first_offset"], row["last_offset"]) for row in ranges if not row["has_batch"]) == holes
    assert sum(row["last_offset"] - row["first_offset"] + 1 for row in ranges if row["has_batch"]) == sum(
        last - first + 1 for first, last, _ in speaks
    )


def test_a_new_copy_of_a_segment_touches_nothing_of_other_logs(
    spark: SparkSession, lenient: Callable[[str], Settings]
) -> None:
    settings = lenient("news")
    for topic in ("a", "b"):
        writes = one(0, 5, flags=0x10, producer=(7, 0, 0)) + marker(5, True)
        lands(settings, topic, {METADATA: (stated(ID), T), ZERO: (writes, T), segment(6): (one(6, 5), T)})
    first = run(spark, settings)
    assert first["silver.transactions"].message == "2 rows refreshed"
    lands(settings, "a", {segment(6): (one(6, 5) + one(11) + one(12), T + 1)})

    grown = run(spark, settings)
    assert (grown["silver.record_batches"].accepted, grown["silver.log_files"].accepted) == (2, 1)
    assert grown["silver.log_copies"].message == "2 rows refreshed"
    assert grown["silver.log_batches"].message == "3 rows refreshed"
    assert grown["silver.log_ranges"].message == "1 row refreshed"
    assert grown["silver.transactions"].status == "idle"

    lands(settings, "a", {segment(6): (one(6, 5) + one(11) + one(12), T + 2)})
    touched = run(spark, settings)
    assert (touched["bronze.record_batches"].accepted, touched["bronze.record_batches"].duplicates) == (1, 3)
    assert {touched[f"silver.{name}"].status for name in ("transactions", "log_ranges")} == {"idle"}
    assert {one.status for one in run(spark, settings).values()} == {"idle"}


def test_a_copy_whose_batches_are_held_supersedes_nothing(spark: SparkSession, settings: Settings) -> None:
    counted = [stage.table for stage in needed_by("silver.log_batches")]
    lands(settings, "a", {ZERO: (one(0, 5) + one(5, 5), T)})
    builders.run(spark, settings, *counted, feed="delivery")
    before = rows(spark, settings, "silver.log_batches")
    assert [row["superseded_by"] for row in before] == [None, None]

    wrong = b"".join(one(offset)[:-1] + b"\xff" for offset in range(3, 103))
    lands(settings, "a", {"0.log": (one(0, 3) + wrong, T + 1)})
    done = builders.run(spark, settings, *counted, feed="delivery")
    assert (done["silver.record_batches"].held, done["silver.log_files"].accepted) == (101, 1)
    assert rows(spark, settings, "silver.log_batches") == before
    assert [row["segment"] for row in rows(spark, settings, "silver.log_copies")] == [f"a-0/{ZERO}"]
