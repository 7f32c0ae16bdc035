"""``python -m bench.years DIRECTORY``: small runs, one a day by a clock that moves, with ``maintain`` and a report.

All are done in one warm session. What a day cost is a line of ``DIRECTORY/days.jsonl``. A later call with the same
directory goes on with the next day. ``--apart 3`` lets three days go by between two runs.
"""

from __future__ import annotations

import argparse
import gc
import json
import math
import os
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import timedelta
from pathlib import Path
from statistics import linear_regression, median
from typing import TYPE_CHECKING, Any

import psutil

from bench.records import pushed
from pipelines import moments
from pipelines.catalog import stages
from pipelines.commands.maintain import maintain
from pipelines.jvm.session import spark_session
from pipelines.run import runner
from pipelines.settings import Settings, load
from pipelines.site import report
from pipelines.stores import lock
from pipelines.warehouse.outdated import LEAST_DAYS
from pipelines.warehouse.tables import Warehouse
from tests.testing import other_clock
from tests.testing.builders import kip_1191, land, line
from tests.testing.deliveries import acknowledgement

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

DAY = timedelta(days=1)
LANDED_FOR = 7  # days; then the files of a landing directory are removed
LETTERS, ACKNOWLEDGEMENTS = (10, 25, 50), 40
KINDS, GROUPS, NODES = 5, 7, 6
RETENTION = {"bronze": "20 days", "quarantine": "20 days", "gold": "30 days", "quality": "20 days", "pages": "30 days"}
# A clock that is a day later tells Spark that its executor has not been heard of for a day.
PATIENCE = {"spark.network.timeout": "40000000s", "spark.storage.blockManagerHeartbeatTimeoutMs": "40000000s"}
FILE = "days.jsonl"
WARM_UP, PART = 20, 20  # days that do not count; days that are compared


@dataclass(frozen=True)
class Day:
    """What a day cost: seconds, rows of all tables, files and bytes by kind, memory in bytes.

    ``files`` and ``sizes`` are of ``data``, ``log``, ``pages`` and of each directory of state beside the tables.
    ``heap`` is what Java's objects have after a collection.
    """

    day: int
    run: float
    maintain: float
    report: float
    rows: int
    files: dict[str, int]
    sizes: dict[str, int]
    logs: dict[str, int]
    python: int
    java: int
    heap: int


def measured(directory: Path, days: int, minutes: float, apart: int) -> None:
    """Simulate more days in a directory, so many ``apart``, none after so many minutes."""
    ends = time.monotonic() + 60 * minutes
    settings = load(
        warehouse=str(directory / "warehouse"),
        landing=str(directory / "landing"),
        retention=RETENTION,
        spark={"spark.master": "local[2]", **PATIENCE},
    )
    clock = other_clock.Moving(directory / "clock")
    with spark_session(settings) as spark, (directory / FILE).open("a", encoding="utf-8") as out:
        first = len((directory / FILE).read_text(encoding="utf-8").splitlines())
        for number in range(first, first + days):
            if time.monotonic() > ends:
                break
            day = _day(spark, settings, clock, directory, number)
            out.write(json.dumps(asdict(day)) + "\n")
            out.flush()
            clock.move(apart * DAY)


def _day(spark: SparkSession, settings: Settings, clock: other_clock.Moving, directory: Path, number: int) -> Day:
    spent: dict[str, Any] = {}
    began = time.time()
    _land(settings, number)
    _move_files(directory, clock, began)

    def timed(name: str) -> None:
        nonlocal began
        spent[name] = time.time() - began
        _move_files(directory, clock, began)
        began = time.time()

    began = time.time()
    with lock.writer(settings, "bench"):
        done = runner.run(Warehouse(settings, spark), stages())
    timed("run")
    if any(stage_run.status in ("broken", "held", "waiting") for stage_run in done):
        raise RuntimeError("a gate broke: the benchmark measures nothing")
    list(maintain(settings, LEAST_DAYS, False, lambda sentence: None))
    timed("maintain")
    warehouse = Warehouse(settings, spark)
    report.build(warehouse)
    timed("report")
    return Day(number, **spent, **_sizes(warehouse), **_memory(spark))


