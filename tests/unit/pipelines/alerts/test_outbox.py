"""Alerts are sent surely, and only once, whoever is away, crashes, hangs or is renamed."""

from __future__ import annotations

import contextlib
import json
import tempfile
from collections import Counter
from collections.abc import Callable, Mapping
from datetime import timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipelines.alerts import listing, sender
from pipelines.alerts.delivery import Outcome
from pipelines.alerts.news import Seen, Snapshot
from pipelines.alerts.outbox import Outbox
from pipelines.alerts.turns import sole_sender
from pipelines.errors import EnvironmentLacking
from pipelines.incidents.severity import LEVELS
from pipelines.settings.alerts import Route
from pipelines.warehouse.alert_log import outbox_store
from pipelines.warehouse.tables import Warehouse
from tests.testing.alerts import AWAY, MINUTE, TAKEN, World, called, file_of, opened, pager, route, seen
from tests.testing.examples import at_most
from tests.testing.receiver import Receiver


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
    assert found.changes == [("opened", "A"), ("resolved", "A")]


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
    assert [row["answer"] for row in Outbox.read(outbox_store(Warehouse(found.settings))).log] == [
        "HTTP 404",
        "no connection",
    ]


def test_a_receiver_says_when(world: Callable[..., World]) -> None:
    found = world()
    found.answers = [Outcome(False, "HTTP 429", retry_after=600.0)]
    found.send(seen())
    found.send(seen(), after=9 * MINUTE)
    assert found.got == []
    found.send(seen(), after=2 * MINUTE)
    assert found.changes == [("opened", "A")]


def test_tables_that_cannot_be_read_keep_nothing_back(world: Callable[..., World]) -> None:
    found = world()
    found.answers = [AWAY]
    found.send(seen())

    def broken(*_: Any) -> Snapshot:
        raise EnvironmentLacking("The table is damaged.")

    found.now += 60 * MINUTE
    done = sender.send(found.settings, lambda: found.now, found.post, broken)
    assert done.problems == ("News cannot be looked for: The table is damaged.",)
    assert found.changes == [("opened", "A")]


def test_one_process_sends(world: Callable[..., World]) -> None:
    found = world()
    with sole_sender(outbox_store(Warehouse(found.settings))) as is_alone:
        assert is_alone
        assert not found.send(seen()).is_alone
    assert found.got == []
    found.send(seen())
    assert found.changes == [("opened", "A")]


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
    assert found.changes == [("opened", "A"), ("opened", "B")]


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
    assert [(body["event_action"], body["dedup_key"]) for body in found.got if "event_action" in body] == [
        ("trigger", "f-A"),
        ("resolve", "f-A"),
    ]


def other_routes(found: World, *routes: dict[str, Any]) -> None:
    """Change the settings of a world."""
    given = found.settings.alerts.model_copy(update={"route": tuple(Route.model_validate(values) for values in routes)})
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
    hook = [(body["route"], change["kind"], change["key"]) for body in found.got for change in body.get("alerts", ())]
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
    assert {change["key"] for body in found.got[-1:] for change in body.get("alerts", ())} == {"C"}


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
    output = called(found.settings, routes=routes).output
    assert "open        pager  high  title of 0, title of 1, title of 2, title of 3" in output
    lines = [json.loads(line) for line in called(found.settings, "--format", "json", routes=routes).output.splitlines()]
    (opened_there,) = [row for row in lines if row["status"] == "open"]
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
    assert "critical" in [change["severity"] for body in found.got for change in body["alerts"] if change["key"] == "B"]


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
                now_there = here.get(key)
                if now_there is None or not now_there.is_open:
                    opened.discard(key)
                elif not now_there.is_muted:
                    opened.add(key)
            as_they_come = {"taken": TAKEN, "away": AWAY, "before": KeyboardInterrupt("before")}
            found.answers = [as_they_come.get(answer) or KeyboardInterrupt("after") for answer in answers]
            crashes += answers.count("after")
            try:
                found.send(*last, after=minutes * MINUTE)
            except KeyboardInterrupt:
                continue
        found.answers = []
        for _ in range(12):
            found.send(*last, after=61 * MINUTE)
        box = Outbox.read(outbox_store(Warehouse(found.settings)))
        waiting = {alert.news[0].key for alert in box.pending}
        assert [alert for alert in box.pending if not box.is_muted(alert)] == []
        repeats = Counter(body["id"] for body in found.got)
        assert sum(repeats.values()) - len(repeats) <= crashes
        once = {body["id"]: body for body in found.got}.values()
        for key in "ABC":
            about = [change for body in once for change in body["alerts"] if change["key"] == key]
            ends = [change["kind"] == "resolved" for change in about]
            assert not any(end and after for end, after in pairwise(ends))
            assert not ends[:1] or not ends[0]
            if key in waiting:
                assert key in opened, key  # it was muted before the receiver took it
            elif key in opened:
                assert about, key
                assert not ends[-1]
                now_seen = [incident for incident in last if incident.news.key == key and not incident.is_muted]
                begin = max((at for at, is_end in enumerate(ends) if is_end), default=-1) + 1
                worst_told = min(LEVELS.index(change["severity"]) for change in about[begin:])
                # Nothing is worse than what was told.
                assert all(worst_told <= incident.news.rank for incident in now_seen)
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
        values = {"suppress_minutes": suppress, "storm_from": storm_from, **hours}
        name = "pager"
        for states, answers, minutes, takes_in, change in steps:
            if takes_in and "B" in states:
                merged = {"A": "B"}
            name = {"pager": "on-call", "on-call": "pager"}[name] if change == "renamed" else name
            other_routes(found, *([] if change == "none" else [pager(name=name, **values)]))
            last = [
                seen(key, state[0], state[2], state[1], is_muted=state[3], dedup_key="f-C" if key == "C" else "f-A")
                for key, state in states.items()
                if key not in merged
            ]
            as_they_come = {"taken": TAKEN, "away": AWAY, "before": KeyboardInterrupt("before")}
            found.answers = [as_they_come.get(answer) or KeyboardInterrupt("after") for answer in answers]
            with contextlib.suppress(KeyboardInterrupt):
                found.send(*last, after=minutes * MINUTE, merged=merged)
        found.answers = []
        other_routes(found, pager(name=name, **values))
        for _ in range(36):
            found.send(*last, after=61 * MINUTE, merged=merged)
        open_there = {key: change for key, change in found.box.sent.get(name, {}).items() if not change.is_over}
        assert opened(found.events) == {change.dedup_key for change in open_there.values()}
        assert {
            incident.news.key for incident in last if incident.is_open and not incident.is_muted
        } <= open_there.keys()
        assert open_there.keys() <= {incident.news.key for incident in last if incident.is_open}
        for _ in range(12):
            found.send(after=61 * MINUTE, merged=merged)
        assert opened(found.events) == set()
        assert found.box.pending == []
