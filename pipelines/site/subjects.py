"""gold.dlq_summary and what is known beside it -> owners and topics, each with its whole history."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from expectations.owners import owner_of, owner_sql
from pipelines.commands import odd_times
from pipelines.commands.incidents.reading import DAY, HOUR, SUMMARY, WEEK
from pipelines.site.content import SHOWN_DAYS, SHOWN_HOURS, Application, Case, Delivery, History, Row, Subject
from pipelines.warehouse import jvmless
from pipelines.warehouse.tables import Warehouse

NAMES = "consumer_group, owner, original_topic, dlq_topic, disposition"
_OF_GROUPS = f"SELECT {owner_sql('rows')} AS name, hour, record_count FROM rows"
_OF_TOPICS = """
    SELECT original_topic AS name, hour, record_count FROM rows WHERE original_topic IS NOT NULL
    UNION ALL
    SELECT dlq_topic AS name, hour, record_count FROM rows
    WHERE original_topic IS NULL OR dlq_topic <> original_topic
"""

Recent = Mapping[str | None, Mapping[datetime, int]]
"""By name the dead letters of each time: hours of the last days, days before them."""


@dataclass(frozen=True)
class DeadLetters:
    """How many dead letters there are by owner, topics and disposition, and when those of each owner and topic came.

    ``hours`` counts by owner and hour those of at least the 7 days and 2 hours until the last one. ``first_hour``
    is the first of what is known.
    """

    rows: Sequence[Row] = ()
    hours: Sequence[Row] = ()
    groups: Recent = field(default_factory=dict)
    topics: Recent = field(default_factory=dict)
    first_hour: datetime | None = None

    @property
    def last_at(self) -> datetime | None:
        """The time of the newest dead letter."""
        return max((row["last_at"] for row in self.rows if row["when"] == "past"), default=None)

    @property
    def last_hour(self) -> datetime | None:
        """The last hour with a dead letter."""
        return max((row["last_hour"] for row in self.rows if row["when"] == "past"), default=None)


def dead_letters(warehouse: Warehouse, now: datetime) -> DeadLetters:
    """Count the dead letters until now, those without a time, and those that are stamped ahead."""
    equal, until = {"cluster": warehouse.cluster}, jvmless.Span("hour", now)
    ends = "min(hour) AS first_hour, max(hour) AS last_hour, max(last_routed_at) AS last_at"
    sums = f"{odd_times.COUNT}, sum(without_payload_count) AS without_payload_count, {ends}"
    rows = [row | {"when": when} for when, row in odd_times.letters(warehouse, NAMES, now, sums)]
    last = max((row["last_hour"] for row in rows if row["when"] == "past"), default=now)
    by_hour = f"SELECT name, hour, sum(record_count) AS record_count FROM ({_OF_GROUPS}) AS told GROUP BY name, hour"
    hours = jvmless.query(warehouse, SUMMARY, by_hour, equal, jvmless.Span("hour", now, last - WEEK - 2 * HOUR))
    groups, topics = (_recent(warehouse, select, until) for select in (_OF_GROUPS, _OF_TOPICS))
    return DeadLetters(rows, hours, groups, topics, odd_times.first_hour(warehouse, now))


def _recent(warehouse: Warehouse, select: str, until: jvmless.Span) -> Recent:
    """Count the dead letters of each name by hour in the 7 days until its last one, and by day in those before."""
    text = f"""
        SELECT name, at, sum(record_count) AS record_count
        FROM (
          SELECT
            name,
            record_count,
            CASE WHEN hour > last_hour - INTERVAL '{SHOWN_HOURS}' HOUR THEN hour ELSE date_trunc('DAY', hour) END AS at
          FROM (
            SELECT name, hour, record_count, max(hour) OVER (PARTITION BY name) AS last_hour
            FROM (
              SELECT name, hour, sum(record_count) AS record_count FROM ({select}) AS named GROUP BY name, hour
            ) AS hours
          ) AS ending
          WHERE hour >= date_trunc('DAY', last_hour) - INTERVAL '{SHOWN_DAYS - 1}' DAY
        ) AS recent
        GROUP BY name, at
    """
    counts: dict[str | None, dict[datetime, int]] = defaultdict(dict)
    for row in jvmless.query(warehouse, SUMMARY, text, {"cluster": warehouse.cluster}, until):
        counts[row["name"]][row["at"]] = row["record_count"]
    return counts


def gather(
    known: DeadLetters,
    cases: Sequence[Case],
    findings: Sequence[Row],
    delivery: Delivery,
    applications: Sequence[Application],
) -> tuple[tuple[Subject, ...], tuple[Subject, ...]]:
    """Return the owners and the topics that dead letters, incidents, findings, topologies or messages name."""
    groups: dict[str | None, _Gathered] = defaultdict(_Gathered)
    topics: dict[str | None, _Gathered] = defaultdict(_Gathered)
    for row in known.rows:
        group, topic, dlq = owner_of(row), row["original_topic"], row["dlq_topic"]
        groups[group].is_group |= row["consumer_group"] is not None
        groups[group].add(row, {"source topic": topic, "DLQ topic": dlq, "disposition": row["disposition"]})
        for name, parts in (
            (topic, {"owner": group, "DLQ topic": dlq}),
            (dlq, {"owner": group, "source topic": topic}),
        ):
            if name is not None and not (name == dlq and topic == dlq and parts.get("source topic")):
                topics[name].add(row, {**parts, "disposition": row["disposition"]})
    for case in cases:
        groups[case.owner].is_group |= case.group is not None
        groups[case.owner].incidents.append(case.incident_id)
        for topic in dict.fromkeys((case.topic, *case.dlq_topics)):
            if topic is not None:
                topics[topic].incidents.append(case.incident_id)
    application_names = {application.name for application in applications}
    readers: dict[str | None, set[str]] = defaultdict(set)
    writers: dict[str | None, set[str]] = defaultdict(set)
    for application in applications:
        for topic in application.reads:
            readers[topic].add(application.name)
        for topic in application.writes:
            writers[topic].add(application.name)
    delivered = {topic.topic: topic for topic in delivery.topics}
    for finding in findings:
        if finding["topic"] is not None:
            topics[finding["topic"]].findings.append(finding)
        if finding["name"] in groups:
            groups[finding["name"]].findings.append(finding)
    for topic in (*readers, *writers, *(name for name in delivered if name is not None)):
        _ = topics[topic]
    return (
        tuple(
            gathered.subject(
                name, known.groups.get(name, {}), is_application=name in application_names, is_group=gathered.is_group
            )
            for name, gathered in _in_order(groups)
        ),
        tuple(
            gathered.subject(
                name,
                known.topics.get(name, {}),
                readers=tuple(sorted(readers[name])),
                writers=tuple(sorted(writers[name])),
                delivered=delivered.get(name),
            )
            for name, gathered in _in_order(topics)
        ),
    )


def _in_order(gathered: Mapping[str | None, _Gathered]) -> list[tuple[str | None, _Gathered]]:
    return sorted(gathered.items(), key=lambda item: (-item[1].records, item[0] or ""))


class _Gathered:
    """What is known of an owner or topic so far."""

    def __init__(self) -> None:
        self.records = self.without_payload = self.untimed = self.ahead = 0
        self.is_group = False
        self.first_hour: datetime | None = None
        self.last_hour: datetime | None = None
        self.by: dict[str, Counter[str | None]] = defaultdict(Counter)
        self.incidents: list[str] = []
        self.findings: list[Row] = []

    def add(self, row: Row, by: Mapping[str, str | None]) -> None:
        """Add dead letters, told apart by other names."""
        self.records += row["record_count"]
        self.without_payload += row["without_payload_count"] or 0
        if row["when"] == "untimed":
            self.untimed += row["record_count"]
        elif row["when"] == "ahead":
            self.ahead += row["record_count"]
        else:
            self.first_hour = min(self.first_hour or row["first_hour"], row["first_hour"])
            self.last_hour = max(self.last_hour or row["last_hour"], row["last_hour"])
        for what, name in by.items():
            self.by[what][name] += row["record_count"]

    def subject(self, name: str | None, recent: Mapping[datetime, int], **more: Any) -> Subject:
        """Return it whole."""
        by = tuple(
            (what, tuple(sorted(counts.items(), key=lambda item: (-item[1], item[0] or ""))))
            for what, counts in self.by.items()
        )
        history = _history(self.first_hour, self.last_hour, recent, self.records, self.untimed, self.ahead)
        return Subject(
            name, self.records, self.without_payload, history, by, tuple(self.incidents), tuple(self.findings), **more
        )


def _history(
    first: datetime | None,
    last: datetime | None,
    recent: Mapping[datetime, int],
    records: int,
    untimed: int,
    ahead: int,
) -> History | None:
    if first is None or last is None:
        return None
    begin = last - WEEK + HOUR
    days_begin = last.replace(hour=0) - (SHOWN_DAYS - 1) * DAY
    hours, days = [0] * SHOWN_HOURS, [0] * SHOWN_DAYS
    for at, count in recent.items():
        if at >= begin:
            hours[(at - begin) // HOUR] += count
        days[(at - days_begin) // DAY] += count
    before = records - untimed - ahead - sum(days)
    return History(first, last, tuple(hours), tuple(days), before, untimed, ahead)
