"""Files of a rotated log: an event that begins in one and ends in the next is read once, with the file it begins in."""

from __future__ import annotations

import gzip
import os
from collections.abc import Mapping
from pathlib import Path

import pytest

from pipelines.errors import UsageError
from pipelines.settings import load
from pipelines.sources import broker_log, landing, request_log
from pipelines.sources.logs import files
from pipelines.sources.logs.files import Rotations, Row
from tests.testing.deliveries import archived, logged, not_enabled, unproduced
from tests.testing.requests import push

NOISE = logged(9, "Nothing of interest. (kafka.X)", "INFO")
REQUESTS = [push(at, f"group-{at}") for at in (1, 2, 3)]


@pytest.mark.parametrize(
    ("name", "of"),
    [
        ("server.log", "/server.log"),
        ("server.log.2026-11-21-02", "/server.log"),
        ("server.log.1", "/server.log"),
        ("server.log.2.gz", "/server.log"),
        ("server.log-20261121.gz", "/server.log"),
        ("server-2026-11-21-1.log.gz", "/server.log"),
        ("a/0.log.20261121-024136", "a/0.log"),
        ("a/1.log", "a/1.log"),
        ("kafka-3.log", "/kafka-3.log"),
        ("kafka-3", "/kafka-3"),
        ("0a-json.log.1", "/0a-json.log"),
    ],
)
def test_files_of_a_log_have_one_family(name: str, of: str) -> None:
    assert files.family(name) == of


def rows_of(directory: Path, reader: files.Reader) -> dict[str, list[Row]]:
    """Return the rows of each file that are wanted."""
    listed = landing.listing(directory)
    rotations = Rotations(os.path.realpath(directory), listed, None)
    return {
        source: [
            row
            for row in files.rows_of(files.work_on(rotations, source, None, reader, "UTC"))
            if row.kind is not None or row.damage is not None
        ]
        for source in sorted(listed)
    }


def put(directory: Path, contents: Mapping[str, bytes]) -> None:
    directory.mkdir(exist_ok=True)
    for name, content in contents.items():
        (directory / name).write_bytes(gzip.compress(content) if name.endswith(".gz") else content)


def text(*lines: str) -> bytes:
    return "".join(f"{line}\n" for line in lines).encode()


LOG = [*not_enabled(1, "a"), *unproduced(2, "b"), *archived(2), NOISE, *not_enabled(10, "c"), NOISE]
LINES = "\n".join(LOG).split("\n")


@pytest.mark.parametrize("cut", range(1, len(LINES)))
def test_a_failure_across_two_files_is_told_once_and_whole(tmp_path: Path, cut: int) -> None:
    put(tmp_path / "both", {"server.log.1.gz": text(*LINES[:cut]), "server.log": text(*LINES[cut:])})
    whole = {row.event_id: row.line for row in rows_of_one(tmp_path / "alone", text(*LINES))}
    told = [row for rows in rows_of(tmp_path / "both", broker_log.rows).values() for row in rows]
    # The table keeps one row of each event, one that is not partial if there is one.
    found = {row.event_id: row.line for row in sorted(told, key=lambda row: not row.is_partial)}
    assert found == whole


def rows_of_one(directory: Path, content: bytes) -> list[Row]:
    put(directory, {"server.log": content})
    return rows_of(directory, broker_log.rows)["server.log"]


def cri(lines: list[str], most: int) -> list[str]:
    made = []
    for number, line in enumerate(lines):
        parts = [line[at : at + most] for at in range(0, len(line), most)]
        stamp = f"2026-11-21T02:00:0{number}.581000417Z"
        made += [f"{stamp} stdout {'F' if part is parts[-1] else 'P'} {part}" for part in parts]
    return made


@pytest.mark.parametrize("cut", range(1, 8))
def test_a_request_in_parts_across_two_files_is_told_once(tmp_path: Path, cut: int) -> None:
    landed = cri(REQUESTS, 500)
    put(tmp_path, {"0.log.20261121-020000": text(*landed[:cut]), "0.log": text(*landed[cut:])})
    found = [row for rows in rows_of(tmp_path, request_log.rows).values() for row in rows]
    assert [row.error for row in found] == [None] * 3
    assert sorted(row.logged_micros or 0 for row in found) == [1795226401000000, 1795226402000000, 1795226403000000]


@pytest.mark.parametrize("at", [30, 200, 700, 1500])
def test_a_file_that_is_cut_within_a_line_goes_on_in_the_next(tmp_path: Path, at: int) -> None:
    data = text(*REQUESTS)
    put(tmp_path, {"kafka-request.log.1": data[:at], "kafka-request.log": data[at:]})
    found = [row for rows in rows_of(tmp_path, request_log.rows).values() for row in rows]
    assert sorted(row.line for row in found if row.line) == sorted(line.encode() for line in REQUESTS)


def test_a_line_that_is_not_written_to_its_end_is_counted_and_read_later(tmp_path: Path) -> None:
    data = text(*REQUESTS)
    put(tmp_path, {"kafka-request.log": data[:-60]})
    rotations = Rotations(os.path.realpath(tmp_path), landing.listing(tmp_path), None)
    work = files.work_on(rotations, "kafka-request.log", None, request_log.rows, "UTC")
    told = [(row.kind is not None, row.other) for row in files.rows_of(work)]
    assert told == [(True, None), (True, None), (False, request_log.CUT_LINES)]


def test_a_file_that_goes_on_brings_the_file_before_it(tmp_path: Path) -> None:
    put(tmp_path, {"server.log.2": text(NOISE), "server.log.1": text(*LOG[:1]), "server.log": text(*LOG[1:])})
    listed = landing.listing(tmp_path)
    new = {"server.log": listed["server.log"]}
    put(tmp_path, {"server.log.2": text(logged(0, "old (a.B)"))})
    assert set(files.brought_along(tmp_path, landing.listing(tmp_path), new, None)) == {"server.log.1"}
    assert not files.brought_along(tmp_path, listed, {"server.log.1": listed["server.log.1"]}, None)


def test_a_layout_that_is_not_understood_is_refused_in_a_sentence() -> None:
    settings = load(broker_logs={"layout": "%d %q %m"})
    with pytest.raises(UsageError, match=r"^The setting broker_logs.layout cannot be used: it has %q, which is not un"):
        files.pattern_of(settings, "broker-logs")


def test_of_a_log_of_many_files_few_are_looked_at(tmp_path: Path) -> None:
    put(tmp_path, {f"server.log.2026-11-{day:02}": text(logged(86_400 * day, "said (a.B)")) for day in range(1, 31)})
    put(tmp_path, {"server.log": text("\tat a", logged(86_400 * 31, "said (a.B)"))})
    rotations = Rotations(os.path.realpath(tmp_path), landing.listing(tmp_path), None)
    assert rotations.neighbours("server.log") == ("server.log.2026-11-30", None)
    assert rotations.neighbours("server.log.2026-11-07") == ("server.log.2026-11-06", "server.log.2026-11-08")
    assert len(rotations.heads) <= 10
