"""Log segments -> record batches: the header of each and the control records; no payload, in bounded memory.

A segment, ``<topic>-<partition>/<base offset>.log`` (``log_dirs`` has all names), is a sequence of batches. The header
of a batch of magic 2 says everything (KIP-98). With magic 0 and 1, a message is a batch of its own, and a compressed
message is a batch of the messages in its value. A segment can be packed as a whole, by gzip or Zstandard.

A landed file is a snapshot: its next version can continue where it ended, or have other content. A digest of headers
tells which. ``partition.metadata`` beside segments has the topic id; a topic that is created again gets another id.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import os
import re
import shutil
import struct
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import TYPE_CHECKING, Any, BinaryIO, NamedTuple

import cramjam
from crc32c import crc32c

from expectations.bronze.record_batches import UNREAD
from pipelines.sources import kafka_tools, landing, log_dirs, message_sets
from pipelines.sources.landing import LandedFile
from pipelines.sources.log_dirs import METADATA, OFFSET_MOST, Segment

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

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

FILE = """struct<
  size_in_bytes: bigint, modified_ns: bigint, topic_id: string, first_version: int, batch_count: bigint,
  covered: array<struct<first_offset: bigint, last_offset: bigint>>, greatest_timestamp: bigint, least_epoch: int,
  greatest_epoch: int, greatest_epoch_offset: bigint, read_to: bigint, digest: binary>"""

SCHEMA = f"""
  _source string, topic string, partition int, position bigint, size_in_bytes bigint, unread_bytes bigint,
  header binary, error string, base_offset bigint, last_offset bigint, magic int, attributes int, crc bigint,
  crc_ok boolean, compression string, timestamp_type string, base_timestamp bigint, max_timestamp bigint,
  is_transactional boolean, is_control boolean, has_delete_horizon boolean, producer_id bigint, producer_epoch int,
  base_sequence int, last_sequence int, partition_leader_epoch int, record_count int, control_key binary,
  control_type string, coordinator_epoch int, version int, kept_bytes bigint, file {FILE}
