"""Opsgenie, ``kind = "opsgenie"``: its Alert API, which Jira Service Management has under an address of its own, too.

Facts: https://docs.opsgenie.com/docs/alert-api (fields, lengths, regions, 202 for what is worked off later),
.../docs/alert-api-continued (the priority), .../docs/alerts-and-alert-fields (HTML in texts) and
https://prometheus.io/docs/alerting/latest/configuration/#opsgenie_config (a repeated alert changes no field).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

from expectations.text import visible
from pipelines.alerts.channels.base import Channel, Frame
from pipelines.alerts.delivery import Outcome, Post
from pipelines.alerts.messages import MOST_LISTED, Alert, headline, line, more
from pipelines.text import cut

MOST_OF_MESSAGE, MOST_OF_DESCRIPTION, MOST_OF_SOURCE, MOST_OF_DETAIL = 130, 15_000, 100, 500  # characters
PRIORITY = {"critical": "P1", "high": "P2", "medium": "P3", "low": "P5"}
NO_MARKUP = str.maketrans("<>", "\u2039\u203a")  # it reads HTML in texts


class Opsgenie(Channel):
    """An alert opens under its alias, and a request with the alias closes it; a storm is one alert."""

    kind = "opsgenie"
    label = "Opsgenie"
    keeps_open = True
    noted_as = "opsgenie"
    key_setting = "api_key_env"
    addresses = (
        "https://api.opsgenie.com/v2/alerts",
        "https://api.eu.opsgenie.com/v2/alerts",
        "https://api.atlassian.com/jsm/ops/integration/v2/alerts",
    )

    def body(self, alert: Alert, frame: Frame) -> Mapping[str, Any]:
        """Return what opens an alert, or closes it."""
        source = cut(visible(frame.cluster), MOST_OF_SOURCE)
        if alert.is_resolve:
            return {"user": "Afterlog", "source": source, "note": "It is over."}
        change, count = alert.news[0], len(alert.news)
        text = change.text
        page: str | None = change.page or frame.front
        names = {"topic": change.topic, "group": change.group or change.owner, "verdict": change.verdict}
        if count > 1:
            text = "\n".join((*(line(change) for change in alert.news[:MOST_LISTED]), *more(alert)))
            page, names = frame.front, {}
        details = {**names, "owner": frame.route.owner, "page": page, "alert_id": alert.id}
        return {
            "message": cut(headline(alert).translate(NO_MARKUP), MOST_OF_MESSAGE),
            "alias": alert.dedup_key,
            "description": cut(text.translate(NO_MARKUP), MOST_OF_DESCRIPTION),
            "priority": PRIORITY[alert.severity],
            "source": source,
            "details": {
                name: cut(visible(detail).translate(NO_MARKUP), MOST_OF_DETAIL)
                for name, detail in details.items()
                if detail
            },
        }

    def send(self, alert: Alert, frame: Frame, address: str, seconds: float, post: Post) -> Outcome:
        """Open an alert or close it.

        What got worse gets its priority first, as opening it again does not change that. If the priority is refused,
        the alert is told nevertheless.
        """
        if not (frame.key.isascii() and frame.key.isprintable()):
            return Outcome(False, "its key cannot be used", is_refused=True)
        headers, body = {"Authorization": f"GenieKey {frame.key}"}, self.body(alert, frame)

        def of_alias(what: str) -> str:
            return f"{address.rstrip('/')}/{quote(alert.dedup_key, safe='')}/{what}?identifierType=alias"

        if alert.is_resolve:
            return post(of_alias("close"), body, alert.id, seconds, headers)
        if alert.news[0].kind == "worse" and len(alert.news) == 1:
            seconds /= 2
            priority = {"priority": body["priority"]}
            outcome = post(of_alias("priority"), priority, alert.id, seconds, headers, "PUT")
            if not (outcome.is_taken or outcome.is_refused):
                return outcome
        return post(address, body, alert.id, seconds, headers)
