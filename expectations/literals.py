"""Values and names -> literals and identifiers of SQL, for Spark, DuckDB and DataFusion, which deltalake asks."""

from __future__ import annotations

import string
from datetime import UTC, date, datetime, timedelta
from typing import Any

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_PLAIN = frozenset(string.ascii_letters + string.digits + " !#%&()*+,-./:;<=>?@[]^_`|~")
"""What needs no escape in a text of Spark; ``$`` and braces would name variables and frames."""


def spark(value: Any) -> str:
    """Return a value as a literal of Spark's SQL, which sqlglot reads alike.

    Raises TypeError: the value is no text, time, date or whole number.

    >>> spark(date(2026, 11, 21))
    "DATE '2026-11-21'"
    """
    if isinstance(value, datetime):
        return f"TIMESTAMP '{value.isoformat(sep=' ', timespec='microseconds')}'"
    if isinstance(value, date):
        return f"DATE '{value.isoformat()}'"
    if isinstance(value, str):
        return (
            "'" + "".join(character if character in _PLAIN else f"\\U{ord(character):08x}" for character in value) + "'"
        )
    return _whole(value)


def datafusion(value: Any) -> str:
    """Return a value as a literal of DataFusion's SQL, whose own literals of times end with the year 2262.

    Raises TypeError: as ``spark`` does.
    """
    if isinstance(value, datetime):
        micros = (value.astimezone(UTC) - EPOCH) // timedelta(microseconds=1)
        return f"arrow_cast({micros}, 'Timestamp(Microsecond, Some(\"UTC\"))')"
    if isinstance(value, date):
        return f"arrow_cast('{value.isoformat()}', 'Date32')"
    return text(value) if isinstance(value, str) else _whole(value)


def text(value: str) -> str:
    """Return text as a literal of DuckDB and DataFusion."""
    return "'" + value.replace("'", "''") + "'"


def name(of: str) -> str:
    """Return a name as an identifier of DuckDB and DataFusion.

    >>> print(name('row count'))
    "row count"
    """
    return '"' + of.replace('"', '""') + '"'


def spark_name(of: str) -> str:
    """Return a name as an identifier of Spark, also in the names that its functions take."""
    return "`" + of.replace("`", "``") + "`"


def _whole(value: Any) -> str:
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value)
    raise TypeError(f"A value of type {type(value).__name__} is no literal.")
