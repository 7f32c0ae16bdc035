"""The progress of a run on a terminal: a bar on standard error; elsewhere nothing."""

from __future__ import annotations

import sys
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

if TYPE_CHECKING:
    from pipelines.replay.run import Progress


class Bar:
    """A bar that shows how many records of a plan stand on their target."""

    def __init__(self) -> None:
        """Show nothing yet."""
        self._bar: Any = None
        self._task: Any = None

    def __enter__(self) -> Self:
        """Start the bar if standard error is a terminal."""
        if sys.stderr.isatty():
            from rich.console import Console
            from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

            columns = (TextColumn("Replaying"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
            self._bar = Progress(*columns, console=Console(stderr=True), transient=True)
            self._task = self._bar.add_task("replay", total=None)
            self._bar.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        """Remove the bar."""
        if self._bar is not None:
            self._bar.stop()

    def show(self, progress: Progress) -> None:
        """Show how far a run is."""
        if self._bar is not None:
            self._bar.update(self._task, completed=progress.replayed, total=progress.total)
