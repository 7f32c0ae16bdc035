"""Bundled dead-letter records -> landing -> the Airflow DAG `dlq`, twice: what ``make demo`` shows."""

from __future__ import annotations

import contextlib
import filecmp
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from types import FrameType
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from pipelines import jars, java
from pipelines.airflow_home import HOME, environment, stop
from pipelines.errors import AfterlogError, ContractBroken, EnvironmentLacking, UsageError
from pipelines.settings import ROOT, Settings, load

DAG = "dlq"
BUNDLED = (ROOT / "tests" / "data" / "dlq", ROOT / "demo")
PREFIX = "demo-"
AFTERLOG = Path(sys.executable).with_name("afterlog")
VIOLATIONS = """
    SELECT violation, count(*) AS records
    FROM quarantine.dlq_records LATERAL VIEW explode(violations) AS violation
    GROUP BY violation ORDER BY records DESC, violation LIMIT 10
"""
NEXT = (
    "sql 'SELECT disposition, count(*) FROM silver.dlq_records GROUP BY disposition'",
    "sql 'SELECT * FROM gold.dlq_summary ORDER BY record_count DESC LIMIT 10'",
    "doctor",
)


_IDLE_SECONDS = 2.0
_STOP_SECONDS = 5.0


class Airflow:
    """One Airflow, started once, on a fresh database, that runs the DAG as often as asked."""

    def __init__(self, home: Path, log: Path, console: Console) -> None:
        """Start it; ``log`` takes all that it prints."""
        self.log = log
        self.console = console
        with log.open("wb") as out:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "pipelines.airflow_runs", "serve", DAG],
                cwd=ROOT,
                env=environment(home),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=out,
                text=True,
                start_new_session=True,
            )

    def run(self, parameters: dict[str, str]) -> dict[str, Any]:
        """Run the DAG, showing which task is at work; return what Airflow's database holds of the run."""
        assert self.process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self.process.stdin.write(json.dumps(parameters) + "\n")
            self.process.stdin.flush()
        with self._progress("Airflow is starting") as show:
            for event in self._events():
                if event["event"] == "task":
                    again = f" (try {event['try']})" if event["try"] > 1 else ""
                    show(f"{event['task']}{again}")
                elif event["event"] == "run":
                    return event
                elif event["event"] == "refused":
                    raise UsageError(event["why"])
        raise EnvironmentLacking(f"Airflow ended before the run did; {self.log} says why.")

    def close(self) -> None:
        """End it, and the task that it may be at."""
        assert self.process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self.process.stdin.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(timeout=_IDLE_SECONDS)
        stop([self.process], seconds=_STOP_SECONDS)

    def _events(self) -> Iterator[dict[str, Any]]:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            yield json.loads(line)

    @contextlib.contextmanager
    def _progress(self, first: str) -> Iterator[Any]:
        """Show the task at work: a moving line on a terminal, else one line a task."""
        if not self.console.is_terminal:
            yield lambda task: self.console.print(f"  {task}", markup=False)
            return
        with self.console.status(first) as status:
            yield lambda task: status.update(f"Airflow runs {task}")


def demo(console: Console) -> None:
    """Land the bundled records, run the DAG twice, show what it did.

    Raises ContractBroken, EnvironmentLacking, UsageError: the demo cannot run, or a task of it failed.
    """
    settings = load()
    _check(settings)
    began = time.monotonic()
    files = land(settings.landing_of(DAG))
    console.print(
        f"[bold]Landed[/bold] {files} files of dead-letter records in {escape(str(settings.landing_of(DAG)))}"
    )
    home = HOME / "demo"
    shutil.rmtree(home, ignore_errors=True)
    home.mkdir(parents=True)
    airflow = Airflow(home, home / "demo.log", console)
    try:
        parameters = {"landing": settings.landing, "warehouse": settings.warehouse}
        first = _run(airflow, parameters, "First run", console)
        before = delta_log(Path(settings.warehouse))
        violations = subprocess.Popen(
            [AFTERLOG, "sql", VIOLATIONS, "--format", "json", "--warehouse", settings.warehouse],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )
        try:
            second = _run(airflow, parameters, "Second run, nothing new", console)
            _show_unchanged(second, before, delta_log(Path(settings.warehouse)), console)
            rows, _ = violations.communicate()
        finally:
            stop([violations])
    finally:
        airflow.close()
    _show_violations([json.loads(row) for row in rows.splitlines()], console)
    _show_ways_on(first["xcoms"]["reports"]["report"], airflow.log, console)
    console.print(f"[dim]The demo took {time.monotonic() - began:.0f} s.[/dim]")


