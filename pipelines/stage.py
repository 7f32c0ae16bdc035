"""The types of stages: a table's inputs and how the table is filled; its name gives the paths of everything else."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass


@dataclass(frozen=True)
class Stage:
    """One step of the pipeline, named by the table that it fills.

    ``also`` names other feeds that the table depends on: a run of one of them fills it as well.
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
        """The table's quarantine, if it has one."""
        return None


@dataclass(frozen=True)
class Land(Stage):
    """Insert the lines of files in ``<landing>/<directory>``, and the records of topics if the settings name any.

    Rows are inserted once on the contract's grain. The table's module is a ``steps.modules.LandModule``. If equal lines
    are different events (``lines_are_events``), ``_occurrence`` numbers them in their file. If files do not consist of
    lines, ``pipelines/sources/<reader>.py`` reads them; it is a ``steps.modules.ReaderModule``. Files of a log that is
    rotated (``is_rotated``) can continue each other.
    """

    _: KW_ONLY
    directory: str
    lines_are_events: bool = False
    reader: str = ""
    is_rotated: bool = False


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
    """Compute again the groups that new input touches, with the SELECT in ``sql/<layer>/<table>.sql``.

    The head of the SELECT names the groups; ``steps.refresh`` reads it.
    """


@dataclass(frozen=True)
class Derive(Summarise):
    """Compute groups again as ``Summarise`` does, and make the rows of each group from the SELECT's rows in Python.

    The table's module is a ``steps.modules.DeriveModule``. It suits groups of few rows, and rows that depend on the
    table's own earlier rows, such as ids that stay.
    """


@dataclass(frozen=True)
class LookUp(Stage):
    """Update the table with what the settings and a cluster say, and with the changed rows of the input.

    The table's module is a ``steps.modules.LookUpModule``.
    """
