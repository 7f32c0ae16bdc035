"""What was told, what waits and what was sent: one file, replaced in one step, so that a crash loses no alert.

News and the alerts that it makes are written together. An attempt is noted before it is made, its outcome after it. So
an alert repeats, with the same id, only if the process dies between the receiver's answer and the note.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import datetime, timedelta
from types import MappingProxyType
from typing import Any

from pipelines.alerts.channels import channel_of
from pipelines.alerts.messages import Alert
from pipelines.alerts.news import OVER, TURNED, Known, News
from pipelines.alerts.routes import quiet, wants
from pipelines.errors import EnvironmentLacking
from pipelines.incidents.ids import survivor
from pipelines.incidents.severity import LEVELS
from pipelines.settings.alerts import Route
from pipelines.stores.base import Store
from pipelines.text import iso
from pipelines.warehouse.alert_log import FILE, kind_of

VERSION = 1
MOST_LOGGED = 500
REMEMBERED = timedelta(days=30)
LONGEST_RETRY = timedelta(hours=1)  # until the next attempt, whatever the receiver asks for
STORM = timedelta(minutes=10)  # over which a storm is counted, and after which the next message tells of it

HELD = "it waits until ten minutes after the last alert of a storm"


@dataclass
class Sent:
    """The last alert about an incident or finding that a route got, and the ``dedup_key`` that it had there."""

    at: datetime
    rank: int
    is_over: bool
    dedup_key: str | None = None


@dataclass
class Receiver:
    """Who gets what is sent to a route: a digest of kind, address and key, and the variables that have them.

    ``has_url``: the address is in the settings. ``gone_at``: since when the settings lack the route. ``channel``: what
    a channel is noted as that keeps alerts open.
    """

    digest: str
    routing_key_env: str | None = None
    url_env: str | None = None
    has_url: bool = False
    gone_at: datetime | None = None
    channel: str | None = None

    def as_json(self) -> dict[str, Any]:
        """Return it as the file has it: without a note if there is none."""
        return {name: value for name, value in asdict(self).items() if name != "channel" or value is not None}


@dataclass
class Outbox:
    """The state of alerts about one cluster of a warehouse.

    ``muted`` has the keys of muted incidents. ``triggered`` has the alerts that may be open at receivers that keep
    alerts open: by route, the ``dedup_key`` of each. ``receivers`` are those of routes.
    """

    store: Store
    known: Known = field(default_factory=dict)
    pending: list[Alert] = field(default_factory=list)
    sent: dict[str, dict[str, Sent]] = field(default_factory=dict)
    log: list[dict[str, Any]] = field(default_factory=list)
    muted: list[str] = field(default_factory=list)
    triggered: dict[str, list[str]] = field(default_factory=dict)
    receivers: dict[str, Receiver] = field(default_factory=dict)

    @classmethod
    def read(cls, store: Store) -> Outbox:
        """Return the outbox that a store holds, a new one if it has none.

        Raises EnvironmentLacking: the file cannot be read.
        """
        try:
            text = store.text(FILE)
            if text is None:
                return cls(store)
            content = json.loads(text, object_hook=_timed)
            box = cls(store, content["known"], log=content["log"], muted=content.get("muted", []))
            for fields in content["pending"]:
                box.pending.append(Alert(**fields | {"news": [News(**each) for each in fields["news"]]}))
            box.sent = {
                route: {key: Sent(**each) for key, each in by_key.items()} for route, by_key in content["sent"].items()
            }
            box.receivers = {route: Receiver(**fields) for route, fields in content.get("receivers", {}).items()}
            box.triggered = {
                route: keys
                for route, keys in content.get("triggered", {}).items()
                if route not in box.receivers or box.receivers[route].routing_key_env  # else nothing stays open there
            }
        except (OSError, ValueError, LookupError, TypeError) as error:
            raise EnvironmentLacking(
                f"What waits to be sent cannot be read from {store.shown}/{FILE} ({type(error).__name__}): move it "
                "away to begin anew; open incidents are told again then."
            ) from None
        return box

    def save(self, now: datetime) -> None:
        """Write the file in one step, without entries that are too old.

        Raises EnvironmentLacking: it cannot be written.
        """
        self.log = self.log[-MOST_LOGGED:]
        for route, by_key in self.sent.items():
            self.sent[route] = {
                key: last for key, last in by_key.items() if not last.is_over or now - last.at < REMEMBERED
            }
        content = {
            "version": VERSION,
            "known": self.known,
            "pending": [asdict(alert) for alert in self.pending],
            "sent": {route: {key: asdict(last) for key, last in by_key.items()} for route, by_key in self.sent.items()},
            "log": self.log,
            "muted": self.muted,
            "triggered": self.triggered,
            "receivers": {route: target.as_json() for route, target in self.receivers.items()},
        }
        self.store.write(FILE, json.dumps(content, default=_plain).encode())

    def take(
        self,
        news: Sequence[News],
        routes: Sequence[Route],
        now: datetime,
        teams: Mapping[str, Sequence[str]] = MappingProxyType({}),
    ) -> None:
        """Make alerts of news for the routes that want it; ``teams`` has those of incidents and findings, by key."""
        for change in news:
            teams_of_it = teams.get(change.key, ())
            for route in routes:
                if change.kind == "passed":
                    if not channel_of(route).keeps_open and wants(route, change, teams_of_it):
                        self.pending.append(Alert(_new_id(), route.name, [change], now, now))
                elif change.is_over:
                    self._take(change, route, now)
                elif (heard := self._as_heard(change, route, teams_of_it)) is not None:
                    self._take(heard, route, now)
            if change.is_over:  # other settings may be in use for once
                for name in {alert.route for alert in self.pending}.union(self.sent) - {route.name for route in routes}:
                    self._take(change, Route.model_construct(name=name), now)

    def _as_heard(self, change: News, route: Route, teams: Sequence[str]) -> News | None:
        """Return a change as a route gets it; None if it does not want it. The first one is ``opened``."""
        if change.kind != TURNED and wants(route, change, teams):
            return change
        if change.kind == TURNED and not route.verdicts and route.topic == "*" and route.team is None:
            return None
        first = replace(change, kind="opened")
        if change.kind not in (TURNED, "worse") or self._was_told(change, route) or not wants(route, first, teams):
            return None
        return first

    def _was_told(self, change: News, route: Route) -> bool:
        last = self.sent.get(route.name, {}).get(change.key)
        waiting = [each for alert in self.pending if alert.route == route.name for each in alert.news]
        return (last is not None and not last.is_over) or any(
            other.key == change.key and not other.is_over for other in waiting
        )

    def merge(self, into: Mapping[str, str], now: datetime) -> None:
        """Move what was sent and what waits about a merged incident to the incident that took it in.

        A waiting end still ends the merged incident. If a receiver keeps each of the two open, `balance` ends one.
        """
        self._reopen(into, now)
        for name, by_key in self.sent.items():
            ending = {
                change.key for alert in self.pending if alert.route == name for change in alert.news if change.is_over
            }
            for key in [key for key in by_key if key in into and key not in ending]:
                last, end = by_key.pop(key), survivor(key, into)
                if end not in by_key or by_key[end].is_over:
                    by_key[end] = last
        for alert in [*self.pending]:
            self._merge_waiting(alert, into, now)

    def _reopen(self, into: Mapping[str, str], now: datetime) -> None:
        """Drop the waiting end of a merged incident that goes on in another; if it was tried, tell that one again."""
        goes_on = {survivor(key, into): note for key, note in self.known.get("incidents", {}).items() if key in into}
        for alert in [alert for alert in self.pending if len(alert.news) == 1 and alert.news[0].is_over]:
            key = alert.news[0].key
            if key not in goes_on:
                continue
            if not alert.attempts:
                self.pending.remove(alert)
                self.note(alert, "suppressed", "it came back before its end was sent", now)
            elif all(
                other is alert or other.route != alert.route or not _is_about(other, key) for other in self.pending
            ):
                alert.news = [replace(alert.news[0], key=alert.dedup_key)]  # it ends what was, and not what goes on
                change = replace(News(**goes_on[key]["news"]), key=key)
                self.pending.append(Alert(_new_id(), alert.route, [change], now, now))

    def _merge_waiting(self, alert: Alert, into: Mapping[str, str], now: datetime) -> None:
        if all(change.is_over or change.key not in into for change in alert.news):
            return
        alert.news = [
            change if change.is_over else replace(change, key=survivor(change.key, into)) for change in alert.news
        ]
        key = alert.news[0].key
        others = [
            other
            for other in self.pending
            if other is not alert and other.route == alert.route and _is_about(other, key)
        ]
        if (
            not alert.attempts
            and len(alert.news) == 1
            and any(not change.is_over for each in others for change in each.news)
        ):
            self.pending.remove(alert)
            self.note(alert, "suppressed", "another incident took it in, which is told", now)

    def _take(self, change: News, route: Route, now: datetime) -> None:
        waiting = [alert for alert in self.pending if alert.route == route.name and _is_about(alert, change.key)]
        untried = [alert for alert in waiting if not alert.attempts and len(alert.news) == 1]
        last = self.sent.get(route.name, {}).get(change.key)
        if change.is_over:
            tried = [
                other for alert in waiting if alert not in untried for other in alert.news if other.key == change.key
            ]
            was_told = last is not None and not last.is_over
            for alert in [alert for alert in waiting if len(alert.news) == 1 and not alert.news[0].is_over]:
                if alert.attempts and not was_told:  # it may have been taken: the end comes behind it
                    continue
                self.pending.remove(alert)
                self.note(alert, "suppressed", "it was over before it was sent", now)
            if tried[-1].is_over if tried else last is None or last.is_over:
                return
            if route.news and change.kind not in route.news and not channel_of(route).keeps_open:
                self._forget(route, change)
                return
            self.pending.append(Alert(_new_id(), route.name, [change], now, now))
            return
        at = now
        if last is not None and change.rank >= last.rank:
            at = max(now, min(last.at, now) + timedelta(minutes=route.suppress_minutes))  # clocks go back, too
        for alert in [alert for alert in untried if alert.news[0].is_over]:
            self.pending.remove(alert)
            self.note(alert, "suppressed", "it came back before its end was sent", now)
        if waits := [alert for alert in untried if not alert.news[0].is_over]:
            first = waits[0].news[0].kind  # what the route was not told yet does not get worse
            # The worst counts, as what was as severe before is not told again.
            worst = LEVELS[min(change.rank, waits[0].news[0].rank)]
            waits[0].news = [replace(change, kind=first, severity=worst)]
            waits[0].not_before = min(waits[0].not_before, at)
            return
        self.pending.append(Alert(_new_id(), route.name, [change], now, at))

    def _forget(self, route: Route, change: News) -> None:
        last = self.sent.get(route.name, {}).get(change.key)
        if last is not None:
            last.is_over = True

    def due(self, route: Route, now: datetime) -> list[Alert]:
        """Return the alerts to send to a route now; a storm becomes one alert, to be saved before it is sent.

        An alert waits while an earlier one about the same thing waits, and while its incident is muted. What is held
        back keeps nothing of the same fingerprint waiting. A receiver that keeps alerts open gets ends also in quiet
        hours. An alert about something that it has open is sent under the key of the open alert, and joins no storm.

        A storm is ``storm_from`` alerts within ten minutes. Alerts that were sent count, and each alert of a message
        with several. Once so many were sent, the others wait until ten minutes after the last one. Then they are one
        message. One that is more severe than all that were sent, or that tells an end, does not wait.
        """
        alerts: list[Alert] = []
        seen: set[str] = set()
        keeps_open = channel_of(route).keeps_open
        longest = max(timedelta(minutes=route.suppress_minutes), LONGEST_RETRY)
        for alert in [alert for alert in self.pending if alert.route == route.name]:
            keys = {key for change in alert.news for key in (change.key, change.dedup_key)}
            is_end = all(change.is_over for change in alert.news)
            is_quiet = not alert.attempts and not (keeps_open and is_end) and quiet(route, alert.severity, now)
            alert.was_quiet = alert.was_quiet or is_quiet
            wait = alert.not_before - now
            is_early = timedelta() < wait <= longest  # a clock that was set back leaves a longer one
            is_held = is_quiet or is_early or self.is_muted(alert)
            if not is_held and not keys & seen:
                if keeps_open and not self._is_paired(alert, route, now):
                    continue
                alerts.append(alert)
            seen |= keys if alert.attempts or is_end or not is_held else {change.key for change in alert.news}
        known = self._kept_open(route) if keeps_open else set()
        single = [
            alert for alert in alerts if not alert.attempts and len(alert.news) == 1 and alert.news[0].key not in known
        ]
        sent = [
            line for line in self.log if line["route"] == route.name and line["status"] == "sent" and line["at"] <= now
        ]
        openings = [line for line in sent if _openings(line)]
        recent = [line for line in openings if now - line["at"] < STORM]
        last = max((line["at"] for line in recent), default=now)
        before = [line for line in openings if last - line["at"] < STORM]
        if recent and sum(map(_openings, before)) >= route.storm_from:
            worst = min(LEVELS.index(line["severity"]) for line in before)
            later = [alert for alert in single if alert.news[0].rank >= worst and not alert.is_resolve]
            alerts, single = ([alert for alert in some if alert not in later] for some in (alerts, single))
            for alert in later:
                alert.is_held, alert.answer = True, HELD
        number = len(single) + sum(map(_openings, recent))
        is_storm = number >= route.storm_from or any(alert.was_quiet or alert.is_held for alert in single)
        if len(single) < 2 or not is_storm:
            return alerts
        news = sorted((alert.news[0] for alert in single), key=lambda change: (change.is_over, change.rank))
        storm = Alert(_new_id(), route.name, news, min(alert.made_at for alert in single), now)
        index = self.pending.index(single[0])
        self.pending = [alert for alert in self.pending if alert not in single]
        self.pending.insert(min(index, len(self.pending)), storm)
        return [storm, *(alert for alert in alerts if alert not in single)]

    def _is_paired(self, alert: Alert, route: Route, now: datetime) -> bool:
        """Give an alert its key at the receiver; return False if it is an end that would also end other incidents."""
        if alert.attempts or len(alert.news) > 1:
            return True
        change, by_key = alert.news[0], self.sent.get(alert.route, {})
        last = by_key.get(change.key)
        if last is not None and last.dedup_key and (change.is_over or not last.is_over):
            change = replace(change, dedup_key=last.dedup_key)
            alert.news = [change]
        if not change.is_over:
            return True
        if last is not None:
            last.is_over = True
        if all(other.is_over or other.dedup_key != change.dedup_key for other in by_key.values()):
            return True
        self.pending.remove(alert)
        self.note(alert, "suppressed", f"{channel_of(route).label} knows it as one with others, which go on", now)
        return False

    def _kept_open(self, route: Route) -> set[str]:
        open_keys = {key for key, last in self.sent.get(route.name, {}).items() if not last.is_over}
        return open_keys | {change.key for alert in self.pending for change in alert.news if change.is_over}

    def is_muted(self, alert: Alert) -> bool:
        """Tell whether an alert that was not tried yet waits because its incident is muted."""
        change = alert.news[0]
        return not alert.attempts and len(alert.news) == 1 and not change.is_over and change.key in self.muted

    def tried(self, alert: Alert, route: Route) -> None:
        """Note an attempt, before it is made: the receiver may get it even if it does not answer."""
        alert.attempts += 1
        if channel_of(route).keeps_open and not alert.is_resolve:
            keys = self.triggered.setdefault(route.name, [])
            if alert.dedup_key not in keys:
                keys.append(alert.dedup_key)

    def balance(self, route: Route, now: datetime) -> None:
        """Open at a receiver that keeps it what was told and goes on; end all else there that has no waiting alert."""
        if not channel_of(route).keeps_open:
            return
        by_key, triggered = self.sent.get(route.name, {}), self.triggered.get(route.name, [])
        waiting = [alert for alert in self.pending if alert.route == route.name]
        about = {change.key for alert in waiting for change in alert.news}
        known: Mapping[str, Any] = {**self.known.get("incidents", {}), **self.known.get("findings", {})}
        for key, last in by_key.items():
            if last.is_over or key in about:
                continue
            if key not in known:
                last.is_over = True
            elif last.dedup_key and last.dedup_key not in triggered:
                news = replace(News(**known[key]["news"]), key=key, dedup_key=last.dedup_key)
                self.pending.append(Alert(_new_id(), route.name, [news], now, now))
        open_ = {last.dedup_key for last in by_key.values() if not last.is_over} | {
            alert.dedup_key for alert in waiting
        }
        for key in triggered:
            if key not in open_:
                over = News("resolved", key, LEVELS[-1], "What was told before is over", "", key, iso(now))
                self.pending.append(Alert(_new_id(), route.name, [over], now, now))

    def is_known(self, name: str) -> bool:
        """Tell whether a route has alerts that wait, that it got, or that are open at its receiver."""
        return bool(
            self.sent.get(name) or self.triggered.get(name) or any(alert.route == name for alert in self.pending)
        )

    def take_over(self, gone: str, name: str) -> None:
        """Give a route what a gone route with the same receiver had; what the route has itself takes precedence."""
        by_key = self.sent.setdefault(name, {})
        goes_on = {*self.known.get("incidents", ()), *self.known.get("findings", ())}
        heard = {*by_key, *(change.key for alert in self.pending if alert.route == name for change in alert.news)}
        self.pending = [
            alert
            for alert in self.pending
            if alert.route != gone or not all(change.key in heard for change in alert.news)
        ]
        for alert in self.pending:
            alert.route = name if alert.route == gone else alert.route
        for key, last in self.sent.pop(gone, {}).items():
            if key not in by_key or (by_key[key].is_over and not last.is_over and key in goes_on):
                by_key[key] = last
        if keys := self.triggered.pop(gone, []):
            self.triggered[name] = [*dict.fromkeys((*self.triggered.get(name, ()), *keys))]
        self.receivers.pop(gone, None)

    def forget(self, name: str) -> None:
        """Forget a route."""
        self.pending = [alert for alert in self.pending if alert.route != name]
        self.sent.pop(name, None)
        self.triggered.pop(name, None)
        self.receivers.pop(name, None)

    def give_up(self, name: str, now: datetime) -> None:
        """Drop what waits for a route and mark all it got as over, so that `balance` ends what it has open."""
        for alert in [alert for alert in self.pending if alert.route == name and not alert.is_resolve]:
            self.pending.remove(alert)
            self.note(alert, "failed", "the settings have no such route any more", now)
        for last in self.sent.get(name, {}).values():
            last.is_over = True

    def settled(self, alert: Alert, now: datetime, answer: str) -> None:
        """Note that a receiver took an alert."""
        self.pending.remove(alert)
        by_key = self.sent.setdefault(alert.route, {})
        if alert.is_resolve:
            self.triggered[alert.route] = [key for key in self.triggered.get(alert.route, []) if key != alert.dedup_key]
        for change in alert.news:
            by_key[change.key] = Sent(now, change.rank, change.is_over, alert.dedup_key)
        self.note(alert, "sent", answer, now)

    def note(self, alert: Alert, status: str, answer: str, now: datetime) -> None:
        """Add a line to the log of what became of alerts."""
        self.log.append(
            {
                "at": now,
                "status": status,
                "route": alert.route,
                "id": alert.id,
                "kind": kind_of([change.kind for change in alert.news]),
                "severity": alert.severity,
                "title": alert.title,
                "answer": answer,
                "opening_count": sum(not change.is_over for change in alert.news),
            }
        )


def _openings(logged: Mapping[str, Any]) -> int:
    """Return how many alerts that tell no end a line of the log is about; earlier versions did not count them."""
    return int(logged.get("opening_count", logged["kind"] not in OVER))


def _is_about(alert: Alert, key: str) -> bool:
    return any(change.key == key for change in alert.news)


def _new_id() -> str:
    return secrets.token_hex(12)


def _plain(value: Any) -> Any:
    if isinstance(value, datetime):
        return {"time": value.isoformat()}
    raise TypeError(type(value).__name__)


def _timed(value: dict[str, Any]) -> Any:
    return datetime.fromisoformat(value["time"]) if value.keys() == {"time"} else value
