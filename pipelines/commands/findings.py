"""Findings about trust, mistakes in settings, held scopes, silent feeds -> one list for all who tell or count them."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from functools import cache
from typing import Any, Protocol

from expectations.gold.dlq_misconfigurations import SEVERITIES
from expectations.rules import counted
from expectations.text import visible
from pipelines import moments
from pipelines.catalog import CATALOG
from pipelines.commands import unread_lines
from pipelines.incidents.severity import LEVELS
from pipelines.incidents.state import State
from pipelines.run.newest import Newest, Silence
from pipelines.settings import QUESTIONS
from pipelines.steps import held, scopes
from pipelines.teams import Teams, is_of
from pipelines.text import first_names, iso
from pipelines.warehouse import jvmless, progress
from pipelines.warehouse.tables import Warehouse

FINDINGS, MISTAKES = "gold.trust_findings", "gold.dlq_misconfigurations"
LOGS = "silver.log_ranges"
URGENT = LEVELS[:2]
HELD, SILENT, NOT_READ_ON, INFERRED = "HELD", "SILENT_FEED", "NOT_READ_ON", "INFERRED_DISPOSITIONS"

UNKNOWN = "unknown topic"
COUNTED = {
    "LOST_MESSAGES": "lost message",
    "ABSENT_MESSAGES": "absent message",
    "FAILED_DLQ_WRITES": "failed DLQ write",
    "MISSING_DLQ_OFFSETS": "unexplained DLQ offset",
    "ABORTED_DLQ_WRITES": "aborted DLQ write",
    "MISSING_HEADERS": "incomplete dead letter",
    "QUARANTINED": "quarantined dead letter",
    "UNKNOWN_WRITER": "nameless dead letter",
    "LATE_DATA": "late dead letter",
    HELD: "held row",
    NOT_READ_ON: "quiet incident",
}
"""What findings of a kind count, each in the unit that every command and page uses."""

NAMES_NOBODY = (HELD, SILENT, NOT_READ_ON, "QUARANTINE_RISING")
"""The kinds whose name is that of a table, a feed or a rule; the name of others is a group or a client."""
OF_MESSAGES = {"LOST_MESSAGES": "LOST", "ABSENT_MESSAGES": "ABSENT"}
"""The kinds that count messages, with the outcome of these."""
NAMES_CLIENT = ("SILENTLY_OFF", "WOULD_FAIL", "DUPLICATES_POSSIBLE")

OF_COUNTS = (*COUNTED, "REFUSED_PUSHES", "QUARANTINE_RISING", INFERRED)
"""The kinds whose evidence is words and counts, not a sentence with names."""

MOST_SUBJECTS = 3

# Whose the findings are that name no topic: column and condition by kind and table.
NAMELESS = {
    "QUARANTINED": ("quarantine.dlq_records", "_source", "dlq_topic IS NULL"),
    "FAILED_DLQ_WRITES": ("silver.dlq_write_failures", "dlq_topic", "original_topic IS NULL"),
}
_ACKNOWLEDGED, _ROUTED = "coalesce(acknowledged_at, produced_at)", "coalesce(routed_at, dlq_timestamp)"
_LETTERS, _LEDGER = "silver.dead_letters", "gold.message_ledger"
HAPPENED = {
    "LOST_MESSAGES": (_LEDGER, "topic", _ACKNOWLEDGED, "outcome = 'LOST'"),
    "ABSENT_MESSAGES": (_LEDGER, "topic", _ACKNOWLEDGED, "outcome = 'ABSENT'"),
    "FAILED_DLQ_WRITES": ("silver.dlq_write_failures", "original_topic", "failed_at", "true"),
    "MISSING_DLQ_OFFSETS": ("silver.dlq_gaps", "dlq_topic", "found_at", "unexplained_count > 0"),
    "ABORTED_DLQ_WRITES": (_LETTERS, "dlq_topic", _ROUTED, "NOT is_control_marker AND write_state = 'ABORTED'"),
    "MISSING_HEADERS": (
        *(_LETTERS, "dlq_topic", _ROUTED),
        "NOT is_control_marker AND write_state = 'COMMITTED' AND lacks_mandatory_headers",
    ),
}
"""Where the times stand of what findings count by hour: table, topic, time and condition by kind."""

_LARGE = re.compile(r"(?<![\w.-])\d{4,}(?![\w.-])")
_OF_FILE = "file:"
_ASK = "afterlog ask "
_COVERED = timedelta(hours=23)  # most questions with :now are about the day before it
_MINUTE = timedelta(minutes=1)

Finding = Mapping[str, Any]


class Opened(Protocol):
    """An open incident, as ``Incident`` is."""

    @property
    def row(self) -> Mapping[str, Any]:
        """Its row of gold.dlq_incidents."""

    @property
    def state(self) -> State:
        """Its state."""

    @property
    def teams(self) -> tuple[str, ...]:
        """Its teams; empty if the settings have none."""

    @property
    def unread_topics(self) -> list[str]:
        """Its DLQ topics that are not known to be read past the silence that ends it."""


def findings_of(
    warehouse: Warehouse,
    feeds: Iterable[tuple[Newest, Silence | None]],
    now: datetime | None = None,
    opened: Iterable[Opened] = (),
    *,
    to_the_second: bool = False,
) -> list[dict[str, Any]]:
    """Return the findings that began before ``now``, the most severe first.

    Held scopes and silent ``feeds`` are as of now. A mistake in settings has the group as its name. ``subject`` is what
    a finding is about, in words. ``opened`` are the open incidents whose topics may not be read on; alerts leave these
    out, as nothing fails. ``to_the_second`` asks more tables when that happened which is counted by hour; else these
    findings begin with their first hour. ``is_as_known_now``: it may also tell what came after ``now``. ``teams`` is
    there if the settings have teams.
    """
    now = now or moments.now()
    stored = _stored(warehouse)
    findings = [
        *_not_read_on(opened),
        *(_to_the_second(warehouse, stored) if to_the_second else stored),
        *map(_of_mistake, mistakes_of(warehouse, now)),
        *_held(warehouse),
        *(_silent(feed, silence) for feed, silence in feeds if silence is not None),
    ]
    return _completed(warehouse, findings, now)


def of_team(
    warehouse: Warehouse, team: str | None, findings: Iterable[dict[str, Any]], now: datetime, opened: Iterable[Opened]
) -> list[dict[str, Any]]:
    """Return those of the findings that are of a team, whose open incidents are ``opened``; None: of everybody.

    What is not known of quiet incidents is told of its own ones.
    """
    if team is None:
        return [*findings]
    own = [finding for finding in findings if is_of(team, finding["teams"]) and finding["kind"] != NOT_READ_ON]
    return _in_order([*own, *_completed(warehouse, _not_read_on(opened), now)])


def _completed(warehouse: Warehouse, findings: Iterable[dict[str, Any]], now: datetime) -> list[dict[str, Any]]:
    """Complete findings, and return those that began before ``now``, the most severe first."""
    teams, completed = Teams.of_settings(warehouse.settings), [*findings]
    writers = _writers(warehouse, completed) if teams.known else {}
    for finding in completed:
        finding["subject"] = finding.get("subject") or _subject(warehouse, finding)
        finding["remedy"] = _remedy(finding, now)
        finding["is_as_known_now"] = finding["since"] is None or finding["last_at"] is None or finding["last_at"] > now
        if teams.known:
            clients = writers.get((finding["kind"], finding["topic"]), ())
            finding["teams"] = list(finding.get("teams") or teams_of(teams, finding, clients))
    return _in_order(finding for finding in completed if finding["since"] is None or finding["since"] <= now)


def _in_order(findings: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    return sorted(
        findings,
        key=lambda finding: (
            LEVELS.index(finding["severity"]),
            finding["kind"],
            finding["topic"] or "",
            finding["name"] or "",
        ),
    )


def key_of(finding: Finding) -> str:
    """Return what tells a finding from all others, also those of other times: no part of it is a count."""
    return json.dumps([finding["kind"], finding.get("topic"), finding.get("name")])


def teams_of(teams: Teams, finding: Finding, clients: Iterable[str | None] = ()) -> tuple[str, ...]:
    """Return the teams of a finding: those of its topic, and of its group or client, or of its messages' producers."""
    name = None if finding["kind"] in NAMES_NOBODY else finding["name"]
    if finding["kind"] in NAMES_CLIENT:
        return teams.of([finding["topic"]], applications=[name])
    return teams.of([finding["topic"]], [name], clients)


