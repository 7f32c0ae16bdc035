"""The value of a compressed message (magic 0 and 1) -> offsets and number of the messages in it, in bounded memory."""

from __future__ import annotations

import gzip
import struct
import zlib
from collections.abc import Callable, Iterator
from typing import BinaryIO, NamedTuple

import cramjam

Chunk = bytes | memoryview

LEAST_LENGTH = 14  # bytes of a message of magic 0 without key and value, not counting its offset and length

_BLOCK = 1 << 20
# Snappy and LZ4 unpack a block at once. Framed blocks are small; an unframed block is as large as its message.
_MOST_OF_A_BLOCK = 32 << 20
_INT32_MOST = 2**31 - 1

_ENTRY = struct.Struct(">qi")
_OPENING = struct.Struct(">Ibbq")  # checksum, magic, attributes, timestamp: of magic 1

_SNAPPY_JAVA = b"\x82SNAPPY\x00"
_SNAPPY_JAVA_HEADER = 16
_LZ4_FRAME = b"\x04\x22\x4d\x18"
_LZ4_VERSION, _LZ4_INDEPENDENT, _LZ4_BLOCK_CHECKSUM, _LZ4_CONTENT_SIZE, _LZ4_DICTIONARY = 0x40, 0x20, 0x10, 0x08, 0x01
_LZ4_STORED = 1 << 31


class Unreadable(Exception):
    """Raised if the value is not in the form of its codec or of the message format."""


class Messages(NamedTuple):
    """The messages in a compressed message: offsets as stored in it, timestamp in epoch ms (-1: none)."""

    first_offset: int
    last_offset: int
    first_timestamp: int
    record_count: int


def messages(codec: str, value: BinaryIO) -> Messages:
    """Unpack the value of a compressed message block by block and step over the messages in it.

    A message that the value's end cuts off is ignored, as in Kafka.

    Raises Unreadable: the codec does not exist for these messages, the value is damaged, or it holds no message.
    """
    unpacked = _UNPACKED.get(codec)
    if unpacked is None:
        raise Unreadable
    try:
        return _stepped_over(_Flow(unpacked(value)))
    except (cramjam.DecompressionError, gzip.BadGzipFile, zlib.error, EOFError) as error:
        raise Unreadable from error


def _stepped_over(flow: _Flow) -> Messages:
    count, first_offset, last_offset, first_timestamp = 0, -1, -1, -1
    while len(entry := flow.take(_ENTRY.size)) == _ENTRY.size:
        offset, length = _ENTRY.unpack(entry)
        if length < LEAST_LENGTH:
            raise Unreadable
        opening = flow.take(min(length, _OPENING.size)) if not count else b""
        if not flow.skip(length - len(opening)):
            break
        if not count:
            first_offset = offset
            if len(opening) == _OPENING.size and opening[4] == 1:
                first_timestamp = _OPENING.unpack(opening)[3]
        last_offset = offset
        count += 1
    if not 0 < count <= _INT32_MOST:
        raise Unreadable
    return Messages(first_offset, last_offset, first_timestamp, count)


class _Flow:
    """Chunks of bytes as one stream; memory never holds all of them at once."""

    def __init__(self, chunks: Iterator[Chunk]) -> None:
        self._chunks = chunks
        self._chunk: Chunk = b""
        self._at = 0

    def take(self, count: int) -> bytes:
        """Return the next bytes; fewer at the end."""
        taken = bytes(self._chunk[self._at : self._at + count])
        self._at += len(taken)
        while len(taken) < count and self._next():
            more = self._chunk[: count - len(taken)]
            self._at = len(more)
            taken += more
        return taken

    def skip(self, count: int) -> bool:
        """Skip bytes; tell whether there were so many."""
        while count > len(self._chunk) - self._at:
            count -= len(self._chunk) - self._at
            if not self._next():
                return False
        self._at += count
        return True

    def _next(self) -> bool:
        self._chunk, self._at = next(filter(len, self._chunks), b""), 0
        return bool(self._chunk)


def _gzip(value: BinaryIO) -> Iterator[Chunk]:
    with gzip.GzipFile(fileobj=value) as unpacked:
        while chunk := unpacked.read(_BLOCK):
            yield chunk


def _snappy(value: BinaryIO) -> Iterator[Chunk]:
    """Yield the blocks of snappy-java's framing, or the one block that clients without that framing write."""
    begin = value.read(_SNAPPY_JAVA_HEADER)
    if not begin.startswith(_SNAPPY_JAVA):
        yield _snappy_block(begin + value.read(_MOST_OF_A_BLOCK))
        return
    while size := value.read(4):
        yield _snappy_block(_exactly(value, int.from_bytes(size, "big")))


def _snappy_block(packed: bytes) -> Chunk:
    unpacked = bytearray(_allowed(cramjam.snappy.decompress_raw_len(packed)))
    return memoryview(unpacked)[: cramjam.snappy.decompress_raw_into(packed, unpacked)]


def _lz4(value: BinaryIO) -> Iterator[Chunk]:
    """Yield the blocks of a frame.

    The checksum of the frame's header is ignored: with magic 0, clients computed it over too many bytes, and the
    message's own checksum covers the header. Kafka supports neither dependent blocks nor dictionaries.
    """
    magic, (flags, size) = _exactly(value, 4), _exactly(value, 2)
    if magic != _LZ4_FRAME or flags & 0xC0 != _LZ4_VERSION or flags & _LZ4_DICTIONARY or not flags & _LZ4_INDEPENDENT:
        raise Unreadable
    _exactly(value, 9 if flags & _LZ4_CONTENT_SIZE else 1)
    most = 1 << (8 + 2 * (size >> 4 & 7))
    unpacked = bytearray(most)
    while size := int.from_bytes(_exactly(value, 4), "little"):
        stored = bool(size & _LZ4_STORED)
        size &= _LZ4_STORED - 1
        if size > most:
            raise Unreadable
        block = _exactly(value, size)
        if flags & _LZ4_BLOCK_CHECKSUM:
            _exactly(value, 4)
        yield block if stored else memoryview(unpacked)[: cramjam.lz4.decompress_block_into(block, unpacked, most)]


def _exactly(value: BinaryIO, count: int) -> bytes:
    data = value.read(_allowed(count))
    if len(data) < count:
        raise EOFError
    return data


def _allowed(size: int) -> int:
    if size > _MOST_OF_A_BLOCK:
        raise Unreadable
    return size


_UNPACKED: dict[str, Callable[[BinaryIO], Iterator[Chunk]]] = {"gzip": _gzip, "snappy": _snappy, "lz4": _lz4}
