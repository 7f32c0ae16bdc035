"""Every place tells the same fact alike: random small warehouses are asked in pairs of places, and answers compared.

Places are ``top``, ``incidents``, ``incident``, ``ask``, the page, alerts and metrics. A fact is asked of each place
that tells it, and all answers must be equal. That an incident agrees with its plan is in replay/test_eligibility.py.
"""

from __future__ import annotations

import io
import json
import re
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import cached_property
from itertools import combinations
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from expectations.gold import replay_plans
from expectations.quality import EXPECTATION_RESULTS, STAGE_RUNS
from expectations.text import visible
from pipelines.alerts import news
from pipelines.commands import ask, describe, windows
from pipelines.commands import rows as printed
from pipelines.commands.findings import NOT_READ_ON, URGENT
from pipelines.commands.incidents import front, listing, story
from pipelines.incidents.severity import LEVELS
from pipelines.metrics.families import families
from pipelines.replay import actions as actions_of_replays
from pipelines.settings import Settings, load
from pipelines.site import pages, quality, reading
from pipelines.site.content import SETTLED, Content, Delivered
from pipelines.warehouse import actions, append, progress
from pipelines.warehouse.progress import Held, Progress
from pipelines.warehouse.tables import Warehouse
from tests.testing import sites
from tests.testing.deliveries import store
from tests.testing.examples import at_most
from tests.testing.sites import HOUR, NOW

MINUTE = timedelta(minutes=1)
EARLIER = NOW - 40 * MINUTE
"""A moment within an hour, before which some of what is drawn happened."""
GROUPS = ("orders-workers", "billing\x1b[31m", "<b>sink</b>")
TOPICS = ("orders", "payments", "shipments")
KINDS = ("LOST_MESSAGES", "FAILED_DLQ_WRITES", "QUARANTINED", "WOULD_FAIL", "LATE_DATA")
HEALTH = {"OK": 3, "DELETED": 1, "LOST": 1, "PLUGIN_ERROR": 2, "REJECTED": 1, "STALE": 1}
"""Health of topologies, with the status that a broker gives."""
TOLD = ("OK", "REJECTED", "STALE")
OUTCOMES = ("LOST", "DEAD_LETTERED", "ACKNOWLEDGED", "FAILED")
RECORDS, RULE = "silver.dlq_records", "disposition.not_null"


@dataclass(frozen=True)
class World:
    """A warehouse, and each place's answer about it as of ``NOW``."""

    settings: Settings

    @property
    def tables(self) -> Warehouse:
        return Warehouse(self.settings)

    @cached_property
    def top(self) -> dict[str, Any]:
        told: dict[str, Any] = json.loads(front.top(self.tables, "json", NOW.isoformat()).result)
        return told

    @cached_property
    def top_text(self) -> str:
        return front.top(self.tables, at=NOW.isoformat()).result

    @cached_property
    def listed(self) -> list[dict[str, Any]]:
        lines = listing.listed(self.tables, "json", at=NOW.isoformat()).result.splitlines()
        return [json.loads(line) for line in lines]

    @cached_property
    def page(self) -> Content:
        return reading.gather(self.tables, now=NOW)

    @cached_property
    def seen(self) -> news.Snapshot:
        return news.snapshot(self.tables, NOW)

    def metric(self, name: str) -> dict[tuple[str, ...], float]:
        (family,) = [family for family in families(self.tables, NOW) if family.name == f"afterlog_{name}"]
        return {
            tuple(value for label, value in sample.labels.items() if label != "cluster"): sample.value
            for sample in family.samples
        }

    @cached_property
    def top_earlier(self) -> dict[str, Any]:
        told: dict[str, Any] = json.loads(front.top(self.tables, "json", EARLIER.isoformat()).result)
        return told

    def asked(self, question: str, now: datetime = NOW) -> list[dict[str, Any]]:
        rows = ask.rows_without_jvm(self.tables, ask.find(question).text, {"now": now})
        out = io.StringIO()
        printed.write(rows, "json", out)
        return [json.loads(line) for line in out.getvalue().splitlines()]

    def one(self, name: str) -> dict[str, Any]:
        told: dict[str, Any] = json.loads(story.one(self.tables, name, "json", NOW.isoformat()).result)
        return told

    @property
    def records(self) -> quality.Table:
        """What the page on data quality says of dead letters."""
        (found,) = [table for table in self.page.pipeline.tables if table.name == RECORDS]
        return found

    @cached_property
    def of_groups(self) -> list[list[Any]]:
        """The table of owners of the page: each with dead letters, open incidents and all incidents."""
        rows: list[list[Any]] = pages._Site(self.page, None).subject_rows[0]
        return rows

    def letters_by_hour(self) -> dict[str, int]:
        """The dead letters of each hour of the day until ``EARLIER``, the last hour until then."""
        hour = EARLIER.replace(minute=0)
        hours = {
            hour - number * HOUR: windows.between(self.tables, hour - number * HOUR - MICRO, end).total()
            for number in range(24)
            for end in [min(hour - (number - 1) * HOUR - MICRO, EARLIER)]
        }
        return {_seconds(at): count for at, count in hours.items() if count}


