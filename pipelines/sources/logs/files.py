"""Landed files of lines -> rows: each file is read by one task, a rotated log across the ends of its files.

A log can be rotated in the middle of an event. What a file begins with, up to its first event, then belongs to the file
before it, and is read with that file only. Files belong to one log if their names differ in dates, or in numbers after
the extension, only; the one whose first event is older is before the other one.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from functools import partial
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from pipelines.errors import UsageError
from pipelines.sources import landing
from pipelines.sources.landing import LandedFile
from pipelines.sources.logs import events, layouts
from pipelines.sources.logs.layouts import Pattern

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

    from pipelines.settings import Settings


SCHEMA = """
  _source string, line binary, damage string, _occurrence int, _kind string, _other string, _logged_micros bigint,
  message string, error string, _event_id string, _is_partial boolean
"""
MOST_HERE = 4 << 20  # bytes of files that are read without a task: starting one takes longer
PACKED = 20  # so many times smaller a packed file can be
_HEAD_LINES = 2_000
_NEAR = 2  # files on each side
_BATCH_BYTES, _BATCH_ROWS = 8 << 20, 20_000
_NUMBERED = re.compile(r"(\.[A-Za-z]+)(?:[._-]\d[\d_T-]*)+$")
_DATED = re.compile(r"[._-]\d{4}-?\d\d-?\d\d(?:[._T-]\d+)*(?=\.)")


class Row(NamedTuple):
    """A row of ``SCHEMA`` without the source: ``other`` names a line that is not wanted, ``kind`` one that is."""

    line: bytes | None
    damage: str | None = None
    occurrence: int = 1
    kind: str | None = None
    other: str | None = None
    logged_micros: int | None = None
    message: str | None = None
    error: str | None = None
    event_id: str | None = None
    is_partial: bool = False


Earlier = Callable[[], "Text"]
Reader = Callable[["Text", str, Pattern | None, Earlier | None], Iterator[Row]]
"""Makes rows of a file's lines, given the time zone and the layout of the settings, and the file before it, if any."""


@dataclass(frozen=True)
class Head:
    """How a file begins: the time of its first event, and how many lines before it belong to the file before.

    If it has no event, the time is that when a wrapper took its first line.
    """

    first_at: datetime | None
    lines: int


@dataclass(frozen=True)
class Work:
    """A file to read, and what its log has before and after it.

    ``skip`` lines belong to the file ``before``. ``more`` is the file after it, and how many lines of that belong to
    this one.
    """

    root: str
    source: str
    damage: str | None
    reader: Reader
    timezone: str
    pattern: Pattern | None
    skip: int = 0
    more: tuple[str, int] | None = None
    before: Work | None = None


def family(source: str) -> str:
    """Return the name that the files of a rotated log share.

    A number without an extension before it, as in ``kafka-1.log``, names a broker, unless it is a date.
    """
    directory, _, name = source.rpartition("/")
    name = name[: -len(landing.GZIP)] if name.lower().endswith(landing.GZIP) else name
    name = _DATED.sub("", _NUMBERED.sub(r"\1", name))
    return f"{directory}/{name}"


class Rotations:
    """The files of a landing directory by the log that they belong to, in the order of the numbers in their names.

    Which of two files is older, their first events tell. Only files whose names are near each other are looked at, each
    once. The file without a number is near the first one and near the last one: numbers count back, dates forward.
    """

    def __init__(self, root: str, listed: Mapping[str, LandedFile], pattern: Pattern | None) -> None:
        """Sort the files by name; none is opened."""
        self.root, self.pattern = root, pattern
        self.members: dict[str, list[str]] = {}
        self.heads: dict[str, Head] = {}
        for source in sorted(listed, key=lambda name: ([int(digits) for digits in re.findall(r"\d+", name)], name)):
            self.members.setdefault(family(source), []).append(source)

    def head(self, source: str) -> Head:
        """Return how a file begins."""
        if source not in self.heads:
            self.heads[source] = head(self.root, source, self.pattern)
        return self.heads[source]

    def is_alone(self, source: str) -> bool:
        """Tell whether a log has one file."""
        return len(self.members[family(source)]) == 1

    def neighbours(self, source: str) -> tuple[str | None, str | None]:
        """Return the files of a log that are right before and right after one; None where there is none."""
        members = self.members[family(source)]
        index = members.index(source)
        near = {members[(index + step) % len(members)] for step in range(-_NEAR, _NEAR + 1)}
        at = self.head(source).first_at
        if at is None:
            return None, None
        timed = [(other_at, other) for other in near if (other_at := self.head(other).first_at) is not None]
        before = max((pair for pair in timed if pair < (at, source)), default=None)
        after = min((pair for pair in timed if pair > (at, source)), default=None)
        return before and before[1], after and after[1]


