"""What the module of a table provides for its stage: ``pipelines/<table>.py``, which is found by the table's name.

What a module may leave out has a default, which is named here with it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Protocol, cast

from expectations.verdict import Verdict
from pipelines.settings import Settings
from pipelines.sources.landing import LandedFile
from pipelines.stage import Ask, Land, Split
from pipelines.warehouse.tables import Warehouse

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession


class LandModule(Protocol):
    """The module of a ``Land`` table. It must have ``parse``, and may have the others."""

    def parse(self, lines: DataFrame, settings: Settings) -> DataFrame:
        """Return the contract's columns, without those that the run adds, for lines of files or of topics.

        The value of a topic's record is a line; its source gave it its ``_bronze_id``.
        """
        ...

    def skipped(self, lines: DataFrame) -> Column:
        """Tell which lines are not wanted: they are counted, no more. By default all lines are wanted."""
        ...

    def skipped_as(self, lines: DataFrame) -> Column:
        """Return the name that a skipped line is counted under. By default there is none."""
        ...

    @property
    def parse_records(self) -> Callable[[DataFrame, Settings], DataFrame] | None:
        """Do what ``parse`` does for records of topics as a whole. By default their values are parsed as lines."""
        ...

    @property
    def events(self) -> Callable[[DataFrame], DataFrame] | None:
        """Make events of lines in order, each with its ``_occurrence``. By default each line is an event."""
        ...


class ReaderModule(Protocol):
    """``pipelines/sources/<reader>.py`` of a ``Land`` table whose files do not consist of lines."""

    def unread(self, directory: Path, read: Mapping[str, LandedFile]) -> dict[str, LandedFile]:
        """Return, by source, the files that are to be read, given those that were."""
        ...

    def read(
        self, spark: SparkSession, directory: Path, files: Sequence[LandedFile], landed: DataFrame | None = None
    ) -> DataFrame:
        """Return the rows that ``parse`` takes for lines; ``landed`` are the table's rows of these files, if any."""
        ...


class SplitModule(Protocol):
    """The module of a ``Split`` table. It must have ``transform``, and may have ``explain``."""

    def transform(self, bronze: DataFrame, settings: Settings) -> DataFrame:
        """Return at least one candidate for each input row.

        Where ``_skipped`` is true the candidate belongs to other tables: it is counted, no more.
        """
        ...

    def explain(self, judged: DataFrame, bronze: DataFrame, verdict: Verdict) -> Verdict:
        """Add to the verdict of a broken gate what else the judged and the input rows tell. By default nothing."""
        ...


class AskModule(Protocol):
    """The module of an ``Ask`` table. It must have ``refresh``, and may have ``is_stale``."""

    def refresh(self, warehouse: Warehouse, news: DataFrame | None) -> int:
        """Bring the table up to date, with the changed rows of its input; return how many of its rows changed."""
        ...

    def is_stale(self, warehouse: Warehouse) -> bool:
        """Tell, without a session, whether something else than its input changes the table now. By default nothing."""
        ...


def land_module(stage: Land) -> LandModule:
    """Return the module of a table that lands."""
    defaults = {"skipped": _nothing, "skipped_as": _nameless, "parse_records": None, "events": None}
    return cast(LandModule, _module(stage.table, defaults))


def reader_module(stage: Land) -> ReaderModule:
    """Return the module that reads the files of a table that lands."""
    return cast(ReaderModule, import_module(f"pipelines.sources.{stage.reader}"))


def split_module(stage: Split) -> SplitModule:
    """Return the module of a table that is split."""
    return cast(SplitModule, _module(stage.table, {"explain": unexplained}))


def ask_module(stage: Ask) -> AskModule:
    """Return the module of a table that is asked for."""
    return cast(AskModule, _module(stage.table, {"is_stale": _never_stale}))


def unexplained(judged: DataFrame, bronze: DataFrame, verdict: Verdict) -> Verdict:
    """Return the verdict as it is."""
    return verdict


def _module(table: str, defaults: dict[str, Any]) -> SimpleNamespace:
    return SimpleNamespace(**{**defaults, **vars(import_module(f"pipelines.{table}"))})


def _nothing(lines: DataFrame) -> Column:
    from pyspark.sql import functions as F

    return F.lit(False)


def _nameless(lines: DataFrame) -> Column:
    from pyspark.sql import functions as F

    return F.lit(None).cast("string")


def _never_stale(warehouse: Warehouse) -> bool:
    return False
