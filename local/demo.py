"""Captures, a week of a shop and a live broker -> two runs of each feed's DAG: what ``make demo`` shows."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import FrameType
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from expectations.rules import counted
from local import live, warm
from local.airflow_home import environment, stop
from local.bundled import BUNDLED, PREFIX, land, land_week, put
from local.live import Happened
from pipelines.broker import Broker
from pipelines.catalog import LAYERS, stages
from pipelines.commands.incidents import listing, story
from pipelines.commands.incidents.reading import Incidents
from pipelines.errors import AfterlogError, ContractBroken, EnvironmentLacking, UsageError
from pipelines.installation import COMMAND
from pipelines.jvm import class_data_archive, jars, java
from pipelines.replay import eligibility
from pipelines.run.newest import moment
from pipelines.settings import AIRFLOW_HOME, ROOT, Settings, load
from pipelines.site import reading, report
from pipelines.site.content import Light
from pipelines.warehouse import actions, jvmless
from pipelines.warehouse.tables import Warehouse

NOTE = ".demo"
"""In the landing directory: when the week of the demo ends that landed there."""
NEXT = (
    "top",
    "ask                    # lists the questions",
    "describe order-enrichment",
    "trace checkout:0:5",
    "doctor",
)
NO_TOPICS = {
    "AFTERLOG_CLUSTER": '"default"',
    "AFTERLOG_KAFKA": "{}",
    "AFTERLOG_KAFKA_CONNECTION": "",
    **{f"AFTERLOG_{feed}__SOURCE": "files" for feed in ("DLQ", "STREAMS_REQUESTS", "ACKNOWLEDGEMENTS")},
    "AFTERLOG_SEGMENTS": "{}",
}
"""The demo knows no cluster and reads no topics but its own, whatever the settings say."""

_IDLE_SECONDS = 2.0
_STOP_SECONDS = 5.0


class Airflow:
    """One Airflow process with a fresh database that runs any number of DAGs."""

    def __init__(self, home: Path, log: Path, console: Console, variables: Mapping[str, str] | None = None) -> None:
        """Start Airflow; ``log`` takes all that it prints, ``variables`` override settings."""
        self.log = log
        self.console = console
        with log.open("wb") as out:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "local.airflow_runs", "serve"],
                cwd=ROOT,
                env=environment(home) | dict(variables or {}),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=out,
                text=True,
                start_new_session=True,
            )

    def run(self, dag: str, parameters: dict[str, str]) -> dict[str, Any]:
        """Run a DAG, show the running task, and return what Airflow's database holds about the run.

        Raises UsageError: the DAG refuses a parameter. Raises EnvironmentLacking: Airflow ended.
        """
        assert self.process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self.process.stdin.write(json.dumps({"dag": dag, "parameters": parameters}) + "\n")
            self.process.stdin.flush()
        with self._progress("Airflow is starting") as show:
            for event in self._events():
                if event["event"] == "task":
                    again = f" (try {event['try']})" if event["try"] > 1 else ""
                    show(f"{dag}: {event['task']}{again}")
                elif event["event"] == "run":
                    return event
                elif event["event"] == "refused":
                    raise UsageError(event["why"])
        raise EnvironmentLacking(f"Airflow ended before the run did; {self.log} says why.")

    def close(self) -> None:
        """End Airflow, and the task that it may be running."""
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
        """Show the running task in a status line on a terminal, else show nothing."""
        if not self.console.is_terminal:
            yield lambda task: None
            return
        with self.console.status(first) as status:
            yield lambda task: status.update(f"Airflow runs {task}")


def demo(console: Console) -> None:
    """Land the bundled files, play the live part, run each feed's DAG twice, and show the results.

    Raises ContractBroken, EnvironmentLacking, UsageError: the demo cannot run, or one of its tasks failed.
    """
    settings = load()
    _check(settings)
    began = time.monotonic()
    ends = week_ends(settings) or datetime.now(UTC).replace(microsecond=0)
    landed = sum(land(settings, ends).values()) + land_week(settings, ends)
    put(Path(settings.landing) / NOTE, ends.isoformat().encode())
    console.print(
        f"[bold]Landed[/bold] {counted(landed, 'file')} in {escape(settings.landing)}: captures of brokers, and a week "
        f"of a small web shop that ends {moment(ends)}",
        soft_wrap=True,
    )
    home = AIRFLOW_HOME / "demo"
    shutil.rmtree(home, ignore_errors=True)
    home.mkdir(parents=True)
    archive = class_data_archive.archive_path()
    lacking = archive if class_data_archive.can_be_made() and not archive.is_file() else None
    with (
        warm.process(home / "commands.log", NO_TOPICS, lacking) as command,
        _live_broker(settings, console) as happened,
    ):
        variables = NO_TOPICS | (happened.variables if happened else {}) | {"AFTERLOG_COMMAND": command}
        airflow = Airflow(home, home / "demo.log", console, variables)
        try:
            parameters = {"landing": settings.landing, "warehouse": settings.warehouse}
            first = {feed: _run(airflow, feed, parameters, "First run", console) for feed in BUNDLED}
            before = delta_log(Path(settings.warehouse))
            second = [_run(airflow, feed, parameters, "Second run, nothing new", console) for feed in BUNDLED]
            after = delta_log(Path(settings.warehouse))
        finally:
            airflow.close()
        warm.end(command)  # its Java may write the archive of its classes beside what follows
        replayed = live.replay(settings, happened) if happened else ()
    _close_the_captures(settings, ends)
    tables = Warehouse(settings)
    content = reading.gather(tables, replays=eligibility.Replays(tables).of_incident)
    page = report.build(tables, content=replace(content, news=None))  # what ended is what the demo has just closed
    console.print()
    console.print(_table_of_feeds(first))
    _show_unchanged(second, before, after, console)
    if happened:
        _show_live(settings, happened, console)
        for sentence in replayed:
            console.print(escape(sentence), soft_wrap=True)
    _show_ways_on(page, airflow.log, console)
    _show_the_page(content.light, console)
    _show_an_incident(settings, console)
    console.print(f"[dim]The demo took {time.monotonic() - began:.0f} s.[/dim]")


@contextlib.contextmanager
def _live_broker(settings: Settings, console: Console) -> Iterator[Happened | None]:
    """Yield what happened on a live broker, which stops with the context; yield None if no broker can start."""
    broker = Broker(live.DIRECTORY)
    try:
        yield _played(broker, settings, console)
    finally:
        with contextlib.suppress(AfterlogError):  # if its directory cannot be written, the broker never started
            broker.stop()


def _played(broker: Broker, settings: Settings, console: Console) -> Happened | None:
    try:
        with console.status("Applications fail on a live Kafka broker"):
            happened = live.play(broker)
    except (AfterlogError, OSError) as error:
        why = error if isinstance(error, AfterlogError) else f"{error.strerror or type(error).__name__}."
        console.print(
            f"The demo goes on with the captures alone, without a live broker: {escape(str(why))}", soft_wrap=True
        )
        return None
    log = settings.landing_of("streams-requests") / f"{PREFIX}live-{datetime.now(UTC):%Y%m%dT%H%M%S}.log"
    put(log, happened.request_log.encode())
    console.print(
        f"[bold]Live[/bold] {counted(len(happened.letters), 'record')} in dead-letter topics of the broker at "
        f"{happened.bootstrap_servers}, {counted(len(happened.health), 'topology')} pushed to it: {escape(str(log))}",
        soft_wrap=True,
    )
    return happened


def week_ends(settings: Settings) -> datetime | None:
    """Return when the week ends that the warehouse holds; None if it holds none, so that a new one can land."""
    try:
        ends = datetime.fromisoformat((Path(settings.landing) / NOTE).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return ends if _is_filled(settings) else None


def _is_filled(settings: Settings) -> bool:
    return any(Warehouse(settings).last_version(stage.table) for stage in stages(layer="bronze"))


def _close_the_captures(settings: Settings, ends: datetime) -> None:
    """Resolve what the captures' brokers were made to do, as a person does after a test: the week is what is told."""
    tables = Warehouse(settings)
    for incident in Incidents(tables, datetime.now(UTC)).known:
        if incident.state.is_open and incident.row["last_at"] < ends - timedelta(days=7):
            actions.act(tables, incident.row["incident_id"], actions.RESOLVE, note="From a test of the brokers.")


