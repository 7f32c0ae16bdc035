"""Groups of rows that a refresh replaces -> the SQL predicate that Delta's replaceWhere takes."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import date, datetime
from typing import Any

from pipelines.errors import UsageError

MOST_GROUPS = 5_000  # a refresh of more groups replaces the whole table
MOST_RUNS = 16


def runs(touched: Iterable[Any]) -> list[tuple[Any, Any]]:
    """Return at most ``MOST_RUNS`` ranges, each with its least and greatest group, that hold all touched groups."""
    values = sorted(value for value in touched if value is not None)
    length = -(-len(values) // MOST_RUNS) or 1
    return [(values[first], values[min(first + length, len(values)) - 1]) for first in range(0, len(values), length)]


def predicate(column: str, touched: list[Any]) -> str:
    """Return the SQL text of a predicate that selects the groups, for Delta's replaceWhere; values are quoted.

    The ranges of the groups are in it as well: Delta skips files by the ranges, but not by each value of a list.
    """
    values = ", ".join(literal(value) for value in touched if value is not None)
    ranges = " OR ".join(f"`{column}` BETWEEN {literal(least)} AND {literal(most)}" for least, most in runs(touched))
    parts = [f"(`{column}` IN ({values}) AND ({ranges}))"] if values else []
    parts += [f"`{column}` IS NULL"] if None in touched else []
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
