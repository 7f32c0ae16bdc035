"""PagerDuty, ``kind = "pagerduty"``: events of its Events API v2.

Facts: https://developer.pagerduty.com/docs/send-alert-event
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from expectations.text import visible
from pipelines.alerts.channels.base import Channel, Frame
from pipelines.alerts.messages import MOST_LISTED, Alert, headline, line
from pipelines.text import cut

MOST_OF_SUMMARY = 1_024  # characters
SEVERITY = {"critical": "critical", "high": "error", "medium": "warning", "low": "info"}


class PagerDuty(Channel):
    """A trigger opens an alert, and a resolve with its key closes it; a storm is one alert with a key of its own."""

    kind = "pagerduty"
    label = "PagerDuty"
    keeps_open = True
    addresses = ("https://events.pagerduty.com/v2/enqueue",)

    def body(self, alert: Alert, frame: Frame) -> Mapping[str, Any]:
        """Return an event."""
        change, is_storm = alert.news[0], len(alert.news) > 1
        event: dict[str, Any] = {
            "routing_key": frame.key,
            "event_action": "resolve" if alert.is_resolve else "trigger",
            "dedup_key": alert.dedup_key,
        }
        if event["event_action"] == "resolve":
            return event
        owner = frame.route.owner
        details: dict[str, Any] = {"text": change.text, "alert_id": alert.id, "owner": owner, **change.about}
        if is_storm:
            details = {
                "alerts": [line(change) for change in alert.news[:MOST_LISTED]],
                "alert_count": len(alert.news),
                "alert_id": alert.id,
                "owner": owner,
            }
        address = frame.front if is_storm else change.page or frame.front
        event["payload"] = {
            "summary": cut(headline(alert), MOST_OF_SUMMARY),
            "source": frame.cluster,
            "severity": SEVERITY[alert.severity],
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
