"""What is told of incidents and findings, and to which route."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from pipelines.alerts import sender
from pipelines.alerts.news import Seen, Snapshot, changes, snapshot
from pipelines.settings import load
from pipelines.warehouse.tables import Warehouse
from tests.testing.alerts import NOW, World, news, pager, route, routed, seen
from tests.testing.deliveries import store
from tests.testing.sites import incident


def test_each_turn_of_an_incident_is_told_once(world: Callable[..., World]) -> None:
    found = world(route(suppress_minutes=0))
    for state in (seen(), seen(), seen(severity="medium"), seen(severity="high"), seen(magnitude=3), seen(magnitude=2)):
        found.send(state)
    found.send(seen(severity="critical"))
    found.send(seen(is_open=False))
    found.send(seen(is_open=False))
    assert [kind for kind, _ in found.changes] == ["opened", "worse", "worse", "resolved"]


def test_what_was_over_before_the_first_look_is_not_told(world: Callable[..., World]) -> None:
    found = world()
    found.send(*(seen(str(number), is_open=False) for number in range(9)))
    assert found.got == []


def test_a_muted_incident_is_told_only_when_it_ends(world: Callable[..., World]) -> None:
    found = world(route(suppress_minutes=0))
    found.send(seen("A", is_muted=True), seen("B"))
    found.send(seen("A", is_muted=True), seen("B", "critical", is_muted=True))
    found.send(seen("A", is_open=False), seen("B", is_open=False))
    assert found.changes == [("opened", "B"), ("resolved", "B")]


def test_an_incident_that_took_in_another_is_not_told_again(world: Callable[..., World]) -> None:
    found = world(route(suppress_minutes=0))
    found.send(seen("A"))
    found.send(seen("B"), merged={"A": "B"})
    found.send(seen("B", is_open=False), merged={"A": "B"})
    assert found.changes == [("opened", "A"), ("resolved", "B")]


def test_incidents_whose_records_are_gone_end_and_a_missing_table_ends_nothing(world: Callable[..., World]) -> None:
    found = world()
    found.send(seen())
    found.here = Snapshot(None, [])
    sender.send(found.settings, lambda: found.now, found.post, lambda *_: found.here)
    assert found.changes == [("opened", "A")]
    found.send()
    assert found.changes[1:] == [("resolved", "A")]


def test_each_escalation_is_told_once(world: Callable[..., World]) -> None:
    found = world(route(suppress_minutes=0))
    for second in (0, 10, 10, 0, 10, 20):
        found.send(seen(escalated_at=second))
    assert found.changes == [("opened", "A"), ("worse", "A"), ("worse", "A")]


@pytest.mark.parametrize(
    ("escalated", "kinds"),
    [
        pytest.param([30], [], id="one of two that late records undid"),
        pytest.param([10, 40], ["worse"], id="a new one instead of one that late records undid"),
        pytest.param([10, 20, 30], [], id="one more that late records show before them"),
    ],
)
def test_an_escalation_is_new_by_its_time_and_not_by_their_number(
    tmp_path: Path, escalated: list[int], kinds: list[str]
) -> None:
    def snapshot_of(seconds: list[int]) -> Snapshot:
        settings = routed(tmp_path / "-".join(map(str, seconds)))
        escalations = [{"at": second * 1_000_000, "before_per_hour": 1.0, "after_per_hour": 60.0} for second in seconds]
        store(settings, "gold.dlq_incidents", incident(1, escalations=escalations))
        return snapshot(Warehouse(settings), NOW)

    _, known = changes({}, snapshot_of([10, 30]), "high", NOW)
    news_of_it, _ = changes(known, snapshot_of(escalated), "high", NOW)
    assert [change.kind for change in news_of_it] == kinds


def test_escalations_that_were_told_of_two_incidents_are_not_told_of_the_one_that_they_become(
    world: Callable[..., World],
) -> None:
    found = world(route(suppress_minutes=0))
    found.send(seen("A", escalated_at=10), seen("B", escalated_at=20))
    found.send(seen("A", escalated_at=20), merged={"B": "A"})
    assert found.changes == [("opened", "A"), ("opened", "B")]


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
    assert [(change["kind"], change["verdict"]) for body in found.got for change in body["alerts"]] == [
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
    changes_told = [
        (body["route"], change["kind"], change["verdict"]) for body in found.got for change in body["alerts"]
    ]
    assert changes_told[:-6] == [
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
    assert {(name, kind) for name, kind, _ in changes_told[-6:]} == {
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
    assert found.changes == [("passed", "A")]
    assert len(found.got) == 1
    found.send(seen("A"), after=timedelta(days=1))
    found.send(seen("A", is_open=False, last_at=NOW), after=timedelta(days=1))
    found.send(seen("A", is_open=False, last_at=NOW), after=timedelta(days=1))
    ours = [change["kind"] for body in found.got for change in body.get("alerts", ())]
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
    assert found.changes == [("opened", "A"), *[("opened", "B")] * len(hostile)]
    kept = {path.name.lower() for path in (Path(ours.warehouse) / "_alerts").iterdir()}
    assert len(kept) == 1 + len(hostile)


def test_a_finding_whose_count_grows_tenfold_is_told_again(tmp_path: Path) -> None:
    known: dict[str, Any] = {}
    for number, (amount, is_told) in enumerate(((10, True), (99, False), (100, True), (20, False))):
        settings = load(warehouse=str(tmp_path / str(number)), landing=str(tmp_path))
        finding = {"cluster": "default", "kind": "LOST_MESSAGES", "topic": "orders", "severity": "critical"}
        store(
            settings, "gold.trust_findings", finding | {"amount": amount, "evidence": "lost", "remedy": "afterlog sql"}
        )
        found, known = changes(known, snapshot(Warehouse(settings), NOW), "high", NOW)
        assert [each.kind for each in found] == ["finding"] * is_told


def test_findings_are_told_from_a_severity_on(world: Callable[..., World]) -> None:
    found = world(route(suppress_minutes=0), findings_from="high")
    low, high = (Seen(news(name, name, kind="finding", group=None)) for name in ("medium", "critical"))
    found.send(findings=(low, high))
    found.send(findings=(low,))
    assert found.changes == [("finding", "critical"), ("finding_over", "critical")]


def test_a_finding_that_got_less_severe_is_not_over(world: Callable[..., World]) -> None:
    found = world(route(suppress_minutes=0), findings_from="high")
    for severity, magnitude in (("high", 2), ("medium", 3), ("high", 2), ("medium", 2)):
        found.send(findings=(Seen(news("F", severity, kind="finding", group=None), magnitude=magnitude),))
    assert found.changes == [("finding", "F")]
    found.send()
    assert found.changes == [("finding", "F"), ("finding_over", "F")]
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
    assert [kind for kind, _ in found.changes] == (["opened", "resolved"] if is_wanted else [])
