"""What Spark reads from files with hostile names and from damaged files."""

from __future__ import annotations

import gzip
import os
import random
from collections import defaultdict
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from cramjam import zstd

from pipelines import moments
from pipelines.catalog import stages
from pipelines.errors import EnvironmentLacking
from pipelines.jvm import properties
from pipelines.run import runner
from pipelines.settings import Settings
from pipelines.sources import landing
from pipelines.sources.landing import damaged, lines, listing
from pipelines.warehouse import progress
from pipelines.warehouse.tables import Warehouse
from tests.testing.builders import land, line, rows, run

if TYPE_CHECKING:
    from pyspark.sql import Row, SparkSession

HOSTILE = [
    *(
        "plain.jsonl",
        "two words",
        " before",
        "after ",
        "a%b",
        "a%20b",
        "a#b",
        "a+b",
        "a,b",
        "a;b&c=d",
        "a@b",
        "~a",
        "-a",
    ),
    *(
        "a*b",
        "a?b",
        "a?b=c",
        "a[b]",
        "a{b,c}",
        "a\\b",
        "\\x41",
        "a:b",
        "2026-11-21T10:15:30.jsonl",
        "s3:a",
        "a'b",
        'a"b',
    ),
    *("a\nb", "a\tb", "a\rb", "\x7f", "a|b", "a<b>", "a^b`c", "$HOME", "a!b", "a.b.c", "a..", "x.gz.txt", "a.bz2.old"),
    *("é", "e\u0301", "日本", "😀", "\u202eabc", "\ufeff", "date=2026-11-21/value=1/a", "date=2026-11-22/value=x/a"),
    *("d:e/f g/h*", "f0/" * 99 + "f0", "f0/" * 99 + "f0x", "n" * 250),
]
RAW = [b'{"a":1}', b"text", b"\xff\xfe\x00\xed\xa0\x80", b'{"crlf":1}\r', b"  x ", b"\xef\xbb\xbf{}", b"\xc2\xa0"]
BLANK = [b"", b"  ", b"\t", b"\r", b" \r", b"\xef\xbb\xbf"]


def landed(directory: Path, name: str, raw: bytes) -> None:
    file = directory / name
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(raw)


def read(spark: SparkSession, directory: Path, *, fix: bool = False) -> dict[str, list[Row]]:
    files = list(listing(directory).values())
    found = defaultdict(list)
    for row in lines(spark, directory, files, damaged(directory, files) if fix else None).collect():
        found[row["_source"]].append(row)
    return found


def raw_lines(rows: list[Row]) -> list[bytes]:
    return [bytes(row["line"]) for row in rows if row["line"] is not None]


@pytest.mark.parametrize("directory_name", ["landing", "a landing:é*{b}%20"])
def test_names_come_out_as_they_are(spark: SparkSession, tmp_path: Path, directory_name: str) -> None:
    directory = tmp_path / directory_name
    for name in HOSTILE:
        landed(directory, name, name.encode().hex().encode())
    (directory / os.fsdecode(b"caf\xe9:")).write_bytes(b"latin")
    expected = {name: [name.encode().hex().encode()] for name in HOSTILE} | {r"caf\xe9:": [b"latin"]}
    assert {source: raw_lines(rows) for source, rows in read(spark, directory).items()} == expected


