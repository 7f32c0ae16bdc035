"""A stage: what feeds a table and how it is kept; everything else is found by the table's name."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import Literal

Kind = Literal["land", "split", "summarise"]


@dataclass(frozen=True)
class Refresh:
    """The groups of a gold table that are computed again when rows of its input change.

    ``column`` names the group in the table, ``group`` is the SQL expression that gives it over the input; where a group
    is a range of an input column, ``spans`` is that column and the length of the range.
    """

    column: str
    group: str
    spans: tuple[str, timedelta] | None = None


@dataclass(frozen=True)
class Stage:
    """One step of the pipeline, named by the table that it fills.

    - ``land``: ``pipelines/<table>.py`` reads a feed's landing directory; rows are inserted on the contract's grain.
    - ``split``: ``pipelines/<table>.py`` has ``transform(bronze, settings)``, one candidate per input row; the gate,
      the split into table and quarantine and the collapse on the grain follow from the contract.
    - ``summarise``: ``sql/<table>.sql`` is the SELECT; only the groups that new input touches are computed again.
    """

    table: str
    feed: str
    kind: Kind
    inputs: tuple[str, ...] = ()
    refresh_by: Refresh | None = None

    @property
    def quarantine(self) -> str | None:
        """The table's quarantine, where it has one."""
        return f"quarantine.{self.table.partition('.')[2]}" if self.kind == "split" else None
