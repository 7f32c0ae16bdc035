"""The outbox -> what was sent, what waits and why, for people and as JSON."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import datetime

from expectations.text import visible
from pipelines import moments
from pipelines.alerts import departed
from pipelines.alerts.messages import headline
from pipelines.alerts.outbox import Outbox, quiet
from pipelines.commands import known
from pipelines.commands.check import Check
from pipelines.run.newest import moment
from pipelines.settings import Settings
from pipelines.settings.teams import NO_TEAM
from pipelines.teams import is_of
from pipelines.text import iso
from pipelines.warehouse.alert_log import NO_ROUTE, place
from pipelines.warehouse.tables import Warehouse

MOST_SHOWN = 30


def listed(settings: Settings, form: str, team: str | None = None) -> str:
    """Return the alerts that wait, those that routes that are gone left open, and those that were sent, suppressed or
    given up, the latest first; of a ``team`` those of its routes.

    Raises UsageError: only Spark opens the warehouse. EnvironmentLacking: the outbox cannot be read.
    """
    now = moments.now()
    box = Outbox.read(place(Warehouse(settings)))
    routes = {route.name: route for route in settings.alerts.route}

    def is_asked(name: str) -> bool:
        route = routes.get(name)
        return is_of(team, [(route and route.team) or NO_TEAM])

    waiting = []
    for alert in (one for one in box.pending if is_asked(one.route)):
        route = routes.get(alert.route)
        why = alert.answer or "to be sent by the next run"
        if route is None:
            why = "the settings have no such route"
        elif box.is_muted(alert):
            why = "its incident is muted"
        elif not alert.attempts and quiet(route, alert.severity, now):
            why = "quiet hours"
        elif not alert.attempts and alert.not_before > now:
            why = "suppressed: another alert about it was sent shortly before"
        waiting.append(
            {
                "at": iso(alert.made_at),
                "status": "pending",
                "route": alert.route,
                "id": alert.id,
                "severity": alert.severity,
                "title": headline(alert),
                "attempts": alert.attempts,
                "not_before": iso(alert.not_before),
                "answer": why,
            }
        )
    left = [
        {
            "at": iso(one.at),
            "status": "open",
            "route": gone.route,
            "id": one.dedup_key,
            "severity": one.severity,
            "title": one.title,
            "answer": f"at PagerDuty, and the settings have no such route; {gone.remedy}",
        }
        for gone in departed.left_open(box, settings.alerts, now)
        if is_asked(gone.route)
        for one in gone.alerts
    ]
    over = [one | {"at": iso(one["at"])} for one in reversed(box.log) if is_asked(one["route"])]
    if form == "json":
        return "\n".join(json.dumps(one) for one in (*waiting, *left, *over))
    if not routes and not left:
        return NO_ROUTE
    if not waiting and not left and not over:
        return "Nothing was sent yet, and nothing waits."
    lines = []
    for one in (*waiting, *left, *over)[:MOST_SHOWN]:
        at = moment(datetime.fromisoformat(one["at"]))
        said = f"{visible(str(one['title']))} ({visible(str(one['answer']))})"
        lines.append(f"{at}  {one['status']:<10}  {one['route']}  {one['severity']}  {said}")
    if (more := len(waiting) + len(left) + len(over) - MOST_SHOWN) > 0:
        lines.append(f"and {more:,} more: --format json")
    return "\n".join(lines)


def checks(settings: Settings) -> Iterator[Check]:
    """Yield what `afterlog doctor` says of alerts.

    Raises EnvironmentLacking: the outbox cannot be read.
    """
    warehouse = Warehouse(settings)
    if warehouse.opens_tables:
        for one in departed.left_open(Outbox.read(place(warehouse)), settings.alerts, moments.now()):
            yield Check("alerts", "warning", one.in_words, one.remedy)
        for finding, remedy in unmatched(warehouse):
            yield Check("alerts", "warning", finding, remedy, of_pattern=True)


def unmatched(warehouse: Warehouse) -> Iterator[tuple[str, str]]:
    """Yield what is to be said of routes for owners and topics that no dead letter and no finding has."""
    routes = [one for one in warehouse.settings.alerts.route if (one.group, one.topic) != ("*", "*")]
    there = known.letters(warehouse) if routes else []
    if not there:
        return
    owners, topics = known.owners_and_topics(there)
    of_findings = known.topics_of_findings(warehouse)
    for one in routes:
        fits_finding = one.group == "*" and any(known.matches(one.topic, name) for name in of_findings)
        if not fits_finding and not known.has(there, one.group, one.topic):
            is_of_owner = not any(known.matches(one.group, name) for name in owners)
            wanted = (one.group, owners) if is_of_owner else (one.topic, [*topics, *of_findings])
            lacks = "no owner" if is_of_owner else "no topic of its owners"
            yield known.said(f"[[alerts.route]] {one.name}", lacks, *wanted)
