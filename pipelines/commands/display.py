"""What the command line shows of a run: one live line or a line per stage while it works, and a table at the end."""

from __future__ import annotations

import contextlib
import os
import sys
import threading
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from rich.console import Console
from rich.live import Live
from rich.markup import escape
from rich.text import Text

from expectations.rules import counted
from expectations.text import visible
from pipelines.commands import tabular
from pipelines.jvm import jvm_log
from pipelines.steps.watch import Watch
from pipelines.text import size_of
from pipelines.warehouse.quality import StageRun

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

COLOURS = {"passed": "green", "idle": "dim", "broken": "bold red", "failed": "bold red", "waiting": "yellow"}
COLOURS |= {"held": "bold red"}
MEANINGS = {"idle": "nothing new"}

FIRST_SIGN_SECONDS = 0.5
"""Where there is no terminal: after how long it is said what takes so long."""
_LOOK_SECONDS = 0.25


class Display(Watch):
    """Show on standard error what a command does, while the context lasts.

    On a terminal, one live line shows it and disappears at the end; with ``log``, a line per stage also stays above it.
    Without a terminal, each stage prints a line when it ends, and slow work between stages prints a line too. Stages
    with nothing new print no line; ``nothing_new`` tells of them.
    """

    def __init__(self, doing: str, *, quiet: bool = False, log: bool = False, live: bool | None = None) -> None:
        """Show ``doing`` first; ``live`` tells whether there is a terminal, None means to find out."""
        self.live = on_terminal() if live is None else live
        self.log, self._is_all = log or not self.live, log
        self.done: list[StageRun] = []
        self._state = _State(doing, time.monotonic(), quiet=quiet)
        self._said = ""
        self._spark: SparkSession | None = None
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._look, daemon=True)
        self._line: Live | None = None

    def __enter__(self) -> Self:
        """Start to show what the command does."""
        if self.live:
            console = _Terminal(stderr=True, highlight=False)
            self._line = Live(
                get_renderable=self.line,
                console=console,
                refresh_per_second=4,
                transient=True,
                redirect_stdout=False,
            )
            self._line.start(refresh=True)
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        """Remove the live line; if the command fails, print what the stages before did."""
        self.asks(None)
        self._over.set()
        if self._line:
            self._line.stop()
        if error is not None:
            for stage_run in self.done:
                progress(stage_run)

    def says(self, doing: str, *, quiet: bool = False) -> None:
        """Show what the command does between stages."""
        self._state = _State(doing, time.monotonic(), quiet=quiet)

    def asks(self, spark: SparkSession | None) -> None:
        """Ask this session for the progress of its jobs from now on; None ends that."""
        self._spark = spark

    def begins(self, table: str, number: int, of: int) -> None:
        """Show which stage runs."""
        self._state = _State(f"stage {number} of {of}: {table}", time.monotonic(), quiet=True)

    def finds(self, what: str) -> None:
        """Show what the stage has to read."""
        self._state = replace(self._state, to_read=what)

    def ended(self, stage_run: StageRun) -> None:
        """Print what a stage did, or keep it in case the command fails; otherwise a table shows it at the end."""
        if stage_run.status == "idle":
            return
        if self.log:
            progress(stage_run, is_all=self._is_all)
        else:
            self.done.append(stage_run)

    def line(self) -> Text:
        """Return the live line: what the command does, for how long, and how far it is."""
        state, width = self._state, self._line.console.width if self._line else 80
        parts = [
            f"{state.doing.removesuffix('.')}, {time.monotonic() - state.since:.0f} s",
            *([state.to_read] if state.to_read else []),
        ]
        text = Text(visible(", ".join([*parts, *([state.read] if state.read else [])])), style="dim")
        text.truncate(max(width - 1, 1), overflow="ellipsis")
        return text

    def _look(self) -> None:
        """Poll Spark's progress on a terminal; without a terminal, print which work takes long."""
        while not self._over.wait(_LOOK_SECONDS):
            state, spark = self._state, self._spark
            if not self.live:
                if (
                    not state.quiet
                    and state.doing != self._said
                    and time.monotonic() - state.since > FIRST_SIGN_SECONDS
                ):
                    self._said = state.doing
                    print(f"afterlog: {visible(state.doing)}", file=sys.stderr, flush=True)
            elif state.quiet and spark is not None:
                with contextlib.suppress(Exception):  # the session ends, or its JVM has ended
                    read = read_by(spark)
                    if read and self._state is state:
                        self._state = replace(state, read=read)


@dataclass(frozen=True)
class _State:
    """The present work, its start by the monotonic clock, what there is to read, and what is read so far.

    ``quiet`` work appears only on the live line.
    """

    doing: str
    since: float
    to_read: str = ""
    read: str = ""
    quiet: bool = False


class _Terminal(Console):
    """A terminal whose cursor stays visible: a process that is killed could not show it again."""

    def show_cursor(self, show: bool = True) -> bool:
        return False


def on_terminal() -> bool:
    """Tell whether standard error is a terminal that can redraw a line, and the JVM's log is not shown there."""
    return sys.stderr.isatty() and (os.environ.get("TERM") or "dumb") != "dumb" and not jvm_log.is_shown()


