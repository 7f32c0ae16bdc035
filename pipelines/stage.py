"""A stage: what feeds a table and how it is kept; everything else is found by the table's name."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Literal

Kind = Literal["land", "split", "summarise", "ask"]


@dataclass(frozen=True)
class Own:
    """Groups found in the table itself: those of its rows that meet ``where`` and share a column with the news.

    ``column`` is the table's, ``value`` the SQL expression that gives it over the input. For an input of few rows, each
    of which concerns many groups; the SELECT gets all rows of that input.
    """

    column: str
    value: str
    where: str = "true"


@dataclass(frozen=True)
class Refresh:
    """The groups of a table that are computed again when rows of its inputs change.

    ``column`` names the group in the table, ``group`` is the SQL expression that gives it over each input, or one for
    each input, by its table. An array says that a row is of several groups, or of none. Where a group is a range of
    an input column, ``spans`` is that column and the length of the range.
    """

    column: str
    group: str | Mapping[str, str | Own] = field(hash=False)
    spans: tuple[str, timedelta] | None = None

    def group_of(self, table: str) -> str | Own:
        """Return the expression that gives the group of an input's rows."""
        return self.group if isinstance(self.group, str) else self.group[table]


@dataclass(frozen=True)
class Stage:
    """One step of the pipeline, named by the table that it fills.

    - ``land``: ``pipelines/<table>.py`` has ``parse(lines, settings)`` for what lies in ``<landing>/<directory>``; rows
      are inserted on the contract's grain. Where equal lines are different events (``numbered``) each has the number
      of its occurrence in its file, ``_occurrence``. A function ``skipped(lines)`` tells lines that are not wanted.
      Where the settings say so topics are read too: the values of their records are lines, whose source gave them
      their ``_bronze_id``, or ``parse_records(records, settings)`` takes the records as a whole.
      Where files do not consist of lines, ``pipelines/sources/<reader>.py`` has ``unread(directory, read)``, which says
      what waits, and ``read(spark, directory, files, landed)``, whose rows stand for the lines; ``landed`` are the
      table's rows of these files, or None. Where an event is several lines, ``events(lines)`` makes events of lines in
      order (``landing.lines``), each with its ``_occurrence``.
    - ``split``: ``pipelines/<table>.py`` has ``transform(bronze, settings)``, at least one candidate per input row; the
      gate, the split into table and quarantine and the collapse on the grain follow from the contract. A candidate
      with ``_skipped`` is none of the table's business: it is counted, no more. A function ``explain(candidates,
      verdict)`` may add to the verdict of a broken gate.
    - ``summarise``: ``sql/<table>.sql`` is the SELECT; only the groups that news touches are computed again.
    - ``ask``: ``pipelines/<table>.py`` has ``refresh(spark, settings, news)``, which brings the table up to date with
      the settings, with what a cluster says and with the changed rows of the input, and ``is_stale(settings)``, which
      tells without a session whether it is not.

    ``also`` names feeds whose news the table follows, too: a run of one of them fills it as well.
    """

    table: str
    feed: str
    kind: Kind
    inputs: tuple[str, ...] = ()
    refresh_by: Refresh | None = None
    directory: str = ""
    numbered: bool = False
    reader: str = ""
    also: tuple[str, ...] = ()

    @property
    def layer(self) -> str:
        """The table's layer: bronze, silver or gold."""
        return self.table.partition(".")[0]

    @property
    def quarantine(self) -> str | None:
        """The table's quarantine, where it has one."""
        return f"quarantine.{self.table.partition('.')[2]}" if self.kind == "split" else None
