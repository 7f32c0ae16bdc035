"""Who looks on while a command works: what hears of each step of a run, and tells nobody unless it is told how."""

from __future__ import annotations

from typing import TYPE_CHECKING

from expectations.rules import counted

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from pipelines.quality import StageRun


class Watch:
    """Hears of each step of a run; this one keeps it to itself."""

    def says(self, doing: str, *, quiet: bool = False) -> None:
        """Hear what is being done now, between stages; ``quiet`` is what needs no line of its own."""

    def asks(self, spark: SparkSession | None) -> None:
        """Take the session whose jobs tell how far a stage is; None where it is about to end."""

    def begins(self, table: str, number: int, of: int) -> None:
        """Hear that a stage begins, the how manieth of how many."""

    def finds(self, what: str) -> None:
        """Hear what the stage at work has to read."""

    def ended(self, stage_run: StageRun) -> None:
        """Hear what a stage did."""


NOBODY = Watch()


def size_of(count: float) -> str:
    """Return a number of bytes as people read it."""
    for unit in ("bytes", "kB", "MB"):
        if count < 1000:
            return f"{count:.0f} bytes" if unit == "bytes" else f"{count:.1f} {unit}"
        count /= 1000
    return f"{count:,.1f} GB"


def files_of(number: int, size: int) -> str:
    """Return how many files of which size."""
    return f"{counted(number, 'file')}, {size_of(size)}"
