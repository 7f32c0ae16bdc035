"""Alerts: what is told, when, once, in which form; receivers are real HTTP servers that answer, fail, hang and drip."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from pipelines.alerts import delivery, listing, messages, outbox, sender
from pipelines.alerts.channels import Frame, channel_of
from pipelines.alerts.delivery import Outcome
from pipelines.alerts.messages import Alert
from pipelines.alerts.news import News, Seen, Snapshot, changes, snapshot
from pipelines.alerts.outbox import Outbox
from pipelines.alerts.routes import quiet
from pipelines.alerts.turns import sole_sender
from pipelines.cli import app
from pipelines.errors import EnvironmentLacking
from pipelines.incidents.severity import LEVELS
from pipelines.run.beside import Beside
from pipelines.run.follow import Cycle
from pipelines.settings import ROOT, Settings, load
from pipelines.settings.alerts import QuietHours, Route
from pipelines.warehouse.alert_log import alerts, place
from pipelines.warehouse.tables import Warehouse
from tests.testing import sites
from tests.testing.deliveries import store
from tests.testing.examples import at_most
from tests.testing.receiver import Receiver, receiving
from tests.testing.sites import CANARY, HOSTILE, incident, incident_id

NOW = datetime(2026, 11, 24, 12, tzinfo=UTC)
MINUTE = timedelta(minutes=1)
TAKEN = Outcome(True, "HTTP 200")
AWAY = Outcome(False, "no connection")


def news(key: str = "A", severity: str = "high", **more: Any) -> News:
    told = {"kind": "opened", "title": f"title of {key}", "text": "text.", "dedup_key": f"f-{key}", "at": "2026-11-24"}
    return News(**{**told, "key": key, "severity": severity, "group": "g", "topic": "t", "verdict": "SYSTEMIC", **more})


def seen(key: str = "A", severity: str = "high", is_open: bool = True, magnitude: int = 2, **more: Any) -> Seen:
    told = {name: more.pop(name) for name in ("dedup_key", "verdict", "about") if name in more}
    return Seen(news(key, severity, **told), is_open, magnitude=magnitude, **more)


def route(name: str = "all", **more: Any) -> dict[str, Any]:
    return {"name": name, "url": "http://127.0.0.1:9/secret-path", **more}


def routed(directory: Path, *routes: dict[str, Any], **more: Any) -> Settings:
    (directory / "warehouse").mkdir(parents=True, exist_ok=True)
    given = {"route": list(routes) or [route()], **more}
    return load(warehouse=str(directory / "warehouse"), landing=str(directory / "landing"), alerts=given)


class World:
    """A warehouse whose incidents, time and receiver the test decides."""

    def __init__(self, directory: Path, *routes: dict[str, Any], **more: Any) -> None:
        self.settings = routed(directory, *routes, **more)
        self.now = NOW
        self.here: Snapshot = Snapshot([], [])
        self.answers: list[Outcome | BaseException] = []
        self.got: list[dict[str, Any]] = []
        self.meanwhile: list[Callable[[], Any]] = []

    @property
    def box(self) -> Outbox:
        return Outbox.read(place(Warehouse(self.settings)))

    def post(self, url: str, body: Mapping[str, Any], alert_id: str, timeout_seconds: float) -> Outcome:
        answer = self.answers.pop(0) if self.answers else TAKEN
        for act in [self.meanwhile.pop() for _ in self.meanwhile]:
            act()
        if not isinstance(answer, BaseException):
            if answer.is_taken:
                self.got.append(dict(body))
            return answer
        if answer.args == ("after",):
            self.got.append(dict(body))
        raise answer

    def send(self, *incidents: Seen, findings: tuple[Seen, ...] = (), after: timedelta = MINUTE, **more: Any) -> Any:
        self.now += after
        self.here = Snapshot(incidents, findings, **more)
        return sender.send(self.settings, lambda: self.now, self.post, lambda warehouse, now: self.here)

    @property
    def told(self) -> list[tuple[str, str]]:
        return [(one["kind"], one["key"]) for body in self.got for one in body["alerts"]]

    @property
    def events(self) -> list[tuple[str, str]]:
        """What PagerDuty got."""
        return [(body["event_action"], body["dedup_key"]) for body in self.got]

    @property
    def events_of_pagerduty(self) -> list[tuple[str, str]]:
        """What PagerDuty got, beside other receivers."""
        return [(body["event_action"], body["dedup_key"]) for body in self.got if "event_action" in body]


def pager(**more: Any) -> dict[str, Any]:
    return route(**{"name": "pager", "kind": "pagerduty", "routing_key_env": "HOME", **more})


@pytest.fixture
def world(tmp_path: Path) -> Callable[..., World]:
    return lambda *routes, **more: World(tmp_path, *routes, **more)


# ------------------------------------------------------------------------------------------------------- what is told


def test_each_turn_of_an_incident_is_told_once(world: Callable[..., World]) -> None:
    found = world(route(suppress_minutes=0))
    for state in (seen(), seen(), seen(severity="medium"), seen(severity="high"), seen(magnitude=3), seen(magnitude=2)):
        found.send(state)
    found.send(seen(severity="critical"))
    found.send(seen(is_open=False))
    found.send(seen(is_open=False))
    assert [kind for kind, _ in found.told] == ["opened", "worse", "worse", "resolved"]


def test_what_was_over_before_the_first_look_is_not_told(world: Callable[..., World]) -> None:
    found = world()
    found.send(*(seen(str(number), is_open=False) for number in range(9)))
    assert found.got == []


def test_a_muted_incident_is_told_only_when_it_ends(world: Callable[..., World]) -> None:
    found = world(route(suppress_minutes=0))
    found.send(seen("A", is_muted=True), seen("B"))
    found.send(seen("A", is_muted=True), seen("B", "critical", is_muted=True))
    found.send(seen("A", is_open=False), seen("B", is_open=False))
    assert found.told == [("opened", "B"), ("resolved", "B")]


def test_an_incident_that_took_in_another_is_not_told_again(world: Callable[..., World]) -> None:
    found = world(route(suppress_minutes=0))
    found.send(seen("A"))
    found.send(seen("B"), merged={"A": "B"})
    found.send(seen("B", is_open=False), merged={"A": "B"})
    assert found.told == [("opened", "A"), ("resolved", "B")]


def test_incidents_whose_records_are_gone_end_and_a_missing_table_ends_nothing(world: Callable[..., World]) -> None:
    found = world()
    found.send(seen())
    found.here = Snapshot(None, [])
    sender.send(found.settings, lambda: found.now, found.post, lambda *_: found.here)
    assert found.told == [("opened", "A")]
    found.send()
    assert found.told[1:] == [("resolved", "A")]


def test_each_escalation_is_told_once(world: Callable[..., World]) -> None:
    found = world(route(suppress_minutes=0))
    for second in (0, 10, 10, 0, 10, 20):
        found.send(seen(escalated_at=second))
    assert found.told == [("opened", "A"), ("worse", "A"), ("worse", "A")]


@pytest.mark.parametrize(
    ("escalated", "told"),
    [
        pytest.param([30], [], id="one of two that late records undid"),
        pytest.param([10, 40], ["worse"], id="a new one instead of one that late records undid"),
        pytest.param([10, 20, 30], [], id="one more that late records show before them"),
    ],
)
def test_an_escalation_is_new_by_its_time_and_not_by_their_number(
    tmp_path: Path, escalated: list[int], told: list[str]
) -> None:
    def snapshot_of(seconds: list[int]) -> Snapshot:
        settings = routed(tmp_path / "-".join(map(str, seconds)))
        its = [{"at": second * 1_000_000, "before_per_hour": 1.0, "after_per_hour": 60.0} for second in seconds]
        store(settings, "gold.dlq_incidents", incident(1, escalations=its))
        return snapshot(Warehouse(settings), NOW)

    _, known = changes({}, snapshot_of([10, 30]), "high", NOW)
    news_of_it, _ = changes(known, snapshot_of(escalated), "high", NOW)
    assert [one.kind for one in news_of_it] == told


def test_escalations_that_were_told_of_two_incidents_are_not_told_of_the_one_that_they_become(
    world: Callable[..., World],
) -> None:
    found = world(route(suppress_minutes=0))
    found.send(seen("A", escalated_at=10), seen("B", escalated_at=20))
    found.send(seen("A", escalated_at=20), merged={"B": "A"})
    assert found.told == [("opened", "A"), ("opened", "B")]


def test_a_verdict_that_concerns_more_is_worse(world: Callable[..., World]) -> None:
    found = world(route(suppress_minutes=0))
    verdicts = (
        "UNDETERMINED",
        "POISON_PILL",
        "KEY_LOCAL",
        "PRODUCER_LOCAL",
        "PARTITION_LOCAL",
        "SYSTEMIC",
        "KEY_LOCAL",
    )
    for verdict in (*verdicts, "FLOOD"):
        found.send(seen(verdict=verdict))
    assert [(one["kind"], one["verdict"]) for body in found.got for one in body["alerts"]] == [
        ("opened", "UNDETERMINED"),
        ("worse", "KEY_LOCAL"),
        ("worse", "PARTITION_LOCAL"),
        ("worse", "SYSTEMIC"),
    ]


def test_a_route_hears_of_an_incident_once_its_verdict_or_topics_are_those_of_the_route(
    world: Callable[..., World],
) -> None:
    opens = {"suppress_minutes": 0, "news": ["opened", "resolved"]}
    found = world(
        route("all", suppress_minutes=0),
        route("pills", verdicts=["POISON_PILL", "REJECTION"], suppress_minutes=0),
        route("clients", verdicts=["PRODUCER_LOCAL"], **opens),
        route("systems", verdicts=["SYSTEMIC"], **opens),
        route("topics", topic="dlq.payments", **opens),
        route("critical", severity="critical", **opens),
    )
    steps: list[tuple[str, dict[str, Any]]] = [
        *(("UNDETERMINED", {}), ("POISON_PILL", {}), ("REJECTION", {}), ("POISON_PILL", {}), ("KEY_LOCAL", {})),
        *(("PRODUCER_LOCAL", {}), ("UNDETERMINED", {}), ("PRODUCER_LOCAL", {}), ("SYSTEMIC", {})),
        *(("SYSTEMIC", {"about": {"dlq_topics": ["dlq.a", "dlq.payments"]}}), ("SYSTEMIC", {"severity": "critical"})),
    ]
    for verdict, more in steps:
        found.send(seen(verdict=verdict, **more))
    found.send(seen(is_open=False))
    told = [(body["route"], one["kind"], one["verdict"]) for body in found.got for one in body["alerts"]]
    assert told[:-6] == [
        ("all", "opened", "UNDETERMINED"),
        ("pills", "opened", "POISON_PILL"),
        ("all", "worse", "KEY_LOCAL"),
        ("clients", "opened", "PRODUCER_LOCAL"),
        ("all", "worse", "SYSTEMIC"),
        ("systems", "opened", "SYSTEMIC"),
        ("topics", "opened", "SYSTEMIC"),
        ("all", "worse", "SYSTEMIC"),
        ("critical", "opened", "SYSTEMIC"),
    ]
    assert {(name, kind) for name, kind, _ in told[-6:]} == {
        (name, "resolved") for name in ("all", "pills", "clients", "systems", "topics", "critical")
    }


def test_what_began_and_ended_between_two_looks_is_told_once_and_calls_nobody(world: Callable[..., World]) -> None:
    found = world(route(), pager())
    before = seen("0", is_open=False, last_at=NOW)
    found.send(before)
    passed = seen("A", is_open=False, last_at=NOW)
    old = seen("B", is_open=False, last_at=NOW - timedelta(days=8))
    muted = seen("C", is_muted=True, last_at=NOW)
    for _ in range(3):
        found.send(before, passed, old, muted)
    found.send(before, passed, old, seen("C", is_open=False, last_at=NOW), merged={})
    found.send(seen("D", is_open=False, last_at=NOW), merged={"A": "D"})  # it took in what was told
    assert found.told == [("passed", "A")]
    assert len(found.got) == 1
    found.send(seen("A"), after=timedelta(days=1))
    found.send(seen("A", is_open=False, last_at=NOW), after=timedelta(days=1))
    found.send(seen("A", is_open=False, last_at=NOW), after=timedelta(days=1))
    ours = [one["kind"] for body in found.got for one in body.get("alerts", ())]
    assert ours == ["passed", "opened", "resolved"]


def test_each_cluster_of_a_warehouse_has_its_own_news(world: Callable[..., World]) -> None:
    found = world(route(suppress_minutes=0))
    ours = found.settings
    hostile = ["../../b", "B", "b", "a/b", "\x00", ""]
    found.send(seen("A"))
    for name in hostile:
        found.settings = ours.model_copy(update={"cluster": name})
        found.send(seen("B"))
    found.settings = ours
    found.send(seen("A"))
    assert found.told == [("opened", "A"), *[("opened", "B")] * len(hostile)]
    kept = {path.name.lower() for path in (Path(ours.warehouse) / "_alerts").iterdir()}
    assert len(kept) == 1 + len(hostile)


def test_a_finding_whose_count_grows_tenfold_is_told_again(tmp_path: Path) -> None:
    known: dict[str, Any] = {}
    for number, (amount, is_told) in enumerate(((10, True), (99, False), (100, True), (20, False))):
        its = load(warehouse=str(tmp_path / str(number)), landing=str(tmp_path))
        finding = {"cluster": "default", "kind": "LOST_MESSAGES", "topic": "orders", "severity": "critical"}
        store(its, "gold.trust_findings", finding | {"amount": amount, "evidence": "lost", "remedy": "afterlog sql"})
        told, known = changes(known, snapshot(Warehouse(its), NOW), "high", NOW)
        assert [each.kind for each in told] == ["finding"] * is_told


def test_findings_are_told_from_a_severity_on(world: Callable[..., World]) -> None:
    found = world(route(suppress_minutes=0), findings_from="high")
    low, high = (Seen(news(name, name, kind="finding", group=None)) for name in ("medium", "critical"))
    found.send(findings=(low, high))
    found.send(findings=(low,))
    assert found.told == [("finding", "critical"), ("finding_over", "critical")]


def test_a_finding_that_got_less_severe_is_not_over(world: Callable[..., World]) -> None:
    found = world(route(suppress_minutes=0), findings_from="high")
    for severity, magnitude in (("high", 2), ("medium", 3), ("high", 2), ("medium", 2)):
        found.send(findings=(Seen(news("F", severity, kind="finding", group=None), magnitude=magnitude),))
    assert found.told == [("finding", "F")]
    found.send()
    assert found.told == [("finding", "F"), ("finding_over", "F")]
    assert found.got[-1]["alerts"][0]["text"].startswith("It was: ")


@pytest.mark.parametrize(
    ("conditions", "is_wanted"),
    [
        ({}, True),
        ({"severity": "critical"}, False),
        ({"severity": "high", "group": "g*", "topic": "t", "verdicts": ["FLOOD", "SYSTEMIC"]}, True),
        ({"group": "other"}, False),
        ({"topic": "t?"}, False),
        ({"topic": "dlq.*"}, True),
        ({"verdicts": ["FLOOD"]}, False),
        ({"news": ["resolved"]}, False),
    ],
)
def test_routes_choose(world: Callable[..., World], conditions: dict[str, Any], is_wanted: bool) -> None:
    found = world(route(**conditions), route("second", severity="critical"))
    found.send(seen(about={"dlq_topics": ["dlq.t"]}))
    found.send(seen(is_open=False))
    assert [kind for kind, _ in found.told] == (["opened", "resolved"] if is_wanted else [])


# --------------------------------------------------------------------------------------------------------------- when


def of_teams(found: World, *routes: dict[str, Any]) -> None:
    """Give a world two teams, and other routes."""
    teams = [{"name": name, "topics": [f"{name}*"]} for name in ("orders", "payments")]
    place = {"warehouse": found.settings.warehouse, "landing": found.settings.landing}
    found.settings = load(**place, alerts={"route": list(routes)}, team=teams)


def test_a_route_gets_what_is_of_its_team(world: Callable[..., World]) -> None:
    found = world()
    names = {"o": "orders", "p": "payments", "n": "no team", "all": None}
    of_teams(found, *(route(name, suppress_minutes=0, team=team) for name, team in names.items()))
    teams = {"A": ("orders",), "B": ("orders", "payments"), "C": ("no team",), "F": ("payments",)}
    finding = seen("F", verdict=None)
    finding = replace(finding, news=replace(finding.news, kind="finding"))
    found.send(seen("A"), seen("B"), seen("C"), findings=(finding,), teams=teams)
    assert sorted((body["route"], one["key"]) for body in found.got for one in body["alerts"]) == [
        *(("all", key) for key in "ABCF"),
        *[("n", "C"), ("o", "A"), ("o", "B"), ("p", "B"), ("p", "F")],
    ]
    found.got.clear()
    found.send(seen("A", is_open=False), seen("B", is_open=False), seen("C"), teams=teams | {"A": ("payments",)})
    ended = sorted((body["route"], one["key"]) for body in found.got for one in body["alerts"])
    assert ended == [("all", "A"), ("all", "B"), ("all", "F"), ("o", "A"), ("o", "B"), ("p", "B"), ("p", "F")]


def test_a_route_hears_of_an_incident_once_a_dlq_topic_makes_it_its_teams(world: Callable[..., World]) -> None:
    found = world()
    of_teams(found, route("p", team="payments"))
    found.send(seen(about={"dlq_topics": ["dlq.a"]}), teams={"A": ("orders",)})
    assert found.told == []
    found.send(seen(about={"dlq_topics": ["dlq.a", "dlq.b"]}), teams={"A": ("orders", "payments")})
    assert found.told == [("opened", "A")]


def test_a_team_gives_its_routes_quiet_hours(world: Callable[..., World]) -> None:
    found = world()
    noon = {"begin": "11:00", "end": "13:00"}
    place = {"warehouse": found.settings.warehouse, "landing": found.settings.landing}
    teams = [{"name": "orders", "topics": ["o*"], "quiet_hours": noon}]
    found.settings = load(**place, alerts={"route": [route("o", team="orders"), route("all")]}, team=teams)
    found.send(seen(), teams={"A": ("orders",)})
    assert [body["route"] for body in found.got] == ["all"]
    found.send(seen(), after=timedelta(hours=2), teams={"A": ("orders",)})
    assert [body["route"] for body in found.got] == ["all", "o"]


def test_alerts_about_one_thing_are_apart_unless_it_got_more_severe_or_ended(world: Callable[..., World]) -> None:
    found = world(route(suppress_minutes=60))
    found.send(seen())
    found.send(seen(magnitude=3))
    assert len(found.got) == 1
    found.send(seen("A", "critical", magnitude=3))
    assert len(found.got) == 2
    found.send(seen("A", "critical", magnitude=4))
    assert len(found.got) == 2
    found.send(seen("A", "critical", magnitude=4), after=61 * MINUTE)
    assert [kind for kind, _ in found.told] == ["opened", "worse", "worse"]
    found.send(seen(is_open=False))
    found.send(seen(), after=MINUTE)  # it came back within the hour, and goes again
    found.send(seen(is_open=False), after=MINUTE)
    found.send(after=100 * MINUTE)
    assert [kind for kind, _ in found.told] == ["opened", "worse", "worse", "resolved"]
    assert [one["status"] for one in Outbox.read(place(Warehouse(found.settings))).log].count("suppressed") == 1


@pytest.mark.parametrize(
    ("begin", "end", "zone", "at", "is_quiet"),
    [
        ("22:00", "07:00", "UTC", "2026-11-24T23:00:00+00:00", True),
        ("22:00", "07:00", "UTC", "2026-11-24T06:59:59+00:00", True),
        ("22:00", "07:00", "UTC", "2026-11-24T07:00:00+00:00", False),
        ("12:00", "13:00", "UTC", "2026-11-24T12:00:00+00:00", True),
        ("12:00", "13:00", "UTC", "2026-11-24T13:00:00+00:00", False),
        ("12:00", "12:00", "UTC", "2026-11-24T12:00:00+00:00", False),
        ("22:00", "07:00", "Europe/Berlin", "2026-03-28T21:30:00+00:00", True),  # before the clocks change
        ("22:00", "07:00", "Europe/Berlin", "2026-03-29T05:30:00+00:00", False),  # after it
        ("22:00", "07:00", "America/New_York", "2026-11-24T05:00:00+00:00", True),
    ],
)
def test_quiet_hours(begin: str, end: str, zone: str, at: str, is_quiet: bool) -> None:
    hours = QuietHours.model_validate({"begin": begin, "end": end, "timezone": zone})
    its = Route.model_validate(route(quiet_hours=hours))
    assert quiet(its, "high", datetime.fromisoformat(at)) == is_quiet
    assert not quiet(its, "critical", datetime.fromisoformat(at))


def test_after_quiet_hours_one_message_tells_all_that_is_still_true(world: Callable[..., World]) -> None:
    found = world(route(quiet_hours={"begin": "10:00", "end": "18:00"}))
    found.send(seen("A"), seen("B"), seen("C"), seen("D", "critical"))
    assert found.told == [("opened", "D")]
    found.send(seen("A"), seen("B", is_open=False), seen("C"), seen("D", "critical"), after=timedelta(hours=7))
    assert len(found.got) == 2
    assert found.got[1]["is_grouped"]
    assert found.told[1:] == [("opened", "A"), ("opened", "C")]


def test_what_is_muted_before_it_was_sent_waits_until_it_is_not(world: Callable[..., World]) -> None:
    found = world(route(quiet_hours={"begin": "10:00", "end": "18:00"}))
    found.send(seen("A"), seen("B"), seen("C"))
    found.send(seen("A", is_muted=True), seen("B", is_muted=True), seen("C"), after=timedelta(hours=8))
    assert found.told == [("opened", "C")]
    found.send(seen("A"), seen("B", is_muted=True), seen("C"))
    assert found.told == [("opened", "C"), ("opened", "A")]
    found.send(seen("A"), seen("B", is_open=False), seen("C"))
    assert found.told == [("opened", "C"), ("opened", "A")]
    assert found.box.pending == []


def test_what_was_not_told_yet_does_not_get_worse(world: Callable[..., World]) -> None:
    found = world(route(quiet_hours={"begin": "10:00", "end": "18:00"}))
    found.send(seen("A"))
    found.send(seen("A", magnitude=5))
    found.send(seen("A", magnitude=5), after=timedelta(hours=8))
    assert found.told == [("opened", "A")]


def test_pagerduty_learns_of_an_end_in_quiet_hours(world: Callable[..., World]) -> None:
    found = world(pager(quiet_hours={"begin": "13:00", "end": "18:00"}))
    found.send(seen("A"))
    found.send(seen("A", is_open=False), after=timedelta(hours=2))
    assert found.events == [("trigger", "f-A"), ("resolve", "f-A")]


def test_pagerduty_ends_what_has_one_fingerprint_with_the_last_of_it(world: Callable[..., World]) -> None:
    found = world(pager(suppress_minutes=0))
    found.send(seen("A"), seen("B", dedup_key="f-A"))
    found.send(seen("A", is_open=False), seen("B", dedup_key="f-A"))
    assert [action for action, _ in found.events] == ["trigger", "trigger"]
    found.send(seen("A", is_open=False), seen("B", is_open=False, dedup_key="f-A"))
    assert found.events[2:] == [("resolve", "f-A")]


def test_pagerduty_gets_the_end_of_one_before_the_begin_of_another_of_its_fingerprint(
    world: Callable[..., World],
) -> None:
    found = world(pager(suppress_minutes=0))
    found.send(seen("A"))
    found.answers = [AWAY]
    found.send(seen("A", is_open=False))
    for minutes in (0, 60, 60):
        found.send(seen("A", is_open=False), seen("B", dedup_key="f-A"), after=minutes * MINUTE)
    assert [action for action, _ in found.events] == ["trigger", "resolve", "trigger"]


def test_a_storm_is_one_message_with_the_worst_first(world: Callable[..., World]) -> None:
    found = world(route(storm_from=5), route("pager", kind="pagerduty", routing_key_env="HOME", storm_from=5))
    many = [seen(str(number), "critical" if number == 7 else "low") for number in range(40)]
    found.send(*many)
    ours, pagers = found.got
    assert (ours["is_grouped"], len(ours["alerts"]), ours["alerts"][0]["key"]) == (True, 40, "7")
    assert ours["title"] == "[critical] 40 alerts at once: 1 critical, 39 low"
    assert pagers["event_action"] == "trigger"
    found.send(*many[:-1], seen("39", is_open=False))
    found.send(*(seen(str(number), is_open=False) for number in range(39)))
    ends = [body for body in found.got if body.get("event_action") == "resolve"]
    assert [one["dedup_key"] for one in ends] == [pagers["dedup_key"]]


def test_a_storm_over_many_calls_is_few_messages_and_hides_nothing_worse(world: Callable[..., World]) -> None:
    found = world(route(storm_from=5))
    second = timedelta(seconds=1)
    storm = [seen(f"I{number:02}", "medium") for number in range(30)]
    for number in range(30):
        found.send(*storm[: number + 1], after=second)
    assert len(found.got) == 5
    found.send(*storm, seen("worse", "critical"), after=second)
    assert found.told[5:] == [("opened", "worse")]
    found.send(*storm[1:], seen("worse", "critical"), after=second)
    assert found.told[6:] == [("resolved", "I00")]
    found.send(*storm[1:], seen("worse", "critical"), after=10 * MINUTE)
    assert [body["alert_count"] for body in found.got] == [1] * 7 + [25]
    assert sorted(key for kind, key in found.told if kind == "opened") == [*(f"I{at:02}" for at in range(30)), "worse"]


def test_a_message_of_many_is_a_storm_and_what_follows_waits_for_one_message(world: Callable[..., World]) -> None:
    found = world(route(storm_from=5))
    storm = [seen(f"I{number:02}", "medium") for number in range(33)]
    for number in (30, 31, 32, 33, *[33] * 6):
        found.send(*storm[:number])
    assert [body["alert_count"] for body in found.got] == [30]
    assert {alert.answer for alert in found.box.pending} == {outbox.HELD}
    found.send(*storm)
    assert [body["alert_count"] for body in found.got] == [30, 3]


def test_a_storm_of_an_alert_a_minute_is_a_message_in_ten_minutes(world: Callable[..., World]) -> None:
    found = world(route(storm_from=5))
    for number in range(35):
        found.send(*(seen(f"I{each:02}", "medium") for each in range(number + 1)))
    assert [body["alert_count"] for body in found.got] == [*[1] * 5, 10, 10, 10]


def test_many_ends_are_no_storm(world: Callable[..., World]) -> None:
    found = world(route(storm_from=3))
    found.send(*(seen(str(number)) for number in range(5)))
    found.send(after=20 * MINUTE)
    found.send(seen("A"), seen("B"))
    assert [body["alert_count"] for body in found.got] == [5, 5, 1, 1]


def test_an_end_is_not_queued_behind_news_that_was_not_taken(world: Callable[..., World]) -> None:
    found = world(route(suppress_minutes=0))
    found.send(seen())
    found.answers = [AWAY]
    found.send(seen(magnitude=3))
    found.send(seen(is_open=False), after=timedelta(seconds=1))
    assert found.told == [("opened", "A"), ("resolved", "A")]
    assert found.box.pending == []


def test_a_storm_of_ends_is_over_and_not_critical(world: Callable[..., World]) -> None:
    found = world(route(storm_from=2))
    found.send(seen("A", "critical"), seen("B", "critical"))
    found.send(seen("C", "low"), after=10 * MINUTE)
    assert [body["title"] for body in found.got[1:]] == ["[low] 3 alerts at once: 1 low, 2 over"]
    found.send(seen("C", "low"), seen("D", "critical"), after=2 * timedelta(hours=1))
    found.send()
    assert found.got[-1]["title"] == "[over] 2 alerts at once: 2 over"


def test_what_pagerduty_knows_keeps_its_key_in_a_storm(world: Callable[..., World]) -> None:
    found = world(pager(suppress_minutes=0, storm_from=2))
    found.send(seen("A"))
    found.send(seen("A", "critical"), seen("B"), seen("C"))
    found.send(seen("A", "critical"), seen("B", "critical"), seen("C", is_open=False))
    assert len(opened(found.events)) == 2
    for _ in range(3):
        found.send()
    assert opened(found.events) == set()


def test_a_storm_that_is_taken_after_its_incidents_ended_ends(world: Callable[..., World]) -> None:
    found = world(pager(storm_from=2))
    found.answers = [AWAY]
    found.send(seen("A"), seen("B"))
    for minutes in (0, 60, 60, 60):
        found.send(after=minutes * MINUTE)
    assert [action for action, _ in found.events] == ["trigger", "resolve"]
    assert opened(found.events) == set()


def test_an_alert_that_is_held_back_keeps_no_other_of_its_fingerprint_back(world: Callable[..., World]) -> None:
    found = world(pager(quiet_hours={"begin": "12:05", "end": "18:00"}))
    found.send(seen("A"))
    found.send(seen("A"), seen("B", dedup_key="f-A"), after=10 * MINUTE)
    found.send(seen("B", dedup_key="f-A"))
    assert found.events == [("trigger", "f-A"), ("resolve", "f-A")]


def test_a_muted_incident_keeps_no_other_of_its_fingerprint_back(world: Callable[..., World]) -> None:
    found = world(route(quiet_hours={"begin": "10:00", "end": "13:00"}))
    found.send(seen("B", dedup_key="f-A"))
    found.send(seen("B", dedup_key="f-A", is_muted=True), seen("A"), after=timedelta(hours=2))
    assert found.told == [("opened", "A")]


def test_after_quiet_hours_one_message_tells_all_if_nothing_was_sent_in_them(world: Callable[..., World]) -> None:
    found = world(route(quiet_hours={"begin": "10:00", "end": "18:00"}))
    found.send(seen("A"), seen("B"))
    found.send(seen("A"), seen("B"), after=timedelta(hours=8))
    assert len(found.got) == 1


def test_what_ended_and_came_back_in_quiet_hours_is_not_told_as_resolved(world: Callable[..., World]) -> None:
    found = world(route(quiet_hours={"begin": "12:05", "end": "18:00"}))
    found.send(seen())
    found.send(seen(is_open=False), after=10 * MINUTE)
    found.send(seen(), after=timedelta(hours=1))
    found.send(seen(), after=timedelta(hours=8))
    assert found.told == [("opened", "A")] * 2


def test_two_incidents_that_become_one_in_quiet_hours_are_told_once(world: Callable[..., World]) -> None:
    found = world(route(quiet_hours={"begin": "10:00", "end": "18:00"}))
    found.send(seen("A"), seen("B"))
    for hours in (1, 8, 1):
        found.send(seen("B"), after=timedelta(hours=hours), merged={"A": "B"})
    assert [[one["title"] for one in body["alerts"]] for body in found.got] == [["title of B"]]


def test_a_clock_that_is_set_back_suppresses_for_no_longer(world: Callable[..., World]) -> None:
    found = world()
    found.send(seen(), after=timedelta(days=300))
    found.send(seen(magnitude=3), after=timedelta(days=-300))
    found.send(seen(magnitude=3), after=61 * MINUTE)
    assert found.told == [("opened", "A"), ("worse", "A")]


@pytest.mark.parametrize("answers", [[AWAY], []], ids=["was tried", "was too early"])
def test_what_waits_when_the_clock_is_set_back_waits_for_no_longer(
    world: Callable[..., World], answers: list[Outcome]
) -> None:
    found = world()
    found.send(seen("B"), after=timedelta(days=300))
    found.answers = [*answers]
    found.send(seen("B", magnitude=3), seen())
    found.send(seen("B", magnitude=3), seen(), after=timedelta(days=-300))
    assert sorted(found.told) == [("opened", "A"), ("opened", "B"), ("worse", "B")]
    assert found.box.pending == []


def test_an_incident_whose_end_waits_and_that_takes_in_another_goes_on(world: Callable[..., World]) -> None:
    found = world(route(quiet_hours={"begin": "12:05", "end": "18:00"}))
    found.send(seen("A"), seen("B"))
    found.send(seen("A"), after=10 * MINUTE)
    found.send(seen("B"), merged={"A": "B"})
    found.send(seen("B"), after=timedelta(hours=8), merged={"A": "B"})
    assert found.told == [("opened", "A"), ("opened", "B")]
    found.send(merged={"A": "B"})  # its records are gone
    assert found.told[2:] == [("resolved", "B")]


def test_an_incident_that_took_in_another_ends_both_at_pagerduty(world: Callable[..., World]) -> None:
    found = world(pager(suppress_minutes=0, storm_from=2))
    found.send(seen("A"), seen("C"))
    found.send(seen("A"), seen("B", dedup_key="f-A"), after=10 * MINUTE)
    for _ in range(2):
        found.send(seen("B", dedup_key="f-A"), merged={"A": "B"})
    assert opened(found.events) == {"f-A"}
    found.send(merged={"A": "B"})
    assert opened(found.events) == set()


# ------------------------------------------------------------------------------------------------- sure, and only once


def test_a_receiver_that_is_away_gets_it_later_and_in_order(world: Callable[..., World]) -> None:
    found = world(route(suppress_minutes=0))
    found.answers = [AWAY] * 3
    assert found.send(seen()).problems == ("Route all did not take an alert: no connection.",)
    assert found.send(seen(), after=timedelta(seconds=1)).problems == ()  # it is too early to try again
    found.send(seen(is_open=False))
    found.send(seen(is_open=False))
    assert found.got == []
    found.send(seen(is_open=False), after=60 * MINUTE)
    found.send(seen(is_open=False), after=60 * MINUTE)
    assert found.told == [("opened", "A"), ("resolved", "A")]


def test_an_alert_is_given_up_after_refusals_or_a_day(world: Callable[..., World]) -> None:
    refused = Outcome(False, "HTTP 404", is_refused=True)
    found = world()
    found.answers = [refused] * 5
    for _ in range(8):
        found.send(seen(), after=60 * MINUTE)
    assert (found.answers, found.got) == ([], [])
    found.answers = [AWAY] * 100
    for _ in range(30):
        found.send(seen(), seen("B"), after=60 * MINUTE)
    assert [one["answer"] for one in Outbox.read(place(Warehouse(found.settings))).log] == ["HTTP 404", "no connection"]


def test_a_receiver_says_when(world: Callable[..., World]) -> None:
    found = world()
    found.answers = [Outcome(False, "HTTP 429", retry_after=600.0)]
    found.send(seen())
    found.send(seen(), after=9 * MINUTE)
    assert found.got == []
    found.send(seen(), after=2 * MINUTE)
    assert found.told == [("opened", "A")]


def test_tables_that_cannot_be_read_keep_nothing_back(world: Callable[..., World]) -> None:
    found = world()
    found.answers = [AWAY]
    found.send(seen())

    def broken(*_: Any) -> Snapshot:
        raise EnvironmentLacking("The table is damaged.")

    found.now += 60 * MINUTE
    done = sender.send(found.settings, lambda: found.now, found.post, broken)
    assert done.problems == ("News cannot be looked for: The table is damaged.",)
    assert found.told == [("opened", "A")]


def test_one_process_sends(world: Callable[..., World]) -> None:
    found = world()
    with sole_sender(place(Warehouse(found.settings))) as is_alone:
        assert is_alone
        assert not found.send(seen()).is_alone
    assert found.got == []
    found.send(seen())
    assert found.told == [("opened", "A")]


def file_of(found: World) -> Path:
    return Path(place(Warehouse(found.settings)).root) / "outbox.json"


def test_a_damaged_outbox_is_said_in_a_sentence(world: Callable[..., World]) -> None:
    found = world()
    found.send()
    for text in ("", "{", "[]", '{"known": {}}'):
        file_of(found).write_text(text)
        with pytest.raises(EnvironmentLacking, match="move it away"):
            found.send(seen())


def test_who_sends_looks_again_if_another_process_came_meanwhile(world: Callable[..., World]) -> None:
    found = world()
    others: list[bool] = []

    def another_process() -> None:
        found.here = Snapshot([seen("A"), seen("B")], [])
        others.append(sender.send(found.settings, lambda: found.now, found.post).is_alone)

    found.meanwhile = [another_process]
    assert found.send(seen("A")).sent == 2
    assert others == [False]
    assert found.told == [("opened", "A"), ("opened", "B")]


def test_receivers_that_hang_keep_no_time_from_others(world: Callable[..., World]) -> None:
    found = world(route("a"), route("b"), route("c"))
    clock, asked, seconds = [0.0], [], []

    def post(url: str, body: Mapping[str, Any], alert_id: str, timeout_seconds: float) -> Outcome:
        asked.append(body["route"])
        seconds.append(timeout_seconds)
        if body["route"] == "c":
            return TAKEN
        clock[0] += timeout_seconds
        return AWAY

    found.settings = found.settings.model_copy(
        update={"alerts": found.settings.alerts.model_copy(update={"timeout_seconds": 15.0})}
    )
    for _ in range(2):
        found.now += timedelta(hours=1)
        sender.send(found.settings, lambda: found.now, post, lambda *_: Snapshot([seen()], []), lambda: clock[0])
    assert asked == ["a", "b", "c", "a", "b"]
    assert seconds[:2] == [15.0, 5.0]  # no call takes longer than its budget


def test_routes_that_other_settings_lack_keep_their_alerts_for_a_while(world: Callable[..., World]) -> None:
    found = world(route("a"), route("b", url="http://127.0.0.1:9/another"))
    found.answers = [AWAY, AWAY]
    found.send(seen())
    both = found.settings
    found.settings = both.model_copy(update={"alerts": both.alerts.model_copy(update={"route": both.alerts.route[:1]})})
    found.send(seen(), after=MINUTE)
    assert [alert.route for alert in found.box.pending] == ["b"]
    assert [alert.attempts for alert in found.box.pending] == [1]
    found.send(seen(), after=timedelta(hours=25))
    assert found.box.pending == []
    assert found.box.log[-1]["status"] == "failed"


def test_a_route_that_other_settings_lack_gets_ends_later(world: Callable[..., World]) -> None:
    found = world(route("a"), route("b"), pager(severity="critical"))
    found.send(seen(severity="critical"), seen("B", "low"))
    whole = found.settings
    found.settings = whole.model_copy(
        update={"alerts": whole.alerts.model_copy(update={"route": whole.alerts.route[:1]})}
    )
    found.send()
    found.settings = whole
    found.send()
    ends = [(body.get("route"), body.get("title")) for body in found.got if "over" in body.get("title", "")]
    assert ends == [(name, f"[over] title of {key} is resolved") for name in "ab" for key in "AB"]
    assert [(one["event_action"], one["dedup_key"]) for one in found.got if "event_action" in one] == [
        ("trigger", "f-A"),
        ("resolve", "f-A"),
    ]


def other_routes(found: World, *routes: dict[str, Any]) -> None:
    """Change the settings of a world."""
    given = found.settings.alerts.model_copy(update={"route": tuple(Route.model_validate(one) for one in routes)})
    found.settings = found.settings.model_copy(update={"alerts": given})


def test_a_route_that_is_renamed_goes_on_under_its_new_name(world: Callable[..., World]) -> None:
    found = world(pager(), route(suppress_minutes=0))
    found.send(seen("A"), seen("B"))
    found.answers = [AWAY, AWAY]
    found.send(seen("A"), seen("B"), seen("C"))
    other_routes(found, pager(name="on-call", severity="critical"), route("hook", suppress_minutes=0))
    assert found.send(seen("A"), seen("C"), after=timedelta(hours=1)).left_open == ()
    found.send(seen("A", is_open=False), seen("C", is_open=False), after=timedelta(days=30))
    found.send(after=timedelta(days=30))
    events = [(body["event_action"], body["dedup_key"]) for body in found.got if "event_action" in body]
    assert opened(events) == set()
    assert len(events) == 6
    hook = [(body["route"], one["kind"], one["key"]) for body in found.got for one in body.get("alerts", ())]
    assert hook[2:] == [
        ("hook", "opened", "C"),
        ("hook", "resolved", "B"),
        ("hook", "resolved", "A"),
        ("hook", "resolved", "C"),
    ]
    assert found.box.triggered["on-call"] == []
    assert set(found.box.receivers) == {"on-call", "hook"}


def test_a_storm_of_a_route_that_is_renamed_ends(world: Callable[..., World]) -> None:
    found = world(pager(storm_from=2))
    found.send(seen("A"), seen("B"))
    assert len(found.events) == 1
    other_routes(found, pager(name="on-call", storm_from=2))
    found.send(seen("A"))
    assert len(opened(found.events)) == 1
    found.send()
    assert opened(found.events) == set()


def test_another_route_with_the_receiver_of_one_that_is_gone_takes_over(world: Callable[..., World]) -> None:
    found = world(pager(severity="critical"), pager(name="b"))
    found.send(seen("A", "low"), seen("B", "critical"))
    other_routes(found, pager(severity="critical"))
    (left,) = found.send(seen("A", "low"), seen("B", "critical")).left_open
    assert (
        "Route b is no longer in the settings, and 2 alerts of it are open at PagerDuty: title of B; title of A."
        in left
    )
    assert "In the first run after 2026-11-25 12:02:00 UTC route pager takes them over, unless" in left
    assert found.send(seen("B", "critical"), after=timedelta(hours=25)).left_open == ()
    found.send()
    assert opened(found.events) == set()
    assert not found.box.sent.get("b")


def test_an_end_that_waits_for_a_route_that_is_gone_ends_nothing_that_came_back(world: Callable[..., World]) -> None:
    found = world(pager(suppress_minutes=0), pager(name="b"))
    found.send(seen("C"))
    other_routes(found, pager(suppress_minutes=0))
    found.send()
    for after in (MINUTE, timedelta(hours=25), MINUTE):
        found.send(seen("C"), after=after)
    assert opened(found.events) == {"f-C"}


def test_alerts_of_a_route_that_is_gone_end_if_its_key_is_still_known(
    world: Callable[..., World], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OUR_KEY", "0123-canary")
    found = world(pager(routing_key_env="OUR_KEY") | {"url": None, "url_env": None}, route("b"))
    found.send(seen("A"), seen("B"))
    both = found.settings
    other_routes(found)
    for _ in range(2):
        (left,) = found.send(seen("A")).left_open
        assert "Route pager is no longer in the settings, and 2 alerts of it are open at PagerDuty: title of A" in left
        assert "In the first run after 2026-11-25 12:02:00 UTC PagerDuty gets their end, unless the" in left
    assert len(opened(found.events_of_pagerduty)) == 2
    found.settings = both
    found.send(seen("A"), seen("B"), after=timedelta(days=3))  # the settings were others for once
    assert len(opened(found.events_of_pagerduty)) == 2
    other_routes(found, route("b"))
    found.send(seen("A"), seen("B"))
    (keyed,) = {body["routing_key"] for body in found.got if "routing_key" in body}
    assert keyed == "0123-canary"
    done = found.send(seen("A"), seen("B"), after=timedelta(hours=25))
    assert (done.sent, done.left_open, done.problems) == (2, (), ())
    assert opened(found.events_of_pagerduty) == set()
    kept = file_of(found).read_text()
    assert "canary" not in kept
    assert found.send(seen("A"), seen("B")).sent == 0
    other_routes(found)
    assert found.send(seen("A"), seen("B"), seen("C")).sent == 0
    found.settings = both
    found.send(seen("A"), seen("B"), seen("C"))  # what came while there was no route is told
    assert {one["key"] for body in found.got[-1:] for one in body.get("alerts", ())} == {"C"}


def test_alerts_that_stay_open_are_told(
    world: Callable[..., World], monkeypatch: pytest.MonkeyPatch, receiver: Receiver
) -> None:
    monkeypatch.setenv("OUR_KEY", "0123-canary")
    found = world(pager(routing_key_env="OUR_KEY"), route("b"))
    found.send(*(seen(str(number), dedup_key=f"key {number}") for number in range(7)))
    monkeypatch.delenv("OUR_KEY")
    other_routes(found, route("b"))
    here = [seen(str(number), dedup_key=f"key {number}") for number in range(7)]
    for after in (MINUTE, timedelta(hours=30)):
        (left,) = found.send(*here, after=after).left_open
        assert "Resolve them there: the settings have no route with its receiver" in left
    routes = [{"name": "b", "url": receiver.address}]
    told = called(found.settings, routes=routes).output
    assert "open        pager  high  title of 0, title of 1, title of 2, title of 3" in told
    lines = [json.loads(one) for one in called(found.settings, "--format", "json", routes=routes).output.splitlines()]
    (opened_there,) = [one for one in lines if one["status"] == "open"]
    assert (opened_there["route"], opened_there["title"]) == ("pager", ", ".join(f"title of {at}" for at in range(7)))
    (check,) = listing.checks(found.settings)
    assert (check.name, check.state) == ("alerts", "warning")
    assert f"{check.finding} {check.remedy}" == left
    assert found.send(*here, after=timedelta(days=31)).left_open == ()
    assert list(listing.checks(found.settings)) == []


def test_a_route_that_never_was_pagerduty_leaves_nothing_open_there(world: Callable[..., World]) -> None:
    found = world(route("slackish"), route("b"))
    found.send(seen("A"), seen("B", dedup_key="key " * 99))
    other_routes(found, route("b"))
    for _ in range(2):
        assert found.send(seen("A"), seen("B", dedup_key="key " * 99)).left_open == ()
    file = file_of(found)
    before = json.loads(file.read_text())
    file.write_text(json.dumps(before | {"triggered": {"slackish": ["f-A"]}}))  # as earlier versions noted it
    assert found.send(seen("A")).left_open == ()


def test_an_outbox_of_before_tells_what_a_route_that_is_gone_left_open(world: Callable[..., World]) -> None:
    found = world(pager())
    found.send(seen("A"))
    file = file_of(found)
    old = json.loads(file.read_text())
    del old["receivers"]
    file.write_text(json.dumps(old))
    other_routes(found, pager(name="on-call"))
    (left,) = found.send(seen("A")).left_open
    assert "title of A" in left
    assert "Resolve them there" in left
    other_routes(found, pager())
    assert found.send().left_open == ()
    assert opened(found.events) == set()


def test_a_place_that_cannot_be_written_is_said_in_a_sentence(world: Callable[..., World]) -> None:
    found = world()
    (Path(found.settings.warehouse) / "_alerts").write_text("no directory")
    with pytest.raises(EnvironmentLacking, match="_alerts/default cannot be written"):
        found.send(seen())


STATES = st.tuples(
    st.sampled_from(["critical", "high", "low"]),
    st.integers(2, 4),
    st.booleans(),
    st.sampled_from([False, False, True]),
)
STEPS = st.lists(
    st.tuples(
        st.dictionaries(st.sampled_from("ABC"), STATES),
        st.lists(st.sampled_from(["taken", "taken", "away", "before", "after"]), max_size=3),
        st.sampled_from([0, 1, 30, 90]),
    ),
    max_size=12,
)


def test_what_waits_is_told_with_the_worst_that_it_was(world: Callable[..., World]) -> None:
    found = world()
    found.answers = [KeyboardInterrupt("before"), AWAY]
    with pytest.raises(KeyboardInterrupt):
        found.send(seen("A", "critical"), after=timedelta())
    found.send(seen("A", "critical", is_open=False), seen("B", "critical"), after=timedelta())
    found.send(seen("B", "high", magnitude=4), after=timedelta())
    for _ in range(3):
        found.send(seen("B", "critical", magnitude=4), after=61 * MINUTE)
    assert "critical" in [one["severity"] for body in found.got for one in body["alerts"] if one["key"] == "B"]


@given(STEPS, st.sampled_from([0, 60]), st.sampled_from([2, 100]))
@at_most(150)
def test_nothing_is_lost_and_only_a_crash_repeats(steps: Any, suppress: float, storm_from: int) -> None:
    """Whatever happens, in the end the receiver knows what is open and what is over."""
    with tempfile.TemporaryDirectory() as directory:
        found = World(Path(directory), route(suppress_minutes=suppress, storm_from=storm_from))
        crashes = 0
        last: list[Seen] = []
        opened: set[str] = set()
        for states, answers, minutes in steps:
            here = {key: seen(key, *state[:1], state[2], state[1], is_muted=state[3]) for key, state in states.items()}
            last = list(here.values())
            for key in "ABC":
                one = here.get(key)
                if one is None or not one.is_open:
                    opened.discard(key)
                elif not one.is_muted:
                    opened.add(key)
            as_they_come = {"taken": TAKEN, "away": AWAY, "before": KeyboardInterrupt("before")}
            found.answers = [as_they_come.get(one) or KeyboardInterrupt("after") for one in answers]
            crashes += answers.count("after")
            try:
                found.send(*last, after=minutes * MINUTE)
            except KeyboardInterrupt:
                continue
        found.answers = []
        for _ in range(12):
            found.send(*last, after=61 * MINUTE)
        box = Outbox.read(place(Warehouse(found.settings)))
        waiting = {alert.news[0].key for alert in box.pending}
        assert [alert for alert in box.pending if not box.is_muted(alert)] == []
        repeats = Counter(body["id"] for body in found.got)
        assert sum(repeats.values()) - len(repeats) <= crashes
        once = {body["id"]: body for body in found.got}.values()
        for key in "ABC":
            about = [one for body in once for one in body["alerts"] if one["key"] == key]
            ends = [one["kind"] == "resolved" for one in about]
            assert not any(one and other for one, other in pairwise(ends))
            assert not ends[:1] or not ends[0]
            if key in waiting:
                assert key in opened, key  # it was muted before the receiver took it
            elif key in opened:
                assert about, key
                assert not ends[-1]
                now_seen = [one for one in last if one.news.key == key and not one.is_muted]
                begin = max((at for at, is_end in enumerate(ends) if is_end), default=-1) + 1
                told = min(LEVELS.index(one["severity"]) for one in about[begin:])
                assert all(told <= one.news.rank for one in now_seen)  # nothing is worse than what was told
            elif about:
                assert ends[-1]


PAGED = st.lists(
    st.tuples(
        st.dictionaries(st.sampled_from("ABC"), STATES),
        st.lists(st.sampled_from(["taken", "taken", "away", "before", "after"]), max_size=3),
        st.sampled_from([0, 1, 30, 90]),
        st.sampled_from([False, False, False, True]),
        st.sampled_from(["", "", "", "renamed", "none"]),
    ),
    max_size=12,
)


@given(PAGED, st.sampled_from([0, 60]), st.sampled_from([2, 100]), st.booleans())
@at_most(100)
def test_pagerduty_has_open_what_is_open_and_nothing_else(
    steps: Any, suppress: float, storm_from: int, is_quiet: bool
) -> None:
    """A and B have one fingerprint, and B can take in A; whatever happens, each trigger gets its resolve in the end.

    Also if the route is renamed, or is gone for a while.
    """
    hours = {"quiet_hours": {"begin": "12:30", "end": "15:00"}} if is_quiet else {}
    with tempfile.TemporaryDirectory() as directory:
        found = World(Path(directory), pager(suppress_minutes=suppress, storm_from=storm_from, **hours))
        merged: dict[str, str] = {}
        last: list[Seen] = []
        its = {"suppress_minutes": suppress, "storm_from": storm_from, **hours}
        name = "pager"
        for states, answers, minutes, takes_in, change in steps:
            if takes_in and "B" in states:
                merged = {"A": "B"}
            name = {"pager": "on-call", "on-call": "pager"}[name] if change == "renamed" else name
            other_routes(found, *([] if change == "none" else [pager(name=name, **its)]))
            last = [
                seen(key, state[0], state[2], state[1], is_muted=state[3], dedup_key="f-C" if key == "C" else "f-A")
                for key, state in states.items()
                if key not in merged
            ]
            as_they_come = {"taken": TAKEN, "away": AWAY, "before": KeyboardInterrupt("before")}
            found.answers = [as_they_come.get(one) or KeyboardInterrupt("after") for one in answers]
            with contextlib.suppress(KeyboardInterrupt):
                found.send(*last, after=minutes * MINUTE, merged=merged)
        found.answers = []
        other_routes(found, pager(name=name, **its))
        for _ in range(36):
            found.send(*last, after=61 * MINUTE, merged=merged)
        told = {key: one for key, one in found.box.sent.get(name, {}).items() if not one.is_over}
        assert opened(found.events) == {one.dedup_key for one in told.values()}
        assert {one.news.key for one in last if one.is_open and not one.is_muted} <= told.keys()
        assert told.keys() <= {one.news.key for one in last if one.is_open}
        for _ in range(12):
            found.send(after=61 * MINUTE, merged=merged)
        assert opened(found.events) == set()
        assert found.box.pending == []


def opened(events: Iterable[tuple[str, str]]) -> set[str]:
    """The keys that PagerDuty has open after events."""
    keys: set[str] = set()
    for action, key in events:
        (keys.add if action == "trigger" else keys.discard)(key)
    return keys


# --------------------------------------------------------------------------------------------------------- the receiver


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with receiving() as server:
        yield server


@pytest.mark.parametrize(
    ("behaviour", "outcome"),
    [
        ("204", Outcome(True, "HTTP 204")),
        ("500", Outcome(False, "HTTP 500")),
        ("503 Retry-After: 7", Outcome(False, "HTTP 503", retry_after=7.0)),
        ("429 Retry-After: Tue, 01 Jan 2019 00:00:00 GMT", Outcome(False, "HTTP 429", retry_after=0.0)),
        ("429 Retry-After: soon", Outcome(False, "HTTP 429")),
        ("404", Outcome(False, "HTTP 404", is_refused=True)),
        ("302 Location: http://127.0.0.1:1/", Outcome(False, "HTTP 302", is_refused=True)),
        ("hang", Outcome(False, "no answer within 0.7 s")),
        ("drip", Outcome(False, "no answer within 0.7 s")),
        ("close", Outcome(False, "no connection")),
    ],
)
def test_what_receivers_do(receiver: Receiver, behaviour: str, outcome: Outcome) -> None:
    receiver.behaviours = [behaviour]
    began = time.monotonic()
    assert delivery.post(receiver.address, {"a": 1}, "id-1", 0.7) == outcome
    assert time.monotonic() - began < 3
    assert receiver.got[0][0]["Idempotency-Key"] == "id-1"


@pytest.mark.filterwarnings("error")  # a thread that fails would print its traceback
def test_no_word_names_the_address(receiver: Receiver, capfd: pytest.CaptureFixture[str]) -> None:
    port = receiver.server_address[1]
    none = ("http://127.0.0.1:1/secret-path", "http://no.such.host.invalid/secret-path")
    wrong = ("http://[/secret-path", f"http://{'a' * 80}.secret/", "http://a..secret/", "http://.secret", "secret-path")
    for address in none:
        assert delivery.post(address, {}, "id", 5) == Outcome(False, "no connection")
    for address in (*wrong, "http://127.0.0.1:99999/secret-path"):
        assert delivery.post(address, {}, "id", 5) == Outcome(False, "its address cannot be used")
    assert "secret" not in "".join(capfd.readouterr())
    assert "secret" not in delivery.post(f"https://127.0.0.1:{port}/secret-path", {}, "id", 5).words


def test_a_killed_sender_repeats_with_the_same_id_and_a_whole_one_does_not(receiver: Receiver, tmp_path: Path) -> None:
    settings = sites.filled(load(warehouse=str(tmp_path / "warehouse"), landing=str(tmp_path / "landing")))
    command = [sys.executable, "-c", "from pipelines.cli import main; main()", "alerts", "send"]
    command += ["--warehouse", settings.warehouse, "--landing", settings.landing]
    routes = json.dumps({"route": [{"name": "all", "url": receiver.address, "storm_from": 2}]})
    environment = os.environ | {"PYTHONPATH": str(ROOT), "AFTERLOG_ALERTS": routes}

    def run() -> tuple[int, str]:
        process = subprocess.Popen(
            command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
        receiver.victim = process
        said, _ = process.communicate(timeout=120)
        return process.returncode, said

    receiver.behaviours = ["kill", "200"]
    assert run()[0] == -signal.SIGKILL
    first, second, third = run(), run(), run()
    assert (first[0], second[0], third[0]) == (0, 0, 0), (first, second)
    ids = [body["id"] for _, body in receiver.got]
    assert (len(ids), len(set(ids))) == (2, 1)
    assert "secret-path" not in first[1]
    text = json.dumps([body for _, body in receiver.got])
    assert CANARY not in text
    assert "Offset <*> rejected" not in text


# ------------------------------------------------------------------------------------------------------------ the forms


def body_of(alert: Alert, its: Route, cluster: str, front: str | None, now: datetime, key: str = "") -> Any:
    """What is sent about an alert."""
    return channel_of(its).body(alert, Frame(its, cluster, front, now, key))


def strings(value: Any) -> Iterator[str]:
    """All texts within a value of JSON."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        yield from strings([*value.values()])
    elif isinstance(value, list | tuple):
        for one in value:
            yield from strings(one)