def head(root: str, source: str, pattern: Pattern | None) -> Head:
    """Look at the beginning of a file."""
    beginning = islice(Text(landing.content(root, source)), _HEAD_LINES)
    known, every = events.sampled(beginning, pattern)
    stamp: str | float | None = None
    count = 0
    for raw in every:
        for line in events.joined([raw], known):
            if layouts.begins(line.text, known.pattern, known.is_dated):
                said = layouts.parts(line.text, known.pattern)
                at = layouts.moment(said, line.stamp, UTC) if said else None
                return Head(None if at is None else layouts.EPOCH + timedelta(microseconds=at), count)
            stamp = line.stamp if stamp is None else stamp
        count += 1
    return Head(layouts.stamp_of(stamp)[0], count)


def is_unknown(directory: Path, source: str, pattern: Pattern | None, have_continuations: bool) -> bool:
    """Tell whether most of the first lines of a file are in no known layout, with the settings as they are."""
    beginning = islice(Text(landing.content(os.path.realpath(directory), source)), _HEAD_LINES)
    if have_continuations:
        counts = [(event.lines, event.begins) for event in events.events(beginning, pattern)]
    else:
        known, every = events.sampled(beginning, pattern)
        lines = events.joined(every, known)
        counts = [(1, layouts.begins(line.text, known.pattern, known.is_dated)) for line in lines]
    return 2 * sum(count for count, begins in counts if not begins) > sum(count for count, _ in counts)


def brought_along(
    directory: Path, listed: Mapping[str, LandedFile], new: Mapping[str, LandedFile], pattern: Pattern | None
) -> dict[str, LandedFile]:
    """Return the files that are read again because a new file continues their last event."""
    rotations = Rotations(os.path.realpath(directory), listed, pattern)
    again = {}
    for source in new:
        if not rotations.is_alone(source) and rotations.head(source).lines:
            before, _ = rotations.neighbours(source)
            if before is not None and before not in new:
                again[before] = listed[before]
    return again


def pattern_of(settings: Settings, directory: str) -> Pattern | None:
    """Return the layout that the settings give the logs of a landing directory.

    Raises UsageError: it is not understood.
    """
    section = {"broker-logs": "broker_logs"}.get(directory, "streams_requests")
    text = getattr(settings, section).layout
    try:
        return None if text is None else Pattern(text)
    except ValueError as error:
        raise UsageError(f"The setting {section}.layout cannot be used: {error}.") from None


def read(
    reader: Reader,
    section: str,
    spark: SparkSession,
    files: Sequence[LandedFile],
    damaged: Mapping[str, str],
    settings: Settings,
) -> DataFrame:
    """Return ``SCHEMA``: the rows that the reader makes of the files, and a row for what is wrong with a file.

    Raises OSError, Damage: a file is gone, or is damaged and ``damaged`` does not say so.
    """
    feed = section.replace("_", "-")
    directory, pattern = settings.landing_of(feed), pattern_of(settings, feed)
    timezone = getattr(settings, section).timezone
    root = os.path.realpath(directory)
    rotations = Rotations(root, landing.listing(directory), pattern)
    work = [work_on(rotations, file.source, damaged.get(file.source), reader, timezone) for file in files]
    size = sum(file.size * (PACKED if file.source.lower().endswith(landing.GZIP) else 1) for file in files)
    if size <= MOST_HERE:
        import pyarrow as arrow  # type: ignore[import-untyped]

        here: Any = arrow.Table.from_batches(list(_batches(work)), _arrow_schema())
        return spark.createDataFrame(here, SCHEMA)
    by_size = {file.source: file.size for file in files}
    work.sort(key=lambda job: by_size[job.source], reverse=True)
    numbers = spark.createDataFrame([(number,) for number in range(len(work))], "number int")
    tasks = numbers.repartitionByRange(min(len(work), 1_000), "number")

    def read_batches(batches: Iterable[Any]) -> Iterator[Any]:
        for batch in batches:
            yield from _batches([work[number] for number in batch.column(0).to_pylist()])

    return tasks.mapInArrow(read_batches, SCHEMA)


def said(bronze: DataFrame) -> Column:
    """Return what rows of bronze say; a table that an earlier version wrote has no ``message``."""
    from pyspark.sql import functions as F

    line = F.col("line").cast("string")
    return F.coalesce("message", line) if "message" in bronze.columns else line


def read_records(lines: DataFrame, reader: Reader, settings: Settings) -> DataFrame:
    """Return ``SCHEMA`` and ``_bronze_id`` for the values of a topic's records."""
    timezone, pattern = settings.streams_requests.timezone, pattern_of(settings, "streams-requests")

    def read_batches(batches: Iterable[Any]) -> Iterator[Any]:
        for batch in batches:
            yield from _batches_of_records(batch.to_pylist(), reader, timezone, pattern)

    return lines.mapInArrow(read_batches, f"{SCHEMA}, _bronze_id string")


