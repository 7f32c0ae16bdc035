"""The outbox of alerts, as far as others read it: where it is, and what became of alerts, as rows of quality.alerts."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Sequence
from typing import Any

from expectations.contract import Column, Contract
from pipelines.incidents.severity import LEVELS
from pipelines.stores import locations
from pipelines.stores.base import Store
from pipelines.warehouse.tables import Warehouse

DIRECTORY, FILE, LOCK = "_alerts", "outbox.json", ".lock"
NO_ROUTE = "No route is set: see [[alerts.route]] in docs/alerts.md."

ALERTS = Contract(
    table="quality.alerts",
    description="One row per alert that was sent, suppressed or given up, or that waits; read from the outbox.",
    columns=(
        Column("cluster", "string", "Kafka cluster, a setting."),
        Column("at", "timestamp", "When it was sent, suppressed or given up; of one that waits when it was made."),
        Column("status", "string", "sent, suppressed, failed or pending."),
        Column("route", "string", "Route that it goes to, by the settings."),
        Column("alert_id", "string", "Id of the alert, as its receiver knows it."),
        Column("kind", "string", "Kind of its news, such as opened or finding; storm where it has several."),
        Column("severity", "string", "The worst severity of its news."),
        Column("title", "string", "What it is about."),
        Column("answer", "string", "What the receiver answered, or why it was not sent; null where it is to be sent."),
    ),
    grain=("cluster", "alert_id"),
)


def outbox_store(warehouse: Warehouse) -> Store:
    """Return the store of the outbox of a warehouse's cluster; a warehouse can hold several clusters.

    Raises UsageError: only Spark opens the warehouse.
    """
    warehouse.refuse_spark_only("alerts are sent")
    name = warehouse.cluster
    if not re.fullmatch(
        r"[a-z0-9][a-z0-9_]{0,63}", name
    ):  # others could be no file's name, or one that differs in case
        digest = hashlib.sha256(name.encode("utf-8", "surrogatepass")).hexdigest()[:16]
        name = f"{re.sub(r'[^a-z0-9_]+', '-', name.lower())[:40]}-{digest}"
    return locations.of(f"{warehouse.root}/{DIRECTORY}/{name}")


def alerts(warehouse: Warehouse) -> list[dict[str, Any]]:
    """Return the rows of quality.alerts, times as ISO-8601 text; none if the outbox cannot be read."""
    if not warehouse.opens_tables:
        return []
    try:
        outbox = json.loads(outbox_store(warehouse).text(FILE) or "{}")
        waiting = [_waiting(alert) for alert in outbox.get("pending", ())]
        over = [
            _row(alert["at"]["time"], alert["status"], alert, alert["title"], alert["answer"])
            for alert in outbox.get("log", ())
        ]
    except (OSError, ValueError, LookupError, TypeError, AttributeError):  # `afterlog alerts` says why
        return []
    return [{"cluster": warehouse.cluster, **row} for row in (*over, *waiting)]


def kind_of(kinds: Sequence[str]) -> str:
    """Return the kind of an alert, from those of its news."""
    return kinds[0] if len(kinds) == 1 else "storm"


def severity_of(severities: Iterable[str]) -> str:
    """Return the severity of an alert: the worst one of its news."""
    return min(severities, key=LEVELS.index)


def title_of(titles: Sequence[str]) -> str:
    """Return what an alert is about, in a line, from the titles of its news."""
    return titles[0] if len(titles) == 1 else f"{len(titles)} alerts: {titles[0]}, ..."


def _waiting(alert: dict[str, Any]) -> dict[str, Any]:
    kinds, severities, titles = ([item[name] for item in alert["news"]] for name in ("kind", "severity", "title"))
    facts = {"route": alert["route"], "id": alert["id"], "kind": kind_of(kinds), "severity": severity_of(severities)}
    return _row(alert["made_at"]["time"], "pending", facts, title_of(titles), alert["answer"])


def _row(at: str, status: str, facts: dict[str, Any], title: str, answer: str | None) -> dict[str, Any]:
    return {
        "at": at,
        "status": status,
        "route": facts["route"],
        "alert_id": facts["id"],
        "kind": facts["kind"],
        "severity": facts["severity"],
        "title": title,
        "answer": answer,
    }