def _land(settings: Settings, number: int) -> None:
    """Land a few dead letters, each second day acknowledgements, each tenth day a push; remove what is old."""
    at, count = moments.millis(), LETTERS[number % len(LETTERS)]
    first = 100 * number
    letters = (
        line(
            first + part,
            timestamp=at + part,
            key=f"key-{first + part}".encode(),
            value=f"payload {first + part}".encode(),
            headers=kip_1191(
                offset=first + part, group=f"group-{number % GROUPS}", message=f"Kind {'abcde'[part % KINDS]} failed."
            ),
        )
        for part in range(count)
    )
    land(settings, {f"{number}.jsonl": letters})
    if number % 2 == 0:
        reports = (
            acknowledgement(offset=first + part, timestamp=at + part, acknowledged_at=at + part + 5)
            for part in range(ACKNOWLEDGEMENTS)
        )
        land(settings, {f"{number}.jsonl": reports}, "acknowledgements")
    if number % 10 == 0:
        land(settings, {f"{number}.log": pushed(number // 10 % GROUPS, number // 10, NODES)}, "streams-requests")
    for file in Path(settings.landing).rglob("*.*"):
        if file.is_file() and int(file.stem) <= number - LANDED_FOR:
            file.unlink()


def _move_files(directory: Path, clock: other_clock.Moving, since: float) -> None:
    """Give the files that were written since a moment, by the kernel's clock, the times of the moving clock."""
    shift = clock.shift.total_seconds()
    if not shift:
        return
    for path in directory.rglob("*"):
        if path.name == "clock" or not path.is_file():
            continue
        facts = path.stat()
        if since - shift - 1 <= facts.st_mtime <= time.time() - shift + 1:
            os.utime(path, (facts.st_atime, facts.st_mtime + shift))


def _sizes(warehouse: Warehouse) -> dict[str, Any]:
    """Return rows, files and bytes of a warehouse by their kind, and the files of the largest logs."""
    files, sizes, logs = Counter[str](), Counter[str](), Counter[str]()
    rows = 0
    for path in Path(warehouse.root).rglob("*"):
        parts = path.relative_to(warehouse.root).parts
        if len(parts) == 1 or not path.is_file():
            continue
        kind = parts[0] if parts[0].startswith("_") else "log" if "_delta_log" in parts else "data"
        files[kind] += 1
        sizes[kind] += path.stat().st_size
        if kind == "log":
            logs[".".join(parts[:2])] += 1
    for table in logs:
        rows += sum(warehouse.opened_table(table).get_add_actions(flatten=True)["num_records"].to_pylist())
    return {"rows": rows, "files": dict(files), "sizes": dict(sizes), "logs": dict(logs.most_common(5))}


def _memory(spark: SparkSession) -> dict[str, Any]:
    process = psutil.Process()
    gc.collect()
    java = sum(child.memory_info().rss for child in process.children(recursive=True) if child.name() == "java")
    runtime = spark._jvm.java.lang.Runtime.getRuntime()  # type: ignore[union-attr]
    spark._jvm.java.lang.System.gc()  # type: ignore[union-attr]
    heap = int(runtime.totalMemory()) - int(runtime.freeMemory())
    return {"python": int(process.memory_info().rss), "java": java, "heap": heap}


def simulate(directory: Path, days: int, minutes: float = math.inf, apart: int = 1) -> list[Day]:
    """Simulate more days in a process with its own clock; return all days of the directory."""
    directory.mkdir(parents=True, exist_ok=True)
    clock = other_clock.Moving(directory / "clock")
    command = [sys.executable, "-m", "bench.years", os.fspath(directory), "--within"]
    for name, value in (("days", days), ("minutes", minutes), ("apart", apart)):
        command += [f"--{name}", str(value)]
    subprocess.run(command, env=clock.environment(other_clock.library(directory)), check=True)
    lines = (directory / FILE).read_text(encoding="utf-8").splitlines()
    return [Day(**json.loads(text)) for text in lines]


@dataclass(frozen=True)
class Trend:
    """A figure as the median of the first and of the last days, and what 1,000 runs add by a line through all days."""

    name: str
    then: float
    now: float
    per_1000: float

    def line(self) -> str:
        """Return the trend as a line of text."""
        return f"{self.name}: {self.then:.4g}, at the end {self.now:.4g}; {self.per_1000:+.3g} in 1,000 runs"


def trends(days: Sequence[Day], part: int) -> list[Trend]:
    """Return how each figure grew from the first to the last ``part`` of the days."""
    all_figures = [_figures(day) for day in days]
    numbers = [float(day.day) for day in days]
    found = []
    for name in all_figures[-1]:
        values = [figures.get(name, 0.0) for figures in all_figures]
        slope = linear_regression(numbers, values).slope
        found.append(Trend(name, median(values[:part]), median(values[-part:]), 1_000 * slope))
    return found


def _figures(day: Day) -> dict[str, float]:
    seconds = {f"seconds of {name}": getattr(day, name) for name in ("run", "maintain", "report")}
    files = {f"files of {kind}": float(count) for kind, count in day.files.items()}
    sizes = {f"MiB of {kind}": size / 2**20 for kind, size in day.sizes.items()}
    memory = {f"MiB of {name}": getattr(day, name) / 2**20 for name in ("python", "java", "heap")}
    return {**seconds, "rows": float(day.rows), **files, **sizes, **memory}


def main() -> None:
    """Simulate days and print how figures grew."""
    parser = argparse.ArgumentParser(prog="years", description=__doc__)
    parser.add_argument("directory", type=Path)
    parser.add_argument("--days", type=int, default=60)
    parser.add_argument("--minutes", type=float, default=math.inf, help="begin no day after so many")
    parser.add_argument("--apart", type=int, default=1, help="days from one run to the next")
    parser.add_argument("--within", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.within:
        measured(given.directory, given.days, given.minutes, given.apart)
        return
    days = simulate(given.directory, given.days, given.minutes, given.apart)
    for trend in trends(days[WARM_UP:], PART) if len(days) >= WARM_UP + PART else ():
        print(trend.line())


if __name__ == "__main__":
    main()
