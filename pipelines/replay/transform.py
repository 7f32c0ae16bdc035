"""A file that repairs records -> the key, value and headers to produce: a SELECT for DuckDB, or a function of pandas.

Both see a table ``records``, a row per record: ``record`` (the dead letter's coordinate, which must come back), ``key``
and ``value`` (bytes), ``headers`` (name and value), ``key_text`` and ``value_text`` (null if the bytes are not UTF-8),
and what silver.dlq_records says of the record. What comes back for ``key``, ``value`` and ``headers`` replaces them; a
column that is left out stays as it was. Text becomes UTF-8. A record that does not come back is left out of the plan.
"""

from __future__ import annotations

import hashlib
import traceback
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from expectations.text import visible
from pipelines.errors import UsageError
from pipelines.replay.model import Headers
from pipelines.settings.files import text_of

FACTS = {
    "dlq_topic": "VARCHAR",
    "dlq_partition": "INTEGER",
    "dlq_offset": "BIGINT",
    "original_topic": "VARCHAR",
    "original_partition": "INTEGER",
    "original_offset": "BIGINT",
    "consumer_group": "VARCHAR",
    "owner": "VARCHAR",
    "disposition": "VARCHAR",
    "error_message": "VARCHAR",
    "exception_class": "VARCHAR",
    "routed_at": "TIMESTAMPTZ",
}
MOST_OF_A_FILE = 1 << 20  # bytes


@dataclass(frozen=True)
class Content:
    """What is produced of a record."""

    key: bytes | None
    value: bytes | None
    headers: Headers


