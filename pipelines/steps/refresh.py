"""The head of a table's SELECT -> which groups of the table are computed again when rows of its inputs change.

The head names the table's column that holds the group. Lines below it give, for each input, the SQL expression for the
group of that input's rows. Without these lines the column has the same name in each input::

    -- Refresh: slice
    --   silver.dead_letters: each of source_slice where is_counted
    --   silver.transactions: each in slices
    --   silver.topic_policies: own rows by topic where NOT in_log

``each of A and B`` gives a row two groups; a null is no group, and a row that does not meet the condition, if there is
one, has none. ``each in A`` is for an expression that is an array of groups. Write the first rather than an array of
columns: the statistics of the columns let files be skipped.

``when a, b change`` says that only changes of these columns of an input count: ``incident_id when first_at, topic
change``. The table must not depend on others.

``slice along <expression> at most 8 times`` is for rows that form chains: the expression is the group that a row's next
row is in, and a row of the table depends on so many next rows. News also touches the groups that lead to it, and the
SELECT also gets the rows that the touched groups lead to.

``own rows`` finds the groups in the table itself: it takes the groups of the table's rows that meet the condition and
have the same value in the column as a changed row of the input. Use it for an input of few rows that each touch many
groups; the SELECT gets all rows of that input. If a group is a range of an input's column, the head says so:
``-- Refresh: hour, a span of 1 hour of routed_at``.

``-- Kept: hour`` says that rows of the table can go by their age (``steps/retention.py``), and what time a row is of;
null never goes. ``-- Kept: hour with gold.dlq_counts`` says, too, that a row depends only on rows of this input with
the same time. If these went, it stays as it is. ``-- Speaks of what is kept: gold.dlq_summary`` says that the table is
about the rows that an input has: those that went count no more.

``-- Engine: duckdb`` says that a test has compared DuckDB's rows with Spark's, so that DuckDB may make them.
``-- Engine: duckdb, in parts`` says, too, that DuckDB keeps much of each input row until the end. If the rows are many,
it takes a range of groups at a time. Each part can read an input again: a SELECT that keeps little of each row would
lose time.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, time, timedelta
from functools import cache
from typing import Any

from pipelines.catalog import CATALOG
from pipelines.columns import slices
from pipelines.incidents import evidence, signature
from pipelines.settings import ROOT, Settings
from pipelines.stage import LookUp, Summarise
from pipelines.warehouse.groups import runs
from pipelines.warehouse.ranges import Range

REPLACED = frozenset(stage.table for stage in CATALOG if isinstance(stage, Summarise | LookUp))
"""The tables whose groups are replaced as a whole: some of their changed rows are written back unchanged."""
_HEAD = re.compile(r"-- Refresh: (?P<column>\w+)(?:, a span of (?P<hours>\d+) hours? of (?P<spanned>\w+))?")
_INPUT = re.compile(r"--   (?P<input>[a-z]+\.[a-z_]+): (?P<group>.+)")
_CONTINUED = re.compile(r"--     (?P<more>\S.*)")
_EACH_IN = re.compile(r"each in (?P<groups>.+)")
_EACH = re.compile(r"each of (?P<groups>.+?)(?: where (?P<condition>.+))?")
_WHEN = re.compile(r"(?P<group>.+?) when (?P<columns>\w+(?:, \w+)*) change")
_ALONG = re.compile(r"(?P<group>.+?) along (?P<following>.+) at most (?P<times>\d+) times")
_KEPT = re.compile(r"-- Kept: (?P<time>.+?)(?: with (?P<inputs>[a-z]+\.[a-z_]+(?:, [a-z]+\.[a-z_]+)*))?")
_SPEAKS = re.compile(r"-- Speaks of what is kept: (?P<inputs>.+)")
_BREAK = re.compile(r"\n--     (?=\S)")
_OWN = re.compile(r"own rows by (?P<column>\w+) where (?P<condition>.+)")


@dataclass(frozen=True)
class EachOf:
    """Expressions for the groups of an input's rows that meet a condition (empty: all); null is no group."""

    groups: tuple[str, ...]
    condition: str = ""

    @property
    def expression(self) -> str:
        """The SQL expression of an array of the groups."""
        groups = f"array_distinct(array_compact(array({', '.join(self.groups)})))"
        return f"IF({self.condition}, {groups}, array())" if self.condition else groups


@dataclass(frozen=True)
class EachIn:
    """The expression for an array of the groups of an input's rows; null is a group, too."""

    expression: str