MICRO = timedelta(microseconds=1)
Fact = Callable[[World], object]
HEADLINE = re.compile(
    r"(?P<loud>[\d,]+) incidents? open(?: \([\d,]+ quiet\))?"
    r"(?:, (?P<muted>\d+) muted)?(?:, (?P<lost>\d+) messages? lost)?"
)
HEADLINE_OF_FINDINGS = re.compile(r"(\d+) urgent findings?")


def _in_both(world: World) -> list[Delivered]:
    """The topics of both tables on the page of deliveries, if the one by outcome counts lost messages."""
    delivery = world.page.delivery
    known = {topic for topic, of in delivery.outcomes if "LOST" in of}
    return [topic for topic in delivery.topics if topic.topic in known]


def _headline(sentence: str, part: str) -> int:
    found = HEADLINE.search(sentence)
    assert found
    return int(found[part] or 0)


def _urgent_in(sentence: str) -> int:
    found = HEADLINE_OF_FINDINGS.search(sentence)
    return int(found[1]) if found else 0


def _seconds(at: datetime | str) -> str:
    at = datetime.fromisoformat(at) if isinstance(at, str) else at
    return at.isoformat(timespec="seconds")


def _by_hour(rows: list[dict[str, Any]]) -> dict[str, int]:
    found: Counter[str] = Counter()
    for row in rows:
        at = datetime.fromisoformat(row["hour"])
        assert row["is_complete"] is (at + HOUR <= EARLIER)
        if at > EARLIER - 24 * HOUR:
            found[_seconds(at)] += row["record_count"]
    return dict(found)


def _first_lost(rows: list[dict[str, Any]]) -> dict[str, str]:
    """Return when the first message of each topic was lost, as the question tells it by partition."""
    return {row["topic"]: _seconds(row["first_acknowledged_at"]) for row in rows}


def _of_incidents(told: list[dict[str, Any]], *columns: str) -> dict[str, tuple[Any, ...]]:
    return {row["incident_id"]: tuple(_seen(row[name]) for name in columns) for row in told}


def _seen(value: Any) -> Any:
    """Return a value as people see it; JSON and pages have the text itself, and alerts what is seen of it."""
    return visible(value) if isinstance(value, str) else value


