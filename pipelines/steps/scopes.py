"""Scopes: parts of a batch, such as a topic's rows, that the gate judges apart; their counts now and in the past."""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from expectations.contract import Contract
from expectations.rules import Rule
from expectations.verdict import OF_THE_ROW, SCOPE, WHOLE, Scope, Tally
from pipelines.steps.batch_rows import ArrowRows, SparkRows
from pipelines.steps.collapse import SKIPPED

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

APPLYING = "_applying_rules"
NO_VIOLATIONS = OF_THE_ROW
FILE = "file:"  # no legal name of a topic has a colon
OTHER_TOPIC = "topic:"
OTHER_CLUSTER = "cluster:"
ESCAPES = (("%", "%25"), ("/", "%2F"))  # in the name of a cluster, so that its first slash ends it
MOST_OF_A_NAME = 300  # characters: a line can contain anything as a name
RECENT_ROWS = 1_000
MERGED_ROWS = 20  # batches this small are remembered as one
MOST_SCOPES = 2_000

_LEGAL = r"\A(?!\.{1,2}\z)[a-zA-Z0-9._-]{1,249}\z"

Counts = list[tuple[int, int]]  # failing and examined rows, newest batch first


@dataclass(frozen=True)
class History:
    """What rules found in earlier small batches, by scope and by the rule's index in the contract."""

    scopes: dict[str, dict[int, Counts]] = field(default_factory=dict)

    def recent(self, scope: str, rule: int, examined: int) -> tuple[int, int]:
        """Return the failing and the examined rows of earlier batches to add to a batch with ``examined`` rows.

        Batches are added from the newest on, as long as all together have at most ``RECENT_ROWS`` rows.
        """
        failing, room = 0, RECENT_ROWS - examined
        added = 0
        for found, rows in self.scopes.get(scope, {}).get(rule, ()):
            if added + rows > room:
                break
            failing, added = failing + found, added + rows
        return failing, added

    def after(self, batch: Mapping[str, Mapping[int, tuple[int, int]]], forgotten: Iterable[str]) -> History:
        """Return the history with a batch added, without the earlier counts of the ``forgotten`` scopes."""
        scopes = {name: counts_by_rule for name, counts_by_rule in self.scopes.items() if name not in set(forgotten)}
        for name, found in batch.items():
            counts_by_rule = dict(scopes.pop(name, {}))  # moves to the end: the scopes seen last are kept
            for rule, counts in found.items():
                counts_by_rule[rule] = _with(counts_by_rule.get(rule, []), counts)
            if counts_by_rule := {rule: counts for rule, counts in counts_by_rule.items() if counts}:
                scopes[name] = counts_by_rule
        return History(dict(list(scopes.items())[-MOST_SCOPES:]))

    def as_json(self) -> dict[str, Any]:
        """Return the history for a file; rules with the same counts in a scope share one entry."""
        scope_counts = {}
        for name, counts_by_rule in self.scopes.items():
            alike: dict[tuple[int, ...], list[int]] = defaultdict(list)
            for rule, counts in counts_by_rule.items():
                alike[tuple(number for pair in counts for number in pair)].append(rule)
            scope_counts[name] = [[rules, list(numbers)] for numbers, rules in alike.items()]
        return scope_counts

    @classmethod
    def of_json(cls, values: dict[str, Any]) -> History:
        """Return the history that ``as_json`` wrote."""
        scopes: dict[str, dict[int, Counts]] = {}
        for name, groups in values.items():
            scopes[name] = {
                rule: list(zip(numbers[::2], numbers[1::2], strict=True)) for rules, numbers in groups for rule in rules
            }
        return cls(scopes)


def _with(counts: Counts, newest: tuple[int, int]) -> Counts:
    """Return counts with a batch put first, without the old batches that no later batch can add."""
    if counts and newest[1] + counts[0][1] <= MERGED_ROWS:
        counts = [(newest[0] + counts[0][0], newest[1] + counts[0][1]), *counts[1:]]
    elif newest[1]:
        counts = [newest, *counts]
    kept, rows = [], 0
    for batch in counts:
        rows += batch[1]
        if rows >= RECENT_ROWS:
            break
        kept.append(batch)
    return kept


