"""What is to be forgotten: the key, a header, a condition or a record -> the landed records, and values to search."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from expectations import literals
from expectations.silver.dlq_records import CONTRACT
from pipelines.erasure import Words, is_searched
from pipelines.errors import UsageError
from pipelines.warehouse import jvmless, rewriting
from pipelines.warehouse.redaction import ERASED, Header, Row, Shared, prefix_of, whole
from pipelines.warehouse.tables import Warehouse

if TYPE_CHECKING:
    from pyarrow import Table as ArrowTable  # type: ignore[import-untyped]

DEAD_LETTERS = "bronze.dlq_records"
OF_RECORDS = ("silver.dlq_records", "quarantine.dlq_records", "held.dlq_records")
ACKNOWLEDGED = ("silver.acknowledgements", "quarantine.acknowledgements", "held.acknowledgements")
MOST_WORDS = 50  # of records that are named by a condition: to search each takes its time
_MESSAGE = re.compile(r"(?P<topic>.+):(?P<partition>\d{1,10}):(?P<offset>\d{1,19})")
_COLUMNS = ("cluster", "_bronze_id", "topic", "topic_id", "partition", "offset", "timestamp", "key", "value", "headers")
_RENAMED = ("topic", "topic_id", "partition", "offset", "timestamp")  # `dlq_...` where bronze was read
_OF_MESSAGES = ("cluster", "_bronze_id", "topic", "partition", "offset", "headers")


@dataclass(frozen=True)
class Selector:
    """How records are named; what they are named by is not shown."""

    kind: Literal["key", "header", "where", "message"]
    value: bytes = field(repr=False)
    name: str = field(default="", repr=False)

    @property
    def finds_words(self) -> bool:
        """Whether the values to search come from the records that are found, as none is given that can be searched."""
        return self.kind in ("where", "message") or not is_searched(self.value)


@dataclass
class Selected:
    """Records of a selector, the values to search for, and what other records tell as well.

    A letter has ``cluster``, ``_bronze_id``, ``topic_id``, ``timestamp`` and ``coordinate``: topic, partition, offset.
    ``acknowledgements`` are the rows of bronze of what producers were told about the records, or about their source.
    """

    letters: list[dict[str, Any]] = field(default_factory=list)
    acknowledgements: set[Row] = field(default_factory=set)
    values: list[bytes] = field(default_factory=list, repr=False)
    shared: Shared = field(default_factory=Shared)

    @property
    def rows(self) -> frozenset[Row]:
        """The rows of bronze."""
        return frozenset((letter["cluster"], letter["_bronze_id"]) for letter in self.letters)


def selector_of(key: str | None, header: str | None, where: str | None, message: str | None) -> Selector:
    """Return the selector of the command's options; ``-`` or ``@FILE`` reads one from standard input or a file.

    Raises UsageError: none or several are given, or one cannot be understood.
    """
    given = {"key": key, "header": header, "where": where, "message": message}
    named = {kind: text for kind, text in given.items() if text is not None}
    if len(named) != 1:
        raise UsageError("Name what to forget by one of --key, --header, --where and --message.")
    ((kind, text),) = named.items()
    value = _read(text)
    if not value:
        raise UsageError(f"--{kind} is empty: nothing is erased.")
    if kind == "header":
        name, is_split, of_header = value.partition(b"=")
        if not (name and is_split and of_header):
            raise UsageError("--header takes the name and the value of a header as NAME=VALUE.")
        return Selector("header", of_header, name.decode("utf-8", "replace"))
    if kind == "message" and not _MESSAGE.fullmatch(value.decode("utf-8", "replace")):
        raise UsageError("--message takes a record as TOPIC:PARTITION:OFFSET.")
    return Selector(kind, value)  # type: ignore[arg-type]


def _read(text: str) -> bytes:
    """Return what an option says, or names: other users of the machine see command lines."""
    if text == "-":
        return sys.stdin.buffer.read().removesuffix(b"\n").removesuffix(b"\r")
    if text.startswith("@"):
        try:
            return Path(text[1:]).read_bytes().removesuffix(b"\n").removesuffix(b"\r")
        except OSError as error:
            raise UsageError(f"The file behind @ cannot be read ({error.strerror}).") from None
    return text.encode("utf-8", "surrogateescape")


def select(warehouse: Warehouse, selector: Selector, secret: bytes, known: Sequence[Mapping[str, Any]]) -> Selected:
    """Return the records of a selector in all clusters, with those that an interrupted erasure ``known`` noted.

    Copies of a record, such as those from a file and from its topic, are all of them. A record counts wherever it is:
    its row of bronze may be gone by its age.
    """
    found = Selected(values=[] if selector.finds_words else [selector.value])
    words = Words.of(found.values, secret)
    ids = {
        (record["cluster"], record["bronze_id"])
        for record in known
        if record["is_whole"] and record["table"] == DEAD_LETTERS
    }
    ids |= _ids(warehouse, selector)
    records = set()
    for rows in _letters(warehouse):
        for row in _meant(rows, selector, words, ids):
            ids.add((row["cluster"], row["_bronze_id"]))
            if row["offset"] is not None:
                records.add(_record(row))
    _look_at_all(warehouse, ids, records, selector, found)
    _look_at_acknowledgements(warehouse, selector, found)
    return found


def _letters(warehouse: Warehouse) -> Iterator[ArrowTable]:
    """Yield the dead letters of bronze, and those that stages made of them, in bronze's columns, file by file."""
    import pyarrow as arrow

    for table in (DEAD_LETTERS, *OF_RECORDS):
        names = dict(zip(_COLUMNS, _COLUMNS, strict=True))
        if table != DEAD_LETTERS:
            names |= {name: f"dlq_{name}" for name in _RENAMED}
            names |= {"headers": "user_headers" if table.startswith("silver.") else "headers"}
        for rows in _rows_of_each(warehouse, (table,), [*names.values()]):
            cells = (
                rows.column(name) if name in rows.column_names else arrow.nulls(rows.num_rows)
                for name in names.values()
            )
            yield arrow.table(dict(zip(names, cells, strict=True)))