def test_news_of_real_tables_and_hostile_names(settings: Settings) -> None:
    sites.filled(settings)
    found = snapshot(Warehouse(settings), sites.NOW)
    assert found.incidents is not None
    told, known = changes({}, found, "critical", sites.NOW)
    json.dumps(known)
    assert {one.key for one in told if one.kind == "opened"} >= {incident_id(0), incident_id(2)}
    assert any(one.kind == "finding" for one in told)
    assert changes(known, found, "critical", sites.NOW)[0] == []
    for one in told:
        alert = Alert("id", "r", [one], NOW, NOW)
        for kind in ("json", "slack", "pagerduty"):
            its = Route.model_validate(route(kind=kind, routing_key_env="HOME", owner="team"))
            body = body_of(alert, its, "default", "https://a.example/index.html", NOW, "key")
            text = json.dumps(body)
            assert CANARY not in text
            shown = [one.title, one.text, one.about] if kind == "json" else body  # names are exact in JSON
            assert all(text.isprintable() for text in strings(shown))
            if kind == "slack":
                marked = [one["text"]["text"] for one in body["blocks"] if one["type"] == "section"]
                assert not [each for each in (*marked, body["text"]) if "<script" in each or "<img" in each]
                assert len(body["blocks"]) <= 50
                assert all(len(each["text"]["text"]) <= 3000 for each in body["blocks"] if "text" in each)
                assert len(body["blocks"][0]["text"]["text"]) <= 150
            if kind == "pagerduty" and not one.is_over:
                assert len(body["payload"]["summary"]) <= 1024
                assert body["dedup_key"] == one.dedup_key
    assert all(any(name[:5] in one.title or "\\" in one.title for one in told) for name in HOSTILE[:2])