SHOWN = ("severity", "verdict", "record_count", "sentence")
FACTS: dict[str, dict[str, Fact]] = {
    "which incidents are open": {
        "top": lambda world: sorted(row["incident_id"] for row in world.top["incidents"]),
        "incidents": lambda world: sorted(row["incident_id"] for row in world.listed if row["state"] != "RESOLVED"),
        "page": lambda world: sorted(incident.incident_id for incident in world.page.open),
        "alerts": lambda world: sorted(
            incident.news.key for incident in world.seen.incidents or () if incident.is_open
        ),
    },
    "which incident is the most urgent": {
        "top": lambda world: [row["incident_id"] for row in world.top["incidents"]][:1],
        "page": lambda world: [incident.incident_id for incident in world.page.open][:1],
    },
    "severity, verdict, records and sentence of incidents": {
        "incidents": lambda world: _of_incidents(world.listed, *SHOWN),
        "incident": lambda world: _of_incidents([world.one(row["incident_id"]) for row in world.listed], *SHOWN),
        "page": lambda world: {
            incident.incident_id: (incident.severity, incident.verdict, incident.records, visible(incident.sentence))
            for incident in world.page.incidents
        },
        "alerts": lambda world: {
            incident.news.key: (
                incident.news.severity,
                incident.news.verdict,
                *(incident.news.about[name] for name in SHOWN[2:]),
            )
            for incident in world.seen.incidents or ()
        },
    },
    "state of incidents": {
        "incidents": lambda world: _of_incidents(world.listed, "state"),
        "incident": lambda world: _of_incidents([world.one(row["incident_id"]) for row in world.listed], "state"),
        "page": lambda world: {incident.incident_id: (incident.state,) for incident in world.page.incidents},
        "alerts": lambda world: {
            incident.news.key: (incident.news.about["state"],) for incident in world.seen.incidents or ()
        },
    },
    "how many open incidents nobody muted": {
        "top": lambda world: _headline(world.top["sentence"], "loud"),
        "page": lambda world: _headline(world.page.light.sentence, "loud"),
        "page's list": lambda world: sum(incident.is_loud for incident in world.page.incidents),
        "page's owners": lambda world: sum(row[2] for row in world.of_groups),
        "incidents": lambda world: sum(
            row["state"] != "RESOLVED" and row["muted_until"] is None for row in world.listed
        ),
        "metrics": lambda world: sum(world.metric("open_incidents").values()),
        "alerts": lambda world: sum(
            incident.is_open and not incident.is_muted for incident in world.seen.incidents or ()
        ),
    },
    "how many open incidents are muted": {
        "top": lambda world: _headline(world.top["sentence"], "muted"),
        "page": lambda world: _headline(world.page.light.sentence, "muted"),
        "metrics": lambda world: sum(world.metric("muted_incidents").values()),
        "alerts": lambda world: len(world.seen.muted),
    },
    "which incidents had dead letters in the last day": {
        "incidents": lambda world: sorted(
            row["incident_id"]
            for row in world.listed
            if datetime.fromisoformat(row["last_at"]) > NOW - timedelta(days=1)
        ),
        "ask": lambda world: sorted(row["incident_id"] for row in world.asked("incidents_of_the_day")),
    },
    "findings by kind and severity": {
        "top": lambda world: _told_of(Counter((row["kind"], row["severity"]) for row in world.top["findings"])),
        "page": lambda world: _told_of(Counter((row["kind"], row["severity"]) for row in world.page.findings)),
        "metrics": lambda world: _told_of(
            Counter({labels: int(count) for labels, count in world.metric("findings").items()})
        ),
        "alerts": lambda world: Counter(
            (finding.news.about["kind"], finding.news.severity) for finding in world.seen.findings
        ),
    },
    "how many findings are urgent": {
        "top": lambda world: _urgent_in(world.top["sentence"]),
        "top's list": lambda world: sum(row["severity"] in URGENT for row in world.top["findings"]),
        "page": lambda world: _urgent_in(world.page.light.sentence),
        "page's reasons": lambda world: sum(
            int(reason.partition(" ")[0]) for reason in world.page.light.reasons if reason.endswith(" urgent.")
        ),
        "metrics": lambda world: sum(
            count for (_, level), count in world.metric("findings").items() if level in URGENT
        ),
        "alerts": lambda world: sum(finding.news.severity in URGENT for finding in world.seen.findings),
    },
    "which settings are mistakes": {
        "top": lambda world: sorted((row["kind"], row["group_id"]) for row in world.top["misconfigurations"]),
        "top's findings": lambda world: sorted(
            (row["kind"], row["name"]) for row in world.top["findings"] if row["kind"] == "DLQ_MISSING"
        ),
        "ask": lambda world: sorted((row["kind"], row["group_id"]) for row in world.asked("misconfigured_dlqs")),
    },
    "how many messages are lost": {
        "top": lambda world: _headline(world.top["sentence"], "lost"),
        "page": lambda world: _headline(world.page.light.sentence, "lost"),
        "page's delivery": lambda world: world.page.delivery.total.lost if world.page.delivery.total else 0,
        "metrics": lambda world: sum(world.metric("lost_messages").values()),
    },
    "messages by topic and outcome": {
        "page": lambda world: {
            (topic, name): count for topic, of in world.page.delivery.outcomes for name, count in of.items() if count
        },
        "ask": lambda world: {
            (row["topic"], row["outcome"]): row["message_count"] for row in world.asked("messages_by_outcome")
        },
    },
    "of which topics nobody knows how many messages are lost": {
        "page's topics": lambda world: sorted(item.topic for item in _in_both(world) if item.lost is None),
        "page's outcomes": lambda world: sorted(
            topic
            for topic, of in world.page.delivery.outcomes
            if of.get("LOST", 0) is None and topic in {item.topic for item in _in_both(world)}
        ),
    },
    "dead letters by owner": {
        "page": lambda world: {group.name: group.records for group in world.page.groups if group.records},
        "metrics": lambda world: _by_owner(world.metric("dead_letters")),
    },
    "dead letters of the last hour by owner": {
        "page": lambda world: {
            series_.name: series_.last_hour for series_ in world.page.timeline.series if series_.last_hour
        },
        "ask": lambda world: {
            row["owner"]: row["records_in_the_last_hour"]
            for row in world.asked("top_groups")
            if row["records_in_the_last_hour"]
        },
    },
    "dead letters of the last day by owner": {
        "page": lambda world: {series_.name: series_.day for series_ in world.page.timeline.series if series_.day},
        "ask": lambda world: {row["owner"]: row["record_count"] for row in world.asked("top_groups")},
    },
    "which topologies need a look for what they are": {
        "page": lambda world: {
            application.name: (application.health, list(application.defects), application.last_accepted_at)
            for application in world.page.applications
            if application.health not in SETTLED or application.defects
        },
        "ask": lambda world: {
            row["group_id"]: (row["health"], row["defects"], datetime.fromisoformat(row["last_accepted_at"]))
            for row in world.asked("topology_health")
        },
    },
    "when the first message of a topic was lost": {
        "top": lambda world: {
            row["topic"]: _seconds(row["since"]) for row in world.top["findings"] if row["kind"] == KINDS[0]
        },
        "ask": lambda world: _first_lost(world.asked("lost_messages")),
    },
    "of which topics messages were lost at an earlier moment": {
        "top": lambda world: sorted(row["topic"] for row in world.top_earlier["findings"] if row["kind"] == KINDS[0]),
        "ask": lambda world: sorted(
            topic
            for topic, at in _first_lost(world.asked("lost_messages")).items()
            if datetime.fromisoformat(at) <= EARLIER
        ),
    },
    "dead letters by hour until an earlier moment": {
        "ask about volume": lambda world: _by_hour(world.asked("volume_by_hour", EARLIER)),
        "ask about dispositions": lambda world: _by_hour(world.asked("dispositions_by_hour", EARLIER)),
        "records": World.letters_by_hour,
    },
    "what the topics of incidents reach": {
        "incident": lambda world: {
            row["incident_id"]: world.one(row["incident_id"])["blast_radius"] for row in world.listed
        },
        "page": lambda world: {
            incident.incident_id: incident.blast and json.loads(json.dumps(incident.blast.as_json()))
            for incident in world.page.incidents
        },
    },
    "how often a gate broke": {
        "ask": lambda world: sum(row["broken_count"] for row in world.asked("gate_history")),
        "page": lambda world: sum(run.status == "broken" for run in world.records.runs),
    },
    "how many rows broke a rule": {
        "ask": lambda world: sum(row["failing_rows"] for row in world.asked("gate_history")),
        "page": lambda world: sum(run.quarantined for run in world.records.runs),
    },
    "the last known topology of applications": {
        "page": lambda world: {
            application.name: json.loads(application.description or "")
            for application in world.page.applications
            if application.health in TOLD
        },
        "describe": lambda world: {
            application.name: json.loads(describe.answer(world.tables, application.name, "json").result)[
                "topologyDescription"
            ]
            for application in world.page.applications
            if application.health in TOLD
        },
    },
    "what became of the records of plans": {
        "page": lambda world: {
            replay_.plan_id: (replay_.replayed, replay_.delivered, replay_.unknown) for replay_ in world.page.replays
        },
        "replay status": lambda world: {
            replay_.plan_id: (told["replayed"], outcomes.get("DELIVERED", 0), outcomes.get("UNKNOWN", 0))
            for replay_ in world.page.replays
            for told in [
                json.loads(actions_of_replays.status(world.tables, replay_.plan_id, "json", asks=False).result)
            ]
            for outcomes in [told["outcomes"]]
        },
    },
    "what fingerprints are made of": {
        "incident": lambda world: [
            line.partition("fingerprint ")[2].partition(" ")[2]
            for incident in world.page.incidents
            for line in story.one(world.tables, incident.incident_id, at=NOW.isoformat()).result.splitlines()
            if line.startswith("  fingerprint ")
        ],
        "page": lambda world: [incident.fingerprint_of for incident in world.page.incidents],
    },
    "the front's sentence": {
        "top": lambda world: world.top["sentence"],
        "top as text": lambda world: world.top_text.splitlines()[0],
        "page": lambda world: world.page.light.sentence,
    },
}
"""By fact the places that tell it, each with what it tells."""


