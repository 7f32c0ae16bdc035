"""The ways that a batch can take from bronze to silver: all of them give the same tables."""

from __future__ import annotations

import pytest

from pipelines.engines import choose
from pipelines.engines.duckdb.nodes import Untranslatable
from pipelines.steps import batch_rows, few_split
from tests.testing import examples

FEW, LEFT_TO_SPARK, MANY = "few", "left to Spark", "many"
WAYS = (FEW, LEFT_TO_SPARK, MANY)


def tried() -> tuple[str, ...]:
    """Return the ways that tests compare: that to Spark has tests of its own, so only long test runs compare it."""
    return WAYS if examples.are_many() else (FEW, MANY)


def take(way: str, patched: pytest.MonkeyPatch) -> None:
    """Let batches take a way: small ones usually are few rows, of which DuckDB tells what becomes of them."""
    if way == MANY:
        patched.setattr(choose, "SMALL", -1)
    if way == LEFT_TO_SPARK:
        for module in (batch_rows, few_split):
            patched.setattr(module, "translated", _refused)


def _refused(text: str) -> str:
    raise Untranslatable(text)
