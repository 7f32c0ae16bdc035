"""Rows of a table -> the same rows without what is to be forgotten; their number, grain and nulls stay.

Two things are taken out. Of the rows of the records that are forgotten, what their contract marks as ``content``. Of
all rows, the values to forget, wherever they stand: also as hashes, of which Afterlog makes attributes of incidents.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING, Any

import xxhash

from expectations.contract import Column, Content, contract_of
from pipelines.catalog import CATALOG
from pipelines.columns.profiles import Profile
from pipelines.erasure import WORD, Words, token
from pipelines.errors import UsageError
from pipelines.incidents.nameless import without_messages, without_values

if TYPE_CHECKING:
    from pyarrow import Array  # type: ignore[import-untyped]
    from pyarrow import Table as ArrowTable

Row = tuple[str | None, str | None]
"""A row of bronze: cluster and ``_bronze_id``."""
Letter = tuple[str | None, str | None, int | None, int | None]
"""A dead letter: cluster, DLQ topic, partition and offset."""
Header = tuple[str | None, bytes | None]

NAMES = {
    "cluster": "cluster",
    **dict.fromkeys(("topic", "dlq_topic", "original_topic"), "topic"),
    **dict.fromkeys(("consumer_group", "group_id"), "group"),
}
ACKNOWLEDGEMENTS = ".acknowledgements"  # the end of the names of their tables
ACKNOWLEDGEMENT = "acknowledgement"  # what their lines are marked as
FIELDS = {
    *("topic", "partition", "offset", "baseOffset", "relativeOffset", "timestamp", "serializedKeySize"),
    *("serializedValueSize", "exception", "errorCode", "acknowledged_at", "client_id"),
}
"""What stays of such a line, beside its headers: all that `silver.acknowledgements` reads."""
INPUT = "input"  # the column of a held row that has its row of bronze
MESSAGES = ("error_message", "exception_stacktrace")
SEED = 42  # of Spark's hashes
LONGEST_HASHED = 4_096  # bytes of a value whose hash is looked for
ERASED = WORD.encode()
_TOKEN = re.compile(rb"(?s).{0,64}?" + ERASED + rb"[a-z]{10}")
_PREFIX = re.compile(rb"[A-Za-z]+(?=[-_:/.|#])")
_WIRE = re.compile(rb"(?s)\0.{4}")  # of Confluent's wire format: zero and the id of a schema


def hash_of(content: bytes) -> int:
    """Return Spark's ``xxhash64`` of a value."""
    unsigned = xxhash.xxh64_intdigest(content, SEED)
    return unsigned - 2**64 if unsigned >= 2**63 else unsigned


@dataclass
class Shared:
    """What the rows that stay say too: a header, or what begins a key, that other records have is nobody's alone."""

    headers: set[Header] = field(default_factory=set)
    prefixes: set[bytes] = field(default_factory=set)


