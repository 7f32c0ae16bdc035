from __future__ import annotations

import gzip
import os
import random
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from pipelines.errors import UsageError
from pipelines.sources.landing import LandedFile, damaged, listing, whole

NOBODY = 65534
TEXT = b"".join(b'{"line":%d}\n' % number for number in range(1_000))
NOISE = random.Random(7).randbytes(300_000).hex().encode() + b"\n"


def land(directory: Path, *names: str) -> None:
    for name in names:
        file = directory / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(b"{}\n")


def test_files_are_found_below_directories(tmp_path: Path) -> None:
    land(tmp_path, "a.jsonl", "2026/11/b.jsonl.gz", "date=2026-11-21/c")
    assert sorted(listing(tmp_path)) == ["2026/11/b.jsonl.gz", "a.jsonl", "date=2026-11-21/c"]


def test_names_not_meant_for_the_feed_or_still_being_written_are_ignored(tmp_path: Path) -> None:
    land(tmp_path, ".hidden", "_SUCCESS", "a.jsonl.tmp", ".d/a", "_d/a", "d.tmp/a", "d/.a", "d/_a", "d/a.tmp", "d/a_.b")
    assert list(listing(tmp_path)) == ["d/a_.b"]


def test_an_absent_directory_has_no_files(tmp_path: Path) -> None:
    assert listing(tmp_path / "none") == {}


def test_a_file_is_told_by_size_and_modification_time(tmp_path: Path) -> None:
    land(tmp_path, "a")
    os.utime(tmp_path / "a", ns=(5, 1_700_000_000_123_456_789))
    assert listing(tmp_path) == {"a": LandedFile("a", 3, 1_700_000_000_123_456_789)}


def test_what_is_no_file_is_ignored(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "dangling").symlink_to(tmp_path / "none")
    assert listing(tmp_path) == {}


def test_links_are_followed_but_not_in_circles(tmp_path: Path) -> None:
    land(tmp_path, "elsewhere/a", "dlq/b")
    (tmp_path / "dlq" / "linked").symlink_to(tmp_path / "elsewhere")
    (tmp_path / "dlq" / "c").symlink_to(tmp_path / "elsewhere" / "a")
    (tmp_path / "dlq" / "up").symlink_to(tmp_path / "dlq")
    (tmp_path / "elsewhere" / "higher").symlink_to(tmp_path)
    found = listing(tmp_path / "dlq")
    assert {"b", "c", "linked/a", "linked/higher/elsewhere/a"} >= set(found) >= {"b", "c", "linked/a"}


def test_a_file_that_disappears_while_listing_is_skipped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    land(tmp_path, "a", "b")
    access = os.access

    def remove_then_access(path: str, mode: int) -> bool:
        allowed = access(path, mode)
        Path(path).unlink(missing_ok=True)
        return allowed

    monkeypatch.setattr(os, "access", remove_then_access)
    assert set(listing(tmp_path)) <= {"a", "b"}
    assert listing(tmp_path) == {}


def test_bytes_that_are_not_utf_8_are_shown_escaped(tmp_path: Path) -> None:
    (tmp_path / os.fsdecode(b"caf\xe9 \xf0\x9f\x98\x80")).write_bytes(b"{}\n")
    assert list(listing(tmp_path)) == [r"caf\xe9 😀"]


def test_names_that_are_shown_alike_are_refused(tmp_path: Path) -> None:
    land(tmp_path, r"caf\xe9")
    (tmp_path / os.fsdecode(b"caf\xe9")).write_bytes(b"{}\n")
    with pytest.raises(UsageError, match="rename one"):
        listing(tmp_path)


def test_a_landing_directory_that_is_a_file_is_refused(tmp_path: Path) -> None:
    land(tmp_path, "dlq")
    with pytest.raises(UsageError, match=r"dlq' cannot be read \(Not a directory\)"):
        listing(tmp_path / "dlq")


@pytest.fixture
def open_directory() -> Iterator[Path]:
    """A directory that other users can reach; pytest's own directories are closed to them."""
    directory = Path(tempfile.mkdtemp())
    directory.chmod(0o755)
    yield directory
    shutil.rmtree(directory)


@pytest.mark.parametrize("unreadable", ["file", "directory"])
def test_what_may_not_be_read_is_named(open_directory: Path, unreadable: str) -> None:
    land(open_directory, "directory/a", "file")
    (open_directory / unreadable).chmod(0)
    ours = os.getuid()
    if ours == 0:
        os.setresuid(NOBODY, NOBODY, 0)
    try:
        with pytest.raises(UsageError, match=rf"{unreadable}' cannot be read \(Permission denied\)"):
            listing(open_directory)
    finally:
        if ours == 0:
            os.setresuid(0, 0, 0)
        (open_directory / unreadable).chmod(0o755)


SOUND = {
    "sound.gz": gzip.compress(TEXT),
    "two members.gz": gzip.compress(TEXT) + gzip.compress(TEXT),
    "no lines.gz": gzip.compress(b""),
    "empty.gz": b"",
    "large.gz": gzip.compress(NOISE * 4),
    "plain.jsonl": TEXT,
}
TOO_EARLY = "The gzip file ends too early: land it again from its source."
DAMAGED = "The gzip file is damaged: land it again from its source."
NOT_GZIP = "The file, or its end, is not gzip: land it again under a name that says what it is."
BROKEN = {
    "truncated.gz": (gzip.compress(NOISE)[:-5_000], TOO_EARLY),
    "without its last byte.gz": (gzip.compress(TEXT)[:-1], TOO_EARLY),
    "only a header.gz": (gzip.compress(TEXT)[:10], TOO_EARLY),
    "by its content": (gzip.compress(TEXT)[:-9], TOO_EARLY),
    "UPPER.GZ": (gzip.compress(TEXT)[:-1], TOO_EARLY),
    "wrong checksum.gz": (gzip.compress(TEXT)[:-8] + bytes(8), DAMAGED),
    "overwritten.gz": (gzip.compress(NOISE)[:200_000] + bytes(1_000) + gzip.compress(NOISE)[201_000:], DAMAGED),
    "text.gz": (TEXT, NOT_GZIP),
    "zeros behind.gz": (gzip.compress(TEXT) + bytes(512), NOT_GZIP),
}


def test_damaged_gzip_files_are_told_from_sound_ones(tmp_path: Path) -> None:
    for name, raw in {**SOUND, **{name: raw for name, (raw, _) in BROKEN.items()}}.items():
        (tmp_path / name).write_bytes(raw)
    assert damaged(tmp_path, list(listing(tmp_path).values())) == {name: error for name, (_, error) in BROKEN.items()}


@pytest.mark.parametrize("encoding", ["utf-16-le", "utf-16-be"])
@pytest.mark.parametrize("is_packed", [False, True])
def test_text_in_utf_16_is_read_as_utf_8(tmp_path: Path, encoding: str, is_packed: bool) -> None:
    text = "\ufeff" + "müßig 🜁\r\n" * 200_000  # pairs lie across the ends of blocks
    raw = {"sound": text.encode(encoding), "cut": text.encode(encoding)[:-1]}
    for name, content in raw.items():
        (tmp_path / name).write_bytes(gzip.compress(content, 1) if is_packed else content)
    assert b"".join(whole(os.fspath(tmp_path), "sound")) == text.encode()
    assert damaged(tmp_path, list(listing(tmp_path).values())) == {
        "cut": "The file is UTF-16 and ends within a character: land it again from its source."
    }


def test_a_file_that_is_gone_is_not_damaged(tmp_path: Path) -> None:
    assert damaged(tmp_path, [LandedFile("gone.gz", 1, 1)]) == {}