"""

_MOST_OF_A_TEXT = 4096
_TEXTS = {
    code: re.compile(rb"^(?:" + begins.encode() + rb")", re.MULTILINE)
    for code, begins in ((DUMP_TEXT, kafka_tools.DUMP_LOG), (CONFIGS_TEXT, kafka_tools.CONFIGS))
}

_BLOCK = 1 << 20
_MOST_TASKS = 1_000
_MOST_OF_A_CONTROL_RECORD = 4096
_INT32_MOST = 2**31 - 1
_INT64_MOST = 2**63 - 1

_TOPIC_METADATA = re.compile(rb"version: ?0\r?\ntopic_id: ?([A-Za-z0-9_-]{21}[AQgw])\s*")
_MOST_OF_METADATA = 1024
_NO_TOPIC_ID = "A" * 22

_CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
_CREATE_TIME, _LOG_APPEND_TIME, _NO_TIME = "CreateTime", "LogAppendTime", "NoTimestampType"
_IS_APPEND_TIME, _IS_TRANSACTIONAL, _IS_CONTROL, _HAS_DELETE_HORIZON = 0x08, 0x10, 0x20, 0x40
_MARKERS = {0: "ABORT", 1: "COMMIT"}

# Base offset, length of what follows, leader epoch (magic 2) or checksum, magic: at the same place in all formats.
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


class Version(NamedTuple):
    """What bronze holds of the latest version of a file: columns of ``SCHEMA`` and of its ``file``."""

    version: int
    first_version: int
    modified_ns: int
    topic_id: str | None
    read_to: int
    digest: bytes


class TopicMetadata(NamedTuple):
    """The topic id in a ``partition.metadata``, and when that file was modified."""

    topic_id: str
    modified_ns: int


listing = log_dirs.listing
passed_over = log_dirs.passed_over


def unread(directory: Path, read: Mapping[str, LandedFile]) -> dict[str, LandedFile]:
    """Return, by source, the files that are new, or changed since they were read.

    The segment before a new one is read again: an open end was allowed while it was the newest, and is an error now.
    All segments beside a new or changed ``partition.metadata`` are read again too.
    """
    listed = {name: file for name, file in listing(directory).items() if log_dirs.is_read(name)}
    sources = {source for source, file in listed.items() if read.get(source) != file}
    stated = {source for source in sources if log_dirs.partition_of_metadata(source)}
    for segments in _by_log(listed).values():
        sources |= {before.source for before, after in pairwise(segments) if after.source not in read}
        sources |= {segment.source for segment in segments if stated and _metadata_beside(segment.source) in stated}
    return {source: listed[source] for source in sorted(sources)}


def read(
    spark: SparkSession, directory: Path, files: Sequence[LandedFile], landed: DataFrame | None = None
) -> DataFrame:
    """Return ``SCHEMA``: a row per batch, per place where none can be read, and per file; one task decodes a file.

    An incomplete end of a partition's newest segment is left out: the file is read again when it grows.
    ``landed`` are bronze's rows of these files, None if there are none. If a file continues where its last version
    ended, bronze already holds its first ``kept_bytes`` bytes.
    Executors need this package and the directory. They send rows as they decode them, whatever the file's size.
    """
    listed = listing(directory)
    newest = {segments[-1].source for segments in _by_log(filter(log_dirs.is_read, listed)).values()}
    root = os.path.realpath(directory)
    stated = {
        beside: _topic_metadata(landing.path_of(root, beside), listed[beside])
        for beside in {_metadata_beside(file.source) for file in files}
        if beside in listed
    }
    before = _versions(landed) if landed is not None and "file" in landed.columns else {}
    work = [
        Work(
            Segment.of(file.source),
            file,
            landing.path_of(root, file.source),
            file.source in newest,
            _stated(file, stated),
            before.get(file.source),
        )
        for file in sorted(files, key=lambda file: file.size, reverse=True)
    ]
    decoded = spark.sparkContext.parallelize(work, max(1, min(len(work), _MOST_TASKS))).flatMap(rows)
    return spark.createDataFrame(decoded, SCHEMA, verifySchema=False)


def _versions(landed: DataFrame) -> dict[str, Version]:
    """Return the latest version of each file that bronze holds."""
    from pyspark.sql import functions as F

    names = ("first_version", "modified_ns", "topic_id", "read_to", "digest")
    facts = F.struct("version", *(F.col(f"file.{name}").alias(name) for name in names))
    latest = landed.where("file IS NOT NULL").groupBy("_source").agg(F.max_by(facts, "version").alias("latest"))
    versions = {row["_source"]: row["latest"].asDict() for row in latest.collect()}
    return {source: Version(**{**known, "digest": bytes(known["digest"])}) for source, known in versions.items()}


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
        position = _end(batch)


class Work(NamedTuple):
    """A file to decode, by its path; ``segment`` is None if its name is not a segment's."""

    segment: Segment | None
    file: LandedFile
    path: str
    is_newest: bool
    stated: TopicMetadata | None = None
    before: Version | None = None


def rows(work: Work) -> Iterator[tuple[Any, ...]]:
    """Yield a file's rows of ``SCHEMA``, without an open end of a partition's newest segment; its own row is last."""
    segment, file = work.segment, work.file
    version = work.before.version + 1 if work.before else 1
    of_metadata = log_dirs.partition_of_metadata(file.source)
    wrong = (None if work.stated else NOT_TOPIC_METADATA) if of_metadata else _unread(work)
    if wrong:
        topic, partition = of_metadata or ((segment.topic, segment.partition) if segment else (None, None))
        batch = Batch(position=0, unread_bytes=file.size, error=wrong)
        yield (file.source, topic, partition, *batch, version, None, None)
    if wrong or segment is None:
        return
    log = (file.source, segment.topic, segment.partition)
    snapshot = _Snapshot(work, segment)
    with _opened(work) as (stream, size, is_damaged):
        for batch in batches(stream, size, segment.base_offset):
            if not (work.is_newest and batch.error in OPEN_ENDS):
                snapshot.add(batch)
                yield (*log, *batch, version, None, None)
        if is_damaged:
            yield (*log, *Batch(position=size, error=DAMAGED_PACK), version, None, None)
    yield (*log, *Batch(position=size), version, *snapshot.end())


