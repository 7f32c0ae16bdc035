"""Files of segments: their names, which of them wait, and versions of one file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from pipelines.sources import landing
from pipelines.sources.log_dirs import Segment
from pipelines.sources.record_batches import Batch
from pipelines.sources.segments import TopicMetadata, Version, Work, rows, unread
from tests.testing.segments import batch


@pytest.mark.parametrize(
    ("source", "named"),
    [
        pytest.param("orders-3/00000000000000000017.log", ("orders", 3, 17), id="as brokers name them"),
        pytest.param("a-1-b-2/00000000000000000000.log", ("a-1-b", 2, 0), id="topic with dashes and numbers"),
        pytest.param("a--1/0.log", ("a-", 1, 0), id="topic that ends in a dash"),
        pytest.param("__consumer_offsets-49/9.log", ("__consumer_offsets", 49, 9), id="internal topic"),
        pytest.param("t-2147483647/09223372034707292160.log", ("t", 2**31 - 1, 2**63 - 2**31), id="greatest numbers"),
        pytest.param("t-0/9223372036854775807.log", None, id="offset that no log comes near"),
        pytest.param("t-2147483648/0.log", None, id="partition beyond int32"),
        pytest.param("t-0/9223372036854775808.log", None, id="offset beyond int64"),
        pytest.param("t-00/0.log", None, id="partition with leading zeros"),
        pytest.param("t/0.log", None, id="no partition"),
        pytest.param("-0/0.log", None, id="no topic"),
        pytest.param("..-0/0.log", None, id="no topic's name"),
        pytest.param("north/t-0/0.log", ("t", 0, 0), id="one of several log.dirs"),
        pytest.param("0.log", None, id="no directory"),
        pytest.param("t-0/0.log.gz", ("t", 0, 0), id="gzip"),
        pytest.param("t-0/0.log.zst", ("t", 0, 0), id="Zstandard"),
        pytest.param("t-0/0.log.bz2", None, id="packed as is not read"),
        pytest.param("t-0/5-bLVXLegHQ5S8fZ0HR8tL1g.log", ("t", 0, 5), id="tiered"),
        pytest.param("t-0-LWgrMmVrT0a__7a4SasuPA/5-bLVXLegHQ5S8fZ0HR8tL1g.log", ("t", 0, 5), id="LocalTieredStorage"),
        pytest.param("a/t-7io2bbHPTgmdFAs5Ov4mQw/3/5-bLVXLegHQ5S8fZ0HR8tL1-.log", ("t", 3, 5), id="Aiven's plugin"),
        pytest.param("t-0/5-bLVXLegHQ5S8fZ0HR8tL1.log", None, id="no segment id"),
        pytest.param("t-0/0.log\n", None, id="newline"),
        pytest.param("t\n<b>-0/0.log", None, id="hostile topic"),
        pytest.param("t-0/\u0660.log", None, id="digits of another script"),
        pytest.param("t-0.0a1b-delete/0.log", None, id="directory that is being deleted"),
    ],
)
def test_names_of_segments(source: str, named: tuple[str, int, int] | None) -> None:
    segment = Segment.of(source)
    assert (segment and (segment.topic, segment.partition, segment.base_offset)) == named


def test_rows_name_source_and_partition_and_leave_out_the_newest_segments_open_end(tmp_path: Path) -> None:
    file = tmp_path / "segment"
    file.write_bytes(batch(0) + batch(1)[:-1])
    segment = Segment("t-3/0.log", "t", 3, 0)
    landed = landing.LandedFile("t-3/0.log", file.stat().st_size, 0)

    newest, older = (list(rows(Work(segment, landed, str(file), is_newest))) for is_newest in (True, False))

    end = ("t-3/0.log", "t", 3, file.stat().st_size, None)
    assert [(*row[:4], row[7]) for row in newest] == [("t-3/0.log", "t", 3, 0, None), end]
    assert [(*row[:4], row[7]) for row in older[1:]] == [("t-3/0.log", "t", 3, len(batch(0)), "torn_batch"), end]
    assert [older[0], older[-1]] == newest


def test_wrong_batches_of_the_newest_segment_are_not_left_out(tmp_path: Path) -> None:
    file = tmp_path / "segment"
    file.write_bytes(batch(0)[:-1] + b"\xff" + b"\xff" * 17)
    landed = landing.LandedFile("t-3/0.log", file.stat().st_size, 0)
    found = [row[7] for row in rows(Work(Segment("t-3/0.log", "t", 3, 0), landed, str(file), True)) if row[7]]
    assert found == ["wrong_crc", "implausible_size"]


def test_a_file_that_is_no_segment_is_one_row(tmp_path: Path) -> None:
    ((source, topic, partition, *rest),) = rows(Work(None, landing.LandedFile("a/b.txt", 5, 0), "gone", False))
    found = Batch(*rest[:-3])
    assert (source, topic, partition) == ("a/b.txt", None, None)
    assert (found.error, found.position, found.unread_bytes) == ("not_a_segment", 0, 5)


def land(directory: Path, **files: bytes) -> None:
    for name, data in files.items():
        file = directory / "t-0" / f"{int(name[1:]):020}.log"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(data)


def waiting(directory: Path, read: dict[str, landing.LandedFile]) -> list[str]:
    return [source.partition("/")[2].lstrip("0") for source in unread(directory, read)]


def test_new_and_grown_segments_wait_and_read_ones_do_not(tmp_path: Path) -> None:
    land(tmp_path, _1=b"a", _2=b"b", _3=b"c")
    assert waiting(tmp_path, {}) == ["1.log", "2.log", "3.log"]
    known = landing.listing(tmp_path)
    assert waiting(tmp_path, known) == []
    land(tmp_path, _3=b"cc")
    assert waiting(tmp_path, known) == ["3.log"]


def test_the_segment_before_a_new_one_is_read_again(tmp_path: Path) -> None:
    land(tmp_path, _1=b"a", _2=b"b", _30=b"c")
    known = landing.listing(tmp_path)
    land(tmp_path, _200=b"d")
    assert waiting(tmp_path, known) == ["30.log", "200.log"]


def test_a_new_segment_of_another_partition_has_none_before_it(tmp_path: Path) -> None:
    land(tmp_path, _1=b"a")
    known = landing.listing(tmp_path)
    (tmp_path / "t-1").mkdir()
    (tmp_path / "t-1" / "2.log").write_bytes(b"b")
    assert waiting(tmp_path, known) == ["2.log"]


def test_what_lies_beside_segments_is_not_the_feeds_but_other_files_are(tmp_path: Path) -> None:
    land(tmp_path, _0=b"")
    beside = ["0.index", "0.timeindex", "0.txnindex", "5.snapshot", "0.log.deleted", "0.log.swap", "0.log.cleaned"]
    for name in [*beside, "leader-epoch-checkpoint", "partition.metadata", "0.log.gz"]:
        (tmp_path / "t-0" / name).write_bytes(b"x")
    assert sorted(unread(tmp_path, {})) == ["t-0/0.log.gz", f"t-0/{0:020}.log", "t-0/partition.metadata"]


def test_segments_beside_new_topic_metadata_are_read_again(tmp_path: Path) -> None:
    land(tmp_path, _1=b"a", _2=b"b")
    (tmp_path / "t-1").mkdir()
    (tmp_path / "t-1" / "2.log").write_bytes(b"b")
    known = landing.listing(tmp_path)
    (tmp_path / "t-0" / "partition.metadata").write_bytes(b"version: 0\ntopic_id: 1yZyCpwHTlKiUsmJv1k7xQ\n")
    assert waiting(tmp_path, known) == ["1.log", "2.log", "partition.metadata"]
    assert waiting(tmp_path, landing.listing(tmp_path)) == []


TOPIC_ID, OTHER_ID = "1yZyCpwHTlKiUsmJv1k7xQ", "2yZyCpwHTlKiUsmJv1k7xQ"


def version(
    path: Path,
    data: bytes,
    before: Version | None = None,
    stated: TopicMetadata | None = None,
    modified_ns: int = 0,
    name: str = "t-3/0.log",
) -> tuple[int | None, Version | None, tuple[Any, ...]]:
    """Return how many bytes a version keeps, the version in bronze (None if nothing is new), and its file's facts."""
    path.write_bytes(data)
    landed = landing.LandedFile(name, len(data), modified_ns)
    *_, (*_, number, kept_bytes, facts) = rows(Work(Segment.of(name), landed, str(path), True, stated, before))
    if facts is None:
        return kept_bytes, None, ()
    return kept_bytes, Version(number, facts[3], *facts[1:3], *facts[-2:]), facts