def delta_log(warehouse: Path) -> dict[str, int]:
    """Return the number of commits in the Delta log of each table, by the table's path in the warehouse."""
    commits: dict[str, int] = {}
    for log in warehouse.glob("*/*/_delta_log"):
        commits[log.parent.relative_to(warehouse).as_posix()] = sum(1 for _ in log.glob("*.json"))
    return commits


def _check(settings: Settings) -> None:
    """Refuse a warehouse that is remote or holds other records than the demo's; check Java and jars early."""
    if "://" in settings.warehouse:
        raise UsageError("The demo needs a local warehouse; name one: AFTERLOG_WAREHOUSE=demo-warehouse make demo.")
    if _is_filled(settings) and week_ends(settings) is None:
        raise UsageError(
            f"The warehouse {settings.warehouse} holds records that are not this demo's; name another one: "
            f"AFTERLOG_WAREHOUSE=demo-warehouse AFTERLOG_LANDING=demo-landing make demo."
        )
    java.ensure()
    jars.class_path("spark")


def _run(airflow: Airflow, dag: str, parameters: dict[str, str], title: str, console: Console) -> dict[str, Any]:
    began = time.monotonic()
    run = airflow.run(dag, parameters)
    console.print(f"{title}: DAG {dag}, {run['state']}, {time.monotonic() - began:.0f} s")
    if run["state"] != "success":
        console.print(_table_of(dag, run, title))
        failed = ", ".join(task for task, state in run["tasks"].items() if state["state"] == "failed")
        raise ContractBroken(f"Task {failed} of DAG {dag} failed; {airflow.log} says why.")
    return run