def _told_of(counts: Counter[tuple[str, ...]]) -> Counter[tuple[str, ...]]:
    """Return the findings that alerts tell, too: nothing fails where a topic is not read on."""
    return Counter({key: count for key, count in counts.items() if key[0] != NOT_READ_ON})


def _by_owner(counts: dict[tuple[str, ...], float]) -> dict[str, int]:
    found: Counter[str] = Counter()
    for (_, owner, _), count in counts.items():
        found[owner] += int(count)
    return dict(found)


@dataclass(frozen=True)
class Drawn:
    """What is in a warehouse."""

    incidents: list[dict[str, Any]]
    muted: list[bool]
    letters: list[tuple[int, str]]
    findings: list[dict[str, Any]]
    mistakes: list[str]
    messages: list[tuple[str, str]]
    replayed: list[list[str | None]]
    applications: list[tuple[str, list[str]]]
    gates: list[tuple[str, int]]


@st.composite
def drawn(draw: st.DrawFn) -> Drawn:
    several = draw(
        st.lists(
            st.fixed_dictionaries(
                {
                    "age": st.integers(0, 60),
                    "severity": st.sampled_from(LEVELS),
                    "verdict": st.sampled_from(["SYSTEMIC", "POISON_PILL", "FLOOD"]),
                    "record_count": st.integers(1, 5_000),
                    "consumer_group": st.sampled_from(GROUPS),
                    "pause_seconds": st.sampled_from([1_800, 7_200, 864_000]),
                    "predecessor_id": st.sampled_from([None, sites.incident_id(99)]),
                    "original_topic": st.sampled_from(["orders", "payments", None]),
                }
            ),
            min_size=1,
            max_size=5,
        )
    )
    return Drawn(
        several,
        draw(st.lists(st.booleans(), min_size=len(several), max_size=len(several))),
        draw(
            st.lists(
                st.tuples(st.one_of(st.integers(0, 99), st.integers(0, 3 * 24 * 60)), st.sampled_from(GROUPS)),
                max_size=20,
            )
        ),
        draw(
            st.lists(
                st.fixed_dictionaries(
                    {
                        "kind": st.sampled_from(KINDS[1:]),
                        "topic": st.sampled_from([*TOPICS, None]),
                        "severity": st.sampled_from(LEVELS),
                        "amount": st.integers(1, 9),
                    }
                ),
                max_size=5,
                unique_by=lambda row: (row["kind"], row["topic"]),
            )
        ),
        draw(st.lists(st.sampled_from(GROUPS), max_size=2, unique=True)),
        draw(st.lists(st.tuples(st.sampled_from(TOPICS), st.sampled_from(OUTCOMES)), max_size=12)),
        draw(st.lists(st.lists(st.sampled_from(["DELIVERED", "UNKNOWN", None]), max_size=4), max_size=3)),
        draw(
            st.lists(
                st.tuples(st.sampled_from(sorted(HEALTH)), st.lists(st.just("dangling_successor"), max_size=1)),
                max_size=3,
            )
        ),
        draw(st.lists(st.tuples(st.sampled_from(["held", "accepted", "fine"]), st.integers(1, 30)), max_size=4)),
    )


