"""A warehouse whose incidents, time and receiver a test of alerts decides."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from typer.testing import CliRunner

from pipelines.alerts import sender
from pipelines.alerts.channels import Frame, channel_of
from pipelines.alerts.delivery import Outcome
from pipelines.alerts.messages import Alert
from pipelines.alerts.news import News, Seen, Snapshot
from pipelines.alerts.outbox import Outbox
from pipelines.cli import app
from pipelines.settings import Settings, load
from pipelines.settings.alerts import Route
from pipelines.warehouse.alert_log import outbox_store
from pipelines.warehouse.tables import Warehouse

NOW = datetime(2026, 11, 24, 12, tzinfo=UTC)

MINUTE = timedelta(minutes=1)

TAKEN = Outcome(True, "HTTP 200")

AWAY = Outcome(False, "no connection")


def news(key: str = "A", severity: str = "high", **more: Any) -> News:
    known = {"kind": "opened", "title": f"title of {key}", "text": "text.", "dedup_key": f"f-{key}", "at": "2026-11-24"}
    return News(
        **{**known, "key": key, "severity": severity, "group": "g", "topic": "t", "verdict": "SYSTEMIC", **more}
    )


def seen(key: str = "A", severity: str = "high", is_open: bool = True, magnitude: int = 2, **more: Any) -> Seen:
    own = {name: more.pop(name) for name in ("dedup_key", "verdict", "about") if name in more}
    return Seen(news(key, severity, **own), is_open, magnitude=magnitude, **more)


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
        return Outbox.read(outbox_store(Warehouse(self.settings)))

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
    def changes(self) -> list[tuple[str, str]]:
        return [(change["kind"], change["key"]) for body in self.got for change in body["alerts"]]

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


def file_of(found: World) -> Path:
    return Path(outbox_store(Warehouse(found.settings)).root) / "outbox.json"


def opened(events: Iterable[tuple[str, str]]) -> set[str]:
    """The keys that PagerDuty has open after events."""
    keys: set[str] = set()
    for action, key in events:
        (keys.add if action == "trigger" else keys.discard)(key)
    return keys


def body_of(alert: Alert, target: Route, cluster: str, front: str | None, now: datetime, key: str = "") -> Any:
    """What is sent about an alert."""
    return channel_of(target).body(alert, Frame(target, cluster, front, now, key))


def called(settings: Settings, *arguments: str, routes: list[dict[str, Any]] | None = None) -> Any:
    environment = {"AFTERLOG_ALERTS": json.dumps({"route": routes or []})}
    places = ["--warehouse", settings.warehouse, "--landing", settings.landing]
    return CliRunner().invoke(app, ["alerts", *arguments, *places], env=environment)