def _writers(warehouse: Warehouse, findings: Iterable[Finding]) -> dict[tuple[str, str | None], list[str | None]]:
    """Return the client ids of the producers of messages that findings count, by kind and topic."""
    kinds = {finding["kind"] for finding in findings} & OF_MESSAGES.keys()
    writers: dict[tuple[str, str | None], list[str | None]] = {}
    for kind in kinds:
        text = f"SELECT topic, client_id FROM rows WHERE outcome = '{OF_MESSAGES[kind]}' GROUP BY topic, client_id"
        for row in _rows(warehouse, _LEDGER, text):
            writers.setdefault((kind, row["topic"]), []).append(row["client_id"])
    return writers


def urgent(findings: Iterable[Finding]) -> list[Finding]:
    """Return the findings that cannot wait: what every command and page counts as urgent."""
    return [finding for finding in findings if finding["severity"] in URGENT]


def is_mistake(finding: Finding) -> bool:
    """Tell whether a finding is a mistake in settings."""
    return finding["kind"] in SEVERITIES


def mistakes_of(warehouse: Warehouse, now: datetime, team: str | None = None) -> list[dict[str, Any]]:
    """Return the mistakes in settings that dead letters depend on, made before ``now``, the most severe first.

    A ``team`` is told of its own.
    """
    if not warehouse.exists(MISTAKES):
        return []
    rows = jvmless.rows(warehouse, MISTAKES, {"cluster": warehouse.cluster})
    known = [row for row in rows if row["since"] is None or row["since"] <= now]
    teams = Teams.of_settings(warehouse.settings)
    known = [row for row in known if is_of(team, teams_of(teams, _of_mistake(row)))]
    mistakes = [{name: value for name, value in row.items() if name != "cluster"} for row in known]
    return sorted(
        mistakes, key=lambda mistake: (LEVELS.index(mistake["severity"]), mistake["kind"], mistake["group_id"])
    )


