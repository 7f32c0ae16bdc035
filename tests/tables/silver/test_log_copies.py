"""silver.log_copies: of copies of a log that contradict each other the newest decides, and others stay as they are."""

from __future__ import annotations

from pyspark.sql import SparkSession

from pipelines.settings import Settings
from pipelines.warehouse.quality import StageRun
from tests.testing import builders
from tests.testing.builders import needed_by, rows
from tests.testing.logs import ID, METADATA, OF_LOGS, T, lands, one, segment, stated
from tests.testing.segments import marker

ZERO = segment(0)


def run(spark: SparkSession, settings: Settings, *only: str) -> dict[str, StageRun]:
    """Run the tables about logs, or some of them; no table may wait or break, and no row may be lost."""
    done = builders.run(spark, settings, *(only or OF_LOGS), feed="delivery")
    assert {ran.status for ran in done.values()} <= {"passed", "idle"}, done
    split = done["silver.record_batches"]
    assert split.read == split.accepted + split.quarantined + split.duplicates + split.skipped
    return done


def test_a_new_copy_of_a_segment_touches_nothing_of_other_logs(spark: SparkSession, settings: Settings) -> None:
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
    assert {ran.status for ran in run(spark, settings).values()} == {"idle"}


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