def test_pagerduty_gets_the_fingerprint_and_the_page(settings: Settings) -> None:
    Path(settings.warehouse).mkdir(exist_ok=True)
    store(settings, "gold.dlq_incidents", incident(3, severity="high"))
    with_url = load(warehouse=settings.warehouse, landing=settings.landing, report={"url": "https://a.example/r"})
    (one,) = (each.news for each in snapshot(Warehouse(with_url), sites.NOW).incidents or ())
    its = Route.model_validate({"name": "p", "kind": "pagerduty", "routing_key_env": "KEY"})
    body = body_of(Alert("i", "p", [one], NOW, NOW), its, "default", None, NOW, "key")
    assert (body["routing_key"], body["event_action"], body["dedup_key"]) == ("key", "trigger", f"{3:016x}")
    assert (body["payload"]["severity"], body["payload"]["group"]) == ("error", "orders-workers")
    assert body["client_url"] == f"https://a.example/r/incidents/{incident_id(3)}.html"
    assert channel_of(its).address(its, {}) == (None, "the environment variable KEY is not set")
    assert channel_of(its).address(its, {"KEY": "\n"}) == (None, "the environment variable KEY is not set")
    assert channel_of(its).address(its, {"KEY": "k-1\n"})[1] == "k-1"


def test_a_great_storm_is_no_great_message() -> None:
    many = [news(str(number)) for number in range(3_000)]
    for kind in ("json", "slack", "pagerduty"):
        its = Route.model_validate(route(kind=kind, routing_key_env="HOME"))
        body = body_of(Alert("i", "r", many, NOW, NOW), its, "default", None, NOW, "key")
        assert len(json.dumps(body)) < 300_000
        assert "3000 alerts at once" in json.dumps(body)
    ours = body_of(Alert("i", "r", many, NOW, NOW), Route.model_validate(route()), "default", None, NOW)
    assert (ours["alert_count"], len(ours["alerts"])) == (3_000, 500)


