"""Landed log segments on real Delta tables: each is read once, and incomplete is told from damaged."""

from __future__ import annotations

import gzip
import json
import shutil
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from pipelines.catalog import stages
from pipelines.run import runner
from pipelines.settings import ROOT, Settings
from pipelines.sources import landing, segments
from pipelines.stores import lock
from pipelines.warehouse.quality import StageRun
from pipelines.warehouse.tables import Warehouse
from tests.testing.builders import rows, warehouse_of
from tests.testing.segments import assembled, batch, marker, record

DATA = ROOT / "tests" / "data"
BRONZE, SILVER, QUARANTINE = "bronze.record_batches", "silver.record_batches", "quarantine.record_batches"
FILES = "silver.log_files"
STAGES = (*stages(only=BRONZE), *stages(only=SILVER), *stages(only=FILES))


def run(spark: SparkSession, settings: Settings) -> dict[str, StageRun]:
    with lock.writer(settings, "test"):
        return {stage_run.table: stage_run for stage_run in runner.run(Warehouse(settings, spark), STAGES)}


def land(settings: Settings, base_offset: int, data: bytes, partition: str = "orders-0") -> None:
    """Land a segment as the documents ask: write it under another name, then rename it."""
    directory = settings.landing_of("segments") / partition
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "_new").write_bytes(data)
    (directory / "_new").rename(directory / f"{base_offset:020}.log")


def test_captured_segments_give_kafkas_own_batches(spark: SparkSession, settings: Settings) -> None:
    shutil.copytree(DATA / "segments", settings.landing_of("segments"))

    done = run(spark, settings)

    truth = {
        (path.stem.rpartition("-")[0], batch["baseOffset"]): batch
        for path in (DATA / "decoded").glob("*.jsonl")
        for batch in map(json.loads, path.read_text().splitlines())
    }
    assert (done[SILVER].read, done[SILVER].accepted, done[SILVER].skipped) == (43, 40, 3)
    assert (done[FILES].read, done[FILES].accepted, done[FILES].skipped) == (43, 3, 40)
    silver = {(row["topic"], row["base_offset"]): row for row in rows(spark, settings, SILVER)}
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
    before = [Warehouse(settings).last_version(table) for table in (BRONZE, SILVER, QUARANTINE)]
    directory = settings.landing_of("segments") / "orders-0"
    (directory / f"{0:020}.index").write_bytes(b"x")

    done = run(spark, settings)

    assert {stage_run.status for stage_run in done.values()} == {"idle"}
    assert [Warehouse(settings).last_version(table) for table in (BRONZE, SILVER, QUARANTINE)] == before


# --- several logs, each landed in steps, with a run after each step -------------------------------------------------

ZERO, TWO = f"{0:020}.log", f"{2:020}.log"
WHOLE = batch(0, 3) + marker(3, True) + batch(4)
WRONG, UNKNOWN = batch(1)[:-1] + b"\xff", assembled(2, b"v" * 20, magic=3)
TOPIC_ID = "1yZyCpwHTlKiUsmJv1k7xQ"
LANDED: dict[str, list[dict[str, bytes]]] = {
    "torn-0": [{ZERO: WHOLE[:-1]}, {ZERO: WHOLE + bytes(500)}],
    "newer-0": [{ZERO: batch(0) + batch(1)[:-1]}, {TWO: batch(2)}, {ZERO: batch(0) + batch(1)}],
    "wrong-0": [
        {ZERO: batch(0) + WRONG + UNKNOWN + batch(3) + b"\xff" * 100},
        {ZERO: batch(0) + batch(1) + batch(2) + batch(3)},
    ],
    "rewritten-0": [{ZERO: batch(0) + batch(1)}, {ZERO: batch(0) + batch(1, records=[record(0, b"other")])}],
    "repeated-0": [{ZERO: batch(0) + batch(1)}, {ZERO: batch(0) + batch(1) + batch(2)[:-1]}],
    "named-0": [
        {ZERO: batch(0), "partition.metadata": b"version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAA"},
        {"partition.metadata": f"version: 0\ntopic_id: {TOPIC_ID}\n".encode()},
    ],
    "": [{"readme.txt": b"not a segment"}],
}


@dataclass(frozen=True)
class After:
    """The rows of each table after a step."""

    tables: dict[str, list[dict[str, Any]]]

    def rows(self, table: str, log: str) -> list[dict[str, Any]]:
        return [row for row in self.tables[table] if row["_source"].rpartition("/")[0] == log]

    def offsets(self, log: str) -> list[tuple[int, int]]:
        return sorted((row["base_offset"], row["last_offset"]) for row in self.rows(SILVER, log))

    def refused(self, log: str) -> list[tuple[Any, ...]]:
        names = ("_source", "position", "unread_bytes", "error", "violations")
        found = (tuple(row[name] for name in names) for row in self.rows(QUARANTINE, log))
        return sorted(found, key=lambda row: row[:2])


