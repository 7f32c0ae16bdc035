"""Failing rows in words: lines of files that still exist, offsets of topics, positions in segments."""

from __future__ import annotations

import gzip
import hashlib
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from expectations.contract import contract_of
from expectations.verdict import Outcome, Verdict
from pipelines.catalog import CATALOG
from pipelines.settings import Settings
from pipelines.sources import landing
from pipelines.stage import Split
from pipelines.steps import failing_rows
from pipelines.steps.failing_rows import Found, Source, first_lines

KEY = (None, "error.readable")


def identifier(line: bytes) -> str:
    return hashlib.sha256(line).hexdigest()[:16]


def blocks(content: bytes, size: int) -> Iterator[bytes]:
    return (content[at : at + size] for at in range(0, len(content), size))


@given(
    lines=st.lists(st.binary(max_size=12).map(lambda line: line.replace(b"\n", b"")), max_size=30),
    wanted=st.sets(st.integers(0, 29)),
    size=st.integers(1, 40),
    ends=st.booleans(),
)
def test_the_first_lines_are_found_however_a_file_is_cut(
    lines: list[bytes], wanted: set[int], size: int, ends: bool
) -> None:
    sought = frozenset(identifier(line) for at, line in enumerate(lines) if at in wanted and line)
    content = b"\n".join(lines) + (b"\n" if ends else b"")
    numbers = [number for number, line in enumerate(lines, 1) if line and identifier(line) in sought]
    expected = [number for number in numbers if number - 1 not in numbers]  # where ranges begin
    (found, others), _ = first_lines(blocks(content, size), [sought, frozenset()], 10**6)
    assert others == []
    assert [first for first, _ in found] == expected[: len(found)]
    assert {number for first, last in found for number in range(first, last + 1)} <= set(numbers)
    assert all(last + 1 not in numbers for _, last in found)
    seen = {identifier(lines[number - 1]) for first, last in found for number in range(first, last + 1)}
    assert len(found) == 3 or len(found) == len(expected) or seen == sought


def test_no_more_of_a_file_is_read_than_its_first_lines_need_and_than_is_allowed() -> None:
    bad = frozenset({identifier(b"x")})
    content = b"x\n" + b"y\n" * 1000
    assert first_lines(blocks(content, 10), [bad], 10**6) == ([[(1, 1)]], 0)
    assert first_lines(blocks(b"x\nx\nx\ny\n" + b"x\n" * 99, 10), [bad], 10**6) == ([[(1, 3)]], 0)
    assert first_lines(blocks(b"y\n" * 1000 + b"x\n", 10), [bad], 100) == ([[]], 100)


@pytest.fixture
def landed(settings: Settings) -> Path:
    directory = settings.landing_of("dlq")
    directory.mkdir(parents=True)
    return directory


def words(settings: Settings, *sources: Source, failing: int = 0, count: int = 0, table: str = "dlq_records") -> str:
    rows = sum(source.rows for source in sources)
    found = Found(sources, count or len(sources), rows + (40 if count else 0))
    stage = next(stage for stage in CATALOG if stage.table == f"bronze.{table}")
    told = failing_rows._lines({KEY: found}, settings, stage)
    return "; ".join(failing_rows._words(found, KEY, told, "position" if stage.reader else "")(failing or found.rows))


def of_lines(name: str, *lines: bytes, rows: int = 0) -> Source:
    return Source(name, rows or len(lines), tuple(map(identifier, lines)), ())


def test_files_are_named_with_their_first_lines(settings: Settings, landed: Path) -> None:
    bad = [b"[", b"{", b"  1,", b"}"]
    (landed / "array.json").write_bytes(b"{}\n\n" + b"\n{}\n".join(bad))
    with gzip.open(landed / "one.jsonl.gz", "wb") as packed:
        packed.write(b"{}\nbad\n")
    assert words(settings, of_lines("array.json", *bad), of_lines("one.jsonl.gz", b"bad")) == (
        "array.json 4 rows, lines 3, 5, 7 ...; one.jsonl.gz 1 row, line 2"
    )


def test_what_a_file_does_not_tell_is_left_out(settings: Settings, landed: Path) -> None:
    (landed / "rewritten.jsonl").write_bytes(b"{}\n")
    (landed / "many.jsonl").write_bytes(b"x\ny\n")
    said = words(
        settings,
        of_lines("many.jsonl", b"x", rows=2_000),
        of_lines("gone.jsonl", *[b"%d" % at for at in range(13)]),
        of_lines("rewritten.jsonl", b"before"),
        of_lines("fourth.jsonl", b"y"),
        failing=2_060,
        count=7,
    )
    assert said == (
        "many.jsonl 2,000 rows, lines 1 ...; gone.jsonl 13 rows; rewritten.jsonl 1 row; 4 more files with 41 rows; "
        "5 rows of earlier batches"
    )


def test_records_of_topics_have_offsets_and_batches_of_segments_positions(settings: Settings) -> None:
    record = Source("kafka:dlq.orders/bvpWvblvQLKULzhDKq4URw/3", 34, (), (3, 4, 9))
    assert words(settings, record) == "dlq.orders-3 34 rows, offsets 3, 4, 9 ..."
    batch = Source("orders-0/00000000000000000000.log", 1, (), (61,))
    assert words(settings, batch, table="record_batches") == ("orders-0/00000000000000000000.log 1 row, position 61")
    told = Source("kafka:acks/bvpWvblvQLKULzhDKq4URw/0", 2, ("a", "b"), ())
    assert words(settings, told, table="acknowledgements") == "acks-0 2 rows"


@pytest.mark.parametrize("damage", landing.DAMAGES)
def test_a_damaged_file_says_what_to_do(settings: Settings, damage: str) -> None:
    about_the_file = f"a.jsonl.gz\n{damage}".encode()
    said = words(settings, of_lines("a.jsonl.gz", about_the_file))
    assert said == f"a.jsonl.gz 1 row, {damage[0].lower()}{damage[1:-1]}"


def test_hostile_names_are_made_visible_and_short(settings: Settings, landed: Path) -> None:
    name = "a\n\x1b[31m\u202e" + "x" * 2_000
    said = words(settings, of_lines(name, b"x"))
    assert said.isprintable()
    assert len(said) < 400
    assert said.startswith("a\\n\\u001b[31m\\u202e")


def test_a_verdict_with_places_says_them_once() -> None:
    def outcome(code: str, failure: str, noun: str) -> Outcome:
        return Outcome(code, 64, 100, 0.05, 10, False, failure=failure, noun=noun)

    verdict = Verdict(
        "silver.x",
        "run",
        100,
        (outcome("error.readable", "cannot be read", "line"), outcome("row.no_violations", "", "")),
    )
    assert "64 lines cannot be read." in verdict.sentence()
    where = {
        (None, outcome.code): lambda failing: ("a.json 34 rows, line 3 ...", f"{failing - 34} more")
        for outcome in verdict.outcomes
    }
    said = verdict.located({}, where).sentence()
    assert "64 lines cannot be read (a.json 34 rows, line 3 ...; 30 more).\n" in said
    assert (said.count("a.json"), said.count("row.no_violations")) == (1, 0)


def test_every_rule_that_rows_can_break_has_words_for_it() -> None:
    for stage in CATALOG:
        if isinstance(stage, Split):
            for rule in contract_of(stage.table).rules:
                assert "that breaks" not in rule.failure, (stage.table, rule.code)
                assert rule.phrase(1).startswith(f"1 {rule.noun} ")
                assert rule.phrase(2).startswith(f"2 {rule.noun}")