GOOD = batch(0, 3, leader_epoch=4) + batch(5, leader_epoch=6)


@pytest.mark.parametrize(
    ("data", "kept", "number", "since"),
    [
        pytest.param(GOOD + batch(6), len(GOOD), 2, 1, id="grown"),
        pytest.param(GOOD + batch(6)[:-1], len(GOOD), None, None, id="grown by a torn batch"),
        pytest.param(GOOD, len(GOOD), None, None, id="the same"),
        pytest.param(GOOD + bytes(99), len(GOOD), None, None, id="allocated ahead"),
        pytest.param(batch(0, 3, leader_epoch=4), 0, 2, 2, id="truncated"),
        pytest.param(batch(0, 3, leader_epoch=4) + batch(5, leader_epoch=7), 0, 2, 2, id="rewritten"),
        pytest.param(batch(0, 3, leader_epoch=4) + batch(9), 0, 2, 2, id="cleaned"),
        pytest.param(GOOD[:-1] + b"\xff" + batch(6), 0, 2, 2, id="damaged since"),
        pytest.param(b"", 0, 2, 2, id="emptied"),
    ],
)
def test_a_later_version_goes_on_or_says_something_else(
    data: bytes, kept: int, number: int | None, since: int | None, tmp_path: Path
) -> None:
    _, first, _ = version(tmp_path / "a", GOOD)
    assert first is not None
    assert first[:5] == (1, 1, 0, None, len(GOOD))
    found = version(tmp_path / "a", data, first)
    assert found[0] == kept
    assert (found[1] and found[1][:2]) == (number and (number, since))