def land(directory: Path) -> int:
    """Copy the bundled files to ``demo-*`` names in the landing directory, each renamed into place when it is whole.

    Files that are there already stay as they are, so that they are not read again. Returns how many files there are.
    """
    sources = [file for bundle in BUNDLED for file in sorted(bundle.glob("*.jsonl*"))]
    if not sources:
        raise EnvironmentLacking(f"The bundled records are missing in {BUNDLED[0]}; get the whole project again.")
    try:
        directory.mkdir(parents=True, exist_ok=True)
        for source in sources:
            target = directory / f"{PREFIX}{source.name}"
            if target.exists() and filecmp.cmp(source, target, shallow=False):
                continue
            unfinished = directory / f".{target.name}.tmp"
            shutil.copyfile(source, unfinished)
            unfinished.replace(target)
    except OSError as error:
        raise EnvironmentLacking(f"Nothing can be landed in {directory}: {error.strerror}.") from None
    return len(sources)


def delta_log(warehouse: Path) -> dict[str, int]:
    """Return how many commits each table of a warehouse has, by its path."""
    commits: dict[str, int] = {}
    for log in warehouse.glob("*/*/_delta_log"):
        commits[log.parent.relative_to(warehouse).as_posix()] = sum(1 for _ in log.glob("*.json"))
    return commits


def _check(settings: Settings) -> None:
    """Refuse what would mix the demo into somebody's tables; say early what the machine lacks."""
    if "://" in settings.warehouse:
        raise UsageError("The demo needs a local warehouse; name one: AFTERLOG_WAREHOUSE=demo-warehouse make demo.")
    landed = any(settings.landing_of(DAG).glob(f"{PREFIX}*"))
    if not landed and (Path(settings.warehouse) / "bronze" / "dlq_records" / "_delta_log").exists():
        raise UsageError(
            f"The warehouse {settings.warehouse} holds records that are not the demo's; name another one: "
            f"AFTERLOG_WAREHOUSE=demo-warehouse AFTERLOG_LANDING=demo-landing make demo."
        )
    java.ensure()
    jars.class_path("spark")


def _run(airflow: Airflow, parameters: dict[str, str], title: str, console: Console) -> dict[str, Any]:
    run = airflow.run(parameters)
    table = Table(title=f"{title}: DAG {DAG}, {run['state']}", title_justify="left", title_style="bold", box=None)
    table.add_column("task", no_wrap=True)
    table.add_column("state")
    for name in ("read", "accepted", "quarantined", "duplicates", "seconds"):
        table.add_column(name, justify="right")
    for task, found in run["tasks"].items():
        counts = run["xcoms"].get(task) or {}
        colour = {"success": "green", "failed": "red"}.get(found["state"], "yellow")
        numbers = [
            f"{counts[name]:,}" if name in counts else "" for name in ("read", "accepted", "quarantined", "duplicates")
        ]
        table.add_row(task, f"[{colour}]{found['state']}[/{colour}]", *numbers, f"{found['seconds'] or 0:.1f}")
    console.print()
    console.print(table)
    if run["state"] != "success":
        failed = ", ".join(task for task, found in run["tasks"].items() if found["state"] == "failed")
        raise ContractBroken(f"Task {failed} failed; {airflow.log} says why.")
    return run


def _show_unchanged(run: dict[str, Any], before: dict[str, int], after: dict[str, int], console: Console) -> None:
    """Say that the second run changed nothing; raises ContractBroken where it did."""
    read = sum(counts.get("read", 0) for counts in run["xcoms"].values())
    changed = sorted(table for table in before.keys() | after.keys() if before.get(table) != after.get(table))
    if read or changed:
        raise ContractBroken(f"The second run should change nothing, but read {read} rows and wrote {changed}.")
    commits = sum(after.values())
    console.print(
        f"Nothing changed: 0 rows read, and all {len(after)} tables stand at the same {commits} Delta commits."
    )


def _show_violations(rows: list[dict[str, Any]], console: Console) -> None:
    if not rows:
        return
    table = Table(title="Quarantine, by violation", title_justify="left", title_style="bold", box=None)
    table.add_column("violation", no_wrap=True)
    table.add_column("records", justify="right")
    for row in rows:
        table.add_row(escape(row["violation"]), f"{row['records']:,}")
    console.print()
    console.print(table)


def _show_ways_on(report: str, log: Path, console: Console) -> None:
    program = os.path.relpath(AFTERLOG)
    console.print()
    for title, texts in (
        ("Report", [report]),
        ("Airflow's log", [os.fspath(log)]),
        ("Ask more", [f"{program} {command}" for command in NEXT]),
        ("Airflow's web interface", ["make up"]),
    ):
        console.print(f"[bold]{title}[/bold]")
        for text in texts:
            console.print(f"  {text}", markup=False, highlight=False, soft_wrap=True)


def _interrupt(_number: int, _frame: FrameType | None) -> None:
    raise KeyboardInterrupt


def main() -> int:
    """Run the demo; return the exit code."""
    signal.signal(signal.SIGTERM, _interrupt)
    try:
        demo(Console(highlight=False))
    except KeyboardInterrupt:
        print("The demo is stopped; what it wrote so far is kept.", file=sys.stderr)
        return 130
    except AfterlogError as error:
        print(error, file=sys.stderr)
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main())
