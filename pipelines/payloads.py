"""Bytes of keys and values -> data: JSON, or Avro and Protobuf by the schema files of the settings.

No message quotes a payload. Data is what JSON can say: objects, arrays, texts, numbers, booleans and null.
"""

from __future__ import annotations

import base64
import io
import json
import math
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime, time
from decimal import Decimal
from functools import cache
from typing import TYPE_CHECKING, Any, Literal

from expectations.rules import counted
from expectations.text import visible
from pipelines.columns import globs
from pipelines.errors import UsageError
from pipelines.settings import SchemaFile, Settings, located
from pipelines.settings.files import bytes_of
from pipelines.text import hint

if TYPE_CHECKING:
    from google.protobuf.descriptor_pb2 import DescriptorProto, FileDescriptorSet

Part = Literal["key", "value"]
Form = Literal["JSON", "Avro", "Protobuf"]
Decoder = Callable[[bytes, bool], tuple[Any, str]]
"""Takes the bytes and whether they follow Confluent's schema id; returns the data and a sentence about them, or ""."""

MAGIC = b"\0"
FRAME = 5  # bytes of Confluent's wire format: the magic byte and the schema id
MOST_NESTED = 100


class Number(str):
    """A number, spelled as in its payload, so that no digit is lost."""


class Masked(str):
    """Text in place of something that a mask hides, wholly or in part."""


@dataclass(frozen=True)
class Payload:
    """A key or value; ``data`` counts only if there is a ``form``.

    ``content`` is null if there is no payload or if it is ``masked``. If a mask hides all of it, there is no form.
    ``remark`` is a sentence: why it does not decode (``is_undecodable``), or what its data leaves out.
    """

    content: bytes | None
    data: Any = None
    form: Form | None = None
    schema: str | None = None
    schema_id: int | None = None
    remark: str = ""
    is_undecodable: bool = False
    masked: Masked | None = None


class _Undecodable(Exception):
    """Raised with the reason, in words without a byte of the payload."""


@dataclass(frozen=True)
class Reader:
    """Reads payloads by the schema files of the settings."""

    schemas: Sequence[SchemaFile] = ()

    def read(self, content: bytes | None, topics: Sequence[str], part: Part) -> Payload:
        """Return a payload with its data; the first of the source topics that has a schema decides.

        Raises UsageError: a schema file cannot be used.
        """
        if content is None:
            return Payload(None)
        framed = content[:1] == MAGIC and len(content) >= FRAME
        schema_id = int.from_bytes(content[1:FRAME], "big") if framed else None
        for topic in topics:
            fitting = [schema for schema in self.schemas if schema.part == part and globs.matches(schema.topic, topic)]
            if fitting:
                return self._by_schema(content, schema_id, fitting)
        for body, its_id in ((content, None), (content[FRAME:] if framed else b"", schema_id)):
            try:
                return Payload(content, _of_json(body), "JSON", schema_id=its_id)
            except _Undecodable:
                continue
        return Payload(content)

    def _by_schema(self, content: bytes, schema_id: int | None, fitting: Sequence[SchemaFile]) -> Payload:
        for_it = [schema for schema in fitting if schema.id is not None and schema.id == schema_id]
        for_all = [schema for schema in fitting if schema.id is None]
        if not (for_it or for_all):
            has = "has no schema id" if schema_id is None else f"may have schema id {schema_id}"
            return _undecodable(content, None, f"It {has}, and no [[schema]] for its topic is for that.")
        schema = (for_it or for_all)[0]
        decoded = _decoder(schema)
        attempts: list[tuple[bytes, int | None]] = [] if schema_id is None else [(content[FRAME:], schema_id)]
        attempts += [] if for_it else [(content, None)]
        reason = ""
        for body, its_id in attempts:
            try:
                data, remark = decoded(body, its_id is not None)
            except _Undecodable as error:
                reason = reason or str(error)
            else:
                return Payload(content, data, "Avro" if schema.is_avro else "Protobuf", schema.file, its_id, remark)
        form = "Avro" if schema.is_avro else "Protobuf"
        words = f"{visible(schema.file)}{f', message {visible(schema.message)}' if schema.message else ''}"
        return _undecodable(content, schema.file, f"It does not decode as {form} ({words}): {reason}.")