def _batches_of_records(
    records: Iterable[Mapping[str, Any]], reader: Reader, timezone: str, pattern: Pattern | None
) -> Iterator[Any]:
    rows: list[tuple[Any, ...]] = []
    for record in records:
        if record["damage"] is not None:
            rows.append((record["_source"], *Row(None, record["damage"]), record["_bronze_id"]))
            continue
        made = list(reader(Text([record["line"]]), timezone, pattern, None)) or [Row(None)]
        for number, row in enumerate(made):
            id_ = record["_bronze_id"]
            id_ = hashlib.sha256(f"{id_}\n{number}".encode()).hexdigest() if number else id_
            rows.append((record["_source"], *row._replace(occurrence=1), id_))
    if rows:
        yield _batch(rows, f"{SCHEMA}, _bronze_id string")


def work_on(rotations: Rotations, source: str, damage: str | None, reader: Reader, timezone: str) -> Work:
    """Return how to read a file."""
    work = Work(rotations.root, source, damage, reader, timezone, rotations.pattern)
    if rotations.members.get(family(source), [source]) == [source]:
        return work
    before, _ = rotations.neighbours(source)
    return replace(
        _followed(work, rotations),
        skip=0 if before is None else rotations.head(source).lines,
        before=None if before is None else _followed(replace(work, source=before, damage=None), rotations),
    )


def _followed(work: Work, rotations: Rotations) -> Work:
    _, after = rotations.neighbours(work.source)
    lines = 0 if after is None else rotations.head(after).lines
    return replace(work, more=(after, lines) if after is not None and lines else None)


def _batches(work: Iterable[Work]) -> Iterator[Any]:
    """Yield the rows of files in batches of a bounded size."""
    rows: list[tuple[Any, ...]] = []
    size = 0
    for job in work:
        for row in rows_of(job):
            rows.append((job.source, *row))
            size += len(row.line or b"") + len(row.message or "")
            if size >= _BATCH_BYTES or len(rows) >= _BATCH_ROWS:
                yield _batch(rows)
                rows, size = [], 0
    if rows:
        yield _batch(rows)


def _batch(rows: list[tuple[Any, ...]], schema_of_rows: str = SCHEMA) -> Any:
    import pyarrow as arrow

    schema = _arrow_schema(schema_of_rows)
    columns = zip(*rows, strict=True)
    return arrow.record_batch(
        [arrow.array(column, field.type) for column, field in zip(columns, schema, strict=True)], schema=schema
    )


def _arrow_schema(schema: str = SCHEMA) -> Any:
    import pyarrow as arrow

    types = {"string": arrow.string(), "binary": arrow.binary(), "int": arrow.int32(), "bigint": arrow.int64()}
    types["boolean"] = arrow.bool_()
    return arrow.schema([(name, types[kind]) for name, kind in (column.split() for column in schema.split(","))])


def rows_of(work: Work) -> Iterator[Row]:
    """Yield the rows of a file."""
    damage = work.damage or landing.unread_format(work.source)
    if damage is not None:
        yield Row(None, damage)
    before = work.before
    earlier = None if before is None else partial(_text, before)
    yield from work.reader(_text(work), work.timezone, work.pattern, earlier)


def _text(work: Work) -> Text:
    return Text(_blocks(work), work.skip)


def _blocks(work: Work) -> Iterator[bytes]:
    """Yield a file's blocks, then the lines of the next file that continue its last event."""
    yield from landing.content(work.root, work.source) if work.damage else landing.whole(work.root, work.source)
    if work.more is not None:
        source, count = work.more
        for line in islice(Text(landing.content(work.root, source)), count):
            yield events.encoded(line) + b"\n"


class Text:
    r"""Lines of blocks of bytes, split at ``\n`` only; bytes that are not UTF-8 become surrogates.

    After the last line ``is_cut`` tells whether it has no end: the file was copied while it was written.
    """

    def __init__(self, blocks: Iterable[bytes], skip: int = 0) -> None:
        """Leave out the first ``skip`` lines."""
        self.is_cut = False
        self._lines = islice(self._split(blocks), skip, None)

    def __iter__(self) -> Iterator[str]:
        """Return the lines, which can be read once."""
        return self._lines

    def _split(self, blocks: Iterable[bytes]) -> Iterator[str]:
        rest: list[bytes] = []
        for block in blocks:
            ended, newline, tail = block.rpartition(b"\n")
            if not newline:
                rest.append(block)
                continue
            yield from b"".join((*rest, ended)).decode("utf-8", "surrogateescape").split("\n")
            rest = [tail] if tail else []
        if rest:
            yield b"".join(rest).decode("utf-8", "surrogateescape")
            self.is_cut = True
