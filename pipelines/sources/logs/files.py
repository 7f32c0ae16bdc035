"""Landed files of lines -> rows: each file is read by one task, a rotated log across the ends of its files.

A log can be rotated in the middle of an event. What a file begins with, up to its first event, then belongs to the file
before it, and is read with that file only. Files belong to one log if their names differ in numbers and dates at the
end only; the one whose first event is older is before the other one.
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
from pipelines.settings import Settings
from pipelines.sources import landing
from pipelines.sources.landing import LandedFile
from pipelines.sources.logs import events, layouts
from pipelines.sources.logs.layouts import Pattern

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

SCHEMA = """
  _source string, line binary, damage string, _occurrence int, _kind string, _other string, _logged_micros bigint,
  message string, error string, _event_id string, _is_partial boolean
"""
MOST_HERE = 4 << 20  # bytes of files that are read without a task: starting one takes longer
PACKED = 20  # so many times smaller a packed file can be
_HEAD_LINES = 2_000
_BATCH_BYTES, _BATCH_ROWS = 8 << 20, 20_000
_ROTATED = re.compile(r"(?:[._-]\d[\d_T-]*)+(?=\.|$)")


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
    """Return the name that the files of a rotated log share."""
    directory, _, name = source.rpartition("/")
    name = name[: -len(landing.GZIP)] if name.lower().endswith(landing.GZIP) else name
    stem = _ROTATED.sub("", name)
    return f"{directory}/{stem}"


def rotated(listed: Mapping[str, LandedFile], source: str) -> list[str]:
    """Return the other files of a file's log."""
    name = family(source)
    return [other for other in listed if other != source and family(other) == name]


def head(root: str, source: str, pattern: Pattern | None) -> Head:
    """Look at the beginning of a file."""
    beginning = list(islice(Text(landing.content(root, source)), _HEAD_LINES))
    known, every = events.sampled(beginning, pattern)
    stamp: str | float | None = None
    count = 0
    for raw in every:
        for line in events.joined([raw], known, pattern):
            if layouts.begins(line.text, pattern, known.is_dated):
                said = layouts.parts(line.text, pattern)
                at = layouts.moment(said, line.stamp, UTC) if said else None
                return Head(None if at is None else layouts.EPOCH + timedelta(microseconds=at), count)
            stamp = line.stamp if stamp is None else stamp
        count += 1
    return Head(layouts.stamp_of(stamp)[0], count)


def is_unknown(directory: Path, source: str, pattern: Pattern | None, have_continuations: bool) -> bool:
    """Tell whether most of the first lines of a file are in no known layout, with the settings as they are."""
    beginning = islice(Text(landing.content(os.path.realpath(directory), source)), _HEAD_LINES)
    if have_continuations:
        found = [(event.lines, event.begins) for event in events.events(beginning, pattern)]
    else:
        known, every = events.sampled(beginning, pattern)
        lines = events.joined(every, known, pattern)
        found = [(1, layouts.begins(line.text, pattern, known.is_dated)) for line in lines]
    return 2 * sum(count for count, begins in found if not begins) > sum(count for count, _ in found)


def brought_along(
    directory: Path, listed: Mapping[str, LandedFile], new: Mapping[str, LandedFile], pattern: Pattern | None
) -> dict[str, LandedFile]:
    """Return the files that are read again because a new file continues their last event."""
    root = os.path.realpath(directory)
    found = {}
    for source in new:
        others = rotated(listed, source)
        if others and (first := head(root, source, pattern)).lines:
            heads = {source: first, **{other: head(root, other, pattern) for other in others}}
            if (before := _neighbour(source, heads, is_before=True)) is not None and before not in new:
                found[before] = listed[before]
    return found


def _neighbour(source: str, heads: Mapping[str, Head], is_before: bool) -> str | None:
    """Return the file of a log that is right before another one, or right after it."""
    times = sorted((one.first_at, name) for name, one in heads.items() if one.first_at is not None)
    names = [name for _, name in times]
    if source not in names:
        return None
    place = names.index(source) + (-1 if is_before else 1)
    return names[place] if 0 <= place < len(names) else None


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

    Raises OSError, zlib.error, EOFError: a file is gone, or is damaged and ``damaged`` does not say so.
    """
    feed = section.replace("_", "-")
    directory, pattern = settings.landing_of(feed), pattern_of(settings, feed)
    timezone = getattr(settings, section).timezone
    root = os.path.realpath(directory)
    listed = landing.listing(directory)
    work = [_work(root, listed, file.source, damaged.get(file.source), reader, timezone, pattern) for file in files]
    size = sum(file.size * (PACKED if file.source.lower().endswith(landing.GZIP) else 1) for file in files)
    if size <= MOST_HERE:
        import pyarrow as arrow  # type: ignore[import-untyped]

        here: Any = arrow.Table.from_batches(list(_batches(work)), _arrow_schema())
        return spark.createDataFrame(here, SCHEMA)
    by_size = {file.source: file.size for file in files}
    work.sort(key=lambda one: by_size[one.source], reverse=True)
    numbers = spark.createDataFrame([(number,) for number in range(len(work))], "number int")
    tasks = numbers.repartitionByRange(min(len(work), 1_000), "number")

    def rows_of(batches: Iterable[Any]) -> Iterator[Any]:
        for batch in batches:
            yield from _batches([work[number] for number in batch.column(0).to_pylist()])

    return tasks.mapInArrow(rows_of, SCHEMA)


def read_records(lines: DataFrame, reader: Reader, settings: Settings) -> DataFrame:
    """Return ``SCHEMA`` and ``_bronze_id`` for the values of a topic's records."""
    timezone, pattern = settings.streams_requests.timezone, pattern_of(settings, "streams-requests")

    def rows_of(batches: Iterable[Any]) -> Iterator[Any]:
        for batch in batches:
            yield from _batches_of_records(batch.to_pylist(), reader, timezone, pattern)

    return lines.mapInArrow(rows_of, f"{SCHEMA}, _bronze_id string")


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


def _work(
    root: str,
    listed: Mapping[str, LandedFile],
    source: str,
    damage: str | None,
    reader: Reader,
    timezone: str,
    pattern: Pattern | None,
) -> Work:
    work = Work(root, source, damage, reader, timezone, pattern)
    others = rotated(listed, source)
    if not others:
        return work
    heads = {one: head(root, one, pattern) for one in (source, *others)}
    before = _neighbour(source, heads, is_before=True)
    return replace(
        _followed(work, heads),
        skip=0 if before is None else heads[source].lines,
        before=None if before is None else _followed(replace(work, source=before, damage=None), heads),
    )


def _followed(work: Work, heads: Mapping[str, Head]) -> Work:
    after = _neighbour(work.source, heads, is_before=False)
    return replace(work, more=(after, heads[after].lines) if after is not None and heads[after].lines else None)


def _batches(work: Iterable[Work]) -> Iterator[Any]:
    """Yield the rows of files in batches of a bounded size."""
    rows: list[tuple[Any, ...]] = []
    size = 0
    for one in work:
        for row in _rows(one):
            rows.append((one.source, *row))
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
    return arrow.schema([(name, types[kind]) for name, kind in (one.split() for one in schema.split(","))])


def _rows(work: Work) -> Iterator[Row]:
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
