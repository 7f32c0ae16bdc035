"""silver.log_ranges: which offsets hold records, which do not, and which may, as the headers of batches tell."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.testing import segments
from tests.testing.builders import needed_by, rows, run, warehouse_of
from tests.testing.copies_of_logs import CASES, Rows
from tests.testing.logs import T, lands, one, segment

TABLE = "silver.log_ranges"


def test_batches_hold_only_the_records_that_their_headers_tell(
    spark: SparkSession, empty_warehouse: Path, tmp_path: Path
) -> None:
    settings = warehouse_of(empty_warehouse, tmp_path)
    emptied = {"record_count": 0, "records": []}
    lands(
        settings,
        "stock",
        {
            segment(0): (
                b"".join(
                    [
                        one(0, 5, record_count=2),  # thinned, then a hole of two
                        one(7, 2, **emptied),
                        one(9, 3),
                        one(12, 2),
                        one(14, 1, **emptied),
                        segments.batch(15, 1, flags=0x30, producer=(7, 0, -1), **emptied),  # was a marker
                        one(16, 2, **emptied),
                        segments.marker(18, commits=True),
                    ]
                ),
                T,
            )
        },
    )
    lands(settings, "whole", {segment(0): (one(0, 3) + one(5, 1), T)})

    run(spark, settings, *(stage.table for stage in needed_by(TABLE)), feed="delivery")

    names = ("first_offset", "last_offset", "has_batch", "is_present", "is_compacted")
    found = {
        topic: sorted(
            tuple(row[name] for name in names) for row in rows(spark, settings, TABLE) if row["topic"] == topic
        )
        for topic in ("stock", "whole")
    }
    assert found["stock"] == [
        (0, 4, True, None, True),
        (5, 6, False, False, True),
        (7, 8, True, False, True),
        (9, 13, True, True, True),
        (14, 17, True, False, True),
        (18, 18, True, True, True),
    ]
    assert found["whole"] == [(0, 2, True, True, False), (3, 4, False, False, False), (5, 5, True, True, False)]


@pytest.mark.parametrize("topic", CASES)
def test_ranges_and_holes_are_those_of_the_copies_that_speak(
    topic: str, copies_of_logs: dict[str, tuple[Rows, Rows]]
) -> None:
    _, speaks, _, holes = CASES[topic]
    _, ranges = copies_of_logs[topic]
    assert sorted((row["first_offset"], row["last_offset"]) for row in ranges if not row["has_batch"]) == holes
    lengths = [row["last_offset"] - row["first_offset"] + 1 for row in ranges if row["has_batch"]]
    assert sum(lengths) == sum(last - first + 1 for first, last, _ in speaks)