def logged_topics(warehouse: Warehouse) -> set[str]:
    """Return the topics of which log segments landed: of others nobody knows whether messages are lost."""
    if not warehouse.exists(LOGS):
        return set()
    rows = jvmless.query(warehouse, LOGS, "SELECT DISTINCT topic FROM rows", {"cluster": warehouse.cluster})
    return {row["topic"] for row in rows}


def amount_of(findings: Sequence[Finding], kind: str) -> int:
    """Return what the findings of a kind count together."""
    return sum(finding["amount"] for finding in findings if finding["kind"] == kind)


def told_of(finding: Finding) -> str:
    """Return a finding in a few words, safe for a terminal: what it is about, and what it counts."""
    noun = COUNTED.get(finding["kind"])
    what = finding["kind"].replace("_", " ").lower() if noun is None else counted(finding["amount"], noun)
    return f"{visible(finding.get('subject') or UNKNOWN)}: {what}"


def _remedy(finding: Finding, now: datetime) -> str:
    """Return the command that tells more; a question about the last day is asked of the day when it happened last.

    Inferred dispositions are counted over all incidents of a topic and group, which no question about a day is.
    """
    if finding["kind"] == INFERRED and finding["topic"] and finding["name"]:
        return f"afterlog incidents --topic {shlex.quote(finding['topic'])} --group {shlex.quote(finding['name'])}"
    remedy, last_at = str(finding["remedy"]), finding["last_at"]
    name = remedy.removeprefix(_ASK)
    if name == remedy or last_at is None or now - last_at < _COVERED:
        return remedy
    return f"{remedy} --param now={iso(last_at + _MINUTE)}" if _takes_now(name) else remedy


@cache
def _takes_now(name: str) -> bool:
    """Tell whether the question of a name is about a time."""
    return ":now" in (QUESTIONS / f"{name}.sql").read_text(encoding="utf-8")


def _subject(warehouse: Warehouse, finding: Finding) -> str:
    names = [name for name in (finding["topic"], finding["name"]) if name]
    if finding["kind"] == HELD:
        return str(finding["topic"] or finding["name"]).removeprefix(_OF_FILE)
    if names or finding["kind"] not in NAMELESS:
        return " ".join(names) or UNKNOWN
    table, column, where = NAMELESS[finding["kind"]]
    rows = _rows(warehouse, table, f'SELECT DISTINCT "{column}" AS name FROM rows WHERE {where}')
    subjects = sorted({row["name"] for row in rows if row["name"] is not None})
    shown = first_names(subjects, MOST_SUBJECTS)
    return f"{shown} (no topic)" if shown and finding["kind"] == "QUARANTINED" else shown or UNKNOWN


def _rows(warehouse: Warehouse, table: str, text: str) -> list[dict[str, Any]]:
    """Return what a query answers; nothing if the table is not there or damaged, which `afterlog doctor` names."""
    try:
        return jvmless.query(warehouse, table, text, {"cluster": warehouse.cluster}) if warehouse.exists(table) else []
    except Exception:
        return []


