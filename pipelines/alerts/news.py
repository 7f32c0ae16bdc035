"""Incidents and findings as they are, and what was told of them -> what is new."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any

from expectations.owners import owner_of
from expectations.rules import counted
from expectations.text import visible
from pipelines.commands.findings import findings_of, key_of, told_of
from pipelines.commands.incidents.incident import Incident
from pipelines.commands.incidents.reading import INCIDENTS, Incidents
from pipelines.incidents import ids
from pipelines.incidents.severity import LEVELS
from pipelines.incidents.state import REGRESSED
from pipelines.incidents.words import in_words
from pipelines.run import newest
from pipelines.text import iso
from pipelines.warehouse.tables import Warehouse

OVER = ("resolved", "finding_over", "passed")
TURNED = "turned"
"""The kind of news of an incident that is as bad as before, but which other routes may want now: `opened` for them."""
SIZES = ("magnitude", "breadth", "escalated_at")
RECENT = timedelta(days=7)
"""An incident that had ended when it was first seen is told if its last record is not older than this."""
BREADTH = {"KEY_LOCAL": 1, "PRODUCER_LOCAL": 1, "PARTITION_LOCAL": 2, "SYSTEMIC": 3, "FLOOD": 3}
"""How wide a verdict reaches; verdicts that are not listed concern single records."""
TOLD = (
    *("incident_id", "fingerprint", "consumer_group", "original_topic", "dlq_topics", "disposition", "verdict"),
    *("sentence", "severity", "severity_reasons", "state", "first_at", "last_at", "record_count"),
    *("source_record_count", "without_payload_count", "records_an_hour", "predecessor_id", "times_of_reading"),
)
"""The fields of an incident in an alert: no text of an error, key, value or header."""


@dataclass(frozen=True)
class News:
    """A change of an incident or a finding; ``key`` is the same for all news about it.

    ``owner`` is the group or, if it is not known, what the dead letters belong to instead.
    """

    kind: str
    key: str
    severity: str
    title: str
    text: str
    dedup_key: str
    at: str
    group: str | None = None
    topic: str | None = None
    verdict: str | None = None
    page: str | None = None
    about: Mapping[str, Any] = field(default_factory=dict)
    owner: str | None = None

    @property
    def is_over(self) -> bool:
        """True if it tells an end."""
        return self.kind in OVER

    @property
    def rank(self) -> int:
        """0 for the worst severity."""
        return LEVELS.index(self.severity)

    @property
    def topics(self) -> tuple[str, ...]:
        """The topic that it is about, and the DLQ topics of an incident."""
        return tuple(topic for topic in (self.topic, *self.about.get("dlq_topics", ())) if topic is not None)

    def as_json(self) -> dict[str, Any]:
        """Return it as plain values."""
        return asdict(self)


@dataclass(frozen=True)
class Seen:
    """An incident or finding as the tables have it now: the news about it if nothing was told yet, and its size.

    ``magnitude`` is the number of digits of its count, ``last_at`` the time of an incident's last record,
    ``escalated_at`` when it escalated last, in seconds since 1970, 0 if never. How often it escalated would not tell
    what is new: late records and merges change that.
    """

    news: News
    is_open: bool = True
    is_muted: bool = False
    magnitude: int = 0
    last_at: datetime | None = None
    escalated_at: int = 0

    @property
    def breadth(self) -> int:
        """How wide its verdict reaches: 0 for single records."""
        return BREADTH.get(self.news.verdict or "", 0)


@dataclass(frozen=True)
class Snapshot:
    """All incidents and findings now; ``merged`` maps the id of a merged incident to the one that took it in.

    ``teams`` has, by key, the teams of incidents and findings; it is empty if the settings have none.
    ``incidents`` is None if their table is not there, so that nothing is known about them.
    """

    incidents: Sequence[Seen] | None
    findings: Sequence[Seen]
    merged: Mapping[str, str] = field(default_factory=dict)
    teams: Mapping[str, Sequence[str]] = field(default_factory=dict)

    @property
    def muted(self) -> list[str]:
        """The keys of open incidents that somebody muted."""
        return sorted(seen.news.key for seen in self.incidents or () if seen.is_open and seen.is_muted)


Known = dict[str, Any]
"""What was told: for ``incidents`` and ``findings``, by key, the worst severity, the magnitude and the news.

