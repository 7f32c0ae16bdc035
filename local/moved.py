"""A captured file -> the same file, as if all of it had happened at another time: what the demo lands.

Times are moved in text, in base64 and in the batches of log segments, whose checksums are made right again. What has no
time in it, such as keys, offsets and sizes, stays.
"""

from __future__ import annotations

import gzip
import re
import struct
from base64 import b64decode, b64encode
from datetime import UTC, datetime, timedelta
from pathlib import Path

from crc32c import crc32c

FIRST, LAST = datetime(2026, 10, 1, tzinfo=UTC), datetime(2027, 1, 1, tzinfo=UTC)
"""Between these times all captures happened; no other number or text is taken for a time."""

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND = timedelta(milliseconds=1)
_TIMES = re.compile(
    rb"(?<![\w.])(?P<millis>\d{13})(?!\w|\.\d)"
    rb"|(?P<day>\d{4}-\d\d-\d\d)(?P<between>[T ])(?P<clock>\d\d:\d\d:\d\d)(?P<point>[.,])(?P<fraction>\d{3})"
    rb'|(?<="value":")(?P<base64>[A-Za-z0-9+/]{11,}=*)(?=")'
)
_LONGEST = 24
"""Characters of the longest time in text."""

# Base offset, length of what follows, leader epoch, magic, checksum; then what the checksum covers (KIP-98).
_BATCH = struct.Struct(">qiibI")
_TIMESTAMPS = struct.Struct(">qq")
_LENGTH_FROM, _TIMESTAMPS_AT = 12, 6
_MAGIC = 2


def content(file: Path, by: timedelta) -> bytes:
    """Return the content of a captured file with all times moved."""
    data = file.read_bytes()
    if not by:
        return data
    if file.suffix == ".gz":
        return gzip.compress(text(gzip.decompress(data), by), mtime=0)
    return segment(data, by) if file.parent.name.rpartition("-")[2].isdecimal() else text(data, by)


def text(lines: bytes, by: timedelta) -> bytes:
    """Return lines with all times moved; equal lines stay equal, and lines that are cut off stay so."""

    def moved(match: re.Match[bytes]) -> bytes:
        if match["millis"]:
            return b"%d" % _millis(int(match["millis"]), by)
        if match["base64"]:
            return _encoded(match["base64"], by)
        at = datetime.fromisoformat(f"{match['day'].decode()}T{match['clock'].decode()}+00:00")
        if not FIRST <= at < LAST:
            return match[0]
        at += timedelta(milliseconds=int(match["fraction"])) + by
        between, point = match["between"].decode(), match["point"].decode()
        return f"{at:%Y-%m-%d}{between}{at:%H:%M:%S}{point}{at.microsecond // 1000:03}".encode()

    return _TIMES.sub(moved, lines)


def segment(log: bytes, by: timedelta) -> bytes:
    """Return the batches of a log segment with their times moved; a batch whose checksum is wrong keeps it wrong."""
    moved, at = bytearray(log), 0
    while len(log) - at >= _BATCH.size + _TIMESTAMPS_AT + _TIMESTAMPS.size:
        _, length, _, magic, checksum = _BATCH.unpack_from(log, at)
        covered, end = at + _BATCH.size, at + _LENGTH_FROM + length
        if magic != _MAGIC or not covered + _TIMESTAMPS_AT + _TIMESTAMPS.size <= end <= len(log):
            break
        times = _TIMESTAMPS.unpack_from(log, covered + _TIMESTAMPS_AT)
        _TIMESTAMPS.pack_into(moved, covered + _TIMESTAMPS_AT, *(_millis(time, by) for time in times))
        if crc32c(log[covered:end]) == checksum:
            struct.pack_into(">I", moved, covered - 4, crc32c(bytes(moved[covered:end])))
        at = end
    return bytes(moved)


def _millis(millis: int, by: timedelta) -> int:
    """Return a time in ms since 1970, moved; a number that is none of the captures' times stays."""
    is_time = (FIRST - _EPOCH) // _MILLISECOND <= millis < (LAST - _EPOCH) // _MILLISECOND
    return millis + by // _MILLISECOND if is_time else millis


def _encoded(value: bytes, by: timedelta) -> bytes:
    """Return a header's value in base64, moved if it is a time: in text, or in eight bytes."""
    try:
        plain = b64decode(value, validate=True)
    except ValueError:
        return value
    if len(plain) == 8:
        return b64encode(_millis(int.from_bytes(plain, signed=True), by).to_bytes(8, signed=True))
    return b64encode(text(plain, by)) if len(plain) <= _LONGEST and _TIMES.fullmatch(plain.rstrip(b"Z")) else value