def fill(settings: Settings, given: Drawn) -> World:
    """Store what is drawn, each fact in the table that is its home, as runs do."""
    rows = []
    for number, values in enumerate(given.incidents):
        more = {name: value for name, value in values.items() if name != "age"}
        rows.append(sites.incident(number, last_at=NOW - values["age"] * HOUR - MINUTE, **more))
    store(settings, "gold.dlq_incidents", *rows)
    store(settings, "gold.blast_radius")
    store(settings, "gold.incident_suspects")
    for number, is_muted in enumerate(given.muted):
        if is_muted:
            actions.act(Warehouse(settings), sites.incident_id(number), actions.MUTE, NOW + 10_000 * HOUR)
    letters = [
        sites.letter(index, routed_at=NOW - age * MINUTE, consumer_group=group, disposition="CLIENT_REJECTED")
        for index, (age, group) in enumerate(given.letters)
    ]
    store(settings, "silver.dlq_records", *letters)
    store(settings, "silver.dlq_control_markers")
    hours: dict[tuple[datetime, str], list[datetime]] = {}
    for row in letters:
        key = row["routed_at"].replace(minute=0, second=0), row["consumer_group"]
        hours.setdefault(key, []).append(row["routed_at"])
    summed = [
        sites.hour(hour, len(times), consumer_group=group, first_routed_at=min(times), last_routed_at=max(times))
        for (hour, group), times in hours.items()
    ]
    store(settings, "gold.dlq_summary", *summed)
    landed = {"cluster": "default", "timestamp": NOW - HOUR, "_ingested_at": NOW - HOUR}
    store(settings, "bronze.dlq_records", landed)
    outcomes = Counter(given.messages)
    findings = [{**finding, "since": NOW - HOUR} for finding in given.findings]
    reconciled = []
    times = [NOW - 7 * (index + 1) * MINUTE for index in range(len(given.messages))]
    for topic in TOPICS:
        if lost := outcomes[topic, "LOST"]:
            lost_at = [at for item, at in zip(given.messages, times, strict=True) if item == (topic, "LOST")]
            hours = {"since": min(lost_at).replace(minute=0), "last_at": max(lost_at).replace(minute=0)}
            findings.append({"kind": KINDS[0], "topic": topic, "severity": "critical", "amount": lost} | hours)
            reconciled.append({"cluster": "default", "hour": hours["since"], "topic": topic, "lost_count": lost})
    words = {"cluster": "default", "evidence": "it is so", "remedy": "afterlog top"}
    store(settings, "gold.trust_findings", *(words | finding for finding in findings))
    store(settings, "gold.reconciliation", *reconciled)
    mistake = words | {"kind": "DLQ_MISSING", "dlq_topic": "dlq.orders", "severity": "critical"}
    seen = {"since": NOW - HOUR, "last_seen_at": NOW - HOUR}
    store(settings, "gold.dlq_misconfigurations", *(mistake | seen | {"group_id": name} for name in given.mistakes))
    ledger = [
        {"cluster": "default", "topic": topic, "partition": 0, "offset": offset, "outcome": outcome, "slice": "a"}
        | {"client_id": client_of(offset)}
        for offset, (topic, outcome) in enumerate(given.messages)
    ]
    told = [row | {"acknowledgement_count": 1, "acknowledged_at": at} for row, at in zip(ledger, times, strict=True)]
    store(settings, "gold.message_ledger", *told)
    for number, (health, defects) in enumerate(given.applications):
        more = {"health": health, "defects": defects, "status": HEALTH[health], "deleted_at": NOW, "lost_at": NOW}
        sites.application(settings, f"application-{number}", **more)
    for table in (describe.CURRENT, describe.PUSHES, describe.STATUSES, describe.DELETIONS):
        store(settings, table)
    judged(settings, given.gates)
    for number, outcomes_of_plan in enumerate(given.replayed):
        replayed(settings, sites.incident_id(number), outcomes_of_plan)
    return World(settings)


