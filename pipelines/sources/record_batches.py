"""The bytes of a log segment -> record batches: the header of each and the control records; no payload.

A segment is a sequence of batches. The header of a batch of magic 2 says everything (KIP-98). With magic 0 and 1, a
message is a batch of its own, and a compressed message is a batch of the messages in its value.
"""

from __future__ import annotations

import io
import struct
import zlib
from collections.abc import Callable, Iterator
from typing import Any, BinaryIO, NamedTuple

from crc32c import crc32c

from expectations.bronze.record_batches import UNREAD
from pipelines.sources import message_sets
from pipelines.sources.log_dirs import OFFSET_MOST

NOT_A_SEGMENT, PACKED, DUMP_TEXT, CONFIGS_TEXT = UNREAD
IMPLAUSIBLE_SIZE = "implausible_size"
UNKNOWN_MAGIC = "unknown_magic"
WRONG_CRC = "wrong_crc"
MALFORMED = "malformed"
OUT_OF_ORDER = "out_of_order"
TORN_BATCH = "torn_batch"
ZERO_FILLED = "zero_filled"
NOT_TOPIC_METADATA = "not_topic_metadata"
DAMAGED_PACK = "damaged_pack"
ERRORS = (
    *(*UNREAD, IMPLAUSIBLE_SIZE, UNKNOWN_MAGIC, WRONG_CRC, MALFORMED),
    *(OUT_OF_ORDER, TORN_BATCH, ZERO_FILLED, NOT_TOPIC_METADATA, DAMAGED_PACK),
)
# How a segment can end while its broker still writes to it: such a copy is incomplete, not wrong.
OPEN_ENDS = (TORN_BATCH, ZERO_FILLED)

BLOCK = 1 << 20
_MOST_OF_A_CONTROL_RECORD = 4096
_INT32_MOST = 2**31 - 1
_INT64_MOST = 2**63 - 1

_CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
_CREATE_TIME, _LOG_APPEND_TIME, _NO_TIME = "CreateTime", "LogAppendTime", "NoTimestampType"
_IS_APPEND_TIME, _IS_TRANSACTIONAL, _IS_CONTROL, _HAS_DELETE_HORIZON = 0x08, 0x10, 0x20, 0x40
_MARKERS = {0: "ABORT", 1: "COMMIT"}

# Base offset, length of what follows, leader epoch (magic 2) or checksum, magic: at the same position in all formats.
_PREFIX = struct.Struct(">qiib")
_LENGTH_ENDS = 12
_V0 = struct.Struct(">qiIbB")
_V1 = struct.Struct(">qiIbBq")
_V2 = struct.Struct(">qiibIHiqqqhii")
_V0_CHECKED_FROM, _V2_CHECKED_FROM = 16, 21
_HEADERS = {0: _V0, 1: _V1, 2: _V2}
_LEAST_LENGTHS = {0: message_sets.LEAST_LENGTH, 1: 22, 2: _V2.size - _LENGTH_ENDS}
_CONTROL_KEY = struct.Struct(">hh")
_MARKER_VALUE = struct.Struct(">hi")


class Batch(NamedTuple):
    """A record batch, or the bytes in its place; the columns of ``SCHEMA`` from ``position`` to ``coordinator_epoch``.

    ``position`` and ``size_in_bytes`` are bytes of the segment. If ``unread_bytes`` is not null, reading ended here,
    and so many bytes from ``position`` on are not understood. ``error`` is one of ``ERRORS``; the other values of such
    a row are as stored, and must not be relied on. Timestamps are epoch ms, -1 for none; with ``has_delete_horizon``
    ``base_timestamp`` is the horizon. Producer id, epoch and sequence are -1 for none.
    """

    position: int
    size_in_bytes: int | None = None
    unread_bytes: int | None = None
    header: bytes | None = None
    error: str | None = None
    base_offset: int | None = None
    last_offset: int | None = None
    magic: int | None = None
    attributes: int | None = None
    crc: int | None = None
    crc_ok: bool | None = None
    compression: str | None = None
    timestamp_type: str | None = None
    base_timestamp: int | None = None
    max_timestamp: int | None = None
    is_transactional: bool | None = None
    is_control: bool | None = None
    has_delete_horizon: bool | None = None
    producer_id: int | None = None
    producer_epoch: int | None = None
    base_sequence: int | None = None
    last_sequence: int | None = None
    partition_leader_epoch: int | None = None
    record_count: int | None = None
    control_key: bytes | None = None
    control_type: str | None = None
    coordinator_epoch: int | None = None


