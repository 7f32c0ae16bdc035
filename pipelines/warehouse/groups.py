"""Groups of rows that a refresh replaces -> their SQL predicate, for Delta in Spark and for ``deltalake``."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from expectations import literals

MOST_GROUPS = 20_000  # a refresh of more groups replaces the whole table
MOST_RUNS = 16


def runs(touched: Iterable[Any]) -> list[tuple[Any, Any]]:
    """Return at most ``MOST_RUNS`` ranges, each with its least and greatest group, that hold all touched groups."""
    values = sorted(value for value in touched if value is not None)
    length = -(-len(values) // MOST_RUNS) or 1
    return [(values[first], values[min(first + length, len(values)) - 1]) for first in range(0, len(values), length)]


@dataclass(frozen=True)
class Groups:
    """The rows of a table that have one of these values in a column; None is null."""

    column: str
    values: tuple[Any, ...]

    def predicate(self) -> str:
        """Return the SQL text for Delta in Spark; values are quoted."""
        return self._text(literals.spark)

    def deltalake_predicate(self) -> str | None:
        """Return the SQL text for ``deltalake``, which has literals of its own; values are quoted.

        Return None for times with fractions of a millisecond: statistics lack them, and ``deltalake`` overlooks rows.
        """
        if any(isinstance(value, datetime) and value.microsecond % 1000 for value in self.values):
            return None
        return self._text(literals.datafusion)

    def _text(self, quoted: Callable[[Any], str]) -> str:
        """Write the values and their ranges: Delta skips files by the ranges, but not by each value of a list."""
        name = literals.spark_name(self.column)  # which DataFusion reads, too
        values = ", ".join(quoted(value) for value in self.values if value is not None)
        ranges = " OR ".join(f"{name} BETWEEN {quoted(least)} AND {quoted(most)}" for least, most in runs(self.values))
        parts = [f"({name} IN ({values}) AND ({ranges}))"] if values else []
        parts += [f"{name} IS NULL"] if None in self.values else []
        return " OR ".join(parts) or "false"
