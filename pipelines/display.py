"""What the command line shows of a run."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from pipelines.quality import StageRun

COLOURS = {"passed": "green", "idle": "dim", "broken": "bold red", "failed": "bold red", "waiting": "yellow"}
COLOURS |= {"held": "bold red"}
MEANINGS = {"idle": "nothing new"}


def progress(stage_run: StageRun) -> None:
    """Say on standard error, in one line, what a stage did."""
    held = f"held {stage_run.held:,}, " if stage_run.held else ""
    counts = (
        f"read {stage_run.read:,}, accepted {stage_run.accepted:,}, quarantined {stage_run.quarantined:,}, "
        f"duplicates {stage_run.duplicates:,}, skipped {stage_run.skipped:,}, {held}written {stage_run.written:,}, "
        f"{stage_run.seconds:.1f} s"
    )
    said = MEANINGS.get(stage_run.status) or (counts if stage_run.status == "passed" else stage_run.message)
    if stage_run.status == "broken" and stage_run.held:
        said = f"{counts}. {said}"
    print(f"{stage_run.table}: {stage_run.status}: {said}", file=sys.stderr, flush=True)


def stage_runs(done: Sequence[StageRun]) -> None:
    """Print a table of what each stage did."""
    table = Table(box=None, header_style="bold", pad_edge=False)
    table.add_column("stage", no_wrap=True)
    table.add_column("status", no_wrap=True)
    names = [
        "read",
        "accepted",
        "quarantined",
        "duplicates",
        *(["skipped"] if any(one.skipped for one in done) else []),
        *(["held"] if any(one.held for one in done) else []),
        "written",
    ]
    for name in (*names, "seconds"):
        table.add_column(name, justify="right", no_wrap=True)
    for one in done:
        status = f"[{COLOURS[one.status]}]{escape(one.status)}[/{COLOURS[one.status]}]"
        table.add_row(one.table, status, *(f"{getattr(one, name):,}" for name in names), f"{one.seconds:.1f}")
    console = Console()
    console.print(table)
    for one in done:
        if one.status in ("broken", "held", "waiting") and one.message:
            said, _, lines = one.message.partition("\n")
            console.print(f"{one.table}: {said}", markup=False, highlight=False)
            if lines:  # for the settings, as they are
                console.print(lines, markup=False, highlight=False, soft_wrap=True)