def batches(stream: BinaryIO, size: int, base_offset: int = 0) -> Iterator[Batch]:
    """Yield the batches of a segment in order of position; the stream is seekable and is read up to ``size``.

    After a batch with a wrong checksum, reading continues where its size says. After a batch of an unknown magic it
    does so too, if a valid batch or the end of the segment follows. Reading never searches for a batch, as a record's
    value can look like one; so an impossible size ends the segment. A stream that is shorter than ``size`` ends it too:
    the file has changed meanwhile.
    """
    window = _Window(stream, size)
    position, next_offset = 0, base_offset
    while position < size:
        try:
            batch = _batch_at(window, position)
            ends = batch.error in (IMPLAUSIBLE_SIZE, *OPEN_ENDS) or (
                batch.error == UNKNOWN_MAGIC and not _can_pass(window, batch, next_offset)
            )
        except _Shorter:
            return
        if ends:
            yield batch._replace(unread_bytes=size - position)
            return
        if batch.error is None and batch.base_offset is not None and batch.last_offset is not None:
            # A segment's indexes store offsets as int32, relative to the base offset in its name.
            in_order = batch.base_offset >= next_offset and batch.last_offset - base_offset <= _INT32_MOST
            next_offset = batch.last_offset + 1 if in_order else next_offset
            batch = batch if in_order else batch._replace(error=OUT_OF_ORDER)
        yield batch
        position = end_of(batch)


class _Shorter(Exception):
    """Raised if the stream is shorter than its stated size."""


class _Window:
    """A stream, read through a buffer of one block."""

    def __init__(self, stream: BinaryIO, size: int) -> None:
        self.size = size
        self._stream = stream
        self._block = memoryview(b"")
        self._begins = 0

    def at(self, position: int, count: int) -> memoryview:
        """Return the bytes from a position on, at most a block of them; fewer at the end of the stream."""
        count = min(count, BLOCK, self.size - position)
        offset = position - self._begins
        if not 0 <= offset <= len(self._block) - count:
            self._stream.seek(position)
            self._block = memoryview(self._stream.read(min(BLOCK, self.size - position)))
            self._begins, offset = position, 0
            if len(self._block) < count:
                raise _Shorter
        return self._block[offset : offset + count]

    def pieces(self, begin: int, end: int) -> Iterator[memoryview]:
        """Yield the bytes of a range in pieces, first those that the block holds."""
        while begin < end:
            held = self._begins + len(self._block) - begin
            piece = self.at(begin, min(held, end - begin) if held > 0 else end - begin)
            yield piece
            begin += len(piece)

    def is_zero_from(self, position: int) -> bool:
        """Tell whether the rest of the stream is nothing but zeros."""
        return all(bytes(piece) == bytes(len(piece)) for piece in self.pieces(position, self.size))


class _Section(io.RawIOBase):
    """A range of a window as a file object."""

    def __init__(self, window: _Window, begin: int, end: int) -> None:
        super().__init__()
        self._window, self._at, self._end = window, begin, end

    def readable(self) -> bool:
        """Return True: the file is readable."""
        return True

    def readinto(self, buffer: Any) -> int:
        """Fill the buffer from the range; return how many bytes it holds, 0 at the end."""
        piece = self._window.at(self._at, min(len(buffer), self._end - self._at))
        buffer[: len(piece)] = piece
        self._at += len(piece)
        return len(piece)


