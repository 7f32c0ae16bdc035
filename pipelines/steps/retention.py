"""Rows of a table that are older than the settings want -> files without them, in small steps that are no news.

Only rows that no stage needs go. Rows of bronze, quarantine and quality go by the time of the run that wrote them. Rows
of gold go by their own time, where the head of the SELECT says so (``-- Kept:`` in ``steps/refresh.py``). All else
stays, as summaries compute whole groups again from it. Rows that a summary refers to, those of
``quarantine.dlq_records``, stay without payload.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from expectations.literals import spark as spark_literal
from expectations.literals import spark_name
from pipelines.catalog import CATALOG, readers, stages_of_type
from pipelines.columns import globs
from pipelines.engines.duckdb import sessions
from pipelines.engines.duckdb.translate import translated
from pipelines.errors import UsageError
from pipelines.settings import Settings
from pipelines.settings.retention import midnight
from pipelines.stage import Split, Summarise
from pipelines.steps.refresh import kept_of
from pipelines.stores import lock
from pipelines.warehouse import few_rows, progress, removed, rewriting
from pipelines.warehouse.clock import Written
from pipelines.warehouse.data_files import DataFiles
from pipelines.warehouse.tables import Warehouse

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection
    from pyarrow import Array, Table  # type: ignore[import-untyped]

FILES_OF_A_STEP = 64
BYTES_OF_A_STEP = 128 << 20
LEAST_SHARE = 10  # a file is written again if one of so many rows goes
OF_RUNS = {"quality.stage_runs": "started_at", "quality.expectation_results": "examined_at"}
STAYING = {
    "bronze.record_batches": "a segment that grew is read on from them",
    "bronze.cluster_settings": "they are few, and each tells since when a setting is as it is",
}
"""Tables of bronze whose rows stay, and why."""
EMPTIED = {
    "quarantine.dlq_records": (
        *("key", "value", "headers", "user_headers", "undecodable_headers", "raw", "exception_stacktrace"),
        *("original_partition_text", "original_offset_text", "original_timestamp_text", "delivery_count_text"),
        "routed_at_text",
    )
}
"""Tables whose old rows stay, as summaries compute groups again from them, and the columns that become null there."""
NOTHING_KNOWN = Written()
INGESTED, ROWS = "_ingested_at", "_rows"


@dataclass(frozen=True)
class Aged:
    """Which rows of a table are too old: the expression of their time, and the condition ``is_old``, in Spark's SQL.

    ``before`` is the time before which rows of most topics go. ``pinned_by`` has quarantines of the stages that read
    the table, with a condition for their rows that can still be readmitted: those need their rows here.
    """

    table: str
    time: str
    before: datetime
    is_old: str
    pinned_by: Mapping[str, str]

    @property
    def condition(self) -> str:
        """The condition for old rows that are not emptied yet."""
        there = " OR ".join(f"{spark_name(name)} IS NOT NULL" for name in self.emptied)
        return f"({self.is_old}) AND ({there})" if there else self.is_old

    @property
    def emptied(self) -> tuple[str, ...]:
        """The columns that become null in old rows; if there are none, the rows go."""
        return EMPTIED.get(self.table, ())


@dataclass(frozen=True)
class OldFile:
    """A data file with old rows: its size in bytes, how many rows it has, and how many of them are too old."""

    path: str
    size: int
    rows: int
    old: int

    @property
    def freed(self) -> int:
        """Roughly how many bytes the old rows have."""
        return self.size * self.old // self.rows


@dataclass(frozen=True)
class Found:
    """The files of a table with rows that can go now, and the stage that still has to read some of its rows."""

    table: str
    files: tuple[OldFile, ...] = ()
    unread_by: str | None = None

    @property
    def rows(self) -> int:
        """The number of rows that can go."""
        return sum(file.old for file in self.files)

    @property
    def freed(self) -> int:
        """Roughly how many bytes they have."""
        return sum(file.freed for file in self.files)


def goes(table: str) -> bool:
    """Tell whether rows of a table can go by their age."""
    layer = table.partition(".")[0]
    if layer == "gold":
        return any(stage.table == table and isinstance(stage, Summarise) for stage in CATALOG) and bool(kept_of(table))
    if layer == "quarantine":
        return table in EMPTIED or not any(table in stage.inputs for stage in CATALOG)
    return table in OF_RUNS or (layer == "bronze" and table not in STAYING)


def check(settings: Settings) -> None:
    """Raise UsageError if the settings name a table whose rows cannot go."""
    for table in settings.retention.tables:
        if not goes(table):
            why = STAYING.get(table, "summaries compute groups again from them, or answers need all of them")
            raise UsageError(f"[retention.tables] names {table}, whose rows stay: {why}. Take it out of the settings.")


def aged(settings: Settings, table: str, now: datetime, written: Written = NOTHING_KNOWN) -> Aged | None:
    """Return which rows of a table are too old; None if all of them stay. Ages end at midnight, UTC.

    Rows that may be ``written`` by a clock that was behind are as old as they can be at least.
    """
    if not goes(table):
        return None
    age, today, layer = settings.retention.of(table), midnight(now), table.partition(".")[0]

    def before(than: timedelta) -> datetime:  # rows of gold go by the time of events, not by that of a run
        return today - than if layer == "gold" else written.surely(today - than)

    def old(time: str, than: timedelta | None) -> str:
        return "false" if than is None else f"coalesce(({time}) < {spark_literal(before(than))}, false)"

    if layer == "gold":
        kept = kept_of(table)
        assert kept is not None
        return None if age is None else Aged(table, kept.time, before(age), old(kept.time, age), {})
    time = OF_RUNS.get(table, INGESTED)
    condition, ages = old(time, age), [age]
    topic = _topic_of(table)
    if topic is not None and settings.retention.topics:
        ages += [of_topic for _, of_topic in settings.retention.of_topics()]
        cases = " ".join(
            f"WHEN {spark_name(topic)} LIKE {spark_literal(globs.like(glob))} ESCAPE '!' THEN {old(time, of_topic)}"
            for glob, of_topic in settings.retention.of_topics()
        )
        condition = f"CASE {cases} ELSE {condition} END"
    known = [age for age in ages if age is not None]
    if not known:
        return None
    pins = {
        stage.quarantine: f"NOT ({other.is_old})"
        if (other := aged(settings, stage.quarantine, now, written))
        else "true"
        for stage in stages_of_type(Split)
        if table in stage.inputs
    }
    return Aged(table, time, max(map(before, known)), condition, pins)


def _topic_of(table: str) -> str | None:
    """Return the column of a table that has a record's topic, in bronze and in its quarantine."""
    return {"bronze.dlq_records": "topic", "quarantine.dlq_records": "dlq_topic"}.get(table)


