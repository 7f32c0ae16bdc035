"""What landed -> the settings whose patterns match nothing of it: they may be misspelt, and have no effect so far."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from expectations.owners import owner_of
from expectations.text import visible
from pipelines.columns import globs
from pipelines.columns.profiles import profiles_of
from pipelines.commands.findings import FINDINGS, MISTAKES
from pipelines.engines.duckdb import sessions
from pipelines.teams import OF_APPLICATION
from pipelines.text import hint
from pipelines.warehouse import jvmless
from pipelines.warehouse.tables import Warehouse

LETTERS = "silver.dlq_records"
ELSEWHERE = ("quarantine.dlq_records", "held.dlq_records")
MOST = 10_000  # different dead letters that are looked at; of more nothing is said

TOPICS = ((FINDINGS, "topic"), ("gold.topology_edges", "topic"), ("gold.reconciliation", "topic"))
GROUPS = (("gold.topology_current", "group_id"), (MISTAKES, "group_id"))
APPLICATIONS = (*GROUPS, ("silver.changes", "application"), ("silver.producers", "client_id"))
"""Where names of a kind stand beside dead letters: table and column."""

_KINDS = "consumer_group, owner, original_topic, dlq_topic, disposition, exception_class, error_message"

Sentence = tuple[str, str]
"""What has no effect, and what to do."""


def letters(warehouse: Warehouse) -> list[dict[str, Any]]:
    """Return what patterns look at of the dead letters that landed, each combination once; none if these are too many.

    Those in quarantine and held ones have only a DLQ topic.
    """
    equal = {"cluster": warehouse.cluster}
    found: list[dict[str, Any]] = []
    if warehouse.opens_tables and warehouse.exists(LETTERS):
        text = f"SELECT DISTINCT {_KINDS} FROM rows LIMIT {MOST + 1}"
        found = jvmless.query(warehouse, LETTERS, text, equal)
        if len(found) > MOST:
            return []
    for table in ELSEWHERE if warehouse.opens_tables else ():
        if warehouse.exists(table):
            rows = jvmless.query(warehouse, table, "SELECT DISTINCT dlq_topic FROM rows", equal)
            found += [dict.fromkeys(_KINDS.split(", ")) | row for row in rows]
    return found


def topics_of_findings(warehouse: Warehouse) -> set[str]:
    """Return the topics that findings about trust are about."""
    if not warehouse.exists(FINDINGS):
        return set()
    rows = jvmless.query(warehouse, FINDINGS, "SELECT DISTINCT topic FROM rows", {"cluster": warehouse.cluster})
    return {row["topic"] for row in rows if row["topic"] is not None}


def unmatched(warehouse: Warehouse) -> Iterator[Sentence]:
    """Yield a sentence for each ``[[dlq.require]]`` and ``[[privacy]]`` whose topics match none that landed."""
    settings = warehouse.settings
    if not settings.dlq.require and not settings.privacy:
        return
    there = letters(warehouse)
    if not there:
        return
    dlqs = _named(there, "dlq_topic")
    for number, requirement in enumerate(settings.dlq.require):
        if not any(globs.matches(requirement.topic, name) for name in dlqs):
            yield said(f"[[dlq.require]] {number + 1}", "no DLQ topic", requirement.topic, dlqs)
    sources = _named(there, "original_topic")
    headers = _headers(warehouse) if any(mask.header for mask in settings.privacy) else []
    for number, mask in enumerate(settings.privacy):
        if not any(globs.matches(mask.topic, name) for name in sources):
            yield said(f"[[privacy]] {number + 1}", "no source topic of a dead letter", mask.topic, sources)
        elif mask.header and headers and not any(globs.matches(mask.header, name) for name in headers):
            yield said(f"[[privacy]] {number + 1}", "no header", mask.header, headers)


def unmatched_of_teams(warehouse: Warehouse) -> Iterator[Sentence]:
    """Yield what is to be said of patterns of ``[[team]]`` that match nothing that is known."""
    if not warehouse.settings.teams or not warehouse.opens_tables:
        return
    there = letters(warehouse)
    if not there:
        return
    owners, topics = owners_and_topics(there)
    own = {name.removeprefix(OF_APPLICATION) for name in owners}
    known = {
        "topics": sorted({*topics, *_named_in(warehouse, TOPICS)}),
        "groups": sorted({*owners, *_named_in(warehouse, GROUPS)}),
        "applications": sorted({*own, *_named_in(warehouse, APPLICATIONS)}),
    }
    for team in warehouse.settings.teams:
        for kind, names in known.items():
            for pattern in getattr(team, kind) if len(names) <= MOST else ():
                if not any(globs.matches(pattern, name) for name in names):
                    what = f"[[team]] {visible(team.name)} {kind}"
                    yield said(what, f"no {kind.removesuffix('s')}", pattern, names)


def _named_in(warehouse: Warehouse, columns: Sequence[tuple[str, str]]) -> set[str]:
    """Return the names in columns of tables, which need not exist; more than ``MOST`` of one are not all returned."""
    found = set()
    for table, column in columns:
        if warehouse.exists(table):
            text = f"SELECT DISTINCT {column} AS name FROM rows WHERE {column} IS NOT NULL LIMIT {MOST + 1}"
            found |= {row["name"] for row in jvmless.query(warehouse, table, text, {"cluster": warehouse.cluster})}
    return found


def _headers(warehouse: Warehouse) -> list[str]:
    """Return the names of headers: those that landed, and those that writers of dead letters add."""
    text = f"""
        SELECT DISTINCT header.key AS name
        FROM {LETTERS} LATERAL VIEW explode(user_headers) AS header
        WHERE cluster = :cluster
        LIMIT {MOST + 1}
    """
    rows = sessions.answer(warehouse, text, {"cluster": warehouse.cluster}, (LETTERS,), {}).objects()
    own = {name for profile in profiles_of(warehouse.settings.dlq) for name in profile.names}
    return sorted(own.union(row["name"] for row in rows)) if len(rows) <= MOST else []


def matches(pattern: str, name: str | None) -> bool:
    """Tell whether a pattern fits a name; ``*`` also fits what has none."""
    return pattern == "*" or (name is not None and globs.matches(pattern, name))


def has(there: Sequence[dict[str, Any]], group: str, topic: str) -> bool:
    """Tell whether a dead letter has an owner and a topic that fit two patterns."""
    return any(
        matches(group, owner_of(row)) and (matches(topic, row["original_topic"]) or matches(topic, row["dlq_topic"]))
        for row in there
    )


def said(what: str, lacks: str, pattern: str, names: Sequence[str]) -> Sentence:
    """Return the sentence about a pattern, and the near miss."""
    finding = f"{what} matches nothing that landed: {lacks} fits '{visible(pattern)}'."
    return finding, f"Correct it, unless that is still to come.{hint(pattern, names)}"


def owners_and_topics(there: Sequence[dict[str, Any]]) -> tuple[list[str], list[str]]:
    """Return the names of owners, and of source and DLQ topics."""
    named = sorted({name for row in there if (name := owner_of(row)) is not None})
    return named, sorted({*_named(there, "original_topic"), *_named(there, "dlq_topic")})


def _named(there: Sequence[dict[str, Any]], column: str) -> list[str]:
    return sorted({row[column] for row in there if row[column] is not None})