@dataclass
class Redaction:
    """What is to be forgotten: the records, the values, and what tells how to replace them.

    ``topic_ids`` has those of the dead letters at a coordinate: a topic that is created again has other records there.
    ``acknowledgements`` are rows of bronze about the records. ``hashes`` maps hashes of what was replaced to those of
    what stands there instead; it grows with each table.
    ``fingerprints`` maps the names of errors whose pattern held a value to their new names.
    """

    secret: bytes = field(repr=False)
    words: Words
    rows: frozenset[Row] = frozenset()
    acknowledgements: frozenset[Row] = frozenset()
    topic_ids: Mapping[Letter, Collection[str | None]] = field(default_factory=dict)
    shared: Shared = field(default_factory=Shared)
    profiles: Sequence[Profile] = ()
    hashes: dict[int, int] = field(default_factory=dict, repr=False)
    fingerprints: dict[str, str] = field(default_factory=dict)

    def of(self, table: str, rows: ArrowTable) -> tuple[ArrowTable, list[bool], int]:
        """Return a table's rows without what is to be forgotten, which rows changed, and how many cells did."""
        marks = contents_of(table)
        chosen = self.chosen(table, rows)
        changed, cells = [False] * rows.num_rows, 0
        for index, name in enumerate(rows.column_names):
            before = whole(rows.column(index))
            after = self._column(marks.get(name), name, before, chosen, rows)
            if after is before:
                continue
            differing = _differing(before, after)
            if name in NAMES and any(differing):
                raise UsageError(
                    f"What is to be erased is the name of a {NAMES[name]} in {table}, so it is not one person's alone: "
                    "name their records with --where."
                )
            changed = [is_changed or differs for is_changed, differs in zip(changed, differing, strict=True)]
            cells += sum(differing)
            rows = rows.set_column(index, rows.schema.field(index), after)
        return rows, changed, cells

    def chosen(self, table: str, rows: ArrowTable) -> list[bool]:
        """Return which rows of a table are of the records to forget."""
        names = {*rows.column_names}
        of_records = self.acknowledgements if table.endswith(ACKNOWLEDGEMENTS) else self.rows
        if of_records and "_bronze_id" in names and table.endswith((".dlq_records", ACKNOWLEDGEMENTS)):
            of_bronze = (rows.column(name).to_pylist() for name in ("cluster", "_bronze_id"))
            return [row_id in of_records for row_id in zip(*of_bronze, strict=True)]
        if not (self.topic_ids and names >= {"dlq_topic", "dlq_topic_id", "dlq_partition", "dlq_offset"}):
            return [False] * rows.num_rows
        by = ("cluster", "dlq_topic", "dlq_partition", "dlq_offset")
        letters = zip(*(rows.column(name).to_pylist() for name in by), strict=True)
        ids = rows.column("dlq_topic_id").to_pylist()
        return [self._is_letter(letter, topic_id) for letter, topic_id in zip(letters, ids, strict=True)]

    def _is_letter(self, letter: Any, topic_id: str | None) -> bool:
        known = self.topic_ids.get(letter, ())
        return bool(known) and (topic_id is None or None in known or topic_id in known)

    def _column(
        self, mark: Mapping[str, Content | None] | Content | None, name: str, cells: Array, chosen: list[bool], of: Any
    ) -> Array:
        import pyarrow as arrow

        if isinstance(mark, Mapping):  # a row of bronze within a row
            fields = list(cells.type)
            given = [cells.field(index) for index in range(len(fields))]
            made = [
                self._column(mark.get(field.name), field.name, old, chosen, of)
                for field, old in zip(fields, given, strict=True)
            ]
            if all(new is old for new, old in zip(made, given, strict=True)):
                return cells
            return arrow.StructArray.from_arrays(made, fields=fields, mask=cells.is_null())
        if mark == "message":
            return self._messages(cells, chosen, of)
        if name in ("fingerprint",) and self.fingerprints:
            return _replaced(cells, lambda text: self.fingerprints.get(text, text))
        if mark and mark != "text" and any(chosen):
            cells = self._contents(mark, cells, chosen)
        return self._searched(cells)

    def _contents(self, mark: str, cells: Array, chosen: list[bool]) -> Array:
        """Return a column of content without that of the chosen rows."""
        import pyarrow as arrow

        take: dict[str, Callable[[Any], Any]] = {
            "key": self.key,
            "payload": payload,
            "headers": self._headers,
            "trace": lambda text: self.words.replaced_text(without_messages(text)),
            "line": lambda line: ERASED,
            ACKNOWLEDGEMENT: self._acknowledgement,
        }
        values = cells.to_pylist()
        made = [
            take[mark](value) if is_chosen and value is not None else value
            for value, is_chosen in zip(values, chosen, strict=True)
        ]
        return cells if made == values else arrow.array(made, cells.type)

    def _acknowledgement(self, line: bytes) -> bytes:
        """Return what stands for the line of an acknowledgement, which can be read again.

        Fields that Afterlog does not know go, and of headers and errors what goes from those of a record.
        """
        try:
            fields = json.loads(line)
            headers = [(header["key"], header["value"]) for header in fields.get("headers") or ()]
            decoded = [(name, None if text is None else base64.b64decode(text)) for name, text in headers]
        except (ValueError, TypeError, KeyError, AttributeError):
            return ERASED
        kept = {name: value for name, value in fields.items() if name in FIELDS}
        if isinstance(kept.get("exception"), str):
            kept["exception"] = self.words.replaced_text(without_values(kept["exception"], None))
        made = [(name, self.header(name, value)) for name, value in decoded]
        kept["headers"] = [
            {"key": name, "value": None if value is None else base64.b64encode(value).decode()} for name, value in made
        ]
        return json.dumps(kept, separators=(",", ":")).encode()

    def key(self, key: bytes) -> bytes:
        """Return what stands for the key of a record that is forgotten; equal keys stay equal."""
        if _TOKEN.fullmatch(key):
            return key
        made = token(self.secret, key)
        if found := _WIRE.match(key):
            made = found[0] + made
        elif (found := _PREFIX.match(key)) and found[0] in self.shared.prefixes:
            made = key[: found.end() + 1] + made
        elif found:
            self.hashes[hash_of(found[0])] = hash_of(made)
        self.hashes[hash_of(key)] = hash_of(made)
        return made

    def _headers(self, headers: list[dict[str, Any]]) -> list[dict[str, Any]]:
        return [
            header if header is None else {"key": header["key"], "value": self.header(header["key"], header["value"])}
            for header in headers
        ]

    def header(self, name: str | None, value: bytes | None) -> bytes | None:
        """Return what stands for the value of a header of a record that is forgotten.

        Where a record stood, who failed on it and with which class of error stays, as well as what others have too.
        """
        if value is None or _TOKEN.fullmatch(value):
            return value
        field_of = field_named(name, self.profiles)
        if field_of in MESSAGES:
            text = value.decode("utf-8", "replace")
            clean = without_values(text, 2) if field_of == MESSAGES[0] else without_messages(text)
            return self.words.replaced_text(clean).encode("utf-8", "replace")
        if field_of or (name, value) in self.shared.headers:
            return self.words.replaced(value)
        made = token(self.secret, value)
        self.hashes[hash_of(value)] = hash_of(made)
        return made

    def _messages(self, cells: Array, chosen: list[bool], of: Any) -> Array:
        """Return messages of errors: what varied goes from those that are chosen or hold a value; patterns stay."""
        if not any(chosen) and not self._may_be_in(cells):
            return cells
        import pyarrow as arrow

        versions = [None] * len(cells)
        if "fingerprint_version" in of.column_names:
            versions = of.column("fingerprint_version").to_pylist()
        values = cells.to_pylist()
        made = [
            self.words.replaced_text(without_values(text, version))
            if text is not None and (is_chosen or self.words.are_in(text.encode("utf-8", "surrogatepass")))
            else text
            for text, version, is_chosen in zip(values, versions, chosen, strict=True)
        ]
        return cells if made == values else arrow.array(made, cells.type)

    def _may_be_in(self, cells: Array) -> bool:
        """Tell, quickly, whether a column of texts or bytes may hold a value."""
        content = cells.buffers()[2]
        return content is not None and self.words.may_be_in(content.to_pybytes())

    def _searched(self, cells: Array) -> Array:
        """Return a column of any type without the values and their hashes."""
        import pyarrow as arrow
        import pyarrow.compute as compute  # type: ignore[import-untyped]

        kind = cells.type
        if arrow.types.is_struct(kind):
            given = [cells.field(index) for index in range(kind.num_fields)]
            made = [self._searched(child) for child in given]
            if all(new is old for new, old in zip(made, given, strict=True)):
                return cells
            return arrow.StructArray.from_arrays(made, fields=list(kind), mask=cells.is_null())
        if arrow.types.is_list(kind):
            values = self._searched(cells.values)
            if values is cells.values or values.equals(cells.values):
                return cells
            made = arrow.ListArray.from_arrays(cells.offsets, values, type=kind, mask=cells.is_null())
            return _in_order(made) if _has_hashes(kind) else made
        if arrow.types.is_int64(kind) and self.hashes:
            known = arrow.array([*self.hashes], kind)
            if not compute.any(compute.is_in(cells, value_set=known)).as_py():
                return cells
            return arrow.array([self.hashes.get(cell, cell) for cell in cells.to_pylist()], kind)
        if (arrow.types.is_string(kind) or arrow.types.is_binary(kind)) and self._may_be_in(cells):
            replace = self.words.replaced_text if arrow.types.is_string(kind) else self.words.replaced
            return _replaced(cells, lambda value: self._noted(value, replace(value)))
        return cells

    def _noted(self, before: Any, after: Any) -> Any:
        if before != after and len(before) <= LONGEST_HASHED:
            self.hashes[hash_of(_bytes(before))] = hash_of(_bytes(after))
        return after


