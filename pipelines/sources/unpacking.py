"""Landed files that are not lines -> lines: compressed, in UTF-16, arrays, objects over many lines, Parquet, Avro.

A file is known by its first bytes. Each reader gives a line for each record of one kind of file. Of text it has the
record's own bytes, with spaces in place of newlines between JSON's tokens; of Parquet and Avro it is the capture form.
"""

from __future__ import annotations

import base64
import codecs
import json
import os
import re
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import UTC, datetime
from functools import partial
from itertools import chain
from typing import Any

GZIP_DAMAGED = "The gzip file is damaged: land it again from its source."
NO_GZIP = "The file, or its end, is not gzip: land it again under a name that says what it is."
GZIP_TRUNCATED = "The gzip file ends too early: land it again from its source."
ZSTD_DAMAGED = "The zstd file is damaged or ends too early: land it again from its source."
NO_ZSTD = "The file is not zstd: land it again under a name that says what it is."
UTF_16_TRUNCATED = "The file is UTF-16 and ends within a character: land it again from its source."
BINARY_DAMAGED = "The Parquet or Avro file is damaged or ends too early: land it again from its source."
BINARY_PACKED = "The file holds Parquet or Avro, and is compressed: land it unpacked."

BINARY_FILES = ("parquet", "avro")

PRINTED = b'{"printed":'
"""How a line begins that holds a console consumer's record: as kcat's JSON, after what was printed as a string."""

UNPACKED = "unpacked"
"""The field that says what a line was unpacked from, then ``lossy`` if bytes are lost, or may be."""

_LOOKS = "the line looks like a console consumer's output"
NO_OFFSET = f"{_LOOKS} without print.offset"
NO_PARTITION = f"{_LOOKS} without print.partition"
KEY_OR_HEADER = f"{_LOOKS} that may hold a key or a header: print both, with print.key and print.headers"
TOO_MANY_TABS = f"{_LOOKS} with a tab in a key, a value or a header: land it as lines of kcat -J"
NO_COORDINATE = f"{_LOOKS} without print.partition and print.offset"
NOT_PRINTED = (NO_COORDINATE, NO_PARTITION, NO_OFFSET, KEY_OR_HEADER, TOO_MANY_TABS)

_BLOCK = 1 << 20
_GZIP, _ZSTD, _PARQUET, _AVRO = b"\x1f\x8b", b"\x28\xb5\x2f\xfd", b"PAR1", b"Obj\x01"
_BLANKS = b" \t\r\n"
_REPLACED = "\ufffd".encode()
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
_UTF_16 = {codecs.BOM_UTF16_LE: "utf-16-le", codecs.BOM_UTF16_BE: "utf-16-be"}  # as PowerShell writes what it captures
_PRETTY = re.compile(rb'\{[ \t\r]*\n\s*(?:"|\})|\{[ \t\r]*\n?\Z')
_ARRAY = re.compile(rb"\[\s*\{")
_CONSOLE = re.compile(
    rb"(?:(?:CreateTime|LogAppendTime|NoTimestampType):-?\d+|NO_TIMESTAMP|Partition:\d+|Offset:\d+)\t"
)
_FIELDS = re.compile(
    rb"(?:(CreateTime|LogAppendTime|NoTimestampType):(-?\d+)\t|NO_TIMESTAMP\t)?"
    rb"(?:Partition:(\d+)\t)?(?:Offset:(\d+)\t)?(?:Delivery:(?:\d+|NONE)\t)?(.*)",
    re.DOTALL,
)
_MOST_DIGITS = 20  # more than Kafka's numbers have, fewer than Python refuses
_PRINTED_HEADERS = re.compile(rb"NO_HEADERS\t|[A-Za-z_][\w.\-]*:[^\t,{]*,[A-Za-z_][\w.\-]*:[^\t]*\t")
_SEPARATOR = re.compile(rb"(?<!\n)(?<!\n\t)(?<!\n\t\t)\t|\t(?!\t*(?:at |\.\.\. |Suppressed: |Caused by: ))")
_HEADER = re.compile(rb"([A-Za-z_][\w.\-]*):")
_NEXT_HEADER = re.compile(rb",(?=[A-Za-z_][\w.\-]*:)")
_TOKEN = re.compile(rb'"(?:[^"\\]|\\.)*"?|[{}]', re.DOTALL)
_BETWEEN = b" \t\r,[]"