def _has_rows(warehouse: Warehouse, table: str) -> bool:
    return warehouse.exists(table) and not warehouse.was_never_written(table)


def _record(row: Mapping[str, Any]) -> tuple[Any, ...]:
    return tuple(row[name] for name in ("cluster", "topic", "partition", "offset", "timestamp"))


def _meant(rows: ArrowTable, selector: Selector, words: Words, ids: set[Row]) -> Sequence[dict[str, Any]]:
    """Return the rows of a file that a selector means."""
    columns = rows.select(["cluster", "_bronze_id", "topic", "partition", "offset", "timestamp"])
    if selector.kind == "key":
        values = [selector.value]
        is_meant = [key is not None and (key in values or words.are_in(key)) for key in rows.column("key").to_pylist()]
    elif selector.kind == "header":
        wanted = {"key": selector.name, "value": selector.value}
        is_meant = [bool(headers) and wanted in headers for headers in rows.column("headers").to_pylist()]
    else:
        is_meant = [False] * rows.num_rows
    both = zip(columns.to_pylist(), is_meant, strict=True)
    return [row for row, is_one in both if is_one or (row["cluster"], row["_bronze_id"]) in ids]


def _ids(warehouse: Warehouse, selector: Selector) -> set[Row]:
    """Return the rows of bronze of the records that a condition, or a coordinate, names.

    Raises UsageError: the condition cannot be understood.
    """
    if selector.kind not in ("where", "message"):
        return set()
    condition = selector.value.decode("utf-8", "replace")
    if found := _MESSAGE.fullmatch(condition) if selector.kind == "message" else None:
        topic, at = literals.datafusion(found["topic"]), f"= {found['partition']}"
        condition = " OR ".join(
            f"({of}_topic = {topic} AND {of}_partition {at} AND {of}_offset = {found['offset']})"
            for of in ("dlq", "original")
        )
    ids: set[Row] = set()
    for table in OF_RECORDS:
        if not _has_rows(warehouse, table):
            continue
        for cluster in jvmless.values(warehouse, table, "cluster", 2**63) or ():
            text = f"SELECT cluster, _bronze_id FROM rows WHERE ({condition})"
            try:
                answered = jvmless.query(warehouse, table, text, {"cluster": cluster})
            except Exception:  # of the library, without a type of its own; it can quote the condition
                columns = ", ".join(column.name for column in CONTRACT.stored[:3])
                raise UsageError(
                    f"--where is no condition on the columns of {table}, such as {columns}: `afterlog sql` helps to "
                    "find it."
                ) from None
            ids |= {(row["cluster"], row["_bronze_id"]) for row in answered}
    return ids