def found(warehouse: Warehouse, rule: Aged) -> Found:
    """Return the files of a table that have rows which can go now; none while a stage has still to read rows.

    Raises UsageError: only Delta can read the table.
    """
    if not warehouse.exists(rule.table) or warehouse.was_never_written(rule.table):
        return Found(rule.table)
    if not (paths := _candidates(_files(warehouse, rule.table), rule)):
        return Found(rule.table)
    for stage in readers(rule.table):
        if not rule.emptied and not progress.has_read(warehouse, rule.table, stage.table):
            return Found(rule.table, unread_by=stage.table)
    with _Marking.opened(warehouse, rule) as marking:
        files = [marking.old_file(path) for path in paths]
    return Found(rule.table, tuple(file for file in files if file.old and file.old * LEAST_SHARE >= file.rows))


def remove(warehouse: Warehouse, rule: Aged) -> Iterator[Found]:
    """Remove the rows of a table that can go, step by step; yield what went in each.

    A step holds the writer's lock. It notes first up to when rows go, so that summaries keep what they counted of them,
    then commits, then takes the readers past the commit. After a kill the next one goes on.

    Raises WriterBusy: another process writes for longer than ``lock.wait_seconds``, or has committed between.
    """
    while True:
        with lock.writer(warehouse.settings, "afterlog maintain"):
            step = _first(found(warehouse, rule))
            if step.files:
                _remove(warehouse, rule, step.files)
        yield step
        if not step.files:
            return


def _first(all_: Found) -> Found:
    size = 0
    taken: list[OldFile] = []
    for file in all_.files[:FILES_OF_A_STEP]:
        if taken and size + file.size > BYTES_OF_A_STEP:
            break
        size += file.size
        taken.append(file)
    return replace(all_, files=tuple(taken))