# ----------------------------------------------------------------------------------------------------- the command line


def called(settings: Settings, *arguments: str, routes: list[dict[str, Any]] | None = None) -> Any:
    environment = {"AFTERLOG_ALERTS": json.dumps({"route": routes or []})}
    places = ["--warehouse", settings.warehouse, "--landing", settings.landing]
    return CliRunner().invoke(app, ["alerts", *arguments, *places], env=environment)


def test_the_commands(settings: Settings, receiver: Receiver) -> None:
    sites.filled(settings)
    routes = [{"name": "hook", "url": receiver.address, "storm_from": 2}]
    assert "No route is set" in called(settings).output
    assert str(called(settings, "send").exception).startswith("No route is set")
    assert called(settings, routes=routes).output == "Nothing was sent yet, and nothing waits.\n"
    assert called(settings, "test", "hook", routes=routes).output == "Route hook took the test: HTTP 200.\n"
    assert "There is no route 'hok'; routes: hook." in str(called(settings, "test", "hok", routes=routes).exception)
    receiver.behaviours = ["500"]
    assert (
        str(called(settings, "test", "hook", routes=routes).exception) == "Route hook did not take the test: HTTP 500."
    )
    answer = called(settings, "send", routes=routes)
    assert (answer.exit_code, "0 alerts sent, 1 waiting." in answer.output) == (1, True)
    assert "pending" in called(settings, routes=routes).output
    assert "HTTP 500" in called(settings, routes=routes).output
    (line,) = called(settings, "--format", "json", routes=routes).output.splitlines()
    assert (json.loads(line)["status"], json.loads(line)["attempts"]) == ("pending", 1)
    assert "secret-path" not in called(settings, routes=routes).output


