"""Tables: complete without a terminal; on a terminal, headers, hours and topics stay whole."""

from __future__ import annotations

import re

from hypothesis import Phase, example, given, settings
from hypothesis import strategies as st
from rich.cells import cell_len

from pipelines.commands import tabular

NAME = st.from_regex(r"[a-z]{1,14}(_[a-z]{1,14}){0,3}", fullmatch=True)
CELL = st.one_of(
    st.from_regex(r"[a-z]{1,20}([.-][a-z0-9]{1,20}){0,6}", fullmatch=True),
    st.integers(-(10**18), 10**18).map(str),
    st.datetimes().map(lambda at: at.isoformat() + "Z"),
    st.text(st.characters(categories=("L", "N", "P", "S", "Zs")), max_size=20).map(str.strip),
    st.just("漢字" * 10),
)

FEW = settings(max_examples=60, deadline=None, phases=[Phase.explicit, Phase.generate])


@st.composite
def tables(draw: st.DrawFn) -> tuple[list[str], list[list[str]]]:
    names = draw(st.lists(NAME, min_size=1, max_size=14))
    rows = draw(st.lists(st.lists(CELL, min_size=len(names), max_size=len(names)), max_size=5))
    return names, rows


def printed(names: list[str], rows: list[list[str]], width: int | None) -> list[str]:
    return [line.removesuffix("\n") for line, _ in tabular.lines(names, rows, width)]


def packed(text: str) -> str:
    return "".join(text.split())


@FEW
@given(tables())
def test_without_a_terminal_a_row_is_a_line_and_nothing_is_lost(table: tuple[list[str], list[list[str]]]) -> None:
    names, rows = table
    header, _, *found = printed(names, rows, None)
    assert header.split() == names
    assert [packed(line) for line in found] == [packed("".join(row)) for row in rows]


@FEW
@given(tables(), st.sampled_from([80, 80, 40, 120, 20, 1]))
@example((["hour", "topic"], [["2026-11-21T02:00:00Z", ".".join("a" * 30 for _ in range(9))]]), 80)
@example((["a"], []), 1)
def test_on_a_terminal_lines_fit_and_nothing_is_lost(table: tuple[list[str], list[list[str]]], width: int) -> None:
    names, rows = table
    found = printed(names, rows, width)
    if width > 14:
        assert max(map(cell_len, found), default=0) <= width
    kept = (re.sub(r"(:00Z|Z)$", "", cell) if re.match("[0-9]{4}-", cell) else cell for row in rows for cell in row)
    letters = sorted(packed("".join(kept)))
    shown = sorted(packed("".join(found)))
    for letter in set(letters):
        assert shown.count(letter) >= letters.count(letter)


@FEW
@given(tables())
def test_at_80_columns_parts_of_headers_times_and_numbers_stay_whole(
    table: tuple[list[str], list[list[str]]],
) -> None:
    names, rows = table
    found = "\n".join(printed(names, rows, 80))
    for name in names:
        assert all(part in found for part in name.split("_"))
    for cell in (cell for row in rows for cell in row):
        if re.fullmatch(r"-?[0-9]+", cell) or re.fullmatch(r"[0-9]{4}-[0-9T:.-]+Z", cell):
            assert cell.removesuffix(":00Z") in found, cell


HOURS = [["2026-11-21T02:00:00Z", "payments.orders.eu-west-1.dead-letters", "fraud-workers", "3,112", "17"]]


def test_what_fits_is_left_alone_and_blocks_come_last() -> None:
    names = ["hour", "dlq_topic", "consumer_group", "record_count", "group_count"]
    assert printed(names[1:], [HOURS[0][1:]], 120) == printed(names[1:], [HOURS[0][1:]], None)
    folded = "\n".join(printed(names, HOURS, 80))
    assert "row 1" not in folded
    assert "2026-11-21T02:00Z " in folded
    blocks = printed([*names, *names, *names], [HOURS[0] * 3], 80)
    assert blocks[0] == "── row 1 ──"
    assert "dlq_topic       payments.orders.eu-west-1.dead-letters" in blocks


def test_a_payload_is_cut_on_a_terminal_only() -> None:
    (line,) = printed(["value"], [["x" * 5_000]], None)[2:]
    assert len(line) == 5_000
    assert printed(["value"], [["x" * 5_000]], 80)[2:] == ["x" * 79 + "…"]
    words = "".join(printed(["value"], [["word " * 1_000]], 80)[2:])
    assert 300 < len(words) < 420
    assert words.endswith("…")


def test_times_lose_only_zeros_that_all_of_a_column_have() -> None:
    names = ["hour", "at"]
    rows = [["2026-11-21T02:00:00.000000Z", "2026-11-21T02:00:00.000000Z"], ["NULL", "2026-11-21T02:00:01.000000Z"]]
    assert [line.split() for line in printed(names, rows, 40)[2:]] == [
        ["2026-11-21T02:00Z", "2026-11-21T02:00:00Z"],
        ["NULL", "2026-11-21T02:00:01Z"],
    ]