def _remove(warehouse: Warehouse, rule: Aged, files: Iterable[OldFile]) -> None:
    table, version = rule.table, warehouse.opened_table(rule.table).version()
    if rule.table.startswith("gold."):
        removed.note(warehouse, table, rule.before)
    with _Marking.opened(warehouse, rule) as marking:
        partly = [file.path for file in files if file.old < file.rows or rule.emptied]
        new = [marking.without_old(path) for path in partly]
    gone = {file.path: file.size for file in files}
    after = rewriting.replace_files(warehouse, table, version, gone, new, "RETENTION")
    rewriting.follow(warehouse, table, version, after)


def _files(warehouse: Warehouse, table: str) -> DataFiles:
    opened = warehouse.opened_table(table)
    files = warehouse.files_of(table, opened)
    if files is None or not few_rows.is_plain(opened):
        raise UsageError(f"Rows of {table} cannot go by their age: it is not as Afterlog creates it.")
    return files


def _candidates(files: DataFiles, rule: Aged) -> list[str]:
    """Return the files that may have old rows, by their statistics."""
    paths, least = list(files.sizes), f"min.{rule.time}"
    if least not in files.files.schema.names:
        return paths
    return [
        path
        for path, first in zip(paths, files.files[least].to_pylist(), strict=True)
        if not isinstance(first, datetime) or first.replace(tzinfo=first.tzinfo or UTC) < rule.before
    ]


@dataclass(frozen=True)
class _Marking:
    """Which rows of a table's files are too old, and are not needed for a readmission of quarantined rows."""

    connection: DuckDBPyConnection
    warehouse: Warehouse
    rule: Aged
    files: DataFiles
    pins: Array

    @classmethod
    @contextlib.contextmanager
    def opened(cls, warehouse: Warehouse, rule: Aged) -> Iterator[_Marking]:
        """Yield what marks rows until the block ends."""
        import pyarrow as arrow

        with sessions.session(warehouse.root) as connection:
            pins = arrow.array([], arrow.string())
            marking = cls(connection, warehouse, rule, _files(warehouse, rule.table), pins)
            for table, condition in rule.pinned_by.items():
                if warehouse.exists(table) and not warehouse.was_never_written(table):
                    files = _files(warehouse, table)
                    kept = marking._asked(files, files.paths(), f"SELECT _bronze_id FROM {ROWS} WHERE {condition}")
                    pins = arrow.concat_arrays([pins, *kept["_bronze_id"].cast(arrow.string()).chunks])
            yield replace(marking, pins=pins)

    def old_file(self, path: str) -> OldFile:
        """Return how many rows of a file are too old."""
        import pyarrow.compute as compute  # type: ignore[import-untyped]

        mask = self.mask(path)
        return OldFile(path, self.files.sizes[path], len(mask), compute.sum(mask).as_py() or 0)

    def mask(self, path: str) -> Array:
        """Return whether each row of a file is too old, in the order of the rows."""
        import pyarrow.compute as compute

        more = ", _bronze_id" if self.rule.pinned_by else ""
        found = self._asked(self.files, [path], f"SELECT {self.rule.condition} AS _old{more} FROM {ROWS}")
        old = found["_old"].combine_chunks()
        return compute.and_not(old, compute.is_in(found["_bronze_id"].combine_chunks(), self.pins)) if more else old

    def _asked(self, files: DataFiles, paths: Sequence[str], text: str) -> Table:
        rows = sessions.rows(self.connection, files, paths)
        self.connection.execute(f"CREATE OR REPLACE TEMP VIEW {ROWS} AS {rows}")
        return self.connection.sql(translated(text)).to_arrow_table()

    def without_old(self, path: str) -> rewriting.Written:
        """Write a file again without its old rows, or without their payload."""
        import pyarrow as arrow
        import pyarrow.compute as compute

        opened = self.warehouse.opened_table(self.rule.table)
        mask, rows = self.mask(path), rewriting.rows_in(self.warehouse, self.rule.table, opened, path)
        if not self.rule.emptied:
            rows = rows.filter(compute.invert(mask))
        for name in self.rule.emptied:
            if (index := rows.schema.get_field_index(name)) >= 0:  # a later column lacks in older files
                field = rows.schema.field(index)
                kept = compute.if_else(mask, arrow.scalar(None, field.type), rows[name].combine_chunks())
                rows = rows.set_column(index, field, kept)
        return rewriting.written(self.warehouse, self.rule.table, rows)
