"""Finds news and sends what is due; one sender at a time, beside any writer."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from pipelines import moments
from pipelines.alerts import delivery, gone_routes, messages
from pipelines.alerts.channels import Frame, channel_of
from pipelines.alerts.delivery import Outcome, Post
from pipelines.alerts.messages import Alert
from pipelines.alerts.news import Snapshot, changes, snapshot
from pipelines.alerts.outbox import LONGEST_RETRY, Outbox
from pipelines.alerts.turns import ask, heed, is_asked, sole_sender
from pipelines.errors import readable
from pipelines.settings import Settings
from pipelines.settings.alerts import Route
from pipelines.warehouse.alert_log import outbox_store
from pipelines.warehouse.tables import Warehouse

BUDGET_SECONDS = 20.0  # of a call, after which what waits waits for the next one
FIRST_PAUSE, LONGEST_PAUSE = timedelta(seconds=10), timedelta(minutes=15)
MOST_REFUSALS = 5


@dataclass
class Done:
    """What a call did: alerts sent, alerts that wait, what went wrong and what stays open, each a sentence."""

    sent: int = 0
    waiting: int = 0
    is_alone: bool = True
    problems: tuple[str, ...] = ()
    left_open: tuple[str, ...] = ()


def send(
    settings: Settings,
    now: Callable[[], datetime] = lambda: moments.now(),
    post: Post = delivery.post,
    look: Callable[[Warehouse, datetime], Snapshot] = snapshot,
    clock: Callable[[], float] = time.monotonic,
    stopping: Callable[[], bool] = lambda: False,
) -> Done:
    """Find what is new, keep it, and send what is due to the routes of the settings, until ``stopping``.

    Another process may be sending: then this one leaves all to it. That one looks again when it is done, as it may have
    looked too early. If the tables cannot be read, what waits is sent nevertheless. Settings without a route tell no
    news; then only what routes that are gone have open at their receivers is ended.

    Raises UsageError: only Spark opens the warehouse. EnvironmentLacking: the outbox cannot be read or written.
    """
    warehouse = Warehouse(settings)
    kept = outbox_store(warehouse)
    end = clock() + BUDGET_SECONDS
    done = Done(is_alone=False)
    ask(kept)
    while is_asked(kept) and not stopping():
        with sole_sender(kept) as is_alone:
            if not is_alone:
                break
            heed(kept)
            box = Outbox.read(kept)
            gone = gone_routes.settle(box, settings.alerts, now())
            unread = _look(box, warehouse, now(), look) if settings.alerts.route else []
            _drop_routes_that_are_gone(box, settings, now())
            for route in gone:
                box.give_up(route.name, now())
            routes = (*settings.alerts.route, *gone)
            sent, problems = _send_due(box, settings, routes, now, post, lambda: 0.0 if stopping() else end - clock())
            all_problems = dict.fromkeys((*done.problems, *unread, *problems))
            left = tuple(
                f"{route.in_words} {route.remedy}" for route in gone_routes.left_open(box, settings.alerts, now())
            )
            done = Done(done.sent + sent, len(box.pending), True, tuple(all_problems), left)
    return done


def _look(
    box: Outbox, warehouse: Warehouse, now: datetime, look: Callable[[Warehouse, datetime], Snapshot]
) -> list[str]:
    """Take what is new into the outbox and save it; return why nothing can be read, if so."""
    settings = warehouse.settings.alerts
    try:
        with warehouse.store.pinned():
            seen = look(warehouse, now)
    except Exception as error:  # a damaged table must not keep back what waits
        return [f"News cannot be looked for: {readable(error)}"]
    news, known = changes(box.known, seen, settings.findings_from, now)
    box.merge(seen.merged, now)
    box.take(news, settings.route, now, seen.teams)
    muted = box.muted if seen.incidents is None else seen.muted
    if news or (known, muted) != (box.known, box.muted):
        box.known, box.muted = known, muted
        box.save(now)
    return []


def try_out(settings: Settings, route: Route, post: Post = delivery.post) -> Outcome:
    """Send one test alert to a route at once."""
    at = moments.now()
    alert = Alert(f"test-{at:%Y%m%dT%H%M%S%f}", route.name, [messages.news_of_a_test(at)], at, at)
    return _posted(alert, route, settings, at, post)


def _send_due(
    box: Outbox,
    settings: Settings,
    routes: Sequence[Route],
    now: Callable[[], datetime],
    post: Post,
    left: Callable[[], float],
) -> tuple[int, list[str]]:
    """Send what is due while seconds are ``left``; return how many alerts were sent, and what went wrong.

    Receivers that did not answer before come last, so that they keep no time from the others.
    """
    sent, problems = 0, []
    failing = {alert.route for alert in box.pending if alert.attempts}
    for route in sorted(routes, key=lambda route: route.name in failing):
        waited = [(alert.id, alert.was_quiet, alert.is_held) for alert in box.pending]
        box.balance(route, now())
        due = box.due(route, now())
        if waited != [(alert.id, alert.was_quiet, alert.is_held) for alert in box.pending]:
            box.save(now())
        for alert in due:
            seconds = min(settings.alerts.timeout_seconds, left())
            if seconds <= 0:
                break
            box.tried(alert, route)
            box.save(now())
            outcome = _posted(alert, route, settings, now(), post, seconds)
            alert.answer = outcome.words
            if outcome.is_taken:
                box.settled(alert, now(), outcome.words)
                sent += 1
            else:
                problems.append(f"Route {route.name} did not take an alert: {outcome.words}.")
                _postpone(box, alert, outcome, settings, now())
            box.save(now())
            if not outcome.is_taken:
                break  # the receiver is away: others for it wait, too
    return sent, problems


def _posted(
    alert: Alert, route: Route, settings: Settings, now: datetime, post: Post, seconds: float | None = None
) -> Outcome:
    channel = channel_of(route)
    address, key = channel.address(route)
    if address is None:
        return Outcome(False, key)
    frame = Frame(route, settings.cluster, settings.report.address_of("index.html"), now, key)
    return channel.send(alert, frame, address, settings.alerts.timeout_seconds if seconds is None else seconds, post)


def _postpone(box: Outbox, alert: Alert, outcome: Outcome, settings: Settings, now: datetime) -> None:
    """Try it again after a longer pause, or give it up if it was refused or failed too often."""
    is_late = now - alert.made_at > timedelta(hours=settings.alerts.retry_hours)
    if is_late or (outcome.is_refused and alert.attempts >= MOST_REFUSALS):
        box.pending.remove(alert)
        box.note(alert, "failed", outcome.words, now)
        return
    pause = min(LONGEST_PAUSE, FIRST_PAUSE * 2 ** min(alert.attempts - 1, 10)) * random.uniform(0.5, 1.0)
    if outcome.retry_after is not None:
        pause = max(pause, timedelta(seconds=min(outcome.retry_after, LONGEST_RETRY.total_seconds())))
    alert.not_before = now + pause


def _drop_routes_that_are_gone(box: Outbox, settings: Settings, now: datetime) -> None:
    """Give up alerts for routes that the settings have not had for a while; other settings may be in use for once."""
    names = {route.name for route in settings.alerts.route}
    oldest = now - timedelta(hours=settings.alerts.retry_hours)
    gone = [alert for alert in box.pending if alert.route not in names and alert.made_at < oldest]
    for alert in gone:
        box.pending.remove(alert)
        box.note(alert, "failed", "the settings have no such route any more", now)
    if gone:
        box.save(now)