@dataclass(frozen=True)
class Transform:
    """A file with a transform, as it was when it was read."""

    file: Path
    text: str

    @property
    def digest(self) -> str:
        """SHA-256 of the file."""
        return hashlib.sha256(self.text.encode()).hexdigest()

    def apply(self, records: Sequence[tuple[str, Content, Mapping[str, Any]]]) -> dict[str, Content]:
        """Return the repaired records by coordinate; each is given with its coordinate, content and row in silver.

        Raises UsageError: the transform fails, returns unknown records, one of them twice, or values of other types.
        """
        if not records:
            return {}
        before = {coordinate: content for coordinate, content, _ in records}
        rows = self._of_sql(records) if self.file.suffix == ".sql" else self._of_python(records)
        repaired: dict[str, Content] = {}
        for row in rows:
            coordinate = row.get("record")
            if not isinstance(coordinate, str) or coordinate not in before:
                raise self._wrong("it returned a record that it was not given")
            if coordinate in repaired:
                raise self._wrong(f"it returned record {visible(coordinate)} twice")
            old = before[coordinate]
            repaired[coordinate] = Content(
                self._bytes(row["key"], "key") if "key" in row else old.key,
                self._bytes(row["value"], "value") if "value" in row else old.value,
                self._headers(row["headers"]) if "headers" in row else old.headers,
            )
        return repaired

    def _of_sql(self, records: Sequence[tuple[str, Content, Mapping[str, Any]]]) -> Iterator[dict[str, Any]]:
        import duckdb

        with duckdb.connect(config={"autoinstall_known_extensions": "false"}) as connection:
            connection.execute("SET TimeZone = 'UTC'")
            names = ["record", "key", "value", "names", "contents", "key_text", "value_text", *FACTS]
            kinds = ["VARCHAR", "BLOB", "BLOB", "VARCHAR[]", "BLOB[]", "VARCHAR", "VARCHAR", *FACTS.values()]
            columns: list[list[Any]] = [[] for _ in names]
            for row in _rows(records):
                for column, value in zip(columns, row, strict=True):
                    column.append(value)
            unnested = ", ".join(
                f'unnest(CAST(${number + 1} AS {kind}[])) AS "{name}"'
                for number, (name, kind) in enumerate(zip(names, kinds, strict=True))
            )
            pairs = "list_transform(list_zip(names, contents), lambda pair: {'key': pair[1], 'value': pair[2]})"
            typed = f'CAST({pairs} AS STRUCT("key" VARCHAR, "value" BLOB)[]) AS headers'
            connection.execute(
                f"CREATE TABLE records AS SELECT * EXCLUDE (names, contents), {typed} FROM (SELECT {unnested})", columns
            )
            connection.execute("SET enable_external_access = false")
            connection.execute("SET lock_configuration = true")
            try:
                statements = connection.extract_statements(self.text)
                if len(statements) != 1 or statements[0].type != duckdb.StatementType.SELECT:
                    raise self._wrong("it must be one SELECT")
                answered = connection.sql(self.text)
                # By position, as two can have one name; without the times, which DuckDB's client cannot return.
                taken = {position: name.lower() for position, name in enumerate(answered.columns, 1) if _is_taken(name)}
                rows = answered.project(", ".join(f"#{position}" for position in taken)).fetchall() if taken else []
            except duckdb.Error as error:
                kind = type(error).__name__
                message = str(error).splitlines()[0] if kind in ("ParserException", "BinderException") else ""
                raise self._wrong(f"DuckDB answers {kind}" + (f": {visible(message)}" if message else "")) from None
        if "record" not in taken.values():
            raise self._wrong("the SELECT must return the column record")
        yield from (dict(zip(taken.values(), row, strict=True)) for row in rows)

    def _of_python(self, records: Sequence[tuple[str, Content, Mapping[str, Any]]]) -> Iterator[dict[str, Any]]:
        import pandas  # type: ignore[import-untyped]  # Great Expectations brings it

        names = ["record", "key", "value", "names", "contents", "key_text", "value_text", *FACTS]
        given = {name: list(values) for name, values in zip(names, zip(*_rows(records), strict=True), strict=True)}
        pairs = zip(given.pop("names"), given.pop("contents"), strict=True)
        given["headers"] = [list(zip(keys, contents, strict=True)) for keys, contents in pairs]
        table = pandas.DataFrame({name: pandas.Series(values, dtype=object) for name, values in given.items()})
        try:
            names_of_file: dict[str, Any] = {"__name__": "afterlog_transform", "__file__": str(self.file)}
            exec(compile(self.text, str(self.file), "exec"), names_of_file)
            returned = names_of_file["transform"](table)
        except (Exception, SystemExit) as error:
            # The message may quote a record.
            lines = [
                frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == str(self.file)
            ]
            at = f" in line {lines[-1]}" if lines else ""
            raise self._wrong(f"{type(error).__name__}{at}") from None
        if not isinstance(returned, pandas.DataFrame) or "record" not in returned.columns:
            raise self._wrong("transform() must return a DataFrame with the column record")
        yield from (
            {str(name): None if _is_missing(value) else value for name, value in row.items()}
            for row in returned.to_dict("records")
        )

    def _bytes(self, value: Any, name: str) -> bytes | None:
        if value is None or isinstance(value, bytes):
            return value
        if isinstance(value, str):
            return value.encode("utf-8", "surrogatepass")
        if isinstance(value, bytearray | memoryview):
            return bytes(value)
        raise self._wrong(f"{name} is of type {type(value).__name__}, and must be bytes or text")

    def _headers(self, value: Any) -> Headers:
        if value is None:
            return ()
        try:
            pairs = [
                (header["key"], header["value"]) if isinstance(header, dict) else tuple(header) for header in value
            ]
            headers = tuple((name, self._bytes(content, "a header's value")) for name, content in pairs)
        except (TypeError, ValueError, KeyError):
            raise self._wrong("headers must be pairs of name and value") from None
        if not all(isinstance(name, str) for name, _ in headers):
            raise self._wrong("the name of a header must be text")
        return headers

    def _wrong(self, why: str) -> UsageError:
        return UsageError(f"The transform {visible(self.file.name)} cannot be used: {why}.")


def read(file: Path) -> Transform:
    """Read a file; raises UsageError: it cannot be read, or is neither SQL nor Python."""
    if file.suffix not in (".sql", ".py"):
        raise UsageError(f"The transform {visible(file.name)} must be a file .sql or .py.")
    text = text_of(file, "The transform")
    if len(text.encode()) > MOST_OF_A_FILE:
        raise UsageError(f"The transform {visible(file.name)} is larger than {MOST_OF_A_FILE:,} bytes.")
    return Transform(file, text)


def _rows(records: Sequence[tuple[str, Content, Mapping[str, Any]]]) -> Iterator[tuple[Any, ...]]:
    for coordinate, content, row in records:
        headers = [list(part) for part in zip(*content.headers, strict=True)] or [[], []]
        texts = (_text(content.key), _text(content.value))
        yield (coordinate, content.key, content.value, *headers, *texts, *(row.get(name) for name in FACTS))


def _is_taken(name: str) -> bool:
    """Tell whether a transform's column is part of what is produced; names in SQL differ in no case."""
    return name.lower() in ("record", "key", "value", "headers")


def _text(content: bytes | None) -> str | None:
    try:
        return None if content is None else content.decode("utf-8")
    except UnicodeDecodeError:
        return None


def _is_missing(value: Any) -> bool:
    """Tell whether pandas means a missing value: None, NaN, NaT or NA."""
    import pandas

    return value is None or (pandas.api.types.is_scalar(value) and bool(pandas.isna(value)))