def test_a_thread_sends_while_another_follows(settings: Settings, receiver: Receiver) -> None:
    sites.filled(settings)
    told = {"route": [{"name": "hook", "url": receiver.address, "storm_from": 2}]}
    said: list[str] = []
    receiver.behaviours = ["500", "200"]
    asked = load(warehouse=settings.warehouse, landing=settings.landing, alerts=told)
    courier = Beside(lambda: sender.send(asked).problems, said.append)
    idle = Cycle("", "", "idle", {}, None)
    courier(idle, [])
    end = time.monotonic() + 60
    while not said and time.monotonic() < end:
        time.sleep(0.05)
    assert said == ["Route hook did not take an alert: HTTP 500. It is tried again."]
    assert receiver.got[0][1]["route"] == "hook"
    courier(idle, [])  # too early to look again
    assert not courier.called.is_set()
    courier.close()
    assert not courier.thread.is_alive()
    courier(Cycle("", "", "read", {}, None), [])
    time.sleep(0.2)
    assert len(receiver.got) == 1


@pytest.mark.parametrize(
    ("alerts", "sentence"),
    [
        ({"route": [{"name": "a"}]}, "alerts.route.0 cannot be used: give url or url_env."),
        ({"route": [{"name": "a", "kind": "pagerduty"}]}, "a route to PagerDuty needs routing_key_env."),
        ({"route": [route("a"), route("a")]}, "two routes have the name a."),
        ({"route": [route("a", url_env="B")]}, "give one of url, url_env."),
        ({"route": [{"name": "a", "url": "ftp://secret-path"}]}, "write an address that begins with https://"),
        ({"route": [route("a b")]}, "alerts.route.0.name cannot be used"),
        ({"route": [route(quiet_hours={"begin": "1:00", "end": "x"})]}, "alerts.route.0.quiet_hours"),
        (
            {"route": [route(quiet_hours={"begin": "22:00Z", "end": "07:00"})]},
            "write a time such as 22:00, and its timezone as timezone.",
        ),
        (
            {"route": [route(quiet_hours={"begin": "10:00", "end": "11:00", "timezone": "Mars/Base"})]},
            "name a timezone such as Europe/Berlin.",
        ),
        ({"route": [route(severity="urgent")]}, "alerts.route.0.severity cannot be used"),
    ],
)
def test_settings_that_cannot_be_used(alerts: dict[str, Any], sentence: str) -> None:
    with pytest.raises(Exception, match=r"cannot be used") as caught:
        load(alerts=alerts)
    assert sentence in str(caught.value)
    assert "secret" not in str(caught.value)