@dataclass(frozen=True)
class Counted:
    """A batch's counts: ``scopes`` by scope, ``examined_rows`` of each rule by code, ``others`` by scope of a file.

    A line without a topic is in the scope of its file, and its share is of all lines of that file. ``others`` are the
    lines of such a file that name a topic. If the contract names no scope, ``scopes`` also has each unreadable file,
    whose rows are counted in the scope of the batch, too.
    """

    scopes: dict[str, Scope]
    examined_rows: dict[str, int]
    others: dict[str, int]

    def batch(self, contract: Contract) -> dict[str, dict[int, tuple[int, int]]]:
        """Return the counts of this batch alone, in the form that a history keeps."""
        indexes = {code: index for index, code in enumerate(codes(contract))}
        found = {
            name: {indexes[code]: (tally.failing, tally.examined) for code, tally in scope.tallies.items()}
            for name, scope in self.scopes.items()
            if contract.scope or name == WHOLE
        }
        for name, lines in self.others.items():  # a file all of whose lines name a topic now
            if name not in found:
                found[name] = dict.fromkeys(indexes.values(), (0, lines))
        return found


def codes(contract: Contract) -> tuple[str, ...]:
    """Return the codes that the gate counts; a code's index is the bit of its rule."""
    return (*(rule.code for rule in contract.rules), NO_VIOLATIONS)


def prefix_of(cluster: str) -> str:
    """Return what the scopes of a cluster begin with, unless it is the home of the table's scopes."""
    for character, escape in ESCAPES:
        cluster = cluster.replace(character, escape)
    return f"{OTHER_CLUSTER}{cluster}/"


def _prefix() -> Column:
    """Return what ``prefix_of`` tells of a row's cluster."""
    from pyspark.sql import functions as F

    cluster = F.col("cluster")
    for character, escape in ESCAPES:
        cluster = F.replace(cluster, F.lit(character), F.lit(escape))
    return F.concat(F.lit(OTHER_CLUSTER), cluster, F.lit("/"))


def within(cluster: str, scope: str) -> str:
    """Return the name that a cluster's own scope has there."""
    return scope.removeprefix(prefix_of(cluster))


def is_of(cluster: str, scope: str, home: str | None) -> bool:
    """Tell whether a scope is of a cluster; without a home, scopes that name no cluster are of any cluster."""
    return scope.startswith(prefix_of(cluster)) or (not scope.startswith(OTHER_CLUSTER) and home in (None, cluster))


def is_of_any(clusters: Collection[str], scope: str, home: str | None) -> bool:
    """Tell whether a scope is of one of some clusters."""
    return any(is_of(cluster, scope, home) for cluster in clusters)


def is_of_other_cluster(home: str) -> Column:
    """Tell whether a held row's scope is not of the row's cluster, as before scopes were of clusters."""
    from pyspark.sql import functions as F

    is_named = F.col("scope").startswith(_prefix())
    return F.when(F.col("cluster") == home, F.col("scope").startswith(OTHER_CLUSTER)).otherwise(~is_named)


def scope_of(contract: Contract, home: str | None = None) -> Column:
    """Return the scope of a candidate: its topic, its file if the line names no topic, or the whole batch.

    A topic whose name Kafka allows is a scope by that name. Other names get the prefix ``topic:``. Scopes of another
    cluster than ``home``, if there is one, get the cluster's prefix: it can have topics and files of the same names.
    """
    from pyspark.sql import functions as F

    if contract.scope is None:
        return F.lit(WHOLE)
    topic = F.nullif(F.col(contract.scope), F.lit(""))
    other = F.concat(F.lit(OTHER_TOPIC), _short(topic))
    name = F.when(topic.isNull(), _file()).when(topic.rlike(_LEGAL), topic).otherwise(other)
    return _of_cluster(name, home)


def scope_of_file(source: str) -> str:
    """Return the scope of a file, or of a topic's partition, that ``file_scope`` gives without a home."""
    if len(source) > MOST_OF_A_NAME:
        source = f"{source[:MOST_OF_A_NAME]}~{hashlib.sha256(source.encode()).hexdigest()[:16]}"
    return f"{FILE}{source}"


def file_scope(home: str | None) -> Column:
    """Return the scope for lines without a topic in the candidate's file."""
    return _of_cluster(_file(), home)


def _file() -> Column:
    from pyspark.sql import functions as F

    return F.concat(F.lit(FILE), _short(F.col("_source")))


def _of_cluster(name: Column, home: str | None) -> Column:
    from pyspark.sql import functions as F

    if home is None:
        return name
    return F.when(F.col("cluster") == home, name).otherwise(F.concat(_prefix(), name))