class Damage(Exception):
    """Raised where a file cannot be read on, with a sentence on what to do."""


def unpacked(path: str) -> Iterator[bytes] | None:
    """Return the file's lines, in blocks; None if it consists of lines already, or of such lines in a ``.gz`` file.

    The iterator raises Damage where the file cannot be read on.
    """
    blocks = _blocks(path)
    try:
        head = next(blocks, b"")
    except OSError:
        return None
    whole = chain([head], blocks)
    suffix = os.path.splitext(path)[1].lower()
    if head.startswith(_PARQUET):
        return _ended(_of_parquet(path))
    if head.startswith(_AVRO):
        return _ended(_of_avro(path))
    if head.startswith(_ZSTD):
        return _of_text(_of_zstd(path), is_packed=True)
    if head.startswith(_GZIP):
        return _of_text(inflated(whole), is_packed=suffix != ".gz")
    if suffix in (".zst", ".zstd") and head:
        return _raised(NO_ZSTD)
    return _of_text(whole, is_packed=False)


def inflated(packed: Iterable[bytes]) -> Iterator[bytes]:
    """Yield the content of gzip members, one after the other, with at most a block in memory.

    Raises Damage: the bytes are not gzip, are damaged, or end too early.
    """
    member = _member()
    begun = False
    for block in packed:
        while block:
            if member.eof:
                member, begun = _member(), False
            if not begun and block[0] != _GZIP[0]:
                raise Damage(NO_GZIP)
            begun = True
            before = member.copy()
            try:
                yield member.decompress(block, _BLOCK)
            except zlib.error:
                yield from _up_to_damage(before, block)
                raise Damage(GZIP_DAMAGED) from None
            block = member.unused_data or member.unconsumed_tail
    while begun and not member.eof:
        rest = member.decompress(b"", _BLOCK)
        if not rest:
            raise Damage(GZIP_TRUNCATED)
        yield rest


def _member() -> zlib._Decompress:
    return zlib.decompressobj(zlib.MAX_WBITS | 16)


def _up_to_damage(member: zlib._Decompress, block: bytes) -> Iterator[bytes]:
    """Yield what a block holds before its damage, byte by byte: a zlib call that fails returns nothing."""
    try:
        for at in range(len(block)):
            yield member.decompress(block[at : at + 1])
    except zlib.error:
        return


def _blocks(path: str) -> Iterator[bytes]:
    with open(path, "rb") as file:
        yield from iter(lambda: file.read(_BLOCK), b"")


def _of_zstd(path: str) -> Iterator[bytes]:
    from pyarrow import CompressedInputStream, OSFile  # type: ignore[import-untyped]

    try:
        with OSFile(path) as file, CompressedInputStream(file, "zstd") as stream:
            yield from iter(lambda: bytes(stream.read(_BLOCK)), b"")
    except OSError:
        raise Damage(ZSTD_DAMAGED) from None


def _raised(damage: str) -> Iterator[bytes]:
    raise Damage(damage)
    yield b""


def _of_text(blocks: Iterator[bytes], is_packed: bool) -> Iterator[bytes] | None:
    """Return the lines of text by its beginning; None if it consists of lines, unless these must be unpacked."""
    try:
        head = next(blocks, b"")
    except Damage as damage:
        return _raised(str(damage)) if is_packed else None
    whole = chain([head], blocks)
    if (encoding := _UTF_16.get(head[:2])) is not None:
        return _of_text(_in_utf_8(whole, encoding), is_packed=True)
    if head.startswith((_PARQUET, _AVRO)):
        return _raised(BINARY_PACKED)
    begins = head.removeprefix(_BYTE_ORDER_MARK).lstrip(_BLANKS)
    for look, read in _READERS:
        if look.match(begins):
            return _ended(read(_lines(whole)))
    return whole if is_packed else None


def _in_utf_8(blocks: Iterable[bytes], encoding: str) -> Iterator[bytes]:
    """Yield text in UTF-8; half of a pair of UTF-16 becomes bytes that are not UTF-8."""
    decoder = codecs.getincrementaldecoder(encoding)("surrogatepass")
    for block in blocks:
        yield decoder.decode(block).encode("utf-8", "surrogatepass")
    if decoder.getstate()[0]:
        raise Damage(UTF_16_TRUNCATED)


