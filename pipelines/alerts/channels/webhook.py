"""A webhook of your own, ``kind = "json"``: all that an alert has, as one object (docs/alerts.md)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pipelines.alerts.channels.base import Channel, Frame
from pipelines.alerts.messages import Alert, headline
from pipelines.text import iso

VERSION = 1
MOST_IN_JSON = 500


class Webhook(Channel):
    """Takes a message for each alert, and one for a storm."""

    kind = "json"

    def body(self, alert: Alert, frame: Frame) -> Mapping[str, Any]:
        """Return the object."""
        return {
            "version": VERSION,
            "id": alert.id,
            "sent_at": iso(frame.now),
            "route": frame.route.name,
            "owner": frame.route.owner,
            "cluster": frame.cluster,
            "severity": alert.severity,
            "title": headline(alert),
            "report": frame.front,
            "is_grouped": len(alert.news) > 1,
            "alert_count": len(alert.news),
            "alerts": [change.as_json() for change in alert.news[:MOST_IN_JSON]],
        }