@dataclass(frozen=True)
class Along:
    """The group of an input's rows, and the group that holds the next row of a row's chain; null ends the chain.

    A row of the table depends on at most ``times`` next rows.
    """

    group: str
    following: str
    times: int


@dataclass(frozen=True)
class OwnRows:
    """Groups of the table's own rows that meet a condition and share a column's value with a changed input row."""

    column: str
    condition: str


Group = str | EachOf | EachIn | Along | OwnRows
"""How the head of a SELECT gives the groups of an input's rows: as an expression of one group, or in another way."""


@dataclass(frozen=True)
class Span:
    """The range of an input's column that makes a group."""

    column: str
    length: timedelta


@dataclass(frozen=True)
class Kept:
    """The expression of the time of a table's rows, and the inputs of which a row needs only rows of its time."""

    time: str
    inputs: tuple[str, ...] = ()


@dataclass(frozen=True)
class Refresh:
    """The column that names a table's groups, and the expression for the group of each input's rows.

    ``counted`` names the columns of an input whose changes alone count; all columns count for other inputs.
    """

    column: str
    groups: Mapping[str, Group]
    span: Span | None = None
    counted: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    def counts(self, table: str, columns: Sequence[str]) -> tuple[str, ...]:
        """Return the columns of an input, among all of its columns, whose changes count, with that of the group."""
        group, counted = self.groups[table], self.counted.get(table, ())
        if not counted:
            return tuple(columns)
        return (group, *counted) if isinstance(group, str) and group in columns else counted


def select_of(table: str) -> str:
    """Return the SELECT that makes a table, with the rules whose home is Python; names of inputs are in braces."""
    text = (ROOT / "sql" / f"{table.replace('.', '/')}.sql").read_text(encoding="utf-8")
    for name, expression in _rules().items():
        text = text.replace(name, expression)
    return text


@cache
def _rules() -> dict[str, str]:
    """Return expressions of rules whose home is Python, by their names in braces."""
    expressions = {**signature.sql(), "fingerprint": signature.fingerprint(), "is_few": evidence.IS_FEW}
    return {f"{{{name}}}": text.replace("{", "{{").replace("}", "}}") for name, text in expressions.items()}


def facts_of(table: str) -> str:
    """Return the SELECT of the facts that a table's gate checks."""
    return (ROOT / "sql" / "facts" / f"{table.replace('.', '/')}.sql").read_text(encoding="utf-8")


def refresh_of(stage: Summarise) -> Refresh:
    """Return what the head of a table's SELECT says.

    Raises ValueError: the head has no ``-- Refresh:`` line, has a line that cannot be read, or names other inputs than
    the stage's.
    """
    return parsed(select_of(stage.table), stage)


def parsed(text: str, stage: Summarise) -> Refresh:
    """Return what the head of a SELECT says; raises ValueError as ``refresh_of`` does."""
    lines = iter(text.splitlines())
    head = next((match for line in lines if (match := _HEAD.fullmatch(line))), None)
    if head is None:
        raise ValueError(f"The head of the SELECT of {stage.table} has no line like `-- Refresh: group_id`.")
    stated: dict[str, str] = {}
    for line in lines:
        if match := _INPUT.fullmatch(line):
            stated[match["input"]] = match["group"]
        elif stated and (match := _CONTINUED.fullmatch(line)):
            stated[next(reversed(stated))] += f" {match['more']}"
        elif line.startswith("--  "):
            raise ValueError(f"This line about the refresh of {stage.table} cannot be read: {line}")
        else:
            break
    if stated and stated.keys() != set(stage.inputs):
        raise ValueError(
            f"The refresh of {stage.table} names {', '.join(stated)}; its inputs are {', '.join(stage.inputs)}."
        )
    counted = {}
    for table, text in stated.items():
        if when := _WHEN.fullmatch(text):
            if _ALONG.fullmatch(when["group"]):
                raise ValueError(f"The refresh of {stage.table} cannot go along chains and choose columns of {table}.")
            stated[table], counted[table] = when["group"], tuple(when["columns"].split(", "))
    groups = {table: _group(stated[table]) if stated else head["column"] for table in stage.inputs}
    span = Span(head["spanned"], timedelta(hours=int(head["hours"]))) if head["spanned"] else None
    return Refresh(head["column"], groups, span, counted)


def _group(text: str) -> Group:
    if own := _OWN.fullmatch(text):
        return OwnRows(own["column"], own["condition"])
    if along := _ALONG.fullmatch(text):
        return Along(along["group"], along["following"], int(along["times"]))
    if several := _EACH_IN.fullmatch(text):
        return EachIn(several["groups"])
    if each := _EACH.fullmatch(text):
        return EachOf(tuple(each["groups"].split(" and ")), each["condition"] or "")
    return text


