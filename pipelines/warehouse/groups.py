"""Groups of rows that a refresh replaces -> their SQL predicate, for Delta in Spark and for ``deltalake``."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from typing import Any

from pipelines.errors import UsageError

MOST_GROUPS = 20_000  # a refresh of more groups replaces the whole table
MOST_RUNS = 16
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


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
        return self._text(literal)

    def local_predicate(self) -> str | None:
        """Return the SQL text for ``deltalake``, which has literals of its own; values are quoted.

        Return None for times with fractions of a millisecond: statistics lack them, and ``deltalake`` overlooks rows.
        """
        if any(isinstance(value, datetime) and value.microsecond % 1000 for value in self.values):
            return None
        return self._text(local_literal)

    def _text(self, quoted: Callable[[Any], str]) -> str:
        """Write the values and their ranges: Delta skips files by the ranges, but not by each value of a list."""
        name = f"`{self.column}`"
        values = ", ".join(quoted(value) for value in self.values if value is not None)
        ranges = " OR ".join(f"{name} BETWEEN {quoted(least)} AND {quoted(most)}" for least, most in runs(self.values))
        parts = [f"({name} IN ({values}) AND ({ranges}))"] if values else []
        parts += [f"{name} IS NULL"] if None in self.values else []
        return " OR ".join(parts) or "false"


def literal(value: Any) -> str:
    """Return a group as an SQL literal.

    Raises UsageError: the value is no text, time, date or whole number.
    """
    if isinstance(value, datetime):
        return f"TIMESTAMP '{value.isoformat(sep=' ', timespec='microseconds')}'"
    if isinstance(value, date):
        return f"DATE '{value.isoformat()}'"
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value)
    if isinstance(value, str):
        escaped = "".join(unit if unit.isascii() and unit.isalnum() else f"\\U{ord(unit):08x}" for unit in value)
        return f"'{escaped}'"
    raise UsageError(f"A group of type {type(value).__name__} cannot be refreshed.")


def local_literal(value: Any) -> str:
    """Return a group as a literal of the SQL that ``deltalake`` reads; raises what ``literal`` does."""
    if isinstance(value, datetime):
        micros = (value.astimezone(UTC) - EPOCH) // timedelta(microseconds=1)
        return f"arrow_cast({micros}, 'Timestamp(Microsecond, Some(\"UTC\"))')"
    if isinstance(value, date):
        return f"arrow_cast('{value.isoformat()}', 'Date32')"
    if isinstance(value, str):
        return "'" + value.replace("'", "''") + "'"
    return literal(value)
