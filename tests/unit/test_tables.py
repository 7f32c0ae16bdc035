"""A test of a table lives at the table's path."""

from __future__ import annotations

from pipelines.catalog import CATALOG
from pipelines.settings import ROOT


def test_each_test_below_tables_is_named_for_a_table() -> None:
    tables = {stage.table for stage in CATALOG}
    files = (ROOT / "tests" / "tables").rglob("test_*.py")
    named = {file: f"{file.parent.name}.{file.stem.removeprefix('test_')}" for file in files}
    assert named
    assert set(named.values()) <= tables
