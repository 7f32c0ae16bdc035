"""Log segments as they land -> a row per record batch, and the facts of each file; no payload, in bounded memory.

A segment is named ``<topic>-<partition>/<base offset>.log`` (``log_dirs`` has all names). It can be packed as a whole,
by gzip or Zstandard.

A landed file is a snapshot: its next version can continue where it ended, or have other content. A digest of headers
tells which. ``partition.metadata`` beside segments has the topic id; a topic that is created again gets another id.
"""

from __future__ import annotations

import gzip
import hashlib
import json
import os
import re
import shutil
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import TYPE_CHECKING, Any, BinaryIO, NamedTuple

import cramjam

from pipelines.sources import kafka_tools, landing, log_dirs
from pipelines.sources.landing import LandedFile
from pipelines.sources.log_dirs import METADATA, Segment
from pipelines.sources.record_batches import (
    BLOCK,
    CONFIGS_TEXT,
    DAMAGED_PACK,
    DUMP_TEXT,
    NOT_A_SEGMENT,
    NOT_TOPIC_METADATA,
    OPEN_ENDS,
    PACKED,
    Batch,
    batches,
    end_of,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


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
_MOST_TASKS = 1_000

_TOPIC_METADATA = re.compile(rb"version: ?0\r?\ntopic_id: ?([A-Za-z0-9_-]{21}[AQgw])\s*")
_MOST_OF_METADATA = 1024
_NO_TOPIC_ID = "A" * 22


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
    """Return ``SCHEMA``: a row per batch, per position where none can be read, and per file; one task decodes a file.

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
                    shutil.copyfileobj(packed, unpacked, BLOCK)
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
        self._read_to = end_of(batch)
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