def _bytes(value: str | bytes) -> bytes:
    return value.encode("utf-8", "surrogatepass") if isinstance(value, str) else value


def payload(value: bytes) -> bytes:
    """Return what stands for the value of a record that is forgotten."""
    found = _WIRE.match(value)
    return (found[0] if found else b"") + ERASED


def prefix_of(key: bytes) -> bytes | None:
    """Return the word that a key begins with, of which incidents tell whether their records have it in common."""
    found = _PREFIX.match(key)
    return found[0] if found else None


def field_named(name: str | None, profiles: Sequence[Profile]) -> str:
    """Return the field that a header fills; empty if no profile knows it."""
    return _fields(tuple(profiles)).get(name, "") if name in _fields(tuple(profiles)) else _of_prefix(name, profiles)


@cache
def _fields(profiles: tuple[Profile, ...]) -> dict[str | None, str]:
    named = [header for profile in profiles for header in profile.headers if header.name and not header.is_prefix]
    messages: dict[str | None, str] = {
        header.name: header.field for header in named if header.field in MESSAGES
    }  # in doubt it is a message
    return {**{header.name: header.field for header in named if header.field}, **messages}


def _of_prefix(name: str | None, profiles: Sequence[Profile]) -> str:
    found = (header for profile in profiles for header in profile.headers if header.is_prefix and header.field)
    return next((header.field for header in found if name is not None and name.startswith(header.name)), "")