def test_what_spark_reads_in_place_of_a_file_is_where_a_cluster_reads(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(properties, "is_cluster", lambda chosen: True)
    directory = tmp_path / "dlq"
    landed(directory, "two words", b"{}")
    landed(directory, "packed.zst", bytes(zstd.compress(b"[1]")))
    files = list(listing(directory).values())
    for _ in range(2):
        read_files = lines(spark, directory, files)
        assert {row["_source"] for row in read_files.collect()} == {"two words", "packed.zst"}
        assert all(path.startswith(f"file://{directory}/.afterlog-") for path in read_files.inputFiles())
    assert listing(directory).keys() == {"two words", "packed.zst"}
    landed(tmp_path / "é", "two words", b"{}")
    with pytest.raises(EnvironmentLacking, match="rename it"):
        lines(spark, tmp_path / "é", list(listing(tmp_path / "é").values()))


@pytest.mark.parametrize("name", ["a.jsonl", "a b.jsonl", "a.jsonl.gz", "a:b.GZ", "A.GZ"])
def test_lines_are_kept_byte_for_byte_and_blank_ones_skipped(spark: SparkSession, tmp_path: Path, name: str) -> None:
    text = b"\n".join(line for pair in zip(RAW, [*BLANK, b""], strict=True) for line in pair)
    landed(tmp_path, name, gzip.compress(text) if name.lower().endswith("gz") else text)
    rows = read(spark, tmp_path)[name]
    assert raw_lines(rows) == RAW
    assert {row["damage"] for row in rows} == {None}


def test_files_without_lines(spark: SparkSession, tmp_path: Path) -> None:
    for name, raw in {
        "a": b"",
        "b": b"\n\n \r\n",
        "c.gz": b"",
        "d.gz": gzip.compress(b""),
        "e": b"\xef\xbb\xbf",
    }.items():
        landed(tmp_path, name, raw)
    assert read(spark, tmp_path) == {}
    assert lines(spark, tmp_path, []).collect() == []


def test_a_megabyte_in_a_line(spark: SparkSession, tmp_path: Path) -> None:
    line = b'{"a":"' + b"x" * 2**20 + b'"}'
    landed(tmp_path, "a", line + b"\n" + line)
    assert raw_lines(read(spark, tmp_path)["a"]) == [line, line]


def test_what_stands_before_the_damage_is_read_and_the_damage_told(spark: SparkSession, tmp_path: Path) -> None:
    noise = random.Random(7)
    many = [noise.randbytes(200).hex().encode() for _ in range(3_000)]
    packed = gzip.compress(b"\n".join(many))
    few = [b'{"a":1}', b'{"b":2}']
    landed(tmp_path, "sound.jsonl", b'{"sound":1}\n')
    landed(tmp_path, "sound.gz", gzip.compress(b'{"sound":2}\n'))
    landed(tmp_path, "truncated file.gz", packed[: len(packed) // 2])
    landed(tmp_path, "overwritten.gz", packed[:400_000] + bytes(1_000) + packed[401_000:])
    landed(tmp_path, "no checksum.gz", gzip.compress(b"\n".join(few))[:-8])
    landed(tmp_path, "wrong checksum.gz", gzip.compress(b"\n".join(few))[:-8] + bytes(8))
    landed(tmp_path, "text.gz", b"\n".join(few))
    landed(tmp_path, "text behind.gz", gzip.compress(b"\n".join(few)) + b"text")
    with pytest.raises(Exception, match=r"gzip|Unexpected end"):
        read(spark, tmp_path)
    found = read(spark, tmp_path, fix=True)
    told = {source: [row["damage"] for row in rows if row["line"] is None] for source, rows in found.items()}
    assert {source: len(errors) for source, errors in told.items() if errors} == {
        name: 1
        for name in (
            "truncated file.gz",
            "overwritten.gz",
            "no checksum.gz",
            "wrong checksum.gz",
            "text.gz",
            "text behind.gz",
        )
    }
    assert raw_lines(found["sound.jsonl"]) + raw_lines(found["sound.gz"]) == [b'{"sound":1}', b'{"sound":2}']
    for name in ("no checksum.gz", "wrong checksum.gz", "text behind.gz"):
        assert raw_lines(found[name]) == few
    assert raw_lines(found["text.gz"]) == []
    truncated, overwritten = raw_lines(found["truncated file.gz"]), raw_lines(found["overwritten.gz"])
    assert 1_490 < len(truncated) < 1_510
    assert truncated[:-1] == many[: len(truncated) - 1]
    assert many[len(truncated) - 1].startswith(truncated[-1])
    assert overwritten[:1_700] == many[:1_700]  # zlib detects the damage some kilobytes later
    assert len(overwritten) < 2_000


def test_formats_that_are_not_read_are_told_each_time(spark: SparkSession, tmp_path: Path) -> None:
    suffixes = ("bz2", "deflate", "lz4", "snappy", "BZ2")
    for suffix in suffixes:
        landed(tmp_path, f"a.{suffix}", b'{"a":1}\n')
    landed(tmp_path, "b.jsonl", b"{}\n")
    found = read(spark, tmp_path)
    assert raw_lines(found.pop("b.jsonl")) == [b"{}"]
    assert {
        source: [(row["line"], "land it as gzip" in row["damage"]) for row in rows] for source, rows in found.items()
    } == {f"a.{suffix}": [(None, True)] for suffix in suffixes}


def test_thousands_of_files_make_a_plan_of_one_size(spark: SparkSession, tmp_path: Path) -> None:
    for number in range(300):
        landed(tmp_path, f"{number}.jsonl", b"{}\n")
        landed(tmp_path, f"{number} spaced.jsonl", b"{}\n")
    files = list(listing(tmp_path).values())

    def operators(count: int) -> int:
        return len(lines(spark, tmp_path, files[:count])._jdf.queryExecution().executedPlan().treeString().splitlines())

    assert operators(600) == operators(20)
    assert len(read(spark, tmp_path)) == 600


@pytest.mark.parametrize("kept", [["b.jsonl"], []], ids=["others are read", "none is left"])
def test_a_file_that_is_removed_before_it_is_read(
    spark: SparkSession, settings: Settings, monkeypatch: pytest.MonkeyPatch, kept: list[str]
) -> None:
    land(settings, {name: [line(index)] for index, name in enumerate(["a.jsonl", *kept])})
    listed = landing.listing

    def and_removed(directory: Path) -> dict[str, landing.LandedFile]:
        found = listed(directory)
        (directory / "a.jsonl").unlink(missing_ok=True)
        return found

    monkeypatch.setattr(landing, "listing", and_removed)
    (done,) = runner.run(Warehouse(settings, spark), stages("dlq", layer="bronze"))
    assert (done.status, done.accepted) == (("passed", 1) if kept else ("idle", 0))
    assert {row["_source"] for row in rows(spark, settings, "bronze.dlq_records")} == set(kept)


def test_files_that_are_gone_for_long_are_forgotten_and_land_once(spark: SparkSession, settings: Settings) -> None:
    lines_of = {name: [line(offset)] for offset, name in enumerate(("gone", "stays", "late", "next"))}
    bronze, directory = "bronze.dlq_records", settings.landing_of("dlq")

    def landed(name: str, days_ago: int) -> None:
        land(settings, {name: lines_of[name]})
        at = moments.now().timestamp() - days_ago * 86_400
        os.utime(directory / name, (at, at))
        run(spark, settings, bronze)

    def known() -> set[str]:
        progress_of = progress.load(Warehouse(settings), bronze)
        return set(progress_of.files) if progress_of else set()

    landed("gone", days_ago=8)
    landed("stays", days_ago=8)
    landed("late", days_ago=6)
    for name in ("gone", "late"):
        (directory / name).unlink()
    run(spark, settings, bronze)
    assert known() == {"gone", "stays", "late"}  # nothing landed: the directory may just be away
    landed("next", days_ago=0)
    assert known() == {"stays", "late", "next"}
    landed("gone", days_ago=8)
    assert sorted(row["offset"] for row in rows(spark, settings, bronze)) == [0, 1, 2, 3]