def judged(settings: Settings, gates: list[tuple[str, int]]) -> None:
    """Store runs of a gate: each time rows of one topic break a rule, and are held, accepted once, or tolerated."""
    runs, results = [], []
    for place, (fate, rows) in enumerate(gates):
        at = NOW - (9 - place) * MINUTE
        key = {"cluster": "default", "table": RECORDS, "run_id": f"run-{place}"}
        status = "broken" if fate == "held" else "passed"
        moved = {"held": rows} if fate == "held" else {"quarantined": rows}
        counts = dict.fromkeys(("read", "accepted", "quarantined", "duplicates", "skipped", "held"), 0) | {"read": rows}
        runs.append(key | {"started_at": at, "finished_at": at, "seconds": 1.0, "status": status} | counts | moved)
        found = {"expectation": RULE, "failing": rows, "candidates": 60, "observed": rows / 60, "tolerance": 0.05}
        found |= key | {"min_failures": 20, "examined_at": at, "success": fate == "fine"}
        results += [found] if fate == "fine" else [found, found | {"scope": "dlq.orders"}]
    for contract, rows_of_it in ((STAGE_RUNS, runs), (EXPECTATION_RESULTS, results)):
        nothing = dict.fromkeys(column.name for column in contract.columns)
        append.append(Warehouse(settings), contract, [nothing | row for row in rows_of_it])
    if gates and gates[-1][0] == "held":
        kept = Held(NOW.isoformat(), "It broke.", gates[-1][1], "")
        progress.save(Warehouse(settings), RECORDS, Progress(home="default", held={"dlq.orders": kept}))


