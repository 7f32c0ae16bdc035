"""Captures that are moved in time: what is a time moves, whatever holds it, and nothing else does."""

from __future__ import annotations

import gzip
import re
from base64 import b64encode
from datetime import timedelta
from pathlib import Path

import pytest

from local import moved
from local.bundled import BUNDLED, CAPTURED, PLANTED
from tests.testing import segments as log

BY = timedelta(days=100, hours=1, milliseconds=7)
MILLIS = BY // timedelta(milliseconds=1)
BUNDLED_FILES = sorted(
    file
    for directories in BUNDLED.values()
    for below, names in directories.values()
    for root in (CAPTURED, PLANTED)
    for directory in root.glob(below)
    for file in directory.glob(names)
)


def base64(value: bytes) -> bytes:
    return b64encode(value)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        pytest.param(b'"timestamp":1795228875344,', b'"timestamp":%d,' % (1795228875344 + MILLIS), id="epoch"),
        pytest.param(b'"ts": 1795228875344', b'"ts": %d' % (1795228875344 + MILLIS), id="cut off behind it"),
        pytest.param(b"[2026-11-21 02:41:31,999] INFO", b"[2027-03-01 03:41:32,006] INFO", id="log"),
        pytest.param(b'"2026-11-21T02:45:00.000Z"', b'"2027-03-01T03:45:00.007Z"', id="text"),
        pytest.param(
            b'"value":"%s"' % base64(b"2026-11-21T02:45:00.000Z"),
            b'"value":"%s"' % base64(b"2027-03-01T03:45:00.007Z"),
            id="text in base64",
        ),
        pytest.param(
            b'"value":"%s"' % base64((1795228875344).to_bytes(8)),
            b'"value":"%s"' % base64((1795228875344 + MILLIS).to_bytes(8)),
            id="eight bytes in base64",
        ),
    ],
)
def test_times_move(before: bytes, after: bytes) -> None:
    assert moved.text(before, BY) == after


@pytest.mark.parametrize(
    "line",
    [
        pytest.param(b'"offset":1295228875344,"amount":1795228875344.5', id="numbers"),
        pytest.param(b'"offset":17952288753441,"id":"x1795228875344"', id="parts of longer ones"),
        pytest.param(b"[2019-11-21 02:41:31,999] INFO", id="no time of a capture"),
        pytest.param(b'"value":"%s"' % base64(b"2026-11-21T02:45:00.000Z is in a text"), id="a payload"),
        pytest.param(b'"value":"%s"' % base64((4711).to_bytes(8)), id="eight bytes that are an offset"),
        pytest.param(b'"value":"AAAAAAAAAAAAA"', id="no base64"),
    ],
)
def test_nothing_else_moves(line: bytes) -> None:
    assert moved.text(line, BY) == line


@pytest.mark.parametrize("codec", log.CODECS)
def test_batches_move_with_a_right_checksum(codec: str) -> None:
    def segment(by: int) -> bytes:
        at = log.AT + by
        batches = [
            log.batch(5 * index, 5, codec=codec, base_timestamp=at + index, max_timestamp=at + index + 4)
            for index in range(3)
        ]
        marker = log.batch(15, flags=0x30, producer=(7, 0, -1), base_timestamp=at, max_timestamp=at)
        return b"".join([*batches, marker])

    assert moved.segment(segment(0), BY) == segment(MILLIS)


def test_what_is_wrong_with_a_segment_stays_wrong() -> None:
    damaged = bytearray(log.batch(0, 5, max_timestamp=log.AT))
    damaged[-1] ^= 0xFF
    torn = log.batch(5, 5)[:-3]
    found = moved.segment(bytes(damaged) + torn, BY)
    assert found[: len(damaged)] != damaged
    assert found[17:21] == damaged[17:21]  # the checksum
    assert found[len(damaged) :] == torn


@pytest.mark.parametrize("file", BUNDLED_FILES, ids=lambda file: f"{file.parent.name}/{file.name}")
def test_no_time_of_a_bundled_file_stays_and_all_come_back(file: Path, tmp_path: Path) -> None:
    def plain(content: bytes) -> bytes:
        return gzip.decompress(content) if file.suffix == ".gz" else content

    there = tmp_path / file.parent.name / file.name
    there.parent.mkdir()
    by = timedelta(days=20)  # so that all times are among those that can be moved back
    there.write_bytes(moved.content(file, by))
    assert not re.search(rb"2026-11-2\d[T ]|(?<![\w.])1795\d{9}(?!\w)", plain(there.read_bytes()))
    assert plain(moved.content(there, -by)) == plain(file.read_bytes())
    assert moved.content(file, timedelta(0)) == file.read_bytes()
