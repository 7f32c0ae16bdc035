"""When alerts are sent: suppression, quiet hours, storms, teams, and clocks that go back."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import pytest

from pipelines.alerts import outbox
from pipelines.alerts.delivery import Outcome
from pipelines.alerts.outbox import Outbox
from pipelines.alerts.routes import quiet
from pipelines.settings import load
from pipelines.settings.alerts import QuietHours, Route
from pipelines.warehouse.alert_log import outbox_store
from pipelines.warehouse.tables import Warehouse
from tests.testing.alerts import AWAY, MINUTE, World, opened, pager, route, seen


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
    assert sorted((body["route"], change["key"]) for body in found.got for change in body["alerts"]) == [
        *(("all", key) for key in "ABCF"),
        *[("n", "C"), ("o", "A"), ("o", "B"), ("p", "B"), ("p", "F")],
    ]
    found.got.clear()
    found.send(seen("A", is_open=False), seen("B", is_open=False), seen("C"), teams=teams | {"A": ("payments",)})
    ended = sorted((body["route"], change["key"]) for body in found.got for change in body["alerts"])
    assert ended == [("all", "A"), ("all", "B"), ("all", "F"), ("o", "A"), ("o", "B"), ("p", "B"), ("p", "F")]


def test_a_route_hears_of_an_incident_once_a_dlq_topic_makes_it_its_teams(world: Callable[..., World]) -> None:
    found = world()
    of_teams(found, route("p", team="payments"))
    found.send(seen(about={"dlq_topics": ["dlq.a"]}), teams={"A": ("orders",)})
    assert found.changes == []
    found.send(seen(about={"dlq_topics": ["dlq.a", "dlq.b"]}), teams={"A": ("orders", "payments")})
    assert found.changes == [("opened", "A")]


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
    assert [kind for kind, _ in found.changes] == ["opened", "worse", "worse"]
    found.send(seen(is_open=False))
    found.send(seen(), after=MINUTE)  # it came back within the hour, and goes again
    found.send(seen(is_open=False), after=MINUTE)
    found.send(after=100 * MINUTE)
    assert [kind for kind, _ in found.changes] == ["opened", "worse", "worse", "resolved"]
    assert [row["status"] for row in Outbox.read(outbox_store(Warehouse(found.settings))).log].count("suppressed") == 1


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
    target = Route.model_validate(route(quiet_hours=hours))
    assert quiet(target, "high", datetime.fromisoformat(at)) == is_quiet
    assert not quiet(target, "critical", datetime.fromisoformat(at))


def test_after_quiet_hours_one_message_tells_all_that_is_still_true(world: Callable[..., World]) -> None:
    found = world(route(quiet_hours={"begin": "10:00", "end": "18:00"}))
    found.send(seen("A"), seen("B"), seen("C"), seen("D", "critical"))
    assert found.changes == [("opened", "D")]
    found.send(seen("A"), seen("B", is_open=False), seen("C"), seen("D", "critical"), after=timedelta(hours=7))
    assert len(found.got) == 2
    assert found.got[1]["is_grouped"]
    assert found.changes[1:] == [("opened", "A"), ("opened", "C")]


def test_what_is_muted_before_it_was_sent_waits_until_it_is_not(world: Callable[..., World]) -> None:
    found = world(route(quiet_hours={"begin": "10:00", "end": "18:00"}))
    found.send(seen("A"), seen("B"), seen("C"))
    found.send(seen("A", is_muted=True), seen("B", is_muted=True), seen("C"), after=timedelta(hours=8))
    assert found.changes == [("opened", "C")]
    found.send(seen("A"), seen("B", is_muted=True), seen("C"))
    assert found.changes == [("opened", "C"), ("opened", "A")]
    found.send(seen("A"), seen("B", is_open=False), seen("C"))
    assert found.changes == [("opened", "C"), ("opened", "A")]
    assert found.box.pending == []


def test_what_was_not_told_yet_does_not_get_worse(world: Callable[..., World]) -> None:
    found = world(route(quiet_hours={"begin": "10:00", "end": "18:00"}))
    found.send(seen("A"))
    found.send(seen("A", magnitude=5))
    found.send(seen("A", magnitude=5), after=timedelta(hours=8))
    assert found.changes == [("opened", "A")]


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
    assert [row["dedup_key"] for row in ends] == [pagers["dedup_key"]]


def test_a_storm_over_many_calls_is_few_messages_and_hides_nothing_worse(world: Callable[..., World]) -> None:
    found = world(route(storm_from=5))
    second = timedelta(seconds=1)
    storm = [seen(f"I{number:02}", "medium") for number in range(30)]
    for number in range(30):
        found.send(*storm[: number + 1], after=second)
    assert len(found.got) == 5
    found.send(*storm, seen("worse", "critical"), after=second)
    assert found.changes[5:] == [("opened", "worse")]
    found.send(*storm[1:], seen("worse", "critical"), after=second)
    assert found.changes[6:] == [("resolved", "I00")]
    found.send(*storm[1:], seen("worse", "critical"), after=10 * MINUTE)
    assert [body["alert_count"] for body in found.got] == [1] * 7 + [25]
    assert sorted(key for kind, key in found.changes if kind == "opened") == [
        *(f"I{at:02}" for at in range(30)),
        "worse",
    ]


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
    assert found.changes == [("opened", "A"), ("resolved", "A")]
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
    assert found.changes == [("opened", "A")]


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
    assert found.changes == [("opened", "A")] * 2


def test_two_incidents_that_become_one_in_quiet_hours_are_told_once(world: Callable[..., World]) -> None:
    found = world(route(quiet_hours={"begin": "10:00", "end": "18:00"}))
    found.send(seen("A"), seen("B"))
    for hours in (1, 8, 1):
        found.send(seen("B"), after=timedelta(hours=hours), merged={"A": "B"})
    assert [[change["title"] for change in body["alerts"]] for body in found.got] == [["title of B"]]


def test_a_clock_that_is_set_back_suppresses_for_no_longer(world: Callable[..., World]) -> None:
    found = world()
    found.send(seen(), after=timedelta(days=300))
    found.send(seen(magnitude=3), after=timedelta(days=-300))
    found.send(seen(magnitude=3), after=61 * MINUTE)
    assert found.changes == [("opened", "A"), ("worse", "A")]


@pytest.mark.parametrize("answers", [[AWAY], []], ids=["was tried", "was too early"])
def test_what_waits_when_the_clock_is_set_back_waits_for_no_longer(
    world: Callable[..., World], answers: list[Outcome]
) -> None:
    found = world()
    found.send(seen("B"), after=timedelta(days=300))
    found.answers = [*answers]
    found.send(seen("B", magnitude=3), seen())
    found.send(seen("B", magnitude=3), seen(), after=timedelta(days=-300))
    assert sorted(found.changes) == [("opened", "A"), ("opened", "B"), ("worse", "B")]
    assert found.box.pending == []


def test_an_incident_whose_end_waits_and_that_takes_in_another_goes_on(world: Callable[..., World]) -> None:
    found = world(route(quiet_hours={"begin": "12:05", "end": "18:00"}))
    found.send(seen("A"), seen("B"))
    found.send(seen("A"), after=10 * MINUTE)
    found.send(seen("B"), merged={"A": "B"})
    found.send(seen("B"), after=timedelta(hours=8), merged={"A": "B"})
    assert found.changes == [("opened", "A"), ("opened", "B")]
    found.send(merged={"A": "B"})  # its records are gone
    assert found.changes[2:] == [("resolved", "B")]


def test_an_incident_that_took_in_another_ends_both_at_pagerduty(world: Callable[..., World]) -> None:
    found = world(pager(suppress_minutes=0, storm_from=2))
    found.send(seen("A"), seen("C"))
    found.send(seen("A"), seen("B", dedup_key="f-A"), after=10 * MINUTE)
    for _ in range(2):
        found.send(seen("B", dedup_key="f-A"), merged={"A": "B"})
    assert opened(found.events) == {"f-A"}
    found.send(merged={"A": "B"})
    assert opened(found.events) == set()