def test_a_file_that_was_only_modified_is_a_version_that_holds_the_same(tmp_path: Path) -> None:
    _, first, _ = version(tmp_path / "a", GOOD)
    kept, again, _ = version(tmp_path / "a", GOOD, first, modified_ns=7)
    assert (kept, again and again[:3]) == (len(GOOD), (2, 1, 7))


def test_what_a_file_speaks_for_is_told_in_runs(tmp_path: Path) -> None:
    wrong = batch(20)[:-1] + b"\xff"
    _, _, facts = version(tmp_path / "a", batch(5, 2) + batch(9) + wrong + batch(30, 2) + batch(40, leader_epoch=2))
    size, modified_ns, topic_id, since, count, covered, _, least, greatest, greatest_at, read_to, _ = facts
    assert (size, modified_ns, topic_id, since, read_to) == (read_to, 0, None, 1, size)
    assert (count, covered) == (4, [(0, 9), (30, 40)])
    assert (least, greatest, greatest_at) == (0, 2, 40)


@pytest.mark.parametrize(
    ("data", "before", "stated", "modified_ns", "topic_id"),
    [
        pytest.param(GOOD, None, TOPIC_ID, 0, TOPIC_ID, id="stated beside it"),
        pytest.param(GOOD, TOPIC_ID, None, 9, TOPIC_ID, id="no longer stated, and nothing new"),
        pytest.param(GOOD + batch(6), TOPIC_ID, None, 9, TOPIC_ID, id="no longer stated, grown"),
        pytest.param(batch(0), TOPIC_ID, None, 9, None, id="no longer stated, rewritten"),
        pytest.param(batch(0), TOPIC_ID, OTHER_ID, 0, OTHER_ID, id="rewritten beside another"),
        pytest.param(GOOD, TOPIC_ID, OTHER_ID, 4, TOPIC_ID, id="a leftover, older than what is stated"),
        pytest.param(GOOD, TOPIC_ID, OTHER_ID, 5, OTHER_ID, id="read before its own was stated"),
    ],
)
def test_the_topic_id_of_a_file(
    data: bytes, before: str | None, stated: str | None, modified_ns: int, topic_id: str | None, tmp_path: Path
) -> None:
    known = None
    if before is not None:
        known = version(tmp_path / "a", GOOD, None, TopicMetadata(before, 1))[1]
    beside = TopicMetadata(stated, 5) if stated else None
    _, found, _ = version(tmp_path / "a", data, known, beside, modified_ns)
    assert (found or known or Version(0, 0, 0, None, 0, b"")).topic_id == topic_id
