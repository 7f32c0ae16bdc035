"""Groups of rows that a refresh replaces -> the SQL predicate that Delta's replaceWhere takes."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from pipelines.errors import UsageError

MOST_GROUPS = 5_000  # a refresh of more groups replaces the whole table


def predicate(column: str, touched: list[Any]) -> str:
    """Return the SQL text of a predicate that selects the groups, for Delta's replaceWhere; values are quoted."""
    values = ", ".join(literal(value) for value in touched if value is not None)
    parts = [f"`{column}` IN ({values})"] if values else []
    parts += [f"`{column}` IS NULL"] if None in touched else []
    return " OR ".join(parts) or "false"


def literal(value: Any) -> str:
    """Return a group as an SQL literal.

    Raises UsageError: the value is neither text nor a time.
    """
    if isinstance(value, datetime):
        return f"TIMESTAMP '{value.isoformat(sep=' ', timespec='microseconds')}'"
    if isinstance(value, str):
        escaped = "".join(unit if unit.isascii() and unit.isalnum() else f"\\U{ord(unit):08x}" for unit in value)
        return f"'{escaped}'"
    raise UsageError(f"A group of type {type(value).__name__} cannot be refreshed.")