def _short(name: Column) -> Column:
    from pyspark.sql import functions as F

    digest = F.substring(F.sha2(name.cast("binary"), 256), 1, 16)
    cut = F.concat(F.substring(name, 1, MOST_OF_A_NAME), F.lit("~"), digest)
    return F.when(F.length(name) > MOST_OF_A_NAME, cut).otherwise(name)


def count(
    judged: SparkRows | ArrowRows,
    contract: Contract,
    history: History | None = None,
    others: Mapping[str, int] | None = None,
    home: str | None = None,
) -> Counted:
    """Count, in one aggregation of judged rows, what each rule finds in each scope.

    A second aggregation counts the lines of files that have lines without a topic; if the contract names no scope, the
    rows of unreadable files. ``others`` are lines of files that earlier batches counted while the file's lines without
    a topic were held.
    """
    history, others = history or History(), others or {}
    groups = judged.fetched(
        f"SELECT {SCOPE}, _broken_rules, {APPLYING}, count(*) FROM {{rows}} WHERE NOT {SKIPPED} "
        f"GROUP BY {SCOPE}, _broken_rules, {APPLYING}"
    )
    rows: dict[str, int] = defaultdict(int)
    failing: dict[tuple[str, int], int] = defaultdict(int)
    examined: dict[tuple[str, int], int] = defaultdict(int)
    last = len(contract.rules)
    refusing = sum(1 << bit for bit, rule in enumerate(contract.rules) if rule.refuses)
    for scope, broken, applying, number in groups:
        rows[scope] += number
        examined[scope, last] += number
        if broken & refusing:
            failing[scope, last] += number
        for bit in _bits(applying):
            examined[scope, bit] += number
        for bit in _bits(broken):
            failing[scope, bit] += number
    totals: dict[int, int] = defaultdict(int)
    for (_, bit), number in examined.items():
        totals[bit] += number
    files = {name for name in (*rows, *history.scopes, *others) if can_be_of_a_file(name)}
    lines = _lines(judged.frame, files, home) if files and contract.scope else {}
    shares = {name: lines[name] + others.get(name, 0) for name in files if name in rows and name in lines}
    before = sum(others.get(name, 0) for name in shares)
    named = codes(contract)
    scopes = {}
    for name in sorted(rows):
        tallies = {}
        for bit, code in enumerate(named):
            if number := shares.get(name, examined[name, bit]):
                more_failing, more_rows = history.recent(name, bit, number)
                found = failing[name, bit]
                tallies[code] = Tally(found, number, found + more_failing, number + more_rows)
        unread = tallies.get(contract.readable.code) if contract.readable and name in shares else None
        scopes[name] = Scope(rows[name], tallies, unread is not None and unread.failing == unread.examined)
    if contract.readable and not contract.scope and failing[WHOLE, contract.rules.index(contract.readable)]:
        scopes |= _unreadable_files(judged, contract.readable)
    left = {name: number - rows.get(name, 0) for name, number in lines.items()}
    return Counted(scopes, {code: totals[bit] + before for bit, code in enumerate(named)}, left)


def can_be_of_a_file(scope: str) -> bool:
    """Tell whether a scope is one of lines that name no topic; a cluster's name can look like that, too."""
    return scope.startswith(FILE) or (scope.startswith(OTHER_CLUSTER) and f"/{FILE}" in scope)


def _unreadable_files(judged: SparkRows | ArrowRows, readable: Rule) -> dict[str, Scope]:
    """Return the scope of each file of which no row could be read, not even one that belongs to another table."""
    found = judged.fetched(
        f"SELECT _source, count_if(NOT {SKIPPED}) FROM {{rows}} GROUP BY _source "
        f"HAVING count_if({readable.reason} IS NULL) = 0 AND count_if(NOT {SKIPPED}) > 0 ORDER BY _source"
    )
    return {
        scope_of_file(source): Scope(rows, {readable.code: Tally(rows, rows, rows, rows)}, True)
        for source, rows in found
    }


def _lines(judged: DataFrame, files: set[str], home: str | None) -> dict[str, int]:
    from pyspark.sql import functions as F

    named = judged.where(~F.col(SKIPPED)).select(file_scope(home).alias("file"))
    of_files = named.where(F.col("file").isin(sorted(files)))
    return {row["file"]: row["count"] for row in of_files.groupBy("file").count().collect()}


def _bits(mask: int) -> Iterable[int]:
    while mask:
        lowest = mask & -mask
        yield lowest.bit_length() - 1
        mask ^= lowest