def _batch_at(window: _Window, position: int) -> Batch:
    head = bytes(window.at(position, _V2.size))
    if len(head) < _PREFIX.size:
        return Batch(position, header=head, error=TORN_BATCH)
    base_offset, length, _, magic = _PREFIX.unpack_from(head)
    size = _LENGTH_ENDS + length
    is_plausible = length >= _LEAST_LENGTHS.get(magic, message_sets.LEAST_LENGTH)
    if magic in _HEADERS and is_plausible and position + size <= window.size:
        read = _batch_v2 if magic == 2 else _message
        return read(window, position, size, head)
    batch = Batch(position, size, header=head[: _HEADERS.get(magic, _PREFIX).size], magic=magic)
    if length == 0 and window.is_zero_from(position):
        return batch._replace(error=ZERO_FILLED)
    if magic not in _HEADERS and is_plausible:
        return batch._replace(error=UNKNOWN_MAGIC, base_offset=base_offset)
    # Positions in a segment are int32: no broker ever writes the rest of a batch that goes beyond them.
    if not is_plausible or position + size > _INT32_MOST:
        return batch._replace(error=IMPLAUSIBLE_SIZE)
    return batch._replace(error=TORN_BATCH, base_offset=base_offset)


def _can_pass(window: _Window, unknown: Batch, next_offset: int) -> bool:
    """Tell whether a valid batch, or the end of the segment, follows a batch of an unknown magic."""
    end, base_offset = end_of(unknown), unknown.base_offset
    if base_offset is None or base_offset < next_offset or end > window.size:
        return False
    if end == window.size:
        return True
    following = _batch_at(window, end)
    return following.error is None and following.base_offset is not None and following.base_offset > base_offset


def end_of(batch: Batch) -> int:
    """Return the position after a batch."""
    assert batch.size_in_bytes is not None
    return batch.position + batch.size_in_bytes


def _checksum(window: _Window, begin: int, end: int, algorithm: Callable[[memoryview, int], int]) -> int:
    checksum = 0
    for piece in window.pieces(begin, end):
        checksum = algorithm(piece, checksum)
    return checksum


def _batch_v2(window: _Window, position: int, size: int, head: bytes) -> Batch:
    base_offset, _, leader_epoch, _, crc, attributes, last_delta, *rest = _V2.unpack(head)
    base_timestamp, max_timestamp, producer_id, producer_epoch, base_sequence, record_count = rest
    codec, last_offset = attributes & 0x07, base_offset + last_delta
    crc_ok = _checksum(window, position + _V2_CHECKED_FROM, position + size, crc32c) == crc
    is_control = bool(attributes & _IS_CONTROL)
    consistent = (
        base_offset >= 0
        and last_delta >= 0
        and last_offset <= OFFSET_MOST
        and 0 <= record_count <= last_delta + 1
        and codec < len(_CODECS)
    )
    batch = Batch(
        position,
        size,
        header=head,
        error=None if crc_ok and consistent else MALFORMED if crc_ok else WRONG_CRC,
        base_offset=base_offset,
        last_offset=last_offset if last_offset <= _INT64_MOST else None,
        magic=2,
        attributes=attributes,
        crc=crc,
        crc_ok=crc_ok,
        compression=_CODECS[codec] if codec < len(_CODECS) else None,
        timestamp_type=_LOG_APPEND_TIME if attributes & _IS_APPEND_TIME else _CREATE_TIME,
        base_timestamp=base_timestamp,
        max_timestamp=max_timestamp,
        is_transactional=bool(attributes & _IS_TRANSACTIONAL),
        is_control=is_control,
        has_delete_horizon=bool(attributes & _HAS_DELETE_HORIZON),
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=base_sequence,
        # Sequences wrap around from the greatest int32 to 0.
        last_sequence=-1 if base_sequence < 0 else (base_sequence + last_delta) & _INT32_MOST,
        partition_leader_epoch=leader_epoch,
        record_count=record_count,
    )
    return _with_control(window, batch) if is_control and record_count and batch.error is None else batch


def _with_control(window: _Window, batch: Batch) -> Batch:
    """Add what the first record of a control batch says; brokers write one record, uncompressed."""
    begin = batch.position + _V2.size
    key, value = _key_and_value(bytes(window.at(begin, min(end_of(batch) - begin, _MOST_OF_A_CONTROL_RECORD))))
    if batch.compression != "none" or key is None or len(key) < _CONTROL_KEY.size:
        return batch._replace(error=MALFORMED)
    _, number = _CONTROL_KEY.unpack_from(key)
    is_marker = number in _MARKERS and value and len(value) >= _MARKER_VALUE.size
    return batch._replace(
        control_key=key,
        control_type=_MARKERS.get(number, str(number)),
        coordinator_epoch=_MARKER_VALUE.unpack_from(value or b"")[1] if is_marker else None,
    )


