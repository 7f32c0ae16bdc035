"""The outbox -> what was sent, what waits and why, for people and as JSON."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import datetime

from expectations.text import visible
from pipelines import moments
from pipelines.alerts import gone_routes
from pipelines.alerts.messages import Alert, headline
from pipelines.alerts.outbox import Outbox
from pipelines.alerts.routes import quiet
from pipelines.commands import known
from pipelines.commands.check import Check
from pipelines.run.newest import moment
from pipelines.settings import Settings
from pipelines.settings.alerts import Route
from pipelines.settings.teams import NO_TEAM
from pipelines.teams import is_of
from pipelines.text import iso
from pipelines.warehouse.alert_log import NO_ROUTE, outbox_store
from pipelines.warehouse.tables import Warehouse

MOST_SHOWN = 30


def listed(settings: Settings, form: str, team: str | None = None) -> str:
    """List the alerts that wait, those that gone routes left open, and those that were sent, suppressed or given up.

    The newest come first. With a ``team``, only alerts of its routes are listed.

    Raises UsageError: only Spark opens the warehouse. EnvironmentLacking: the outbox cannot be read.
    """
    now = moments.now()
    box = Outbox.read(outbox_store(Warehouse(settings)))
    routes = {route.name: route for route in settings.alerts.route}

    def is_asked(name: str) -> bool:
        route = routes.get(name)
        return is_of(team, [(route and route.team) or NO_TEAM])

    waiting = [
        {
            "at": iso(alert.made_at),
            "status": "pending",
            "route": alert.route,
            "id": alert.id,
            "severity": alert.severity,
            "title": headline(alert),
            "attempts": alert.attempts,
            "not_before": iso(alert.not_before),
            "answer": _why_waiting(alert, routes.get(alert.route), box, now),
        }
        for alert in box.pending
        if is_asked(alert.route)
    ]
    left = [
        {
            "at": iso(alert.at),
            "status": "open",
            "route": gone.route,
            "id": alert.dedup_key,
            "severity": alert.severity,
            "title": alert.title,
            "answer": f"at {gone.receiver}, and the settings have no such route; {gone.remedy}",
        }
        for gone in gone_routes.left_open(box, settings.alerts, now)
        if is_asked(gone.route)
        for alert in gone.alerts
    ]
    over = [line | {"at": iso(line["at"])} for line in reversed(box.log) if is_asked(line["route"])]
    if form == "json":
        return "\n".join(json.dumps(row) for row in (*waiting, *left, *over))
    if not routes and not left:
        return NO_ROUTE
    if not waiting and not left and not over:
        return "Nothing was sent yet, and nothing waits."
    lines = []
    for row in (*waiting, *left, *over)[:MOST_SHOWN]:
        at = moment(datetime.fromisoformat(row["at"]))
        said = f"{visible(str(row['title']))} ({visible(str(row['answer']))})"
        lines.append(f"{at}  {row['status']:<10}  {row['route']}  {row['severity']}  {said}")
    if (more := len(waiting) + len(left) + len(over) - MOST_SHOWN) > 0:
        lines.append(f"and {more:,} more: --format json")
    return "\n".join(lines)


def _why_waiting(alert: Alert, route: Route | None, box: Outbox, now: datetime) -> str:
    """Say why an alert was not sent yet."""
    if route is None:
        return "the settings have no such route"
    if box.is_muted(alert):
        return "its incident is muted"
    if not alert.attempts and quiet(route, alert.severity, now):
        return "quiet hours"
    if not alert.attempts and alert.not_before > now:
        return "suppressed: another alert about it was sent shortly before"
    return alert.answer or "to be sent by the next run"


def checks(settings: Settings) -> Iterator[Check]:
    """Yield what `afterlog doctor` says of alerts.

    Raises EnvironmentLacking: the outbox cannot be read.
    """
    warehouse = Warehouse(settings)
    if warehouse.opens_tables:
        for left in gone_routes.left_open(Outbox.read(outbox_store(warehouse)), settings.alerts, moments.now()):
            yield Check("alerts", "warning", left.in_words, left.remedy)
        for finding, remedy in unmatched(warehouse):
            yield Check("alerts", "warning", finding, remedy, of_pattern=True)


def unmatched(warehouse: Warehouse) -> Iterator[tuple[str, str]]:
    """Yield a finding and a remedy for each route whose owner or topic no dead letter and no finding has."""
    routes = [route for route in warehouse.settings.alerts.route if (route.group, route.topic) != ("*", "*")]
    there = known.letters(warehouse) if routes else []
    if not there:
        return
    owners, topics = known.owners_and_topics(there)
    of_findings = known.topics_of_findings(warehouse)
    for route in routes:
        fits_finding = route.group == "*" and any(known.matches(route.topic, name) for name in of_findings)
        if not fits_finding and not known.has(there, route.group, route.topic):
            is_of_owner = not any(known.matches(route.group, name) for name in owners)
            wanted = (route.group, owners) if is_of_owner else (route.topic, [*topics, *of_findings])
            lacks = "no owner" if is_of_owner else "no topic of its owners"
            yield known.said(f"[[alerts.route]] {route.name}", lacks, *wanted)
