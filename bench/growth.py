"""``growth``: what a run of a few new rows costs on top of more and more rows of history."""

from __future__ import annotations

import json
import shutil
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

import psutil

from bench.harness import timed_run
from bench.records import acknowledgements, dead_letters, land_lines, pushed, stated
from pipelines.catalog import stages
from pipelines.engines.duckdb import sessions
from pipelines.run import contracts
from pipelines.settings import Settings
from pipelines.warehouse.tables import Warehouse

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

MONTH = 500.0
"""Milliseconds between two of five million records of a month."""
NODES = 50
ROWS = ((0, 1), (1_000_000, 1), (5_000_000, 1), (20_000_000, 1))
BATCHES = ((0, 1), (500_000, 500))
Land = Callable[["SparkSession", Path, int, int], None]
"""Writes so many records, from the given number on, into a landing directory."""


@dataclass(frozen=True)
class Scenario:
    """New rows of a kind and the history below them: how many rows, landed in how many runs."""

    name: str
    feeds: tuple[str, ...]
    directory: str
    land: Land
    new: int = 1_000
    histories: tuple[tuple[int, int], ...] = ROWS


def _records(make: Callable[..., DataFrame], **more: Any) -> Land:
    def land(spark: SparkSession, directory: Path, count: int, first: int) -> None:
        land_lines(make(spark, count, first=first, **more), directory)

    return land