def _stored(warehouse: Warehouse) -> list[dict[str, Any]]:
    if not warehouse.exists(FINDINGS):
        return []
    rows = jvmless.rows(warehouse, FINDINGS, {"cluster": warehouse.cluster})
    findings = [{name: value for name, value in row.items() if name != "cluster"} for row in rows]
    for finding in findings:
        if finding["kind"] in OF_COUNTS:
            finding["evidence"] = _LARGE.sub(lambda number: f"{int(number[0]):,}", finding["evidence"])
    missing = [finding for finding in findings if finding["kind"] == "MISSING_DLQ_OFFSETS" and finding["topic"]]
    unread = _unread(warehouse, {finding["topic"] for finding in missing})
    for finding in missing:
        if said := unread.get(finding["topic"]):
            finding["evidence"] += f"; {said}, and these offsets may be theirs, as they cannot be read"
    return findings


def _unread(warehouse: Warehouse, topics: Collection[str]) -> dict[str, str]:
    """Return what is told of lines in quarantine; nothing of a damaged table, which `afterlog doctor` names."""
    try:
        return unread_lines.reasons(warehouse, topics)
    except Exception:
        return {}


def _to_the_second(warehouse: Warehouse, stored: Iterable[Finding]) -> list[dict[str, Any]]:
    """Return findings with the times of what they count instead of the hours of these."""
    times: dict[str, dict[str | None, Finding]] = {}
    timed = []
    for finding in stored:
        table, topic, at, condition = HAPPENED.get(finding["kind"], (None, None, None, None))
        if table is not None and finding["kind"] not in times:
            text = f"SELECT {topic} AS topic, min({at}) AS since, max({at}) AS last_at FROM rows WHERE {condition} "
            rows = _rows(warehouse, table, f"{text} GROUP BY {topic}")
            times[finding["kind"]] = {row.pop("topic"): row for row in rows}
        timed.append({**finding, **times.get(finding["kind"], {}).get(finding["topic"], {})})
    return timed


def _not_read_on(opened: Iterable[Opened]) -> list[dict[str, Any]]:
    """Return the finding that topics of quiet incidents were not read on, so that nobody knows whether it is over."""
    quiet = {
        incident.row["incident_id"]: incident
        for incident in opened
        if incident.state.is_quiet and incident.state.is_loud and incident.unread_topics
    }
    if not quiet:
        return []
    topics = sorted({topic for incident in quiet.values() for topic in incident.unread_topics})
    teams = [*dict.fromkeys(team for incident in quiet.values() for team in incident.teams)]
    return [
        {
            "kind": NOT_READ_ON,
            "topic": None,
            "name": None,
            "subject": topics[0] if len(topics) == 1 else counted(len(topics), "DLQ topic"),
            "severity": "medium",
            "since": min(incident.row["last_at"] for incident in quiet.values()),
            "last_at": max(incident.row["last_at"] for incident in quiet.values()),
            "amount": len(quiet),
            "evidence": f"nothing tells that {first_names(topics, MOST_SUBJECTS)} "
            f"{'was' if len(topics) == 1 else 'were'} read on after {counted(len(quiet), 'quiet incident')} (of landed "
            "files only the last record is known)",
            "remedy": "afterlog run",
            **({"teams": teams} if teams else {}),
        }
    ]


def _of_mistake(row: Finding) -> dict[str, Any]:
    return {
        "kind": row["kind"],
        "topic": row["dlq_topic"],
        "name": row["group_id"],
        "severity": row["severity"],
        "since": row["since"],
        "last_at": row["last_seen_at"],
        "amount": 1,
        "evidence": row["evidence"],
        "remedy": row["remedy"],
    }


def _held(warehouse: Warehouse) -> Iterable[dict[str, Any]]:
    for stage in filter(held.contract_of_held, CATALOG):
        known = progress.load(warehouse, stage.table)
        own = held.told_to_cluster(warehouse, stage.table, known).held if known else {}
        for scope, kept in own.items():
            yield {
                "kind": HELD,
                "topic": scopes.within(warehouse.cluster, scope),
                "name": stage.table,
                "severity": "high",
                "since": datetime.fromisoformat(kept.since).astimezone(UTC),
                "last_at": None,
                "amount": kept.rows,
                "evidence": f"{counted(kept.rows, 'row')} {'waits' if kept.rows == 1 else 'wait'}, "
                f"as the topic breaks the contract of {stage.table}",
                "remedy": "afterlog doctor",
            }


def _silent(feed: Newest, silence: Silence) -> dict[str, Any]:
    return {
        "kind": SILENT,
        "topic": None,
        "name": feed.feed,
        "severity": "high" if silence.is_urgent else "medium",
        "since": feed.at,
        "last_at": feed.at,
        "amount": 1,
        "evidence": f"nothing landed for longer than usual: {feed.in_words}",
        "remedy": "afterlog doctor",
    }
