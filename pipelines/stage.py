"""A stage: what feeds a table and how it is kept; everything else is found by the table's name."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import Literal

Kind = Literal["land", "split", "summarise"]


@dataclass(frozen=True)
class Refresh:
    """The groups of a table that are computed again when rows of its inputs change.

    ``column`` names the group in the table, ``group`` is the SQL expression that gives it over each input; where a
    group is a range of an input column, ``spans`` is that column and the length of the range.
    """

    column: str
    group: str
    spans: tuple[str, timedelta] | None = None


@dataclass(frozen=True)
class Stage:
    """One step of the pipeline, named by the table that it fills.

    - ``land``: ``pipelines/<table>.py`` has ``parse(lines, settings)`` for what lies in ``<landing>/<directory>``; rows
      are inserted on the contract's grain. Where equal lines are different events (``numbered``) each has the number
      of its occurrence in its file, ``_occurrence``. A function ``skipped(lines)`` tells lines that are not wanted.
    - ``split``: ``pipelines/<table>.py`` has ``transform(bronze, settings)``, at least one candidate per input row; the
      gate, the split into table and quarantine and the collapse on the grain follow from the contract. A candidate
      with ``_skipped`` is none of the table's business: it is counted, no more.
    - ``summarise``: ``sql/<table>.sql`` is the SELECT; only the groups that news touches are computed again.
    """

    table: str
    feed: str
    kind: Kind
    inputs: tuple[str, ...] = ()
    refresh_by: Refresh | None = None
    directory: str = ""
    numbered: bool = False

    @property
    def layer(self) -> str:
        """The table's layer: bronze, silver or gold."""
        return self.table.partition(".")[0]

    @property
    def quarantine(self) -> str | None:
        """The table's quarantine, where it has one."""
        return f"quarantine.{self.table.partition('.')[2]}" if self.kind == "split" else None
