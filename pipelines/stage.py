"""The types of stages: what feeds a table and how it is kept; everything else is found by the table's name."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass


@dataclass(frozen=True)
class Stage:
    """One step of the pipeline, named by the table that it fills.

    ``also`` names feeds whose news the table follows, too: a run of one of them fills it as well.
    """

    table: str
    _: KW_ONLY
    feed: str
    inputs: tuple[str, ...] = ()
    also: tuple[str, ...] = ()

    @property
    def layer(self) -> str:
        """The table's layer: bronze, silver or gold."""
        return self.table.partition(".")[0]

    @property
    def quarantine(self) -> str | None:
        """The table's quarantine, where it has one."""
        return None


@dataclass(frozen=True)
class Land(Stage):
    """Insert what lies in ``<landing>/<directory>``, and what topics hold where the settings say so.

    Rows are inserted once on the contract's grain. The table's module is a ``steps.modules.LandModule``. Where equal
    lines are different events (``lines_are_events``) each has the number of its occurrence in its file,
    ``_occurrence``. Where files do not consist of lines, ``pipelines/sources/<reader>.py`` reads them: it is a
    ``steps.modules.ReaderModule``.
    """

    _: KW_ONLY
    directory: str
    lines_are_events: bool = False
    reader: str = ""


@dataclass(frozen=True)
class Split(Stage):
    """Make candidates of the input's rows, judge them, and split them into the table and its quarantine.

    The table's module is a ``steps.modules.SplitModule``. The gate, the split and the collapse on the grain follow from
    the contract.
    """

    @property
    def quarantine(self) -> str:
        """The table's quarantine."""
        return f"quarantine.{self.table.partition('.')[2]}"


@dataclass(frozen=True)
class Summarise(Stage):
    """Compute again the groups that news touches: ``sql/<table>.sql`` is the SELECT, whose head names the groups.

    ``steps.refresh`` reads that head.
    """


@dataclass(frozen=True)
class Ask(Stage):
    """Bring the table up to date with the settings, with what a cluster says and with the changed rows of the input.

    The table's module is a ``steps.modules.AskModule``.
    """