def _table_of(dag: str, run: dict[str, Any], title: str) -> Table:
    """Return the table of a run: a line per task and per table that it filled, within 80 columns."""
    filled = {layer: run["xcoms"].get(layer, {}).get("tables", {}) for layer in LAYERS}
    shown = [
        name
        for name in ("skipped", "held")
        if any(counts[name] for tables in filled.values() for counts in tables.values())
    ]
    names = ["read", "written", "quarantined", "duplicates", *shown]
    table = _table(f"{title}: DAG {dag}, {run['state']}")
    table.add_column("task and tables", no_wrap=True)
    for name in (*names, "seconds"):
        table.add_column(name, justify="right", no_wrap=True)
    for task, task_state in run["tasks"].items():
        colour = {"success": "green", "failed": "red"}.get(task_state["state"], "yellow")
        state = f"{task}: [{colour}]{task_state['state']}[/{colour}]"
        table.add_row(state, *("" for _ in names), f"{task_state['seconds'] or 0:.1f}")
        for name, counts in filled.get(task, {}).items():
            numbers = (f"{counts[count]:,}" for count in names)
            table.add_row(f"  {name.partition('.')[2]}", *numbers, f"{counts['seconds']:.1f}")
    return table


def _table_of_feeds(runs: Mapping[str, dict[str, Any]]) -> Table:
    """Return the counts of runs in a table: a line per feed and layer, within 80 columns."""
    totals = {
        (feed, layer): run["xcoms"].get(layer, {}).get("tables", {}) for feed, run in runs.items() for layer in LAYERS
    }
    names = ["read", "written", "quarantined", "duplicates"]
    names += [
        name
        for name in ("skipped", "held")
        if any(counts[name] for tables in totals.values() for counts in tables.values())
    ]
    table = _table("The pipeline")
    for name in ("feed", "layer"):
        table.add_column(name, no_wrap=True)
    for name in ("tables", *names, "seconds"):
        table.add_column(name, justify="right", no_wrap=True)
    for (feed, layer), tables in totals.items():
        sums = (sum(counts[name] for counts in tables.values()) for name in names)
        seconds = runs[feed]["tasks"].get(layer, {}).get("seconds") or 0
        cells = (f"{len(tables)}", *(f"{count:,}" for count in sums), f"{seconds:.0f}")
        table.add_row(feed if layer == LAYERS[0] else "", layer, *cells)
    return table


def _show_unchanged(
    runs: Sequence[dict[str, Any]], before: dict[str, int], after: dict[str, int], console: Console
) -> None:
    """Show that the second runs changed nothing; raises ContractBroken if they changed something."""
    read = sum(counts["read"] for run in runs for counts in run["xcoms"]["reports"]["tables"].values())
    changed = sorted(table for table in before.keys() | after.keys() if before.get(table) != after.get(table))
    if read or changed:
        raise ContractBroken(f"The second runs should change nothing, but read {read} rows and wrote {changed}.")
    commits = sum(after.values())
    console.print(
        f"Nothing changed: 0 rows read, all {len(after)} tables stand at the same {commits} Delta commits.",
        soft_wrap=True,
    )