@cache
def kept_of(table: str) -> Kept | None:
    """Return what the head of a table's SELECT says about rows that go by their age; None if none of its rows go."""
    found = _said(table, _KEPT)
    return Kept(found["time"], tuple(found["inputs"].split(", ")) if found["inputs"] else ()) if found else None


@cache
def speaks_of_what_is_kept(table: str) -> tuple[str, ...]:
    """Return the inputs of a table whose rows count no more when they go by their age."""
    found = _said(table, _SPEAKS)
    return tuple(found["inputs"].split(", ")) if found else ()


def _said(table: str, line: re.Pattern[str]) -> re.Match[str] | None:
    """Return a line of the head of a table's SELECT, with the lines that continue it; None if there is none."""
    text = (ROOT / "sql" / f"{table.replace('.', '/')}.sql").read_text(encoding="utf-8")
    return next((said for text_line in _BREAK.sub(" ", text).splitlines() if (said := line.fullmatch(text_line))), None)


def name_of(table: str) -> str:
    """Return a SELECT's name for an input: ``x`` for ``silver.x``, ``quarantined_x`` and ``held_x`` for the others."""
    layer, _, name = table.partition(".")
    return {"quarantine": f"quarantined_{name}", "held": f"held_{name}"}.get(layer, name)


def parameters_of(settings: Settings) -> dict[str, Any]:
    """Return the settings that SELECTs use as ``:parameters``."""
    return {"silent_after_seconds": settings.streams_requests.silent_after_seconds}


def group_expression(group: Group) -> str:
    """Return the expression of a row's one group.

    Raises TypeError: a row has several, or those of other rows.
    """
    if isinstance(group, Along):
        return group.group
    if isinstance(group, str):
        return group
    raise TypeError(f"{group} is no expression of one group")


def groups_in(rows: str, group: Group) -> str:
    """Return a query for one row per group of each row, and whether it is the row's first group."""
    if isinstance(group, EachOf | EachIn):
        several = f"SELECT {group.expression} AS _groups FROM {rows}"
        each = f"SELECT posexplode(_groups) AS (_index, _group) FROM ({several})"
        return f"SELECT _group, _index = 0 AS _is_first FROM ({each})"
    return f"SELECT {group_expression(group)} AS _group, true AS _is_first FROM {rows}"


def having(group: Group, is_met: Callable[[str], str], is_met_in: Callable[[str], str]) -> str:
    """Return a condition for rows that have a group which meets another condition.

    This is given for the expression of a group and, as ``is_met_in``, for that of an array of groups. Each of several
    groups is looked at by itself, which takes a tenth of the time that arrays of them take.
    """
    if isinstance(group, EachIn):
        return is_met_in(f"({group.expression})")
    if isinstance(group, EachOf):
        met = " OR ".join(is_met(f"({part})") for part in group.groups)
        return f"({group.condition}) AND ({met})" if group.condition else f"({met})"
    return is_met(f"({group_expression(group)})")


def ranges_among(group: Group, touched: Sequence[Any], span: Span | None) -> list[Range]:
    """Return ranges of an input's columns that hold all of its rows in the touched groups; none if none are known."""
    if isinstance(group, EachOf):
        parts = [ranges_of(part, touched, None) for part in group.groups]
        return [range_ for ranges in parts for range_ in ranges] if all(parts) else []
    if isinstance(group, EachIn):
        return []
    return ranges_of(group_expression(group), touched, None if isinstance(group, Along) else span)


def ranges_of(group: str, touched: Sequence[Any], span: Span | None) -> list[Range]:
    """Return ranges of columns that hold all rows in the touched groups; none if none are known."""
    values = [value for value in touched if value is not None]
    if not values or len(values) < len(touched):
        return []
    if span is not None:
        with contextlib.suppress(OverflowError):  # Python has no datetime for the end of the last hour of the year 9999
            return [{span.column: (min(values), _time(max(values)) + span.length)}]
        return []
    if group.isidentifier():
        return [{group: ends} for ends in runs(values)]
    offsets = slices.offsets_of(group, runs(values)) if isinstance(values[0], str) else None
    return [{offsets[0]: ends} for ends in offsets[1]] if offsets else []


def _time(value: date) -> datetime:
    """Return the beginning of a date, or a time as it is: a date plus a few hours would be the same date."""
    return value if isinstance(value, datetime) else datetime.combine(value, time(), UTC)