def _undecodable(content: bytes, schema: str | None, why: str) -> Payload:
    """Return a payload that its schema does not decode; it has data if it is JSON."""
    try:
        data, form = _of_json(content), "JSON"
    except _Undecodable:
        return Payload(content, schema=schema, remark=why, is_undecodable=True)
    return Payload(content, data, form, schema, remark=why, is_undecodable=True)  # type: ignore[arg-type]


def as_json(data: Any, indent: int | None = None) -> str:
    """Return data as JSON, safe for a terminal; numbers keep their spelling, keys their order."""
    return _written(data, indent, 0)


def _written(data: Any, indent: int | None, depth: int) -> str:
    if isinstance(data, Mapping):
        colon = ":" if indent is None else ": "
        entries = [f"{_text(str(name))}{colon}{_written(member, indent, depth + 1)}" for name, member in data.items()]
        return _bracketed("{}", entries, indent, depth)
    if isinstance(data, list | tuple):
        return _bracketed("[]", [_written(member, indent, depth + 1) for member in data], indent, depth)
    if isinstance(data, Number):
        return str(data)
    return _text(data)


def _text(data: Any) -> str:
    """Return a scalar as JSON, safe for a terminal."""
    return visible(json.dumps(data, ensure_ascii=False))


def _bracketed(brackets: str, entries: Sequence[str], indent: int | None, depth: int) -> str:
    if indent is None or not entries:
        return brackets[0] + ",".join(entries) + brackets[1]
    inner, outer = "\n" + " " * indent * (depth + 1), "\n" + " " * indent * depth
    return brackets[0] + inner + f",{inner}".join(entries) + outer + brackets[1]


def _of_json(content: bytes) -> Any:
    """Read UTF-8 JSON; an object that has a name twice is refused, as readers differ on which one counts."""
    try:
        return _shallow(
            json.loads(
                content.decode("utf-8"),
                parse_int=Number,
                parse_float=Number,
                parse_constant=str,
                object_pairs_hook=_object,
            )
        )
    except (ValueError, RecursionError):  # among them UnicodeDecodeError, JSONDecodeError
        raise _Undecodable("it is not JSON") from None


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    data = dict(pairs)
    if len(data) < len(pairs):
        raise _Undecodable("an object has a name twice")
    return data


def _shallow(data: Any) -> Any:
    level = [data]
    for _ in range(MOST_NESTED):
        level = [member for many in level for member in _members(many)]
        if not level:
            return data
    raise _Undecodable(f"it is nested more than {MOST_NESTED} levels deep")


def _members(data: Any) -> Iterator[Any]:
    if isinstance(data, dict):
        yield from data.values()
    elif isinstance(data, list):
        yield from data


def _decoder(schema: SchemaFile) -> Decoder:
    return _avro(schema.file) if schema.is_avro else _protobuf(schema.file, schema.message or "")


def check_schemas(settings: Settings) -> None:
    """Raise UsageError: a file of ``[[schema]]`` cannot be read, or is no schema."""
    for schema in settings.schemas:
        _decoder(schema)


def _file(name: str) -> bytes:
    return bytes_of(located(name), "file of [[schema]]")


@cache
def _avro(name: str) -> Decoder:
    """Return the decoder of an Avro schema.

    Raises UsageError: the file cannot be read, or is no Avro schema.
    """
    from fastavro import parse_schema, schemaless_reader

    try:
        schema = parse_schema(json.loads(_file(name)))
    except UsageError:
        raise
    except Exception:  # fastavro raises many kinds, also of Python's own
        raise UsageError(f"The schema file {visible(name)} is not an Avro schema.") from None

    def decoded(content: bytes, _: bool) -> tuple[Any, str]:
        stream = io.BytesIO(content)
        try:
            data = _plain(_shallow(schemaless_reader(stream, schema, None)))
        except _Undecodable:
            raise
        except EOFError:
            raise _Undecodable("it ends too early") from None
        except Exception:
            raise _Undecodable("its bytes do not fit the schema") from None
        if left := len(content) - stream.tell():
            raise _Undecodable(f"{counted(left, 'byte')} would be left over")
        return data, ""

    return decoded