def _show_live(settings: Settings, happened: Happened, console: Console) -> None:
    """Show what landed from the live broker; raises ContractBroken if a record is missing or differs in a byte."""
    letters = Counter(happened.letters)
    landed = Counter(live.landed(settings, happened))
    if letters != landed:
        lacking, strange = (letters - landed).total(), (landed - letters).total()
        raise ContractBroken(
            f"Bronze does not hold what a plain consumer reads: {lacking} of {letters.total()} dead letters are not "
            f"in it, {counted(strange, 'row')} {'is' if strange == 1 else 'are'} none of them."
        )
    accepted_by_group = Counter(group for group, _, _ in live.accepted(settings, happened))
    expected = Counter(live.group_of(letter) for letter in happened.letters)
    if accepted_by_group != expected:
        raise ContractBroken("Silver does not hold each dead letter once: see quarantine.dlq_records.")
    rows = jvmless.rows(
        Warehouse(settings), "gold.topology_current", {"cluster": settings.cluster}, ["group_id", "health"]
    )
    health = {row["group_id"]: row["health"] for row in rows if row["group_id"] in happened.health}
    if health != happened.health:
        raise ContractBroken(f"By the broker's answers the health of these topologies is {dict(happened.health)}.")
    console.print(
        f"Live: byte by byte bronze holds what a plain consumer reads: {counted(letters.total(), 'record')}.\n"
        f"Share groups that dead-lettered them: {len(expected)}; topologies pushed beside them: {len(health)}.",
        soft_wrap=True,
    )


def _table(title: str) -> Table:
    return Table(title=title, title_justify="left", title_style="bold", box=None, padding=(0, 1, 0, 0), pad_edge=False)


def _show_ways_on(page: Path, log: Path, console: Console) -> None:
    program = os.path.relpath(COMMAND)
    console.print()
    for title, texts in (
        ("The page", [os.fspath(page)]),
        ("Data Docs", [os.fspath(page.with_name(report.DATA_DOCS) / "index.html")]),
        ("Airflow's log", [os.fspath(log)]),
        ("Ask more", [f"{program} {command}" for command in NEXT]),
        ("Airflow's web interface", ["make up"]),
    ):
        console.print(f"[bold]{title}[/bold]")
        for text in texts:
            console.print(f"  {text}", markup=False, highlight=False, soft_wrap=True)


def _show_the_page(light: Light, console: Console) -> None:
    """Show what is on the front of the page."""
    console.print(f"\n[bold]On the front of the page[/bold] ({light.colour})")
    for line in (light.sentence, *(f"- {reason}" for reason in light.reasons)):
        console.print(f"  {line}", markup=False, highlight=False, soft_wrap=True)


def _show_an_incident(settings: Settings, console: Console) -> None:
    """Show all that is known of the most urgent incident."""
    tables = Warehouse(settings)
    listed = listing.listed(tables, "json").result.splitlines()
    if not listed:
        return
    opened = counted(len(listed), "incident")
    console.print(f"\n[bold]The most urgent of {opened}[/bold]")
    shown = story.one(tables, json.loads(listed[0])["incident_id"]).result
    console.print(shown, markup=False, highlight=False, soft_wrap=True)


class _Stopped(BaseException):
    """Ctrl-C or TERM; Py4J spoils a KeyboardInterrupt that arrives during one of its calls."""


_WIDTH = 120
"""Columns of a console that is no terminal: cells of tables are folded there; paths and commands stay whole."""


def _stop(_number: int, _frame: FrameType | None) -> None:
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)  # the demo is ending its processes
    raise _Stopped


def main() -> int:
    """Run the demo and return the exit code."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, _stop)
    try:
        demo(Console(highlight=False, width=None if sys.stdout.isatty() else _WIDTH))
    except _Stopped:
        print("The demo is stopped; what it wrote so far is kept.", file=sys.stderr)
        return 130
    except AfterlogError as error:
        print(error, file=sys.stderr)
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main())
