"""Landed log segments on real Delta tables: each is read once, and incomplete is told from damaged."""

from __future__ import annotations

import json
import shutil
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from pipelines.catalog import stages
from pipelines.run import runner
from pipelines.settings import ROOT, Settings
from pipelines.sources import landing, segments
from pipelines.warehouse import lock
from pipelines.warehouse.quality import StageRun
from pipelines.warehouse.tables import Warehouse
from tests.testing.builders import rows
from tests.testing.segments import assembled, batch, marker, record

DATA = ROOT / "tests" / "data"
BRONZE, SILVER, QUARANTINE = "bronze.record_batches", "silver.record_batches", "quarantine.record_batches"
STAGES = (*stages(only=BRONZE), *stages(only=SILVER))


def run(spark: SparkSession, settings: Settings) -> dict[str, StageRun]:
    with lock.writer(settings, "test"):
        return {one.table: one for one in runner.run(Warehouse(settings, spark), STAGES)}


def land(settings: Settings, base_offset: int, data: bytes, partition: str = "orders-0") -> None:
    """Land a segment as the documents ask: write it under another name, then rename it."""
    directory = settings.landing_of("segments") / partition
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "_new").write_bytes(data)
    (directory / "_new").rename(directory / f"{base_offset:020}.log")


def batches(spark: SparkSession, settings: Settings) -> list[dict[str, Any]]:
    return [row for row in rows(spark, settings, SILVER) if row["file"] is None]


def offsets(spark: SparkSession, settings: Settings) -> list[tuple[int, int]]:
    return sorted((row["base_offset"], row["last_offset"]) for row in batches(spark, settings))


def refused(spark: SparkSession, settings: Settings) -> list[tuple[Any, ...]]:
    found = rows(spark, settings, QUARANTINE)
    names = ("_source", "position", "unread_bytes", "error", "violations")
    return sorted((tuple(row[name] for name in names) for row in found), key=lambda row: row[:2])


def test_captured_segments_give_kafkas_own_batches(spark: SparkSession, settings: Settings) -> None:
    shutil.copytree(DATA / "segments", settings.landing_of("segments"))

    done = run(spark, settings)

    truth = {
        (path.stem.rpartition("-")[0], batch["baseOffset"]): batch
        for path in (DATA / "decoded").glob("*.jsonl")
        for batch in map(json.loads, path.read_text().splitlines())
    }
    assert (done[SILVER].read, done[SILVER].accepted, done[SILVER].quarantined) == (43, 43, 0)
    silver = {(row["topic"], row["base_offset"]): row for row in batches(spark, settings)}
    assert silver.keys() == truth.keys()
    for coordinates, row in silver.items():
        expected = truth[coordinates]
        assert (row["partition"], row["last_offset"], row["magic"]) == (0, expected["lastOffset"], 2)
        assert (row["compression"], row["timestamp_type"]) == (expected["compression"], expected["timestampType"])
        assert (row["producer_id"], row["base_sequence"]) == (expected["producerId"], expected["baseSequence"])
        assert row["control_type"] == expected["records"][0].get("controlType")


def test_a_run_without_new_segments_commits_nothing(spark: SparkSession, settings: Settings) -> None:
    land(settings, 0, batch(0) + batch(1)[:-1])
    run(spark, settings)
    before = [Warehouse(settings).local_version(table) for table in (BRONZE, SILVER, QUARANTINE)]
    directory = settings.landing_of("segments") / "orders-0"
    (directory / f"{0:020}.index").write_bytes(b"x")

    done = run(spark, settings)

    assert {one.status for one in done.values()} == {"idle"}
    assert [Warehouse(settings).local_version(table) for table in (BRONZE, SILVER, QUARANTINE)] == before


def test_a_torn_tail_of_the_newest_segment_waits_until_it_grows(spark: SparkSession, settings: Settings) -> None:
    whole = batch(0, 3) + marker(3, True) + batch(4)
    land(settings, 0, whole[:-1])
    first = run(spark, settings)
    assert (first[BRONZE].read, offsets(spark, settings)) == (3, [(0, 2), (3, 3)])

    land(settings, 0, whole + bytes(500))
    second = run(spark, settings)

    assert (second[BRONZE].read, second[BRONZE].accepted, second[BRONZE].duplicates) == (4, 2, 2)
    assert offsets(spark, settings) == [(0, 2), (3, 3), (4, 4)]
    assert refused(spark, settings) == []


