"""The interface that each stage expects of its table's module, ``pipelines/<layer>/<table>.py``.

The docstring of an optional member states its default.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Protocol, cast

from expectations.verdict import Verdict
from pipelines.settings import Settings
from pipelines.sources import landing
from pipelines.sources.landing import LandedFile
from pipelines.stage import Derive, Land, LookUp, Split
from pipelines.warehouse.tables import Warehouse

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession


class LandModule(Protocol):
    """The module of a ``Land`` table. It must have ``parse``, and may have the others."""

    def parse(self, lines: DataFrame, settings: Settings) -> DataFrame:
        """Return the contract's columns, without those that the run adds, for lines of files or topics.

        The value of a topic's record is a line, and the line has its ``_bronze_id`` already.
        """
        ...

    def skipped(self, lines: DataFrame) -> Column:
        """Return whether a line is not wanted; such lines are only counted. Default: all lines are wanted."""
        ...

    def skipped_as(self, lines: DataFrame) -> Column:
        """Return the name under which a skipped line is counted. Default: none."""
        ...

    @property
    def ordinary_form(self) -> str | None:
        """Return the form of lines that goes without saying, if the table has a column ``form``. Default: none."""
        ...

    @property
    def parse_records(self) -> Callable[[DataFrame, Settings], DataFrame] | None:
        """Parse whole records of topics instead of lines. Default: ``parse`` takes their values as lines."""
        ...

    @property
    def read_files(
        self,
    ) -> Callable[[SparkSession, Sequence[LandedFile], Mapping[str, str], Settings], DataFrame] | None:
        """Make lines of files, and of their damages, each with its ``_occurrence``. Default: as they landed."""
        ...

    def read_records(self, lines: DataFrame, settings: Settings) -> DataFrame:
        """Make lines of the values of a topic's records. Default: as they are."""
        ...


class ReaderModule(Protocol):
    """``pipelines/sources/<reader>.py`` of a ``Land`` table whose files do not consist of lines."""

    def listing(self, directory: Path) -> dict[str, LandedFile]:
        """Return the files that have landed, by source."""
        ...

    def passed_over(self, sources: Iterable[str]) -> str:
        """Return words for the files that are passed over by their names; empty if there are none."""
        ...

    def unread(self, directory: Path, read: Mapping[str, LandedFile]) -> dict[str, LandedFile]:
        """Return the files to read, by source; ``read`` has the files that were read."""
        ...

    def read(
        self, spark: SparkSession, directory: Path, files: Sequence[LandedFile], landed: DataFrame | None = None
    ) -> DataFrame:
        """Return the rows that ``parse`` takes as lines; ``landed`` are the table's rows of these files, if any."""
        ...


class SplitModule(Protocol):
    """The module of a ``Split`` table. It must have ``transform``, and may have the others.

    ``LOOKS_AT_OTHERS`` tells that a candidate depends on other rows of the batch. Default: false. ``SCOPE_OF_INPUT``
    names the input's column whose value the contract's scope has in all candidates. Default: none, ``transform`` tells.
    """

    LOOKS_AT_OTHERS: bool
    SCOPE_OF_INPUT: str | None

    def transform(self, bronze: DataFrame, settings: Settings) -> DataFrame:
        """Return at least one candidate for each input row.

        A candidate with a true ``_skipped`` belongs to other tables and is only counted.
        """
        ...

    @property
    def transform_in(self) -> Callable[[DataFrame, Warehouse], DataFrame] | None:
        """Return a ``transform`` that also asks the warehouse. Default: none."""
        ...

    def explain(self, judged: DataFrame, bronze: DataFrame, verdict: Verdict, settings: Settings) -> Verdict:
        """Add to a broken gate's verdict what else the judged and the input rows tell. Default: nothing."""
        ...


class LookUpModule(Protocol):
    """The module of a ``LookUp`` table. It must have ``refresh``, and may have ``is_stale``."""

    def refresh(self, warehouse: Warehouse, news: DataFrame | None) -> int:
        """Update the table, given the changed rows of its input; return how many of the table's rows changed."""
        ...

    def is_stale(self, warehouse: Warehouse) -> bool:
        """Tell, without a session, whether anything but the input changes the table now. Default: no."""
        ...


Rows = Sequence[Mapping[str, Any]]


class DeriveModule(Protocol):
    """The module of a ``Derive`` table. It must have ``derive``, and may have ``deriver``."""

    def derive(self, rows: Rows, existing_rows: Rows) -> Iterable[Mapping[str, Any]]:
        """Return a group's rows of the table, given the SELECT's rows and the table's own rows of the group.

        Timestamps are microseconds since 1970, in what is given and in what is returned. A column that is not
        returned is null.
        """
        ...

    @property
    def deriver(self) -> Callable[[Rows], Callable[[Rows, Rows], Iterable[Mapping[str, Any]]]] | None:
        """Return a ``derive`` that knows the SELECT's rows without a group, which tell something of every group.

        Default: none; rows without a group are a group.
        """
        ...


def land_module(stage: Land) -> LandModule:
    """Return the module of a ``Land`` table."""
    defaults: dict[str, Any] = {
        "skipped": _nothing,
        "skipped_as": _nameless,
        "ordinary_form": None,
        "parse_records": None,
        "read_files": None,
        "read_records": _as_they_are,
    }
    return cast(LandModule, _module(stage.table, defaults))


def reader_module(stage: Land) -> ReaderModule:
    """Return the module that reads the files of a ``Land`` table."""
    return cast(ReaderModule, import_module(f"pipelines.sources.{stage.reader}"))


def listing(stage: Land, directory: Path) -> dict[str, LandedFile]:
    """Return the files that have landed for a ``Land`` table, by source."""
    return reader_module(stage).listing(directory) if stage.reader else landing.listing(directory)


def split_module(stage: Split) -> SplitModule:
    """Return the module of a ``Split`` table."""
    defaults = {"explain": unexplained, "LOOKS_AT_OTHERS": False, "SCOPE_OF_INPUT": None, "transform_in": None}
    return cast(SplitModule, _module(stage.table, defaults))


def look_up_module(stage: LookUp) -> LookUpModule:
    """Return the module of a ``LookUp`` table."""
    return cast(LookUpModule, _module(stage.table, {"is_stale": _never_stale}))


def derive_module(stage: Derive) -> DeriveModule:
    """Return the module of a ``Derive`` table."""
    return cast(DeriveModule, _module(stage.table, {"deriver": None}))


def unexplained(judged: DataFrame, bronze: DataFrame, verdict: Verdict, settings: Settings) -> Verdict:
    """Return the verdict unchanged."""
    return verdict


def _module(table: str, defaults: dict[str, Any]) -> SimpleNamespace:
    return SimpleNamespace(**{**defaults, **vars(import_module(f"pipelines.{table}"))})


def _nothing(lines: DataFrame) -> Column:
    from pyspark.sql import functions as F

    return F.lit(False)


def _nameless(lines: DataFrame) -> Column:
    from pyspark.sql import functions as F

    return F.lit(None).cast("string")


def _as_they_are(lines: DataFrame, settings: Settings) -> DataFrame:
    return lines


def _never_stale(warehouse: Warehouse) -> bool:
    return False