``past`` has the keys of incidents that are not told if they end: those that ended lately, and muted ones.
"""


def snapshot(warehouse: Warehouse, now: datetime) -> Snapshot:
    """Read incidents and findings of a warehouse as of ``now``."""
    seen: list[Seen] | None = None
    merged: Mapping[str, str] = {}
    teams: dict[str, Sequence[str]] = {}
    if warehouse.exists(INCIDENTS):
        incidents = Incidents(warehouse, now)
        seen, merged = [_of_incident(warehouse, incident, now) for incident in incidents.known], incidents.merged
        teams = {incident.row["incident_id"]: incident.teams for incident in incidents.known if incident.teams}
    feeds = [feed for feed in newest.of_feeds(warehouse, now) if feed.used]
    findings = findings_of(warehouse, [(feed, newest.silence(warehouse, feed)) for feed in feeds], now)
    teams |= {key_of(finding): finding["teams"] for finding in findings if "teams" in finding}
    return Snapshot(seen, [_of_finding(warehouse, finding, now) for finding in findings], merged, teams)


def changes(known: Known, now_seen: Snapshot, least: str, now: datetime) -> tuple[list[News], Known]:
    """Return the news since the last look, and what counts as told after it.

    Findings below the severity ``least`` are not told. If they were told before, they are not over yet.

    An incident is told when it opens, comes back, escalates or ends. It is also told when its severity, the breadth of
    its verdict or the order of magnitude of its records rises above what was told before. If only its verdict or its
    DLQ topics changed, it has ``TURNED``. A muted one is told only when it ends. One that began and ended between two
    looks is told once; the first look tells none.
    """
    told_incidents: dict[str, dict[str, Any]] = dict(known.get("incidents", {}))
    past: list[str] | None = known.get("past")
    news: list[News] = []
    if now_seen.incidents is not None:
        here = {seen.news.key: seen for seen in now_seen.incidents}
        told_incidents = _merged(told_incidents, now_seen.merged)
        ended = {
            key: seen
            for key, seen in here.items()
            if key not in told_incidents and not seen.is_open and _is_recent(seen, now)
        }
        if past is not None:
            silent = {ids.survivor(key, now_seen.merged) for key in past}
            news += [_passed(seen.news) for key, seen in ended.items() if key not in silent and not seen.is_muted]
        ending = [key for key in told_incidents if key in here and not here[key].is_open and _is_recent(here[key], now)]
        news += _news(told_incidents, here, now)
        past = sorted({*ended, *ending, *now_seen.muted})
    told_findings: dict[str, dict[str, Any]] = dict(known.get("findings", {}))
    findings = {
        seen.news.key: seen if seen.news.rank <= LEVELS.index(least) else replace(seen, magnitude=0)  # it gets no worse
        for seen in now_seen.findings
        if seen.news.rank <= LEVELS.index(least) or seen.news.key in told_findings
    }
    news += _news(told_findings, findings, now)
    after: Known = {"incidents": told_incidents, "findings": told_findings} | ({} if past is None else {"past": past})
    return sorted(news, key=lambda change: (change.is_over, change.rank)), after


def _is_recent(seen: Seen, now: datetime) -> bool:
    return seen.last_at is not None and now - seen.last_at <= RECENT


def _passed(news: News) -> News:
    return replace(news, kind="passed", title=f"{news.title} began and ended")


def _news(notes: dict[str, dict[str, Any]], here: Mapping[str, Seen], now: datetime) -> Iterable[News]:
    """Yield what is new, and bring ``notes`` up to date."""
    for key, seen in here.items():
        before = notes.get(key)
        if before is not None and not seen.is_open:
            del notes[key]
            yield _ended(seen.news, now)
        elif not seen.is_open or seen.is_muted:
            continue
        elif before is None:
            notes[key] = _noted(seen)
            yield seen.news
        elif seen.news.rank < before["rank"] or any(getattr(seen, name) > before.get(name, 0) for name in SIZES):
            worse = replace(seen.news, kind="finding" if seen.news.kind == "finding" else "worse")
            notes[key] = _noted(seen, before)
            yield worse
        elif _choice(seen.news) != _choice(News(**before["news"])):
            notes[key] = _noted(seen, before)
            yield replace(seen.news, kind=TURNED)
    for key in [key for key in notes if key not in here]:
        yield _ended(News(**notes.pop(key)["news"]), now)


def _choice(news: News) -> tuple[str | None, frozenset[str]]:
    """Return the fields by which routes choose an incident and which can change without making it worse."""
    return news.verdict, frozenset(news.topics)


def _noted(seen: Seen, before: Mapping[str, Any] | None = None) -> dict[str, Any]:
    sizes = {name: max(getattr(seen, name), before.get(name, 0) if before else 0) for name in SIZES}
    rank = min(seen.news.rank, before["rank"]) if before else seen.news.rank
    return {"rank": rank, **sizes, "news": seen.news.as_json()}


def _merged(notes: dict[str, dict[str, Any]], into: Mapping[str, str]) -> dict[str, dict[str, Any]]:
    """Return the notes under the ids after merges: what was told of a merged incident counts for the survivor."""
    kept: dict[str, dict[str, Any]] = {}
    for key, note in notes.items():
        end = ids.survivor(key, into)
        note = {**note, "news": {**note["news"], "key": end}}
        if other := kept.get(end):
            sizes = {name: max(note.get(name, 0), other.get(name, 0)) for name in SIZES}
            note = {**note, "rank": min(note["rank"], other["rank"]), **sizes}
        kept[end] = note
    return kept


def _ended(news: News, now: datetime) -> News:
    is_finding = news.kind in ("finding", "finding_over")
    kind, words = ("finding_over", ": over") if is_finding else ("resolved", " is resolved")
    title = news.title if news.is_over else f"{news.title}{words}"
    text = f"It was: {news.about.get('evidence', news.title)}" if is_finding else news.text
    return replace(news, kind=kind, title=title, text=text, at=iso(now))


def _of_incident(warehouse: Warehouse, incident: Incident, now: datetime) -> Seen:
    row, report = incident.row, warehouse.settings.report
    facts = incident.as_json(report)
    since = incident.began(f"{row['first_at']:%Y-%m-%d %H:%M} UTC")
    records = f"{counted(row['record_count'], 'record')} {since}{incident.how_often}."
    came_back = incident.came_back[:1] if incident.predecessor else ()  # not who had resolved it
    text = " ".join((visible(row["sentence"]), *came_back, records, *incident.escalated[-1:]))
    news = News(
        "regressed" if incident.state.name == REGRESSED else "opened",
        row["incident_id"],
        row["severity"],
        f"{row['incident_id']} {incident.owner_on_topic}: {in_words(row['verdict'])}",
        text,
        row["fingerprint"],
        iso(now),
        row["consumer_group"],
        row["original_topic"],
        row["verdict"],
        report.address_of(ids.page(row["incident_id"])),
        {name: _plain(facts[name]) for name in TOLD if name in facts},
        owner_of(row),
    )
    return Seen(
        news,
        incident.state.is_open,
        incident.state.muted_until is not None,
        _digits(row["record_count"]),
        row["last_at"],
        int(max((each["at"].timestamp() for each in incident.escalations), default=0)),
    )


def _of_finding(warehouse: Warehouse, row: Mapping[str, Any], now: datetime) -> Seen:
    key = key_of(row)
    digest = hashlib.sha256(f"{warehouse.cluster}\n{key}".encode("utf-8", "surrogatepass")).hexdigest()[:24]
    title = told_of(row)
    text = f"{visible(row['evidence']).rstrip('.')}. Next: {visible(row['remedy'])}"
    facts = {
        name: _plain(row.get(name)) for name in ("kind", "topic", "name", "subject", "evidence", "remedy", "amount")
    }
    page = warehouse.settings.report.address_of("index.html")
    topic = row.get("topic")
    news = News("finding", key, row["severity"], title, text, digest, iso(now), None, topic, None, page, facts)
    return Seen(news, magnitude=_digits(row["amount"]))


def _digits(count: int) -> int:
    """Return how many digits a count has; those below 10 are alike."""
    return len(str(max(count, 10)))


def _plain(value: Any) -> Any:
    if isinstance(value, datetime):
        return iso(value)
    if isinstance(value, str):
        return visible(value)
    return [_plain(part) for part in value] if isinstance(value, list | tuple) else value