def _unread(work: Work) -> str | None:
    """Return the code of ``UNREAD`` that says what a file is in place of a segment; None if it may be one."""
    unread = log_dirs.OTHERWISE_PACKED if work.segment else (*log_dirs.OTHERWISE_PACKED, *log_dirs.GZIP, *log_dirs.ZSTD)
    if work.file.source.lower().endswith(unread):
        return PACKED
    head = b""
    try:
        with open(work.path, "rb") as stream:
            head = stream.read(_MOST_OF_A_TEXT)
        if work.segment and work.segment.is_tiered:
            with open(f"{work.path.removesuffix('.log')}.rsm-manifest", "rb") as stream:
                manifest = json.load(stream)
            if manifest.get("compression") or manifest.get("encryption"):
                return PACKED
    except (OSError, ValueError, AttributeError):
        pass
    codes = (code for code, text in _TEXTS.items() if b"\0" not in head and text.search(head))
    return next(codes, None if work.segment else NOT_A_SEGMENT)


@contextmanager
def _opened(work: Work) -> Iterator[tuple[BinaryIO, int, bool]]:
    """Open a segment, unpacked; yield its size, too, and whether it is packed and can be unpacked only in part."""
    source = work.file.source.lower()
    if not source.endswith((*log_dirs.GZIP, *log_dirs.ZSTD)):
        with open(work.path, "rb") as stream:
            yield stream, work.file.size, False
        return
    is_damaged = False
    with NamedTemporaryFile() as unpacked:
        try:
            if source.endswith(log_dirs.GZIP):
                with gzip.open(work.path) as packed:
                    shutil.copyfileobj(packed, unpacked, _BLOCK)
            else:
                cramjam.zstd.decompress_into(cramjam.File(work.path), cramjam.File(unpacked.name))
        except (cramjam.DecompressionError, zlib.error, gzip.BadGzipFile, EOFError):
            is_damaged = True
        unpacked.flush()
        size = os.stat(unpacked.name).st_size
        with open(unpacked.name, "rb") as stream:
            yield stream, size, is_damaged


class _Snapshot:
    """Facts of a segment's version, collected batch by batch, and whether it continues where the last one ended."""

    def __init__(self, work: Work, segment: Segment) -> None:
        self._file, self._stated, self._before = work.file, work.stated, work.before
        self._digest = hashlib.sha256()
        self._read_to = 0
        # The first offset that the next batch covers; None if the bytes before it could not be read.
        self._expected: int | None = segment.base_offset
        self._covered: list[tuple[int, int]] = []
        self._batches = 0
        self._timestamp = self._least = self._greatest = -1
        self._greatest_at: int | None = None
        self._goes_on = self._is_at_the_end_before()

    def add(self, batch: Batch) -> None:
        """Add the next batch of the file."""
        if batch.unread_bytes is not None:
            return
        self._digest.update((batch.error or "").encode() + b"\n" + (batch.header or b""))
        self._read_to = _end(batch)
        self._goes_on = self._goes_on or self._is_at_the_end_before()
        if batch.error is not None or batch.base_offset is None or batch.last_offset is None:
            self._expected = None
            return
        if self._expected is None or not self._covered:
            self._covered.append((batch.base_offset if self._expected is None else self._expected, batch.last_offset))
        else:
            self._covered[-1] = (self._covered[-1][0], batch.last_offset)
        self._expected = batch.last_offset + 1
        self._batches += 1
        self._timestamp = max(self._timestamp, batch.max_timestamp if batch.max_timestamp is not None else -1)
        epoch = -1 if batch.partition_leader_epoch is None else batch.partition_leader_epoch
        if epoch >= 0:
            self._least = epoch if self._least < 0 else min(epoch, self._least)
            if epoch > self._greatest:
                self._greatest, self._greatest_at = epoch, batch.base_offset

    def end(self) -> tuple[int, tuple[Any, ...] | None]:
        """Return how many bytes are unchanged, and the file's facts: None if this version is known already."""
        before, digest = self._before, self._digest.digest()
        kept_bytes = before.read_to if before and self._goes_on else 0
        topic_id = self._topic_id()
        facts = (self._file.modified_ns, topic_id, self._read_to, digest)
        if before and facts == (before.modified_ns, before.topic_id, before.read_to, before.digest):
            return before.read_to, None
        version = before.version + 1 if before else 1
        return kept_bytes, (
            *(self._file.size, self._file.modified_ns, topic_id),
            before.first_version if before and self._goes_on else version,
            *(self._batches, self._covered, self._timestamp),
            *(self._least, self._greatest, self._greatest_at, self._read_to, digest),
        )

    def _is_at_the_end_before(self) -> bool:
        before = self._before
        return before is not None and self._read_to == before.read_to and self._digest.digest() == before.digest

    def _topic_id(self) -> str | None:
        """Return the id from beside the file; a file that continues keeps its own, unless it is as new as that id."""
        stated, before = self._stated, self._before
        if before and before.topic_id and before.read_to and self._goes_on:
            is_younger = stated is not None and self._file.modified_ns >= stated.modified_ns
            return stated.topic_id if stated and is_younger else before.topic_id
        return stated.topic_id if stated else None


