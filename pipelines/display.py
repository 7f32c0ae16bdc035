"""What the command line shows of a run."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence

from rich.console import Console
from rich.markup import escape

from expectations.verdict import shown
from pipelines import tabular
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
    names = ["read", "accepted", "quarantined", "duplicates", "skipped", "held", "written"]
    spare = [name for name in ("skipped", "held") if not any(getattr(one, name) for one in done)]
    # Where a terminal is too narrow for all, it does without what says nothing, before names of tables are folded.
    said_already = [name for name in ("duplicates", "quarantined") if not any(getattr(one, name) for one in done)]
    said_already += ["written"] if all(one.written == one.accepted for one in done) else []
    width = tabular.terminal_width(sys.stdout)
    while True:
        kept = [name for name in names if name not in spare]
        header = ["stage", "status", *kept, "seconds"]
        rows = [
            [one.table, one.status, *(f"{getattr(one, name):,}" for name in kept), f"{one.seconds:.1f}"] for one in done
        ]
        fit = tabular.fitted([header, *rows], width) if width is not None else None
        if width is None or not said_already or (fit and fit[0][0] >= max(len(one.table) for one in done)):
            break
        spare.append(said_already.pop(0))
    table(header, rows, 2, COLOURS, coloured=1)
    for one in done:
        if one.status in ("broken", "held", "waiting") and one.message:
            said, _, lines = one.message.partition("\n")
            print(shown(f"{one.table}: {said}"), flush=True)
            if lines:  # for the settings, as they are
                print("\n".join(map(shown, lines.split("\n"))), flush=True)


def table(
    names: Sequence[str], rows: Sequence[Sequence[str]], texts: int, colours: Mapping[str, str], coloured: int
) -> None:
    """Print rows on standard output, numbers behind so many columns of text to the right, one column in colours."""
    console = Console(highlight=False)

    def paint(column: int, cell: str, piece: str) -> str:
        style = colours.get(cell) if column == coloured else None
        return f"[{style}]{escape(piece)}[/{style}]" if style and piece else escape(piece)

    to_the_right = [place >= texts for place in range(len(names))]
    width = tabular.terminal_width(sys.stdout)
    for line, _ in tabular.lines(names, rows, width, to_the_right, paint):
        console.print(line, end="", soft_wrap=True)
