"""Builders of log segments: batches of magic 2, messages of magic 0 and 1, alone or compressed together, markers."""

from __future__ import annotations

import gzip
import struct
import zlib
from collections.abc import Callable, Mapping, Sequence

import cramjam
from crc32c import crc32c

AT = 1_795_228_800_000
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")


def varint(number: int) -> bytes:
    """A number as a varint (zigzag), as records of magic 2 contain it."""
    zigzag = (number << 1) ^ (number >> 63)
    out = bytearray()
    while zigzag > 0x7F:
        out.append(zigzag & 0x7F | 0x80)
        zigzag >>= 7
    return bytes([*out, zigzag])


def record(
    delta: int, value: bytes | None = b"v", key: bytes | None = b"k", headers: Mapping[str, bytes] = {}
) -> bytes:
    """A record of magic 2 with the same offset delta and timestamp delta (ms) from its batch."""

    def part(data: bytes | None) -> bytes:
        return varint(-1) if data is None else varint(len(data)) + data

    named = b"".join(part(name.encode()) + part(data) for name, data in headers.items())
    body = b"\0" + varint(delta) + varint(delta) + part(key) + part(value) + varint(len(headers)) + named
    return varint(len(body)) + body


def batch(
    base_offset: int,
    count: int = 1,
    *,
    codec: str = "none",
    flags: int = 0,
    producer: tuple[int, int, int] = (-1, -1, -1),
    records: Sequence[bytes] | None = None,
    record_count: int | None = None,
    last_delta: int | None = None,
    base_timestamp: int = AT,
    max_timestamp: int | None = None,
    leader_epoch: int = 0,
) -> bytes:
    """A batch of magic 2 with a correct checksum; ``producer`` is id, epoch and base sequence."""
    records = [record(delta) for delta in range(count)] if records is None else records
    payload = PACKED[codec](b"".join(records))
    body = struct.pack(
        ">Hiqqqhii",
        CODECS.index(codec) | flags,
        count - 1 if last_delta is None else last_delta,
        base_timestamp,
        AT + count - 1 if max_timestamp is None else max_timestamp,
        *producer,
        count if record_count is None else record_count,
    )
    return assembled(base_offset, body + payload, leader_epoch)


def assembled(base_offset: int, body: bytes, leader_epoch: int = 0, magic: int = 2) -> bytes:
    """A batch of magic 2 from ``body``, the bytes after the checksum."""
    return struct.pack(">qiibI", base_offset, len(body) + 9, leader_epoch, magic, crc32c(body)) + body


def control(
    offset: int,
    number: int,
    value: bytes | None,
    producer: tuple[int, int] = (7, 0),
    flags: int = 0x30,
    leader_epoch: int = 0,
) -> bytes:
    """A control batch with one record; ``number`` is the control type."""
    key = struct.pack(">hh", 0, number)
    records = [record(0, value, key)]
    return batch(offset, flags=flags, producer=(*producer, -1), records=records, leader_epoch=leader_epoch)


def marker(
    offset: int,
    commits: bool,
    producer: tuple[int, int] = (7, 0),
    coordinator_epoch: int = 0,
    leader_epoch: int = 0,
) -> bytes:
    """The commit or abort marker of a transaction."""
    value = struct.pack(">hi", 0, coordinator_epoch)
    return control(offset, int(commits), value, producer, leader_epoch=leader_epoch)


def message(
    offset: int,
    magic: int,
    value: bytes | None = b"v",
    *,
    key: bytes | None = None,
    attributes: int = 0,
    timestamp: int = AT,
) -> bytes:
    """A message of magic 0 or 1 with a correct checksum."""

    def part(data: bytes | None) -> bytes:
        return struct.pack(">i", -1) if data is None else struct.pack(">i", len(data)) + data

    time = struct.pack(">q", timestamp) if magic else b""
    body = struct.pack(">bB", magic, attributes) + time + part(key) + part(value)
    return struct.pack(">qiI", offset, len(body) + 4, zlib.crc32(body)) + body


def wrapped(
    offset: int,
    magic: int,
    inner: bytes,
    codec: str,
    *,
    key: bytes | None = None,
    attributes: int = 0,
    timestamp: int = AT,
    pack: Callable[[bytes], bytes] | None = None,
) -> bytes:
    """A compressed message that contains other messages; ``pack`` replaces the codec's usual compression."""
    value = (pack or PACKED[codec])(inner)
    return message(offset, magic, value, key=key, attributes=attributes | CODECS.index(codec), timestamp=timestamp)


def snappy_java(data: bytes, block: int = 32_768) -> bytes:
    """Snappy in the framing of Java's clients."""
    out = bytearray(b"\x82SNAPPY\0" + struct.pack(">ii", 1, 1))
    for at in range(0, len(data), block):
        packed = unframed_snappy(data[at : at + block])
        out += struct.pack(">i", len(packed)) + packed
    return bytes(out)


def unframed_snappy(data: bytes) -> bytes:
    """Snappy in one block without framing, as librdkafka writes it."""
    return bytes(cramjam.snappy.compress_raw(data))


def lz4_frame(data: bytes) -> bytes:
    """An LZ4 frame of independent blocks, each with its checksum."""
    packer = cramjam.lz4.Compressor(block_linked=False)
    packer.compress(data)
    return bytes(packer.finish())


def lz4_stored(data: bytes, block: int = 65_536, header: str = "04224d18 60 40 ff") -> bytes:
    """An LZ4 frame of uncompressed blocks, with a wrong header checksum as in magic 0."""
    out = bytearray.fromhex(header)
    for at in range(0, len(data), block):
        piece = data[at : at + block]
        out += struct.pack("<I", len(piece) | 1 << 31) + piece
    return bytes(out + bytes(4))


PACKED: dict[str, Callable[[bytes], bytes]] = {
    "none": bytes,
    "gzip": lambda data: gzip.compress(data, mtime=0),
    "snappy": snappy_java,
    "lz4": lz4_frame,
    "zstd": lambda data: bytes(cramjam.zstd.compress(data)),
}
