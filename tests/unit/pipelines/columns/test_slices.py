"""Python and SQL name slices alike."""

from __future__ import annotations

import re

import pytest

from pipelines.columns import slices
from pipelines.commands.coordinate import Coordinate
from pipelines.settings import ROOT

NAMING = [
    ROOT / "sql" / "silver" / f"{name}.sql"
    for name in ("dead_letters", "dlq_control_markers", "dlq_roots", "log_ranges", "transactions")
]


@pytest.mark.parametrize("select", NAMING, ids=lambda path: path.stem)
def test_a_select_cuts_partitions_as_python_does(select: re.Pattern[str]) -> None:
    text = select.read_text(encoding="utf-8")  # type: ignore[attr-defined]

    cuts = set(re.findall(r"div ([0-9]+)(?=[,)])", text)) - {"256"}
    assert cuts == {str(slices.OFFSETS)}
    assert set(re.findall(r"\b([0-9]+) \* place", text)) <= {str(slices.OFFSETS)}
    assert set(re.findall(r"\* place \+ ([0-9]+)", text)) <= {str(slices.OFFSETS - 1)}
    assert re.search(r"concat\(lpad\([\w.]+(?: div [0-9]+)?, 16, '0'\), ':', [\w.]*partition, ':', [\w.]*topic\)", text)


def test_a_place_knows_its_slice() -> None:
    assert slices.expression("t", "p", "o") == "concat(lpad(o div 1000, 16, '0'), ':', p, ':', t)"
    assert Coordinate("orders", 3, 2_999).slice == "0000000000000002:3:orders"
    assert len(str((2**63 - 1) // slices.OFFSETS)) == slices.DIGITS


def test_a_run_of_slices_is_a_range_of_offsets() -> None:
    group = slices.expression("topic", "partition", "dlq_offset")
    last = slices.name("t", 0, 2**63 - 1)
    runs = [(slices.name("t", 1, 2_000), slices.name("a", 0, 3_999)), (last, last)]
    assert slices.offsets_of(group, runs) == ("dlq_offset", [(2_000, 3_999), (9223372036854775000, 2**63 - 1)])
    least = slices.name("t", 0, 0)
    assert slices.offsets_of(group, [(least, least)]) == ("dlq_offset", [(-999, 999)])  # -999 div 1000 is 0
    assert slices.offsets_of("slice", runs) is None
    assert slices.offsets_of(group, [("-:2026-03-01 12:", "-:aa:")]) is None
