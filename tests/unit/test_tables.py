"""A test of a table lives at the table's path."""

from __future__ import annotations

from pipelines.catalog import CATALOG
from pipelines.settings import ROOT


def test_the_tests_below_tables_are_those_of_the_tables() -> None:
    tables = {stage.table for stage in CATALOG}
    files = (ROOT / "tests" / "tables").rglob("test_*.py")
    named = {f"{file.parent.name}.{file.stem.removeprefix('test_')}" for file in files}
    assert named - tables == set()
    assert tables - named == set(), "tests/tables/<layer>/test_<table>.py is missing"