def _lines(blocks: Iterable[bytes]) -> Iterator[bytes]:
    """Yield lines without their newlines; what stands before damage is a line."""
    begun: list[bytes] = []
    try:
        for block in blocks:
            first, *ended = block.split(b"\n")
            begun.append(first)
            for line in ended:
                yield b"".join(begun)
                begun = [line]
    except Damage:
        yield b"".join(begun)
        raise
    if begun != [b""]:
        yield b"".join(begun)


def _ended(lines: Iterable[bytes]) -> Iterator[bytes]:
    for line in lines:
        yield line + b"\n"


def _objects(lines: Iterable[bytes]) -> Iterator[bytes]:
    """Yield each outermost object, and what stands between them, if it is not blank or the punctuation of an array.

    No string holds a raw newline, so a string that is not closed ends with its line. If objects are indented, one that
    begins at the margin is a new one.
    """
    parts: list[bytes] = []
    depth, number = 0, 0
    is_indented = False
    try:
        for number, line in enumerate(lines):
            is_indented |= number == 1 and line[:1] in (b" ", b"\t")
            if depth and is_indented and line.startswith(b"{"):
                yield b" ".join(parts)
                parts, depth = [], 0
            at = 0
            for token in _TOKEN.finditer(line):
                if token[0] == b"{":
                    if not depth:
                        if (between := line[at : token.start()]).strip(_BETWEEN + _BYTE_ORDER_MARK):
                            yield between
                        at = token.start()
                    depth += 1
                elif token[0] == b"}" and depth:
                    depth -= 1
                    if not depth:
                        yield b" ".join((*parts, line[at : token.end()]))
                        parts, at = [], token.end()
            if depth:
                parts.append(line[at:])
            elif line[at:].strip(_BETWEEN):
                yield line[at:]
    except Damage:
        if parts:
            yield b" ".join(parts)
        raise
    if parts:
        yield b" ".join(parts)


def _printed(begins: re.Pattern[bytes], lines: Iterable[bytes]) -> Iterator[bytes]:
    """Yield a console consumer's records; lines that do not begin one belong to the value or header before them."""
    record: list[bytes] = []
    try:
        for line in lines:
            if record and begins.match(line):
                yield _quoted(record)
                record = []
            record.append(line)
    except Damage:
        if record:
            yield _quoted(record)
        raise
    if record:
        yield _quoted(record)


def _quoted(record: list[bytes]) -> bytes:
    """Return what a console consumer printed as a line of kcat's JSON, or with an error in place of the payload.

    Kafka's DefaultMessageFormatter escapes nothing: commas in headers and the word null leave doubts.
    """
    printed = b"\n".join(record)
    kind, time, partition, offset, rest = (_FIELDS.fullmatch(printed) or _FIELDS.fullmatch(b"")).groups()  # type: ignore[union-attr]
    fields = _SEPARATOR.split(rest or b"")
    said: dict[str, Any] = {"printed": _text(printed), UNPACKED: "console-consumer"}
    has_headers = len(fields) > 1 and (fields[0] == b"NO_HEADERS" or _HEADER.match(fields[0]) is not None)
    pairs = _NEXT_HEADER.split(fields.pop(0)) if has_headers else []
    if pairs == [b"NO_HEADERS"]:
        pairs = []
        error = None
    else:
        error = KEY_OR_HEADER if len(pairs) == 1 and len(fields) == 1 else None
    error = TOO_MANY_TABS if len(fields) > 2 else error
    error = NO_OFFSET if offset is None else error
    error = NO_PARTITION if partition is None else error
    error = NO_COORDINATE if partition is None and offset is None else error
    if error:
        return _json({**said, "payload_error": error})
    is_lossy = bool(pairs) or b"null" in fields or len(record) > 1 or _REPLACED in printed
    headers = [part for pair in pairs for part in pair.split(b":", 1)]
    stated = {
        UNPACKED: "console-consumer lossy" if is_lossy else "console-consumer",
        "partition": _number(partition),
        "offset": _number(offset),
        "tstype": {b"CreateTime": "create", b"LogAppendTime": "logappend"}.get(kind, "unknown"),
        "ts": _number(time or b"-1"),
        "headers": [_text(part) if at % 2 == 0 or part != b"null" else None for at, part in enumerate(headers)],
        "key": _text(fields[0]) if len(fields) == 2 and fields[0] != b"null" else None,
        "payload": _text(fields[-1]) if fields[-1] != b"null" else None,
    }
    return _json({**said, **stated})