def _pushes(_: SparkSession, directory: Path, count: int, first: int) -> None:
    """Write pushes of 500 groups in turn."""
    numbers = range(first, first + count)
    _write(
        directory / "requests.log", (line for number in numbers for line in pushed(number % 500, number // 500, NODES))
    )


def _statements(_: SparkSession, directory: Path, count: int, first: int) -> None:
    """Write statements on 500 topics in turn, each of which changes one setting."""
    _write(
        directory / "statements.jsonl", (stated(number % 500, number // 500) for number in range(first, first + count))
    )


def _write(file: Path, lines: Iterable[str]) -> None:
    file.parent.mkdir(parents=True)
    file.write_text("\n".join(lines) + "\n", encoding="utf-8")


_letters = partial(_records, dead_letters, step=7)
_acknowledgements = partial(_records, acknowledgements)
SCENARIOS = (
    Scenario("dead letters of an hour", ("dlq",), "dlq", _letters()),
    Scenario("dead letters of a month", ("dlq",), "dlq", _letters(milliseconds=MONTH)),
    Scenario("dead letters of an hour, and the ledger", ("dlq", "delivery"), "dlq", _letters()),
    Scenario(
        "acknowledgements of an hour, 8 partitions",
        ("delivery",),
        "acknowledgements",
        _acknowledgements(),
    ),
    Scenario(
        "acknowledgements of an hour, 256 partitions",
        ("delivery",),
        "acknowledgements",
        _acknowledgements(partitions=256),
    ),
    Scenario("acknowledgements of a month", ("delivery",), "acknowledgements", _acknowledgements(milliseconds=MONTH)),
    Scenario(
        "acknowledgements in 500 small batches",
        ("delivery",),
        "acknowledgements",
        _acknowledgements(),
        histories=BATCHES,
    ),
    Scenario("dead letters in 500 small batches", ("dlq",), "dlq", _letters(), histories=BATCHES),
    Scenario("pushes", ("topology",), "streams-requests", _pushes, new=1, histories=((0, 1), (500, 1), (2_000, 1))),
    Scenario("pushes in 500 small batches", ("topology",), "streams-requests", _pushes, 1, ((0, 1), (500, 500))),
    Scenario("settings", ("collect",), "cluster-settings", _statements, histories=((0, 1), (20_000, 1), (200_000, 1))),
)


@dataclass
class Cost:
    """What one run of new rows took.

    Seconds; files that Spark and DuckDB read; bytes and files that it wrote, files that it removed; the size of the
    Delta logs after it; the peak memory of its process and the JVM in bytes. ``slowest`` are the seconds of the slowest
    tables. A file counts each time that Spark scans it or DuckDB gets it, however few of its columns are read.
    """

    scenario: str
    history: int
    landed_in: int
    new: int
    seconds: float
    read_files: int
    written_bytes: int
    written_files: int
    removed_files: int
    log_bytes: int
    peak_bytes: int
    slowest: dict[str, float]

    def line(self) -> str:
        """Return the cost as a line of text."""
        tables = ", ".join(f"{table} {seconds:.1f}" for table, seconds in self.slowest.items())
        return (
            f"{self.scenario}: onto {self.history:,} in {self.landed_in} {self.seconds:.1f} s, {self.read_files} files"
            f" read, {self.written_bytes / 2**20:.1f} MiB in {self.written_files} files written, logs"
            f" {self.log_bytes / 2**20:.1f} MiB, peak {self.peak_bytes / 2**30:.1f} GiB ({tables})"
        )


def cost_onto(spark: SparkSession, settings: Settings, scenario: Scenario, history: int, landed_in: int) -> Cost:
    """Return the cost of the second of two runs of new rows, on top of so many rows, and remove the warehouse."""
    warehouse = Warehouse(settings, spark)
    warehouse.ensure_all(contracts.contracts())
    of_feeds = [stage for stage in stages() if {stage.feed, *stage.also} & set(scenario.feeds)]
    tables = [stage.table for stage in of_feeds]
    batches = [history // landed_in] * landed_in if history else []
    first = 0
    for number, count in enumerate((*batches, scenario.new, scenario.new)):
        scenario.land(spark, settings.landing_of(scenario.directory) / str(number), count, first)
        first += count
        since, executed = versions(warehouse, tables), _last_execution(spark)
        with _peak() as peak, _files_of_duckdb() as file_counts:
            took, done = timed_run(warehouse, of_feeds)
    size, added, removed = written(warehouse, since)
    logs = log_bytes(warehouse, tables)
    seconds = {each.table: round((each.finished_at - each.started_at).total_seconds(), 2) for each in done}
    slowest = dict(sorted(seconds.items(), key=lambda pair: -pair[1])[:5])
    shutil.rmtree(Path(settings.warehouse).parent)
    read = _files_of_spark(spark, executed) + sum(file_counts)
    return Cost(
        scenario.name, history, landed_in, scenario.new, took, read, size, added, removed, logs, peak[0], slowest
    )


@contextmanager
def _peak() -> Iterator[list[int]]:
    """Yield a list that holds, after the block, the most memory of this process and its children in bytes."""
    peak, done, process = [0], threading.Event(), psutil.Process()

    def watch() -> None:
        while not done.wait(0.2):
            used = 0
            for member in (process, *process.children(recursive=True)):
                with suppress(psutil.NoSuchProcess):  # a child that ended meanwhile
                    used += member.memory_info().rss
            peak[0] = max(peak[0], used)

    watcher = threading.Thread(target=watch, daemon=True)
    watcher.start()
    try:
        yield peak
    finally:
        done.set()
        watcher.join()


@contextmanager
def _files_of_duckdb() -> Iterator[list[int]]:
    """Yield a list to which the block adds how many files of a table DuckDB gets to read, each time it does."""
    rows, file_counts = sessions.rows, []

    def counted(connection: Any, files: Any, paths: Any, more: str = "") -> str:
        file_counts.append(len(paths))
        return rows(connection, files, paths, more)

    with patch.object(sessions, "rows", counted):
        yield file_counts


def _executions(spark: SparkSession) -> list[Any]:
    store = spark._jsparkSession.sharedState().statusStore()
    executions = store.executionsList()
    return [executions.apply(number) for number in range(executions.size())]


def _last_execution(spark: SparkSession) -> int:
    return max((execution.executionId() for execution in _executions(spark)), default=-1)


def _files_of_spark(spark: SparkSession, since: int) -> int:
    """Return how many files the scans of later queries read, by Spark's metrics."""
    store, files = spark._jsparkSession.sharedState().statusStore(), 0
    for execution in _executions(spark):
        if execution.executionId() <= since:
            continue
        metrics, values = execution.metrics(), store.executionMetrics(execution.executionId())
        for number in range(metrics.size()):
            metric = metrics.apply(number)
            if metric.name() == "number of files read" and values.contains(metric.accumulatorId()):
                files += int(values.apply(metric.accumulatorId()).replace(",", ""))
    return files


def versions(warehouse: Warehouse, tables: list[str]) -> dict[str, int]:
    """Return the latest version of each table."""
    return {table: warehouse.last_version(table) or 0 for table in tables}


def written(warehouse: Warehouse, since: dict[str, int]) -> tuple[int, int, int]:
    """Return the bytes and files that later commits added to the tables, and how many files they removed."""
    size = added = removed = 0
    for table, version in since.items():
        log = Path(warehouse.location(table)) / "_delta_log"
        for number in range(version + 1, (warehouse.last_version(table) or 0) + 1):
            for line in (log / f"{number:020}.json").read_text(encoding="utf-8").splitlines():
                action = json.loads(line)
                if "add" in action:
                    size, added = size + int(action["add"]["size"]), added + 1
                removed += "remove" in action
    return size, added, removed


def log_bytes(warehouse: Warehouse, tables: list[str]) -> int:
    """Return the size of the tables' Delta logs."""
    logs = (Path(warehouse.location(table)) / "_delta_log" for table in tables)
    return sum(file.stat().st_size for log in logs for file in log.iterdir())