@pytest.fixture(scope="module")
def after(spark: SparkSession, empty_warehouse: Path, tmp_path_factory: pytest.TempPathFactory) -> list[After]:
    settings = warehouse_of(empty_warehouse, tmp_path_factory.mktemp("steps"))
    found = []
    for step in range(max(map(len, LANDED.values()))):
        for log, steps in LANDED.items():
            directory = settings.landing_of("segments") / log
            directory.mkdir(parents=True, exist_ok=True)
            for name, data in (steps[step] if step < len(steps) else {}).items():
                (directory / "_new").write_bytes(data)
                (directory / "_new").rename(directory / name)
        done = run(spark, settings)
        # A file that is no segment breaks the gate and is held, and what comes after it flows on.
        assert {stage_run.status for stage_run in done.values()} == {"passed", "broken" if not found else "held"}
        silver = done[SILVER]
        assert silver.held == (not found)
        assert silver.read == silver.accepted + silver.quarantined + silver.duplicates + silver.skipped + silver.held
        found.append(After({table: rows(spark, settings, table) for table in (BRONZE, SILVER, FILES, QUARANTINE)}))
    return found


def test_a_torn_tail_of_the_newest_segment_waits_until_it_grows(after: list[After]) -> None:
    assert (len(after[0].rows(BRONZE, "torn-0")), after[0].offsets("torn-0")) == (3, [(0, 2), (3, 3)])
    assert (len(after[1].rows(BRONZE, "torn-0")), after[1].offsets("torn-0")) == (5, [(0, 2), (3, 3), (4, 4)])
    assert after[1].refused("torn-0") == []


def test_a_torn_tail_is_wrong_once_a_newer_segment_is_there(after: list[After]) -> None:
    place = (f"newer-0/{ZERO}", len(batch(0)), len(batch(1)) - 1)
    assert after[0].refused("newer-0") == []
    assert after[1].refused("newer-0") == [(*place, "torn_batch", ["size_in_bytes.complete"])]
    assert after[1].offsets("newer-0") == [(0, 0), (2, 2)]
    assert set(after[2].offsets("newer-0")) == {(0, 0), (1, 1), (2, 2)}


def test_wrong_batches_are_quarantined_with_position_and_reason_and_mended_ones_taken(after: list[After]) -> None:
    source = f"wrong-0/{ZERO}"
    first = len(batch(0))
    second = first + len(WRONG)
    third = second + len(UNKNOWN) + len(batch(3))
    assert after[0].refused("wrong-0") == [
        (source, first, None, "wrong_crc", ["crc.correct"]),
        (source, second, None, "unknown_magic", ["magic.known"]),
        (source, third, 100, "implausible_size", ["size_in_bytes.plausible"]),
    ]
    assert after[0].refused("") == []
    assert after[0].offsets("wrong-0") == [(0, 0), (3, 3)]
    assert set(after[1].offsets("wrong-0")) == {(0, 0), (1, 1), (2, 2), (3, 3)}


def test_a_rewritten_file_is_another_version_and_no_conflict(after: list[After]) -> None:
    assert Counter(row["version"] for row in after[1].rows(SILVER, "rewritten-0")) == {1: 2, 2: 2}
    assert after[1].refused("rewritten-0") == []


def test_a_file_that_says_nothing_new_of_its_batches_stores_none(after: list[After]) -> None:
    stored = [len(step.rows(BRONZE, "repeated-0")) for step in after[:2]]
    assert (stored, after[1].offsets("repeated-0")) == ([3, 4], [(0, 0), (1, 1)])


def test_topic_metadata_that_says_nothing_is_quarantined(after: list[After]) -> None:
    source = "named-0/partition.metadata"
    assert after[0].refused("named-0") == [(source, 0, 43, "not_topic_metadata", ["topic.topic_metadata"])]
    assert sorted((row["version"], row["topic_id"]) for row in after[1].rows(FILES, "named-0")) == [
        (1, None),
        (2, TOPIC_ID),
    ]
    assert after[1].offsets("named-0") == [(0, 0)]


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


def test_a_whole_copy_of_log_dirs_is_read_and_says_once_what_it_passes_over(
    spark: SparkSession, settings: Settings
) -> None:
    aside = ".ffee2d3c4b5a69788796a5b4c3d2e1f0"
    for log in (
        "pallets-0",
        "_prices-3",
        "second/edi-2024-06-0",
        *(f"x-1{aside}{end}" for end in ("-stray", "-delete")),
    ):
        land(settings, 0, batch(0, 3), log)
    top = settings.landing_of("segments")
    for name in ("meta.properties", "bootstrap.checkpoint", ".lock", f"pallets-0/{ZERO}.deleted"):
        (top / name).write_bytes(b"x")
    (top / "pallets-0" / f"{3:020}.log.gz").write_bytes(gzip.compress(batch(3, 2)))

    done = run(spark, settings)

    assert (done[SILVER].read, done[SILVER].accepted, done[SILVER].quarantined) == (8, 4, 0)
    assert done[BRONZE].message == (
        "4 new or changed files; passed over: 1 .deleted file, 1 checkpoint, 1 meta.properties file, "
        "1 directory -delete, 1 directory -stray"
    )
    assert sorted((row["topic"], row["base_offset"], row["last_offset"]) for row in rows(spark, settings, SILVER)) == [
        ("_prices", 0, 2),
        ("edi-2024-06", 0, 2),
        ("pallets", 0, 2),
        ("pallets", 3, 4),
    ]
    assert {stage_run.status for stage_run in run(spark, settings).values()} == {"idle"}