def _key_and_value(record: bytes) -> tuple[bytes | None, bytes | None]:
    """Return key and value of the record at the start of the bytes; None if absent, or not within these bytes."""
    at = 0
    fields: list[bytes | None] = []
    try:
        _, at = _varint(record, at)  # the record's length
        _, at = _varint(record, at + 1)  # after its attributes, the timestamp's delta
        _, at = _varint(record, at)  # the offset's delta
        for _ in range(2):
            length, at = _varint(record, at)
            end = at + max(length, 0)
            fields.append(record[at:end] if length >= 0 and end <= len(record) else None)
            at = end
    except IndexError:
        fields += [None, None]
    return fields[0], fields[1]


def _varint(data: bytes, at: int) -> tuple[int, int]:
    """Return the zigzag-encoded number at a position, and the position after it.

    Raises IndexError: the number does not end.
    """
    number = shift = 0
    while True:
        byte = data[at]
        at += 1
        number |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            return (number >> 1) ^ -(number & 1), at


def _message(window: _Window, position: int, size: int, head: bytes) -> Batch:
    """Read a message of magic 0 or 1; if it is compressed, only the messages in its value tell the first offset."""
    offset, _, crc, magic, attributes = _V0.unpack_from(head)
    timestamp, timestamp_type = -1, _NO_TIME
    if magic == 1:
        timestamp = _V1.unpack_from(head)[-1]
        timestamp_type = _LOG_APPEND_TIME if attributes & _IS_APPEND_TIME else _CREATE_TIME
    codec = attributes & 0x07
    crc_ok = _checksum(window, position + _V0_CHECKED_FROM, position + size, zlib.crc32) == crc
    batch = Batch(
        position,
        size,
        header=head[: _HEADERS[magic].size],
        error=None if crc_ok and 0 <= offset <= OFFSET_MOST else MALFORMED if crc_ok else WRONG_CRC,
        base_offset=offset if codec == 0 else None,
        last_offset=offset,
        magic=magic,
        attributes=attributes,
        crc=crc,
        crc_ok=crc_ok,
        compression=_CODECS[codec] if codec < len(_CODECS) else None,
        timestamp_type=timestamp_type,
        base_timestamp=timestamp,
        max_timestamp=timestamp,
        is_transactional=False,
        is_control=False,
        has_delete_horizon=False,
        producer_id=-1,
        producer_epoch=-1,
        base_sequence=-1,
        last_sequence=-1,
        partition_leader_epoch=-1,
        record_count=1 if codec == 0 else None,
    )
    return batch if codec == 0 or batch.error else _with_messages(window, batch)


def _with_messages(window: _Window, batch: Batch) -> Batch:
    """Add what the messages in a compressed message say; with magic 1 their last offset is the outer offset."""
    assert batch.last_offset is not None
    malformed = batch._replace(error=MALFORMED)
    begin, end = batch.position + (_V0 if batch.magic == 0 else _V1).size, end_of(batch)
    begin += 8 + max(_int32(window, begin), 0)
    if begin > end or begin + _int32(window, begin - 4) != end:
        return malformed
    try:
        inner = message_sets.messages(batch.compression or "", io.BufferedReader(_Section(window, begin, end), BLOCK))
    except message_sets.Unreadable:
        return malformed
    base_offset = inner.first_offset
    if batch.magic == 1:
        base_offset += batch.last_offset - inner.last_offset
    if base_offset < 0 or inner.record_count > batch.last_offset - base_offset + 1:
        return malformed
    is_create_time = batch.timestamp_type == _CREATE_TIME
    return batch._replace(
        base_offset=base_offset,
        base_timestamp=inner.first_timestamp if is_create_time else batch.base_timestamp,
        record_count=inner.record_count,
    )


def _int32(window: _Window, position: int) -> int:
    return int.from_bytes(window.at(position, 4), "big", signed=True)