@cache
def contents_of(table: str) -> dict[str, Any]:
    """Return what columns of a table hold of what people sent, by name; of a row within a row, by its fields."""
    layer, _, name = table.partition(".")
    marks = {column.name: column.content for column in _columns(table) if column.content}
    if layer == "held":
        (source,) = next(stage.inputs for stage in CATALOG if stage.table == f"silver.{name}")
        marks[INPUT] = contents_of(source)  # type: ignore[assignment]
    if table.endswith(ACKNOWLEDGEMENTS):
        return {column: ACKNOWLEDGEMENT if mark == "line" else mark for column, mark in marks.items()}
    return marks


def _columns(table: str) -> Sequence[Column]:
    layer, _, name = table.partition(".")
    if layer in ("quarantine", "held"):
        return contract_of(f"silver.{name}").quarantine
    try:
        return contract_of(table).stored
    except ModuleNotFoundError:
        return ()


def whole(cells: Any) -> Array:
    """Return a column as one array."""
    import pyarrow as arrow

    made = cells.combine_chunks()
    if isinstance(made, arrow.ChunkedArray):
        return arrow.concat_arrays(made.chunks) if made.num_chunks else arrow.array([], made.type)
    return made


def _replaced(cells: Array, of: Callable[[Any], Any]) -> Array:
    import pyarrow as arrow

    values = cells.to_pylist()
    made = [None if value is None else of(value) for value in values]
    return cells if made == values else arrow.array(made, cells.type)


def _differing(before: Array, after: Array) -> list[bool]:
    import pyarrow.compute as compute

    if before.type.num_fields:
        return [not old.equals(new) for old, new in zip(before, after, strict=True)]
    return [bool(is_other) for is_other in compute.fill_null(compute.not_equal(before, after), False).to_pylist()]


def _has_hashes(kind: Any) -> bool:
    """Tell whether a list is one of hashes, or of pairs with them, which stands in its order."""
    import pyarrow as arrow

    names = {kind.value_type.field(index).name for index in range(kind.value_type.num_fields)}
    return arrow.types.is_int64(kind.value_type) or names in (
        {"negative", "value"},
        {"negative", "kind", "name", "value"},
    )


def _in_order(lists: Array) -> Array:
    import pyarrow as arrow

    def rank(element: Any) -> Any:
        return tuple(element.values()) if isinstance(element, dict) else element

    return arrow.array(
        [elements if elements is None else sorted(elements, key=rank) for elements in lists.to_pylist()], lists.type
    )