def _plain(data: Any) -> Any:
    """Return values of Avro's types as data; bytes become base64, as Protobuf's own JSON has them."""
    if isinstance(data, dict):
        return {name: _plain(member) for name, member in data.items()}
    if isinstance(data, list):
        return list(map(_plain, data))
    if isinstance(data, bytes):
        return base64.b64encode(data).decode()
    if isinstance(data, Decimal):
        return Number(data)
    if isinstance(data, datetime | date | time):
        return data.isoformat()
    if isinstance(data, uuid.UUID) or (isinstance(data, float) and not math.isfinite(data)):
        return str(data)
    return data


@cache
def _protobuf(name: str, message: str) -> Decoder:
    """Return the decoder of a message of a FileDescriptorSet.

    Raises UsageError: the file cannot be read, is no FileDescriptorSet, or does not have the message.
    """
    from google.protobuf import json_format, message_factory, unknown_fields
    from google.protobuf.descriptor_pb2 import FileDescriptorSet
    from google.protobuf.descriptor_pool import DescriptorPool

    pool = DescriptorPool()
    content = _file(name)
    try:
        files = FileDescriptorSet.FromString(content)
        for file in files.file:
            pool.Add(file)
    except Exception:  # DecodeError, or TypeError for a file whose imports are absent
        raise UsageError(
            f"The schema file {visible(name)} is not a whole FileDescriptorSet: write it with "
            "`protoc --include_imports --descriptor_set_out`."
        ) from None
    known = dict(_messages(files))
    if message not in known.values():
        raise UsageError(
            f"The schema file {visible(name)} has no message {visible(message)}.{hint(message, known.values())}"
        )
    path = next(path for path, full_name in known.items() if full_name == message)
    kind = message_factory.GetMessageClass(pool.FindMessageTypeByName(message))

    def decoded(content: bytes, framed: bool) -> tuple[Any, str]:
        if framed:
            indexes, content = _indexes(content)
            meant = known.get((path[0], *indexes))
            if meant != message:
                raise _Undecodable(f"its header names {f'message {meant}' if meant else 'another message'}")
        record = kind()
        try:
            record.ParseFromString(content)
            data = json_format.MessageToDict(record, preserving_proto_field_name=True, descriptor_pool=pool)
        except Exception:  # DecodeError; TypeError for an Any of an unknown type
            raise _Undecodable("its bytes do not fit the message") from None
        unknown = len(unknown_fields.UnknownFieldSet(record))
        if unknown and not record.ListFields():
            raise _Undecodable("the message has none of its fields")
        left_out = f"It has {counted(unknown, 'field')} that the schema does not know." if unknown else ""
        return _shallow(data), left_out

    return decoded


def _messages(files: FileDescriptorSet) -> Iterator[tuple[tuple[int, ...], str]]:
    """Yield each message's address (the file, then the indexes of Confluent's wire format) and its full name."""
    for number, file in enumerate(files.file):
        waiting: list[tuple[tuple[int, ...], str, DescriptorProto]]
        waiting = [((number, index), file.package, descriptor) for index, descriptor in enumerate(file.message_type)]
        while waiting:
            path, scope, descriptor = waiting.pop()
            full = f"{scope}.{descriptor.name}".removeprefix(".")
            yield path, full
            waiting += [((*path, nested), full, inner) for nested, inner in enumerate(descriptor.nested_type)]


def _indexes(content: bytes) -> tuple[tuple[int, ...], bytes]:
    """Return the indexes of a message within its file, which follow the schema id, and the bytes behind them.

    They are zigzag varints: how many there are, then each. A single 0 stands for the first message.
    """
    stream = io.BytesIO(content)

    def number() -> int:
        varint = 0
        for shift in range(0, 35, 7):
            byte = stream.read(1)
            if not byte:
                raise _Undecodable("it ends within the indexes of its message")
            varint |= (byte[0] & 0x7F) << shift
            if byte[0] < 0x80:
                return (varint >> 1) ^ -(varint & 1)
        raise _Undecodable("the indexes of its message cannot be read")

    count = number()
    if not 0 <= count <= MOST_NESTED:
        raise _Undecodable("the indexes of its message cannot be read")
    indexes = tuple(number() for _ in range(count)) or (0,)
    return indexes, content[stream.tell() :]
