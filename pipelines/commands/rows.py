"""Rows of an answer -> lines: a table for people, JSON or CSV; the same lines whichever engine answered."""

from __future__ import annotations

import json
import os
import re
import sys
from base64 import b64encode
from collections.abc import Iterable, Iterator, Sequence
from datetime import date, datetime
from decimal import Decimal
from math import isfinite, isnan
from typing import Any, Protocol, TextIO

from expectations.text import visible
from pipelines.commands import tabular
from pipelines.errors import UsageError

_SHORT = {"\b": "\\b", "\t": "\\t", "\n": "\\n", "\f": "\\f", "\r": "\\r", '"': '\\"', "\\": "\\\\"}
_ESCAPES = str.maketrans({chr(code): f"\\u{code:04X}" for code in range(0x20)} | _SHORT)  # as Jackson writes them
_INTEGERS = ("tinyint", "smallint", "integer", "bigint", "hugeint")
_NUMBERS = (*_INTEGERS, "double", "decimal")
_NESTED = ("list", "struct")


class Unprintable(Exception):  # no error: Spark answers instead
    """Python cannot print a value as Spark does."""


class Rows(Protocol):
    """Rows that can be printed, with the names of their columns and whether these hold numbers."""

    @property
    def names(self) -> Sequence[str]: ...  # noqa: D102

    @property
    def are_numbers(self) -> Sequence[bool]: ...  # noqa: D102

    def texts(self) -> Iterable[Sequence[str | None]]:
        """Return each row as texts: binary in base64, times in UTC, nested values in JSON; null stays null."""

    def objects(self) -> Iterable[str]:
        """Return each row as a JSON object."""


def write(rows: Rows, form: str, out: TextIO, width: int | None = None) -> int:
    """Write rows as they arrive; return how many. If the reader goes away (``| head``), writing ends quietly.

    Raises UsageError: as JSON, two columns have the same name. Unprintable: nothing is written.
    """
    written = 0
    try:
        for lines, count in _WRITERS[form](rows, width):
            out.write(lines)
            written += count
        out.flush()
    except BrokenPipeError:
        if out is sys.stdout:  # otherwise Python reports an error when it flushes at exit
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return written


def _json(rows: Rows, width: int | None) -> Iterator[tuple[str, int]]:
    names = list(rows.names)
    if twice := [name for name in names if names.count(name) > 1]:
        raise UsageError(f"Two columns are called {visible(twice[0])}: give one of them another name with AS.")
    for line in rows.objects():
        yield f"{visible(line)}\n", 1


def _csv(rows: Rows, width: int | None) -> Iterator[tuple[str, int]]:
    def field(value: str | None) -> str:
        if value is None:
            return ""
        return '"' + value.replace('"', '""') + '"' if not value or re.search('[",\r\n]', value) else value

    texts = rows.texts()
    yield ",".join(map(field, rows.names)) + "\r\n", 0
    for row in texts:
        yield ",".join(map(field, row)) + "\r\n", 1


def _table(rows: Rows, width: int | None) -> Iterator[tuple[str, int]]:
    """Yield the lines of a table, its widths taken from the first rows; as blocks if a terminal is too narrow."""
    names = [visible(name) for name in rows.names]
    arriving = (["NULL" if value is None else visible(value) for value in row] for row in rows.texts())
    return tabular.lines(names, arriving, width, rows.are_numbers)


_WRITERS = {"table": _table, "json": _json, "csv": _csv}


class TextRows:
    """Rows of text in memory."""

    def __init__(self, names: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
        """Take the rows as they are."""
        self.names = names
        self.are_numbers = [False] * len(names)
        self._rows = rows

    def texts(self) -> Iterable[Sequence[str | None]]:
        """Return each row as texts."""
        return self._rows

    def objects(self) -> Iterable[str]:
        """Return each row as a JSON object."""
        return [json.dumps(dict(zip(self.names, row, strict=True)), ensure_ascii=False) for row in self._rows]


class FetchedRows:
    """Rows in memory whose types are DuckDB's, printed as Spark prints them."""

    def __init__(self, names: Sequence[str], types: Sequence[Any], rows: Sequence[Sequence[Any]]) -> None:
        """Take the rows as they are."""
        self.names = names
        self.are_numbers = [kind.id in _NUMBERS for kind in types]
        self._types, self._rows = types, rows

    def texts(self) -> Iterable[Sequence[str | None]]:
        """Return each row as texts.

        Raises Unprintable: Python cannot hold a value, such as a time after the year 9999.
        """
        return [[_text(value, kind) for value, kind in zip(row, self._types, strict=True)] for row in self._rows]

    def objects(self) -> Iterable[str]:
        """Return each row as a JSON object; raises as ``texts`` does."""
        return [_object(zip(self.names, row, self._types, strict=True)) for row in self._rows]


def _text(value: Any, kind: Any) -> str | None:
    if value is None:
        return None
    if kind.id in _NESTED:
        return _as_json(value, kind)
    return _plain(value, kind)


def _as_json(value: Any, kind: Any) -> str:
    if value is None:
        return "null"
    if kind.id == "list":
        return f"[{','.join(_as_json(item, kind.children[0][1]) for item in value)}]"
    if kind.id == "struct":
        return _object((name, value[name], field) for name, field in kind.children)
    plain = _plain(value, kind)
    is_bare = kind.id == "boolean" or (kind.id in _NUMBERS and isfinite(value))
    return plain if is_bare else quoted(plain)


def _plain(value: Any, kind: Any) -> str:
    if kind.id == "timestamp" and isinstance(value, datetime):
        return f"{value.isoformat(timespec='microseconds')}Z"
    if kind.id == "boolean":
        return str(value).lower()
    if kind.id == "double":
        return _double(value)
    if kind.id == "decimal":
        return format(value, "f")
    if kind.id == "blob":
        return b64encode(value).decode()
    if kind.id == "date" and isinstance(value, date):
        return value.isoformat()
    if kind.id in _INTEGERS or kind.id == "varchar":
        return str(value)
    raise Unprintable(kind.id)


def _object(fields: Iterable[tuple[str, Any, Any]]) -> str:
    return "{" + ",".join(f"{quoted(name)}:{_as_json(value, kind)}" for name, value, kind in fields) + "}"


def quoted(text: str) -> str:
    """Return text as a string of JSON, as Jackson writes it."""
    return f'"{text.translate(_ESCAPES)}"'


def _double(value: float) -> str:
    """Return a double as Java writes it."""
    if not isfinite(value):
        return "NaN" if isnan(value) else "Infinity" if value > 0 else "-Infinity"
    if value == 0 or 1e-3 <= abs(value) < 1e7:
        return repr(value)
    sign, digits, exponent = Decimal(repr(value)).normalize().as_tuple()
    rest = "".join(map(str, digits[1:])) or "0"
    return f"{'-' if sign else ''}{digits[0]}.{rest}E{int(exponent) + len(digits) - 1}"
