"""Python and SQL name slices alike."""

from __future__ import annotations

import re

import pytest

from pipelines.columns import slices
from pipelines.commands.trace import Place
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
    assert re.search(r"concat\([\w.]*partition, ':', [\w.]+(?: div [0-9]+)?, ':', [\w.]*topic\)", text)


def test_a_place_knows_its_slice() -> None:
    assert slices.expression("t", "p", "o") == "concat(p, ':', o div 10000, ':', t)"
    assert Place("orders", 3, 29_999).slice == "3:2:orders"
