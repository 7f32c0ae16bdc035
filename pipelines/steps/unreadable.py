"""Rows that could not be read -> words: how many for which reason, in which files and lines, and what can be read.

A reason is one of a few sentences that the readers have; it contains no value.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from expectations.contract import Contract, contract_of
from expectations.rules import Rule, counted
from expectations.text import visible
from expectations.verdict import SCOPE, WHOLE, Outcome, Verdict
from pipelines.settings import Settings
from pipelines.sources import landing, what_lands
from pipelines.stage import Land, Stage
from pipelines.steps.batch_rows import ArrowRows, SparkRows
from pipelines.steps.collapse import SKIPPED
from pipelines.steps.failing_rows import KAFKA, Lines, first_lines, land_of, named, numbered
from pipelines.steps.scopes import FILE, Counted, scope_of_file
from pipelines.warehouse import jvmless
from pipelines.warehouse.tables import Warehouse

MOST_LOCATED = 20  # groups that are looked up in files
MOST_IDS_OF_A_GROUP = 10_000
MOST_SAID = 4  # groups
MOST_READ = 64 << 20  # to read from files
COLUMNS = ("of_scope", "source", "reason", "row_count", "ids", "all_rows")
DIGITS = 16  # of a _bronze_id, as in `failing_rows`


@dataclass(frozen=True)
class Group:
    """Rows of one scope and one source that could not be read for one reason, with the ids of some of them."""

    scope: str
    source: str
    reason: str
    rows: int
    ids: frozenset[str]
    lines: tuple[Lines, ...] = ()

    def phrase(self, noun: str) -> str:
        """Say where the rows are, how many, and why they could not be read."""
        at = f" {numbered('line', self.lines, self.rows)}" if self.lines else ""
        return f"{named(self.source)}{at} ({counted(self.rows, noun)}): {visible(self.reason.rstrip('.'))}"


@dataclass(frozen=True)
class Unreadable:
    """Rows that could not be read: the largest group of each reason, then the others, and the number of all rows.

    ``rows_of`` has the numbers of rows by scope, ``files`` the scopes of files of which no row could be read.
    """

    groups: tuple[Group, ...]
    rows: int
    noun: str
    forms: str
    rows_of: Mapping[str, int] = field(default_factory=dict)
    files: tuple[str, ...] = ()

    def sentence(self, without: Collection[str] = ()) -> str:
        """Say how many rows could not be read, where and why, and which forms can be; empty if there are none.

        The rows of the scopes ``without`` are left out.
        """
        rows = self.rows - sum(self.rows_of.get(scope, 0) for scope in without)
        if not rows:
            return ""
        where = self._words([group for group in self.groups if group.scope not in without], rows)
        return f"{counted(rows, self.noun)} cannot be read{': ' if where else ''}{'; '.join(where)}. {self.forms}"

    @property
    def words(self) -> tuple[str, ...]:
        """What ``sentence`` says of the largest groups."""
        return self._words(self.groups, self.rows)

    def broke(self, table: str) -> str:
        """Say that files of which no row could be read broke the gate of a table that cannot hold them."""
        named_files = [visible(scope.removeprefix(FILE)) for scope in self.files[:MOST_SAID]]
        more = [counted(len(self.files) - MOST_SAID, "more file")] if len(self.files) > MOST_SAID else []
        return (
            f"The gate of {table} broke: no {self.noun} of {', '.join([*named_files, *more])} can be read. "
            f"{self.sentence()}\nThese rows are in quarantine, and everything else flows on.\n"
            "Land what they tell again in a form that can be read; once settings or contract read them as they are, "
            f"`afterlog readmit {table}` takes them back."
        )

    def explained(self, verdict: Verdict, code: str) -> Verdict:
        """Return a broken gate's verdict with what is told of the rows that the rule of a code found unreadable."""
        return replace(
            verdict,
            outcomes=tuple(
                self._told(outcome) if outcome.code == code and not outcome.success else outcome
                for outcome in verdict.outcomes
            ),
        )

    def _told(self, outcome: Outcome) -> Outcome:
        scope = outcome.scope
        if scope in (None, WHOLE):
            words = self._words(self.groups, self.rows)
        else:
            of_scope = [group for group in self.groups if scope in (group.scope, scope_of_file(group.source))]
            words = self._words(of_scope, self.rows_of.get(scope or "", 0))
        none = f"No {self.noun} of it can be read." if scope in self.files else ""
        return replace(outcome, places=words or outcome.places, hint=f"{none} {self.forms}".strip())

    def _words(self, groups: Sequence[Group], rows: int) -> tuple[str, ...]:
        """Say of the first groups where their rows are and why they could not be read, and how many rows are left."""
        groups = groups[:MOST_SAID]
        left = rows - sum(group.rows for group in groups)
        more = [f"and {left:,} more"] if groups and left > 0 else []
        return (*(group.phrase(self.noun) for group in groups), *more)


