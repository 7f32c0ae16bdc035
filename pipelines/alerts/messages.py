"""An alert -> the body that a receiver reads: our own JSON, Slack's blocks, PagerDuty's Events API v2."""

from __future__ import annotations

from collections import Counter
from datetime import datetime
from typing import Any

from expectations.text import visible
from pipelines.alerts.news import News
from pipelines.alerts.outbox import Alert
from pipelines.incidents.severity import LEVELS
from pipelines.settings.alerts import Route
from pipelines.text import iso

VERSION = 1
MOST_LISTED, MOST_IN_JSON = 20, 500
MOST_OF_TITLE, MOST_OF_TEXT, MOST_OF_SUMMARY = 150, 2_900, 1_024  # characters that Slack and PagerDuty take
PAGERDUTY_SEVERITY = {"critical": "critical", "high": "error", "medium": "warning", "low": "info"}


def body(alert: Alert, route: Route, cluster: str, front: str | None, now: datetime, key: str = "") -> dict[str, Any]:
    """Return what is posted; ``front`` is the address of the report, ``key`` the routing key of PagerDuty."""
    makers = {"json": _json, "slack": _slack}
    if route.kind == "pagerduty":
        return _pagerduty(alert, route, cluster, front, key)
    return makers[route.kind](alert, route, cluster, front, now)


def headline(alert: Alert) -> str:
    """Return an alert in a line: its severity and what it is about."""
    if len(alert.news) == 1:
        return _line(alert.news[0])
    counts = Counter("over" if change.is_over else change.severity for change in alert.news)
    parts = [f"{counts[level]} {level}" for level in (*LEVELS, "over") if counts[level]]
    worst = next((level for level in LEVELS if counts[level]), "over")
    return f"[{worst}] {len(alert.news)} alerts at once: {', '.join(parts)}"


def _line(change: News) -> str:
    """Return a change in a line, which begins with words if the incident came back or got worse."""
    words = {"worse": "got worse: ", "regressed": "came back: "}.get(change.kind, "")
    return f"[{'over' if change.is_over else change.severity}] {words}{change.title}"


def _json(alert: Alert, route: Route, cluster: str, front: str | None, now: datetime) -> dict[str, Any]:
    return {
        "version": VERSION,
        "id": alert.id,
        "sent_at": iso(now),
        "route": route.name,
        "owner": route.owner,
        "cluster": cluster,
        "severity": alert.severity,
        "title": headline(alert),
        "report": front,
        "is_grouped": len(alert.news) > 1,
        "alert_count": len(alert.news),
        "alerts": [change.as_json() for change in alert.news[:MOST_IN_JSON]],
    }


def _slack(alert: Alert, route: Route, cluster: str, front: str | None, now: datetime) -> dict[str, Any]:
    title = headline(alert)
    blocks: list[dict[str, Any]] = [
        {"type": "header", "text": {"type": "plain_text", "text": _cut(title, MOST_OF_TITLE), "emoji": False}}
    ]
    for change in alert.news[:MOST_LISTED]:
        link = f" <{change.page}|Open it>" if change.page else ""
        heading = "" if len(alert.news) == 1 else f"{_escaped(_cut(_line(change), 330))}: "
        text = _cut(f"{heading}{_escaped(_cut(change.text, 1_000))}", MOST_OF_TEXT - len(link))
        blocks.append({"type": "section", "text": {"type": "mrkdwn", "text": text + link, "verbatim": True}})
    if len(alert.news) > MOST_LISTED:
        more = f"and {len(alert.news) - MOST_LISTED} more"
        blocks.append({"type": "section", "text": {"type": "mrkdwn", "text": more}})
    facts = [f"cluster {_escaped(_cut(cluster, 200))}", route.owner, f"<{front}|Report>" if front else None, alert.id]
    context = " · ".join(fact for fact in facts if fact)
    blocks.append({"type": "context", "elements": [{"type": "mrkdwn", "text": _cut(context, MOST_OF_TEXT)}]})
    return {"text": _escaped(_cut(title, MOST_OF_TITLE)), "blocks": blocks}


def _pagerduty(alert: Alert, route: Route, cluster: str, front: str | None, key: str) -> dict[str, Any]:
    change, is_storm = alert.news[0], len(alert.news) > 1
    event: dict[str, Any] = {
        "routing_key": key,
        "event_action": "resolve" if alert.is_resolve else "trigger",
        "dedup_key": alert.dedup_key,
    }
    if event["event_action"] == "resolve":
        return event
    details: dict[str, Any] = {"text": change.text, "alert_id": alert.id, "owner": route.owner, **change.about}
    if is_storm:
        details = {
            "alerts": [_line(change) for change in alert.news[:MOST_LISTED]],
            "alert_count": len(alert.news),
            "alert_id": alert.id,
            "owner": route.owner,
        }
    address = front if is_storm else change.page or front
    event["payload"] = {
        "summary": _cut(headline(alert), MOST_OF_SUMMARY),
        "source": cluster,
        "severity": PAGERDUTY_SEVERITY[alert.severity],
        "timestamp": change.at,
        "component": visible(change.topic) if change.topic else None,
        "group": visible(whose) if (whose := change.group or change.owner) else None,
        "class": change.verdict or change.kind,
        "custom_details": details,
    }
    event["client"] = "Afterlog"
    if address:
        event |= {"client_url": address, "links": [{"href": address, "text": "The page of Afterlog"}]}
    return event


def news_of_a_test(now: datetime) -> News:
    """Return the news of a test."""
    at = iso(now)
    text = "This is a test: nothing is wrong, and nothing is to be done."
    return News("test", "test", "low", "a test of this route", text, f"afterlog-test-{at}", at)


def _escaped(text: str) -> str:
    """Return text in which Slack finds no mention, link or command."""
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def _cut(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[: most - 1]}…"