def _stated(file: LandedFile, beside: Mapping[str, TopicMetadata | None]) -> TopicMetadata | None:
    """Return what is said of a file's topic: by its ``partition.metadata``, or by its own name."""
    segment = Segment.of(file.source)
    if segment and segment.topic_id:
        return TopicMetadata(segment.topic_id, file.modified_ns)
    return beside.get(_metadata_beside(file.source))


def _metadata_beside(source: str) -> str:
    return f"{source.rpartition('/')[0]}/{METADATA}"


def _topic_metadata(path: str, file: LandedFile) -> TopicMetadata | None:
    """Return what a ``partition.metadata`` says; None if it holds no topic id that can be read."""
    try:
        with open(path, "rb") as stream:
            metadata = _TOPIC_METADATA.fullmatch(stream.read(_MOST_OF_METADATA))
    except OSError:
        return None
    topic_id = metadata[1].decode() if metadata else _NO_TOPIC_ID
    return None if topic_id == _NO_TOPIC_ID else TopicMetadata(topic_id, file.modified_ns)


def _by_log(sources: Iterable[str]) -> dict[str, list[Segment]]:
    """Return the segments of brokers by directory, in order of base offset; those of tiered storage are complete."""
    logs: dict[str, list[Segment]] = {}
    for segment in filter(None, map(Segment.of, sources)):
        if not segment.is_tiered:
            logs.setdefault(segment.source.rpartition("/")[0], []).append(segment)
    return {
        directory: sorted(segments, key=lambda segment: segment.base_offset) for directory, segments in logs.items()
    }


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
        count = min(count, _BLOCK, self.size - position)
        offset = position - self._begins
        if not 0 <= offset <= len(self._block) - count:
            self._stream.seek(position)
            self._block = memoryview(self._stream.read(min(_BLOCK, self.size - position)))
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
    end, base_offset = _end(unknown), unknown.base_offset
    if base_offset is None or base_offset < next_offset or end > window.size:
        return False
    if end == window.size:
        return True
    following = _batch_at(window, end)
    return following.error is None and following.base_offset is not None and following.base_offset > base_offset


def _end(batch: Batch) -> int:
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
    key, value = _key_and_value(bytes(window.at(begin, min(_end(batch) - begin, _MOST_OF_A_CONTROL_RECORD))))
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
    begin, end = batch.position + (_V0 if batch.magic == 0 else _V1).size, _end(batch)
    begin += 8 + max(_int32(window, begin), 0)
    if begin > end or begin + _int32(window, begin - 4) != end:
        return malformed
    try:
        inner = message_sets.messages(batch.compression or "", io.BufferedReader(_Section(window, begin, end), _BLOCK))
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
