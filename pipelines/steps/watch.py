"""The observer of a run: the steps call it as they work; a subclass can show what it hears."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from pipelines.warehouse.quality import StageRun


class Watch:
    """Observer of a run's steps; this base class shows nothing."""

    def says(self, doing: str, *, quiet: bool = False) -> None:
        """Hear what is being done between stages; ``quiet`` means that it needs no line of its own."""

    def asks(self, spark: SparkSession | None) -> None:
        """Take the session whose jobs show how far a stage is; None if the session is about to end."""

    def begins(self, table: str, number: int, of: int) -> None:
        """Hear that stage ``number`` of ``of`` begins."""

    def finds(self, what: str) -> None:
        """Hear what the present stage has to read."""

    def ended(self, stage_run: StageRun) -> None:
        """Hear what a stage did."""


NOBODY = Watch()