def _number(digits: bytes) -> int:
    return int(digits[:_MOST_DIGITS])


def _text(raw: bytes) -> str:
    return raw.decode("iso-8859-1")


def _json(said: Mapping[str, Any]) -> bytes:
    """Return JSON whose strings have the bytes that ``_text`` took, with nothing escaped but what JSON demands."""
    return json.dumps(said, ensure_ascii=False, separators=(",", ":")).encode("iso-8859-1")


_READERS: tuple[tuple[re.Pattern[bytes], Callable[[Iterator[bytes]], Iterator[bytes]]], ...] = (
    (_PRETTY, _objects),
    (_ARRAY, _objects),
    (_CONSOLE, partial(_printed, _CONSOLE)),
    (_PRINTED_HEADERS, partial(_printed, _PRINTED_HEADERS)),
)


def _of_parquet(path: str) -> Iterator[bytes]:
    import pyarrow as pa
    from pyarrow.parquet import ParquetFile  # type: ignore[import-untyped]

    try:
        with ParquetFile(path, coerce_int96_timestamp_unit="us") as file:
            for batch in file.iter_batches(1_000):
                columns = [
                    column.cast(pa.timestamp("us", column.type.tz), safe=False)
                    if pa.types.is_timestamp(column.type)
                    else column
                    for column in batch.columns
                ]
                for row in pa.RecordBatch.from_arrays(columns, names=batch.schema.names).to_pylist():
                    yield _captured(row, "parquet")
    except (OSError, pa.ArrowException):
        raise Damage(BINARY_DAMAGED) from None


def _of_avro(path: str) -> Iterator[bytes]:
    import fastavro

    with open(path, "rb") as file:
        try:
            for row in fastavro.reader(file):
                yield _captured(row if isinstance(row, dict) else {"value": row}, "avro")
        except Damage:
            raise
        except Exception:  # fastavro raises many kinds, also of Python's own
            raise Damage(BINARY_DAMAGED) from None


def _captured(row: Mapping[str, Any], kind: str) -> bytes:
    """Return a row of a binary file as a line of the capture form, with its other columns as JSON."""
    line: dict[str, Any] = dict(row)
    is_lossy = False
    for name in ("key", "value"):
        if name in row:
            line[name], is_text = _base64(row[name])
            is_lossy |= not is_text
    if row.get("headers") is not None:
        line["headers"] = []
        pairs = row["headers"].items() if isinstance(row["headers"], Mapping) else row["headers"]
        for pair in pairs:
            called, value = (pair.get("key"), pair.get("value")) if isinstance(pair, Mapping) else pair
            encoded, is_text = _base64(value)
            is_lossy |= not is_text or isinstance(row["headers"], Mapping)
            line["headers"].append({"key": called, "value": encoded})
    if isinstance(at := row.get("timestamp"), datetime):
        line["timestamp"] = _millis(at)
    line[UNPACKED] = f"{kind} lossy" if is_lossy else kind
    return json.dumps(line, ensure_ascii=False, default=_as_json, separators=(",", ":")).encode()


def _base64(value: Any) -> tuple[str | None, bool]:
    """Return a value in base64, and whether it was bytes or text; other values become JSON text."""
    if value is None:
        return None, True
    is_text = isinstance(value, (bytes, str))
    text = value if is_text else json.dumps(value, ensure_ascii=False, default=_as_json)
    return base64.b64encode(text.encode() if isinstance(text, str) else text).decode(), is_text


def _millis(at: datetime) -> int:
    at = at if at.tzinfo else at.replace(tzinfo=UTC)
    return int((at - datetime(1970, 1, 1, tzinfo=UTC)).total_seconds() * 1000)


def _as_json(value: Any) -> Any:
    return base64.b64encode(value).decode() if isinstance(value, bytes) else str(value)