def test_addresses_are_secret() -> None:
    assert "secret" not in repr(load(alerts={"route": [route()]}))


def test_what_came_back_looks_different_from_what_opened() -> None:
    told = {
        kind: messages.headline(Alert("id", "all", [news(kind=kind)], NOW, NOW))
        for kind in ("opened", "regressed", "worse", "resolved")
    }
    assert told == {
        "opened": "[high] title of A",
        "regressed": "[high] came back: title of A",
        "worse": "[high] got worse: title of A",
        "resolved": "[over] title of A",
    }
    storm = Alert("id", "all", [news("A", kind="regressed"), news("B")], NOW, NOW)
    slack = body_of(storm, Route(name="s", kind="slack", url="http://127.0.0.1:9/"), "c", None, NOW)
    lines = [one["text"]["text"] for one in slack["blocks"][1:3]]
    assert lines == ["[high] came back: title of A: text.", "[high] title of B: text."]
    pager = body_of(storm, Route(name="p", kind="pagerduty", routing_key_env="HOME"), "c", None, NOW, "key")
    assert pager["payload"]["custom_details"]["alerts"] == ["[high] came back: title of A", "[high] title of B"]


def test_an_incident_that_came_back_says_after_which_one(settings: Settings) -> None:
    Path(settings.warehouse).mkdir()
    back = incident(0, predecessor_id=incident_id(7), last_at=NOW, first_at=NOW - 2 * MINUTE)
    store(settings, "gold.dlq_incidents", back)
    (one,) = snapshot(Warehouse(settings), NOW).incidents or ()
    assert one.news.kind == "regressed"
    assert f"It came back: {incident_id(7)} was the same error before." in one.news.text