def of_batch(
    judged: SparkRows | ArrowRows, contract: Contract, counts: Counted, settings: Settings
) -> Unreadable | None:
    """Return what the judged rows tell of those that could not be read, by one query; None if there are none."""
    readable = contract.readable
    if readable is None:
        return None
    rows_of = {
        name: scope.tallies[readable.code].failing
        for name, scope in counts.scopes.items()
        if readable.code in scope.tallies and scope.tallies[readable.code].failing
    }
    if not rows_of:
        return None
    found = judged.fetched(question(readable.reason, SCOPE, f"NOT {SKIPPED}"))
    files = tuple(name for name, scope in counts.scopes.items() if scope.is_unreadable)
    known = _told_of(found, contract, readable, settings)
    return replace(known, rows_of=rows_of, files=files) if known else None


def kept(warehouse: Warehouse, stage: Stage, table: str) -> Unreadable | None:
    """Return what the cluster's rows of a table beside a stage's, its quarantine or its held rows, tell.

    The result is None if all of them could be read.
    """
    contract = contract_of(stage.table)
    if contract.readable is None:
        return None
    text = question(contract.readable.reason, f"'{WHOLE}'", "true").format(rows="rows")
    rows = jvmless.query(warehouse, table, text, {"cluster": warehouse.cluster})
    found = [tuple(row[name] for name in COLUMNS) for row in rows]
    return _told_of(found, contract, contract.readable, warehouse.settings)


def question(reason: str, scope: str, condition: str) -> str:
    """Return a SELECT that Spark, DuckDB and ``deltalake`` answer alike: the groups of unreadable rows, in order."""
    return f"""
        SELECT {", ".join(COLUMNS)}
        FROM (
          SELECT
            of_scope, source, reason, row_count, ids,
            sum(row_count) OVER () AS all_rows,
            sum(row_count) OVER (PARTITION BY reason) AS of_reason,
            row_number() OVER (PARTITION BY reason ORDER BY row_count DESC, source, of_scope) AS rank
          FROM (
            SELECT of_scope, source, reason, max(row_count) AS row_count, array_agg(id) AS ids
            FROM (
              SELECT
                of_scope, source, reason, id,
                row_number() OVER (PARTITION BY of_scope, source, reason ORDER BY id) AS nth,
                count(*) OVER (PARTITION BY of_scope, source, reason) AS row_count
              FROM (
                SELECT {scope} AS of_scope, _source AS source, {reason} AS reason,
                  substring(_bronze_id, 1, {DIGITS}) AS id
                FROM {{rows}}
                WHERE {reason} IS NOT NULL AND {condition}
              )
            )
            WHERE nth <= {MOST_IDS_OF_A_GROUP}
            GROUP BY of_scope, source, reason
          )
        )
        ORDER BY rank, of_reason DESC, reason
        LIMIT {MOST_LOCATED}
    """


def _told_of(
    found: Sequence[Sequence[Any]], contract: Contract, readable: Rule, settings: Settings
) -> Unreadable | None:
    if not found:
        return None
    land = land_of(contract.table)
    groups = [Group(scope, source, reason, rows, frozenset(ids)) for scope, source, reason, rows, ids, _ in found]
    forms = what_lands.sentence(land.directory) if land else ""
    return Unreadable(tuple(_in_files(groups, settings, land)), found[0][-1], readable.noun, forms)


def _in_files(groups: Sequence[Group], settings: Settings, land: Land | None) -> Iterator[Group]:
    """Yield the groups with the lines of those that are said, if their files are there; read ``MOST_READ`` at most."""
    by_source: dict[str, list[Group]] = {}
    for group in groups:
        by_source.setdefault(group.source, []).append(group)
    lines: dict[Group, tuple[Lines, ...]] = {}
    left = MOST_READ
    if land is not None and not land.reader:
        root = os.path.realpath(settings.landing_of(land.directory))
        for source, of_source in by_source.items():
            if not source.startswith(KAFKA):
                found, size = first_lines(landing.content(root, source), [group.ids for group in of_source], left)
                left -= size
                lines |= {group: tuple(ranges) for group, ranges in zip(of_source, found, strict=True)}
    for group in groups:
        yield replace(group, lines=lines.get(group, ()))