def _look_at_all(
    warehouse: Warehouse, ids: set[Row], records: set[tuple[Any, ...]], selector: Selector, found: Selected
) -> None:
    """Add all copies of the records, and what the records that stay tell as well."""
    import pyarrow as arrow

    own_headers: set[Header] = set()
    own_values: dict[bytes, None] = {}
    others: list[ArrowTable] = []
    letters: dict[tuple[Any, ...], dict[str, Any]] = {}  # a row of silver is that of its row of bronze
    for rows in _letters(warehouse):
        rest = []
        for at, row in enumerate(rows.select(["cluster", "_bronze_id", *_RENAMED]).to_pylist()):
            if (row["cluster"], row["_bronze_id"]) not in ids and _record(row) not in records:
                rest.append(at)
                continue
            coordinate = (row["topic"], row["partition"], row["offset"])
            letters.setdefault((row["cluster"], row["_bronze_id"], *coordinate), row | {"coordinate": coordinate})
            content = rows.slice(at, 1).select(["key", "value", "headers"]).to_pylist()[0]
            own_headers |= {(header["key"], header["value"]) for header in content["headers"] or () if header}
            own_values |= dict.fromkeys(value for value in (content["key"], content["value"]) if value)
        others.append(rows.select(["key", "value", "headers"]).take(arrow.array(rest, arrow.int64())))
    found.letters += letters.values()
    for rows in others if found.letters else ():
        for key, value, headers in zip(*(rows.column(name).to_pylist() for name in rows.column_names), strict=True):
            if key is not None and (prefix := prefix_of(key)):
                found.shared.prefixes.add(prefix)
            own_values.pop(key, None)
            own_values.pop(value, None)
            for header in headers or ():
                if header and (header["key"], header["value"]) in own_headers:
                    found.shared.headers.add((header["key"], header["value"]))
    if selector.finds_words:
        values = [value for value in own_values if is_searched(value) and ERASED not in value]
        found.values.extend(values if len(values) <= MOST_WORDS else [])


def _look_at_acknowledgements(warehouse: Warehouse, selector: Selector, found: Selected) -> None:
    """Add the acknowledgements of the records, and the headers that others have, too.

    One without an offset, as of a failure, cannot be told to be of a record.
    """
    import pyarrow as arrow
    import pyarrow.compute as compute  # type: ignore[import-untyped]

    if not (messages := _messages_of(warehouse, selector, found)):
        return
    offsets = arrow.array([offset for *_, offset in messages], arrow.int64())
    own_headers: set[Header] = set()
    for rows in _rows_of_each(warehouse, ACKNOWLEDGED, _OF_MESSAGES):
        near = rows.filter(compute.is_in(rows.column("offset"), value_set=offsets))
        is_own = []
        for row in near.select(_OF_MESSAGES[:5]).to_pylist():
            coordinate = (row["topic"], row["partition"], row["offset"])
            is_own.append(not messages.isdisjoint({(row["cluster"], *coordinate), (None, *coordinate)}))
            if is_own[-1]:
                found.acknowledgements.add((row["cluster"], row["_bronze_id"]))
        own_headers |= _headers_of(near.filter(arrow.array(is_own, arrow.bool_())))
    own = arrow.array([bronze_id for _, bronze_id in found.rows | found.acknowledgements], arrow.string())
    tables = (*ACKNOWLEDGED, DEAD_LETTERS) if own_headers else ()
    for rows in _rows_of_each(warehouse, tables, ("_bronze_id", "headers")):
        others = rows.filter(compute.invert(compute.is_in(rows.column("_bronze_id"), value_set=own)))
        found.shared.headers |= own_headers & _headers_of(others)


def _rows_of_each(warehouse: Warehouse, tables: Sequence[str], columns: Sequence[str]) -> Iterator[ArrowTable]:
    """Yield the rows of the data files of tables, one file after the other."""
    for table in tables:
        if _has_rows(warehouse, table):
            for _, rows in rewriting.rows_of(warehouse, table, columns):
                yield rows


def _messages_of(warehouse: Warehouse, selector: Selector, found: Selected) -> set[tuple[Any, ...]]:
    """Return the records themselves, and those that dead letters stand for: cluster (None: any) and coordinate."""
    messages: set[tuple[Any, ...]] = {
        (letter["cluster"], *letter["coordinate"]) for letter in found.letters if None not in letter["coordinate"]
    }
    if selector.kind == "message" and (match := _MESSAGE.fullmatch(selector.value.decode("utf-8", "replace"))):
        messages.add((None, match["topic"], int(match["partition"]), min(int(match["offset"]), 2**63 - 1)))
    names = ("cluster", "_bronze_id", "original_topic", "original_partition", "original_offset")
    for rows in _rows_of_each(warehouse, OF_RECORDS if found.letters else (), names):
        for cluster, bronze_id, *coordinate in zip(*(rows.column(name).to_pylist() for name in names), strict=True):
            if (cluster, bronze_id) in found.rows and None not in coordinate:
                messages.add((cluster, *coordinate))
    return messages


def _headers_of(rows: ArrowTable) -> set[Header]:
    """Return the headers that rows have; many rows can have the same ones."""
    import pyarrow as arrow

    flat = whole(rows.column("headers")).flatten()
    pairs = arrow.table({"key": flat.field("key"), "value": flat.field("value")}).group_by(["key", "value"])
    return {(pair["key"], pair["value"]) for pair in pairs.aggregate([]).to_pylist()}
