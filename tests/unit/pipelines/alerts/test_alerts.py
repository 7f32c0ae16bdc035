"""Alerts in their forms and by the command line; receivers are real HTTP servers that answer, fail, hang and drip."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from pipelines.alerts import delivery, listing, messages, sender
from pipelines.alerts.channels import channel_of
from pipelines.alerts.delivery import Outcome
from pipelines.alerts.messages import Alert
from pipelines.alerts.news import changes, snapshot
from pipelines.run.beside import Beside
from pipelines.run.follow import Cycle
from pipelines.settings import ROOT, Settings, load
from pipelines.settings.alerts import Route
from pipelines.warehouse.alert_log import alerts, outbox_store
from pipelines.warehouse.tables import Warehouse
from tests.testing import sites
from tests.testing.alerts import AWAY, MINUTE, NOW, World, body_of, called, news, route, seen
from tests.testing.deliveries import store
from tests.testing.receiver import Receiver
from tests.testing.sites import CANARY, HOSTILE, incident, incident_id

# --------------------------------------------------------------------------------------------------------- the receiver


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


def strings(value: Any) -> Iterator[str]:
    """All texts within a value of JSON."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        yield from strings([*value.values()])
    elif isinstance(value, list | tuple):
        for item in value:
            yield from strings(item)


def test_news_of_real_tables_and_hostile_names(settings: Settings) -> None:
    sites.filled(settings)
    found = snapshot(Warehouse(settings), sites.NOW)
    assert found.incidents is not None
    news_found, known = changes({}, found, "critical", sites.NOW)
    json.dumps(known)
    assert {change.key for change in news_found if change.kind == "opened"} >= {incident_id(0), incident_id(2)}
    assert any(change.kind == "finding" for change in news_found)
    assert changes(known, found, "critical", sites.NOW)[0] == []
    for change in news_found:
        alert = Alert("id", "r", [change], NOW, NOW)
        for kind in ("json", "slack", "pagerduty"):
            target = Route.model_validate(route(kind=kind, routing_key_env="HOME", owner="team"))
            body = body_of(alert, target, "default", "https://a.example/index.html", NOW, "key")
            text = json.dumps(body)
            assert CANARY not in text
            shown = [change.title, change.text, change.about] if kind == "json" else body  # names are exact in JSON
            assert all(text.isprintable() for text in strings(shown))
            if kind == "slack":
                marked = [block["text"]["text"] for block in body["blocks"] if block["type"] == "section"]
                assert not [each for each in (*marked, body["text"]) if "<script" in each or "<img" in each]
                assert len(body["blocks"]) <= 50
                assert all(len(each["text"]["text"]) <= 3000 for each in body["blocks"] if "text" in each)
                assert len(body["blocks"][0]["text"]["text"]) <= 150
            if kind == "pagerduty" and not change.is_over:
                assert len(body["payload"]["summary"]) <= 1024
                assert body["dedup_key"] == change.dedup_key
    assert all(any(name[:5] in change.title or "\\" in change.title for change in news_found) for name in HOSTILE[:2])


def test_pagerduty_gets_the_fingerprint_and_the_page(settings: Settings) -> None:
    Path(settings.warehouse).mkdir(exist_ok=True)
    store(settings, "gold.dlq_incidents", incident(3, severity="high"))
    with_url = load(warehouse=settings.warehouse, landing=settings.landing, report={"url": "https://a.example/r"})
    (change,) = (each.news for each in snapshot(Warehouse(with_url), sites.NOW).incidents or ())
    target = Route.model_validate({"name": "p", "kind": "pagerduty", "routing_key_env": "KEY"})
    body = body_of(Alert("i", "p", [change], NOW, NOW), target, "default", None, NOW, "key")
    assert (body["routing_key"], body["event_action"], body["dedup_key"]) == ("key", "trigger", f"{3:016x}")
    assert (body["payload"]["severity"], body["payload"]["group"]) == ("error", "orders-workers")
    assert body["client_url"] == f"https://a.example/r/incidents/{incident_id(3)}.html"
    assert channel_of(target).address(target, {}) == (None, "the environment variable KEY is not set")
    assert channel_of(target).address(target, {"KEY": "\n"}) == (None, "the environment variable KEY is not set")
    assert channel_of(target).address(target, {"KEY": "k-1\n"})[1] == "k-1"