def read_by(spark: SparkSession) -> str:
    """Return in words what Spark's active stages have read so far, in this pass over their input."""
    context: Any = spark.sparkContext
    stages = context._jsc.sc().statusStore().activeStages()
    size = rows = done = tasks = 0
    for number in range(stages.size()):
        stage = stages.apply(number)
        size += stage.inputBytes()
        rows += stage.inputRecords()
        done += stage.numCompleteTasks()
        tasks += stage.numTasks()
    read = " and ".join(([size_of(size)] if size else []) + ([counted(rows, "row")] if rows else []))
    task = f"task {min(done + 1, tasks):,} of {tasks:,}" if tasks else ""
    return f"{read} read, {task}" if read else task


def nothing_new(tables: Sequence[str]) -> str:
    """Return one sentence about the tables that had nothing new."""
    if len(tables) == 1:
        return f"{tables[0]} had nothing new."
    return f"{len(tables):,} tables had nothing new."


def progress(stage_run: StageRun, is_all: bool = True) -> None:
    """Print on standard error what a stage did; unless it ``is_all`` that is printed, in one line."""
    held = f"held {stage_run.held:,}, " if stage_run.held else ""
    counts = (
        f"read {stage_run.read:,}, accepted {stage_run.accepted:,}, quarantined {stage_run.quarantined:,}, "
        f"duplicates {stage_run.duplicates:,}, skipped {stage_run.skipped:,}, {held}written {stage_run.written:,}, "
        f"{stage_run.seconds:.1f} s"
    )
    sentence = MEANINGS.get(stage_run.status) or (counts if stage_run.status == "passed" else stage_run.message)
    if (stage_run.status == "broken" and (stage_run.held or stage_run.refused)) or stage_run.warns:
        sentence = f"{counts}. {stage_run.message}"
    said = sentence if is_all else (sentence or "").partition("\n")[0]
    print(f"{stage_run.name}: {stage_run.status}: {said}", file=sys.stderr, flush=True)


def engines(done: Sequence[StageRun]) -> list[str]:
    """Return which engine made or decided how many tables, and why, a sentence for each engine."""
    said = []
    for engine, name in (("duckdb", "DuckDB"), ("spark", "Spark")):
        why = Counter(stage_run.engine_reason for stage_run in done if stage_run.engine == engine)
        if why:
            reasons = "; ".join(f"{count:,}, as {reason}" for reason, count in why.most_common())
            said.append(f"{name} computed or decided {counted(why.total(), 'table')}: {reasons}.")
    return said


def stage_runs(done: Sequence[StageRun]) -> None:
    """Print a table of what each stage did."""
    idle = [stage_run.table for stage_run in done if stage_run.status == "idle"]
    done = [stage_run for stage_run in done if stage_run.status != "idle"]
    names = ["read", "accepted", "quarantined", "duplicates", "skipped", "held", "written"]
    spare = [name for name in ("skipped", "held") if not any(getattr(stage_run, name) for stage_run in done)]
    # If a terminal is too narrow, drop columns that add nothing before the names of tables are folded.
    redundant = [
        name for name in ("duplicates", "quarantined") if not any(getattr(stage_run, name) for stage_run in done)
    ]
    redundant += ["written"] if all(stage_run.written == stage_run.accepted for stage_run in done) else []
    width = tabular.terminal_width(sys.stdout)
    while True:
        kept = [name for name in names if name not in spare]
        header = ["stage", "status", *kept, "seconds"]
        rows = [
            [
                stage_run.name,
                stage_run.status,
                *(f"{getattr(stage_run, name):,}" for name in kept),
                f"{stage_run.seconds:.1f}",
            ]
            for stage_run in done
        ]
        fit = tabular.fitted([header, *rows], width) if width is not None else None
        if width is None or not redundant or (fit and fit[0][0] >= max(len(stage_run.name) for stage_run in done)):
            break
        spare.append(redundant.pop(0))
    if rows:
        table(header, rows, 2, COLOURS, coloured=1)
    if idle:
        Console().print(f"{nothing_new(idle)}", style="dim", highlight=False, soft_wrap=True)
    for sentence in engines(done):
        Console().print(sentence, style="dim", highlight=False, soft_wrap=True)
    said = {
        (stage_run.name, stage_run.message): None  # a table can have several batches
        for stage_run in done
        if stage_run.warns or stage_run.status in ("broken", "held", "waiting")
    }
    for name, message in said:
        sentence, _, lines = (message or "").partition("\n")
        if sentence:
            print(visible(f"{name}: {sentence}"), flush=True)
        if lines:  # for the settings, so without the name of the table
            print("\n".join(map(visible, lines.split("\n"))), flush=True)


def table(
    names: Sequence[str], rows: Sequence[Sequence[str]], texts: int, colours: Mapping[str, str], coloured: int
) -> None:
    """Print rows on standard output; the first ``texts`` columns are text, all others numbers aligned to the right.

    ``colours`` gives the style of each cell in the column ``coloured``.
    """
    console = Console(highlight=False)

    def paint(column: int, cell: str, piece: str) -> str:
        style = colours.get(cell) if column == coloured else None
        return f"[{style}]{escape(piece)}[/{style}]" if style and piece else escape(piece)

    to_the_right = [column_number >= texts for column_number in range(len(names))]
    width = tabular.terminal_width(sys.stdout)
    for line, _ in tabular.lines(names, rows, width, to_the_right, paint):
        console.print(line, end="", soft_wrap=True)
