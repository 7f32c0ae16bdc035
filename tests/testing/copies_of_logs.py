"""Logs of which copies landed that contradict each other, and what decides among them."""

from __future__ import annotations

from typing import Any

from pyspark.sql import SparkSession

from pipelines.settings import Settings
from tests.testing.builders import rows, run_needed
from tests.testing.logs import ID, METADATA, NEXT_ID, Landed, T, lands, one, segment, stated
from tests.testing.segments import record

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


Rows = list[dict[str, Any]]


def of_copies(spark: SparkSession, settings: Settings) -> dict[str, tuple[Rows, Rows]]:
    """Return the rows of silver.log_batches and silver.log_ranges by topic, after all steps of all cases."""
    for step in range(max(len(steps) for steps, *_ in CASES.values())):
        for topic, (steps, *_) in CASES.items():
            if step < len(steps):
                lands(settings, topic, steps[step])
        done = run_needed(spark, settings, "silver.log_ranges", within="delivery")
        assert {ran.status for ran in done.values()} <= {"passed", "idle"}, done
        split = done["silver.record_batches"]
        assert split.read == split.accepted + split.quarantined + split.duplicates + split.skipped
    batches, ranges = (rows(spark, settings, f"silver.{name}") for name in ("log_batches", "log_ranges"))
    return {
        topic: ([row for row in batches if row["topic"] == topic], [row for row in ranges if row["topic"] == topic])
        for topic in CASES
    }