def test_a_torn_tail_is_wrong_once_a_newer_segment_is_there(spark: SparkSession, settings: Settings) -> None:
    land(settings, 0, batch(0) + batch(1)[:-1])
    run(spark, settings)
    land(settings, 2, batch(2))

    run(spark, settings)

    place = (f"orders-0/{0:020}.log", len(batch(0)), len(batch(1)) - 1)
    assert refused(spark, settings) == [(*place, "torn_batch", ["size_in_bytes.complete"])]
    assert offsets(spark, settings) == [(0, 0), (2, 2)]

    land(settings, 0, batch(0) + batch(1))
    run(spark, settings)
    assert set(offsets(spark, settings)) == {(0, 0), (1, 1), (2, 2)}


def test_wrong_batches_are_quarantined_with_position_and_reason_and_mended_ones_taken(
    spark: SparkSession, settings: Settings
) -> None:
    wrong, unknown = batch(1)[:-1] + b"\xff", assembled(2, b"v" * 20, magic=3)
    land(settings, 0, batch(0) + wrong + unknown + batch(3) + b"\xff" * 100)
    (settings.landing_of("segments") / "readme.txt").write_text("not a segment")

    run(spark, settings)

    source = f"orders-0/{0:020}.log"
    first = len(batch(0))
    second = first + len(wrong)
    third = second + len(unknown) + len(batch(3))
    assert refused(spark, settings) == [
        (source, first, None, "wrong_crc", ["crc.correct"]),
        (source, second, None, "unknown_magic", ["magic.known"]),
        (source, third, 100, "implausible_size", ["size_in_bytes.plausible"]),
        ("readme.txt", 0, 13, "not_a_segment", ["topic.named_by_directory"]),
    ]
    assert offsets(spark, settings) == [(0, 0), (3, 3)]

    land(settings, 0, batch(0) + batch(1) + batch(2) + batch(3))
    run(spark, settings)
    assert set(offsets(spark, settings)) == {(0, 0), (1, 1), (2, 2), (3, 3)}


def test_a_rewritten_file_is_another_version_and_no_conflict(spark: SparkSession, settings: Settings) -> None:
    land(settings, 0, batch(0) + batch(1))
    run(spark, settings)
    land(settings, 0, batch(0) + batch(1, records=[record(0, b"other")]))

    silver = run(spark, settings)[SILVER]

    assert (silver.status, silver.accepted, silver.quarantined) == ("passed", 3, 0)
    assert Counter(row["version"] for row in rows(spark, settings, SILVER)) == {1: 3, 2: 3}
    assert rows(spark, settings, QUARANTINE) == []


def test_a_file_that_says_nothing_new_of_its_batches_stores_none(spark: SparkSession, settings: Settings) -> None:
    land(settings, 0, batch(0) + batch(1))
    run(spark, settings)
    land(settings, 0, batch(0) + batch(1) + batch(2)[:-1])

    done = run(spark, settings)

    assert (done[BRONZE].read, done[BRONZE].accepted, done[BRONZE].duplicates) == (3, 1, 2)
    assert (done[SILVER].read, done[SILVER].accepted, offsets(spark, settings)) == (1, 1, [(0, 0), (1, 1)])


def test_topic_metadata_that_says_nothing_is_quarantined(spark: SparkSession, settings: Settings) -> None:
    land(settings, 0, batch(0))
    directory = settings.landing_of("segments") / "orders-0"
    (directory / "partition.metadata").write_text("version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAA")

    run(spark, settings)

    source = "orders-0/partition.metadata"
    assert refused(spark, settings) == [(source, 0, 43, "not_topic_metadata", ["file.topic_metadata"])]
    (directory / "partition.metadata").write_text("version: 0\ntopic_id: 1yZyCpwHTlKiUsmJv1k7xQ\n")
    run(spark, settings)
    stated = [(row["version"], row["file"]["topic_id"]) for row in rows(spark, settings, SILVER) if row["file"]]
    assert sorted(stated) == [(1, None), (2, "1yZyCpwHTlKiUsmJv1k7xQ")]
    assert offsets(spark, settings) == [(0, 0)]


@pytest.mark.parametrize("name", ["t-0", "t\u00e9-0", "a b'\"<b>-0"], ids=["plain", "not ASCII", "hostile"])
def test_directories_of_any_name_are_read(spark: SparkSession, tmp_path: Path, name: str) -> None:
    directory = tmp_path / "landing of 'segments'"
    (directory / name).mkdir(parents=True)
    (directory / name / "0.log").write_bytes(batch(0))
    found = segments.read(spark, directory, list(landing.listing(directory).values())).collect()
    assert sorted(row["file"] is not None for row in found) == ([False, True] if name == "t-0" else [False])
    for row in found:
        assert (row["_source"], row["topic"]) == (f"{name}/0.log", "t" if name == "t-0" else None)


def test_no_files_give_no_rows(spark: SparkSession, tmp_path: Path) -> None:
    assert segments.read(spark, tmp_path, []).collect() == []