def test_an_alert_about_a_finding_names_its_subject(settings: Settings) -> None:
    Path(settings.warehouse).mkdir()
    finding = {"cluster": "default", "kind": "QUARANTINED", "severity": "high", "amount": 1}
    store(settings, "gold.trust_findings", finding | {"evidence": "1 dead letter breaks a rule", "remedy": "afterlog"})
    store(settings, "quarantine.dlq_records", sites.letter(9, dlq_topic=None, _source="orders.jsonl"))
    (one,) = snapshot(Warehouse(settings), NOW).findings
    subject = "orders.jsonl (no topic)"
    assert (one.news.title, one.news.about["subject"]) == (f"{subject}: 1 quarantined dead letter", subject)


def test_what_was_sent_and_what_waits_are_rows_for_questions(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.send()
    world.send(seen("A"))
    world.answers = [AWAY]
    world.send(seen("A"), seen("B", "critical"))
    rows = {one["title"]: one for one in alerts(Warehouse(world.settings))}
    assert {title: (one["status"], one["route"], one["severity"]) for title, one in rows.items()} == {
        "title of A": ("sent", "all", "high"),
        "title of B": ("pending", "all", "critical"),
    }
    listed = [json.loads(one) for one in listing.listed(world.settings, "json").splitlines()]
    assert {one["id"] for one in listed} == {one["alert_id"] for one in rows.values()}


def test_an_outbox_that_cannot_be_read_gives_no_rows(tmp_path: Path) -> None:
    world = World(tmp_path)
    place(Warehouse(world.settings)).write("outbox.json", b"{")
    assert alerts(Warehouse(world.settings)) == []
