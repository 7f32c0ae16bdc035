"""What was told, what waits and what was sent: one file, replaced in one step, so that a crash loses no alert.

News and the alerts that it makes are written together. An attempt is noted before it is made, its outcome after it. So
an alert repeats, with the same id, only if the process dies between the receiver's answer and the note.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import secrets
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

from pipelines.alerts.news import Known, News
from pipelines.columns import globs
from pipelines.errors import EnvironmentLacking, UsageError
from pipelines.incidents.severity import LEVELS
from pipelines.settings.alerts import Route
from pipelines.warehouse import storage
from pipelines.warehouse.tables import Warehouse

DIRECTORY, FILE, LOCK = "_alerts", "outbox.json", ".lock"
VERSION = 1
MOST_LOGGED = 500
REMEMBERED = timedelta(days=30)


@dataclass
class Alert:
    """One message for a route; several news in a storm, or after quiet hours."""

    id: str
    route: str
    news: list[News]
    made_at: datetime
    not_before: datetime
    attempts: int = 0
    was_quiet: bool = False
    answer: str | None = None

    @property
    def severity(self) -> str:
        """The worst severity of its news."""
        return LEVELS[min(one.rank for one in self.news)]

    @property
    def title(self) -> str:
        """What it is about, in a line."""
        return self.news[0].title if len(self.news) == 1 else f"{len(self.news)} alerts: {self.news[0].title}, ..."


@dataclass
class Sent:
    """The last alert about an incident or finding that a route got; ``dedup_key`` if that was one for a storm."""

    at: datetime
    rank: int
    is_over: bool
    dedup_key: str | None = None


@dataclass
class Outbox:
    """The state of alerts of a warehouse."""

    directory: Path
    known: Known = field(default_factory=dict)
    pending: list[Alert] = field(default_factory=list)
    sent: dict[str, dict[str, Sent]] = field(default_factory=dict)
    log: list[dict[str, Any]] = field(default_factory=list)

    @classmethod
    def read(cls, directory: Path) -> Outbox:
        """Return the outbox that a directory holds, a new one if it has none.

        Raises EnvironmentLacking: the file cannot be read.
        """
        file = directory / FILE
        try:
            told = json.loads(file.read_text(encoding="utf-8"), object_hook=_timed)
            box = cls(directory, told["known"], log=told["log"])
            for one in told["pending"]:
                box.pending.append(Alert(**one | {"news": [News(**each) for each in one["news"]]}))
            box.sent = {
                route: {key: Sent(**each) for key, each in by_key.items()} for route, by_key in told["sent"].items()
            }
        except FileNotFoundError:
            return cls(directory)
        except (OSError, ValueError, LookupError, TypeError) as error:
            raise EnvironmentLacking(
                f"What waits to be sent cannot be read from {file} ({type(error).__name__}): move the file away to "
                "begin anew; open incidents are told again then."
            ) from None
        return box

    def save(self, now: datetime) -> None:
        """Write it in one step, without what is too old."""
        self.log = self.log[-MOST_LOGGED:]
        for route, by_key in self.sent.items():
            self.sent[route] = {key: one for key, one in by_key.items() if not one.is_over or now - one.at < REMEMBERED}
        told = {
            "version": VERSION,
            "known": self.known,
            "pending": [asdict(one) for one in self.pending],
            "sent": {route: {key: asdict(one) for key, one in by_key.items()} for route, by_key in self.sent.items()},
            "log": self.log,
        }
        storage.replace_text(self.directory / FILE, json.dumps(told, default=_plain))

    def take(self, news: Sequence[News], routes: Sequence[Route], now: datetime) -> None:
        """Make alerts of news for the routes that want it."""
        for one in news:
            for route in routes:
                if one.is_over or wants(route, one):
                    self._take(one, route, now)

    def merge(self, into: Mapping[str, str]) -> None:
        """Let what was sent and what waits about an incident be about the one that took it in."""
        for by_key in self.sent.values():
            for key in [key for key in by_key if key in into]:
                one, end = by_key.pop(key), _end(key, into)
                if end not in by_key or by_key[end].is_over:
                    by_key[end] = one
        for alert in self.pending:
            alert.news = [replace(one, key=_end(one.key, into)) for one in alert.news]

    def _take(self, one: News, route: Route, now: datetime) -> None:
        waiting = [alert for alert in self.pending if alert.route == route.name and _is_about(alert, one.key)]
        untried = [alert for alert in waiting if not alert.attempts and len(alert.news) == 1]
        last = self.sent.get(route.name, {}).get(one.key)
        if one.is_over:
            for alert in untried:
                self.pending.remove(alert)
                self.note(alert, "suppressed", "it was over before it was sent", now)
            tried = [each for alert in waiting if alert not in untried for each in alert.news if each.key == one.key]
            if tried[-1].is_over if tried else last is None or last.is_over:
                return
            if route.news and one.kind not in route.news and route.kind != "pagerduty":
                self._forget(route, one)
                return
            ended = self._out_of_storm(one, route, now)
            if ended is not None:
                self.pending.append(Alert(_new_id(), route.name, [ended], now, now))
            return
        at = now
        if last is not None and one.rank >= last.rank:
            at = max(now, last.at + timedelta(minutes=route.suppress_minutes))
        if untried:
            untried[0].news, untried[0].not_before = [one], min(untried[0].not_before, at)
            return
        self.pending.append(Alert(_new_id(), route.name, [one], now, at))

    def _out_of_storm(self, one: News, route: Route, now: datetime) -> News | None:
        """Return the end to tell; None while others of the storm, which PagerDuty knows as one, go on."""
        last = self.sent.get(route.name, {}).get(one.key)
        if route.kind != "pagerduty" or last is None or last.dedup_key is None:
            return one
        self._forget(route, one)
        if any(other.dedup_key == last.dedup_key and not other.is_over for other in self.sent[route.name].values()):
            return None
        return replace(one, dedup_key=last.dedup_key)

    def _forget(self, route: Route, one: News) -> None:
        last = self.sent.get(route.name, {}).get(one.key)
        if last is not None:
            last.is_over = True

    def due(self, route: Route, now: datetime) -> list[Alert]:
        """Return the alerts to send to a route now; a storm becomes one alert, to be saved before it is sent.

        An alert waits while an earlier one about the same thing waits.
        """
        found: list[Alert] = []
        seen: set[str] = set()
        for alert in [one for one in self.pending if one.route == route.name]:
            keys = {one.key for one in alert.news}
            is_quiet = not alert.attempts and quiet(route, alert.severity, now)
            alert.was_quiet = alert.was_quiet or is_quiet
            if not is_quiet and alert.not_before <= now and not keys & seen:
                found.append(alert)
            seen |= keys
        single = [
            one
            for one in found
            if not one.attempts and len(one.news) == 1 and not (route.kind == "pagerduty" and one.news[0].is_over)
        ]
        is_storm = len(single) >= route.storm_from or (len(single) > 1 and any(one.was_quiet for one in single))
        if not is_storm:
            return found
        news = sorted((one.news[0] for one in single), key=lambda one: (one.is_over, one.rank))
        storm = Alert(_new_id(), route.name, news, min(one.made_at for one in single), now)
        place = self.pending.index(single[0])
        self.pending = [one for one in self.pending if one not in single]
        self.pending.insert(min(place, len(self.pending)), storm)
        return [storm, *(one for one in found if one not in single)]

    def settled(self, alert: Alert, now: datetime, answer: str) -> None:
        """Note that a receiver took an alert."""
        self.pending.remove(alert)
        by_key = self.sent.setdefault(alert.route, {})
        storm = f"afterlog-storm-{alert.id}" if len(alert.news) > 1 else None
        for one in alert.news:
            by_key[one.key] = Sent(now, one.rank, one.is_over, storm)
        self.note(alert, "sent", answer, now)

    def note(self, alert: Alert, status: str, answer: str, now: datetime) -> None:
        """Add a line to the log of what became of alerts."""
        self.log.append(
            {
                "at": now,
                "status": status,
                "route": alert.route,
                "id": alert.id,
                "kind": alert.news[0].kind if len(alert.news) == 1 else "storm",
                "severity": alert.severity,
                "title": alert.title,
                "answer": answer,
            }
        )


def place(warehouse: Warehouse) -> Path:
    """Return the directory of a warehouse's outbox.

    Raises UsageError: the warehouse is not local. EnvironmentLacking: the directory cannot be made.
    """
    if not warehouse.is_local:
        raise UsageError("Alerts about a warehouse at a URI cannot be sent from here yet.")
    directory = Path(warehouse.root) / DIRECTORY
    try:
        directory.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise EnvironmentLacking(f"Alerts cannot be kept in {directory} ({error.strerror}).") from None
    return directory


@contextlib.contextmanager
def sole_sender(directory: Path) -> Iterator[bool]:
    """Tell whether this process is the only sender, for as long as the context lasts; the kernel frees the lock."""
    descriptor = os.open(directory / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield False
            return
        yield True
    finally:
        os.close(descriptor)


def wants(route: Route, one: News) -> bool:
    """Tell whether a route gets news of this kind."""
    return (
        one.rank <= LEVELS.index(route.severity)
        and (route.group == "*" or (one.group is not None and globs.matches(route.group, one.group)))
        and (route.topic == "*" or (one.topic is not None and globs.matches(route.topic, one.topic)))
        and (not route.verdicts or one.verdict in route.verdicts)
        and (not route.news or one.kind in route.news)
    )


def quiet(route: Route, severity: str, now: datetime) -> bool:
    """Tell whether a route is silent at a time about news of a severity."""
    hours = route.quiet_hours
    if hours is None or hours.begin == hours.end:
        return False
    if hours.except_severity is not None and LEVELS.index(severity) <= LEVELS.index(hours.except_severity):
        return False
    at = now.astimezone(ZoneInfo(hours.timezone)).time()
    if hours.begin < hours.end:
        return hours.begin <= at < hours.end
    return at >= hours.begin or at < hours.end


def _end(key: str, into: Mapping[str, str]) -> str:
    while key in into:
        key = into[key]
    return key


def _is_about(alert: Alert, key: str) -> bool:
    return any(one.key == key for one in alert.news)


def _new_id() -> str:
    return secrets.token_hex(12)


def _plain(value: Any) -> Any:
    if isinstance(value, datetime):
        return {"time": value.isoformat()}
    raise TypeError(type(value).__name__)


def _timed(value: dict[str, Any]) -> Any:
    return datetime.fromisoformat(value["time"]) if value.keys() == {"time"} else value