def test_a_great_storm_is_no_great_message() -> None:
    many = [news(str(number)) for number in range(3_000)]
    for kind in ("json", "slack", "pagerduty"):
        target = Route.model_validate(route(kind=kind, routing_key_env="HOME"))
        body = body_of(Alert("i", "r", many, NOW, NOW), target, "default", None, NOW, "key")
        assert len(json.dumps(body)) < 300_000
        assert "3000 alerts at once" in json.dumps(body)
    ours = body_of(Alert("i", "r", many, NOW, NOW), Route.model_validate(route()), "default", None, NOW)
    assert (ours["alert_count"], len(ours["alerts"])) == (3_000, 500)


# ----------------------------------------------------------------------------------------------------- the command line


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
    routes = {"route": [{"name": "hook", "url": receiver.address, "storm_from": 2}]}
    said: list[str] = []
    receiver.behaviours = ["500", "200"]
    asked = load(warehouse=settings.warehouse, landing=settings.landing, alerts=routes)
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
    words = {
        kind: messages.headline(Alert("id", "all", [news(kind=kind)], NOW, NOW))
        for kind in ("opened", "regressed", "worse", "resolved")
    }
    assert words == {
        "opened": "[high] title of A",
        "regressed": "[high] came back: title of A",
        "worse": "[high] got worse: title of A",
        "resolved": "[over] title of A",
    }
    storm = Alert("id", "all", [news("A", kind="regressed"), news("B")], NOW, NOW)
    slack = body_of(storm, Route(name="s", kind="slack", url="http://127.0.0.1:9/"), "c", None, NOW)
    lines = [block["text"]["text"] for block in slack["blocks"][1:3]]
    assert lines == ["[high] came back: title of A: text.", "[high] title of B: text."]
    pager = body_of(storm, Route(name="p", kind="pagerduty", routing_key_env="HOME"), "c", None, NOW, "key")
    assert pager["payload"]["custom_details"]["alerts"] == ["[high] came back: title of A", "[high] title of B"]


def test_an_incident_that_came_back_says_after_which_one(settings: Settings) -> None:
    Path(settings.warehouse).mkdir()
    back = incident(0, predecessor_id=incident_id(7), last_at=NOW, first_at=NOW - 2 * MINUTE)
    store(settings, "gold.dlq_incidents", back)
    (incident_seen,) = snapshot(Warehouse(settings), NOW).incidents or ()
    assert incident_seen.news.kind == "regressed"
    assert f"It came back: {incident_id(7)} was the same error before." in incident_seen.news.text


def test_an_alert_about_a_finding_names_its_subject(settings: Settings) -> None:
    Path(settings.warehouse).mkdir()
    finding = {"cluster": "default", "kind": "QUARANTINED", "severity": "high", "amount": 1}
    store(settings, "gold.trust_findings", finding | {"evidence": "1 dead letter breaks a rule", "remedy": "afterlog"})
    store(settings, "quarantine.dlq_records", sites.letter(9, dlq_topic=None, _source="orders.jsonl"))
    (finding_seen,) = snapshot(Warehouse(settings), NOW).findings
    subject = "orders.jsonl (no topic)"
    assert (finding_seen.news.title, finding_seen.news.about["subject"]) == (
        f"{subject}: 1 quarantined dead letter",
        subject,
    )


def test_what_was_sent_and_what_waits_are_rows_for_questions(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.send()
    world.send(seen("A"))
    world.answers = [AWAY]
    world.send(seen("A"), seen("B", "critical"))
    rows = {row["title"]: row for row in alerts(Warehouse(world.settings))}
    assert {title: (row["status"], row["route"], row["severity"]) for title, row in rows.items()} == {
        "title of A": ("sent", "all", "high"),
        "title of B": ("pending", "all", "critical"),
    }
    listed = [json.loads(line) for line in listing.listed(world.settings, "json").splitlines()]
    assert {row["id"] for row in listed} == {row["alert_id"] for row in rows.values()}


def test_an_outbox_that_cannot_be_read_gives_no_rows(tmp_path: Path) -> None:
    world = World(tmp_path)
    outbox_store(Warehouse(world.settings)).write("outbox.json", b"{")
    assert alerts(Warehouse(world.settings)) == []