def client_of(offset: int) -> str | None:
    """The client id of a message's producer."""
    return (None, "checkout-1", "application-1")[offset % 3]


def replayed(settings: Settings, plan_id: str, outcomes: list[str | None]) -> None:
    """Store a plan that replayed records, and what became of each; None: nobody looked yet."""
    plan = {"cluster": "default", "plan_id": plan_id}
    counts = {"record_count": len(outcomes), "eligible_count": len(outcomes)}
    more = {"choice": "the rules", "target": "original", "created_at": NOW, "plan_hash": "0" * 64}
    row = dict.fromkeys(column.name for column in replay_plans.CONTRACT.stored) | plan | counts | more
    append.append(Warehouse(settings), replay_plans.CONTRACT, [row])
    for offset, outcome in enumerate(outcomes):
        letter = {"dlq_topic": f"dlq.{plan_id}", "dlq_partition": 0, "dlq_offset": offset, "attempt": 1}
        target = {"target_topic": "orders", "target_topic_id": "x", "target_partition": 0, "target_offset": offset}
        store(settings, "gold.replayed_records", plan | letter | target | {"replayed_at": NOW})
        if outcome is not None:
            store(settings, "gold.replay_outcomes", plan | letter | target | {"outcome": outcome, "looked_at": NOW})


@at_most(8)
@given(given=drawn())
def test_every_pair_of_places_tells_the_same(given: Drawn, tmp_path_factory: pytest.TempPathFactory) -> None:
    place = tmp_path_factory.mktemp("voice")
    (place / "landing").mkdir()
    world = fill(load(warehouse=str(place / "warehouse"), landing=str(place / "landing")), given)
    for fact, places in FACTS.items():
        told = {name: tell(world) for name, tell in places.items()}
        for item, other in combinations(told, 2):
            assert told[item] == told[other], f"{fact}: {item} and {other}"


def test_twenty_pairs_of_places_and_more_are_asked() -> None:
    assert sum(1 for places in FACTS.values() for _ in combinations(places, 2)) > 20
