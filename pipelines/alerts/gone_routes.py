"""Routes that the settings lost -> the route that has their receiver now, or the end of what they have open.

A route that is renamed goes on under its new name. What a route that is gone has open at its receiver ends if its key
is still in the environment, or people are told which alerts stay open.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any

from expectations.rules import counted
from expectations.text import visible
from pipelines.alerts.channels import channel_of, keeper
from pipelines.alerts.outbox import REMEMBERED, Outbox, Receiver
from pipelines.incidents.severity import LEVELS
from pipelines.run.newest import moment
from pipelines.settings.alerts import Alerts, Route
from pipelines.text import elided

MOST_NAMED = 5
WIDEST = 120
STAYS = "Resolve them there: the settings have no route with its receiver, and its routing key is not known."


@dataclass(frozen=True)
class Open:
    """An alert that is open at a receiver: its key there, what it is about, and when it was sent last."""

    dedup_key: str
    title: str
    severity: str
    at: datetime


@dataclass(frozen=True)
class Left:
    """What a gone route has open at its ``receiver``; after ``until`` it is ended, or the route ``heir`` has it."""

    route: str
    receiver: str
    alerts: tuple[Open, ...]
    until: datetime | None
    heir: str | None

    @property
    def in_words(self) -> str:
        """The open alerts."""
        number = len(self.alerts)
        titles = "; ".join(elided(alert.title, WIDEST) for alert in self.alerts[:MOST_NAMED])
        more = f"; and {number - MOST_NAMED:,} more" if number > MOST_NAMED else ""
        return (
            f"Route {self.route} is no longer in the settings, and {counted(number, 'alert')} of it "
            f"{'is' if number == 1 else 'are'} open at {self.receiver}: {visible(titles)}{more}."
        )

    @property
    def remedy(self) -> str:
        """What happens to these alerts next, or what a person must do."""
        if self.until is None:
            return STAYS
        what = f"route {self.heir} takes them over" if self.heir else f"{self.receiver} gets their end"
        return f"In the first run after {moment(self.until)} {what}, unless the route is back."


def receiver(route: Route, environment: Mapping[str, str] = os.environ) -> Receiver | None:
    """Return who gets what is sent to a route, without any secret; None if a variable is not set."""
    channel = channel_of(route)
    url, key = channel.address(route, environment)
    if url is None:
        return None
    digest = hashlib.sha256("\n".join((route.kind, url, key)).encode("utf-8", "surrogatepass")).hexdigest()[:32]
    key_env, has_url = getattr(route, channel.key_setting), route.url is not None
    return Receiver(digest, key_env, route.url_env, has_url, channel=channel.noted_as)


def settle(box: Outbox, alerts: Alerts, now: datetime) -> list[Route]:
    """Record the receiver of each route, and let routes take over from gone routes that had the same receiver.

    A route with a new name takes over at once, any other once the gone route is gone for good. Return routes that
    replace gone ones for as long as it takes to end what they have open.
    """
    before = {name: replace(target) for name, target in box.receivers.items()}
    here: dict[str, str] = {}
    new: dict[str, str] = {}
    for route in alerts.route:
        if (target := receiver(route)) is not None:
            here.setdefault(target.digest, route.name)
            if route.name not in before:
                new.setdefault(target.digest, route.name)
            box.receivers[route.name] = target
        elif route.name in box.receivers:
            box.receivers[route.name].gone_at = None
    names = {route.name for route in alerts.route}
    for name in _gone(box, names):
        gone = box.receivers.setdefault(name, Receiver(""))
        gone.gone_at = min(gone.gone_at or now, now)  # clocks go back
        is_for_good = _ends_at(gone, alerts, now) <= now
        if heir := new.get(gone.digest) or (here.get(gone.digest) if is_for_good else None):
            box.take_over(name, heir)
        elif now - gone.gone_at > REMEMBERED:
            box.forget(name)
    for name in [name for name in box.receivers if name not in names and not box.is_known(name)]:
        del box.receivers[name]
    if box.receivers != before:
        box.save(now)
    ending = {name: box.receivers[name] for name in _gone(box, names) if box.triggered.get(name)}
    stood = [_replacement_of(name, target) for name, target in ending.items() if _ends_at(target, alerts, now) <= now]
    return [route for route in stood if route is not None]


def left_open(box: Outbox, alerts: Alerts, now: datetime) -> list[Left]:
    """Return what each gone route has open at its receiver."""
    known: Mapping[str, Any] = {**box.known.get("incidents", {}), **box.known.get("findings", {})}
    here = {target.digest: route.name for route in alerts.route if (target := receiver(route)) is not None}
    open_routes = []
    for name in _gone(box, {route.name for route in alerts.route}):
        sent = box.sent.get(name, {})
        gone = box.receivers.get(name, Receiver(""))
        opened = []
        for dedup_key in box.triggered.get(name, ()):
            about = {key: last for key, last in sent.items() if last.dedup_key == dedup_key}
            titles = [known[key]["news"]["title"] for key in about if key in known]
            worst = LEVELS[min((last.rank for last in about.values()), default=-1)]
            at = max((last.at for last in about.values()), default=now)
            opened.append(Open(dedup_key, ", ".join(titles) or dedup_key, worst, at))
        if opened:
            heir = here.get(gone.digest)
            until = _ends_at(gone, alerts, now) if heir or _replacement_of(name, gone) else None
            open_routes.append(Left(name, keeper(gone.channel).label, tuple(opened), until, heir))
    return open_routes


def _gone(box: Outbox, names: set[str]) -> Sequence[str]:
    return [
        name for name in dict.fromkeys((*box.receivers, *box.triggered)) if name not in names and box.is_known(name)
    ]


def _ends_at(gone: Receiver, alerts: Alerts, now: datetime) -> datetime:
    """Return the time from which a route counts as gone for good: one run may have used other settings."""
    return (gone.gone_at or now) + timedelta(hours=alerts.retry_hours)


def _replacement_of(name: str, gone: Receiver) -> Route | None:
    """Return a route to the receiver of a gone route; None if its address or its key is not known."""
    if gone.routing_key_env is None:
        return None
    channel = keeper(gone.channel)
    for url in channel.addresses if gone.has_url else (None,):
        settings = {"kind": channel.kind, channel.key_setting: gone.routing_key_env, "url": url}
        route = Route.model_validate({"name": name, "url_env": gone.url_env, **settings})
        target = receiver(route)
        if target is not None and target.digest == gone.digest:
            return route
    return None
