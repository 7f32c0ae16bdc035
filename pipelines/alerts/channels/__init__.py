"""The channels of alerts: one module each, with all that differs between kinds of receivers."""

from __future__ import annotations

from pipelines.alerts.channels.base import Channel, Frame
from pipelines.alerts.channels.mail import Email
from pipelines.alerts.channels.opsgenie import Opsgenie
from pipelines.alerts.channels.pagerduty import PagerDuty
from pipelines.alerts.channels.slack import Slack
from pipelines.alerts.channels.teams import Teams
from pipelines.alerts.channels.webhook import Webhook
from pipelines.settings.alerts import Route

__all__ = ("CHANNELS", "Channel", "Frame", "channel_of", "keeper")

CHANNELS: dict[str, Channel] = {
    channel.kind: channel for channel in (Webhook(), Slack(), Teams(), PagerDuty(), Opsgenie(), Email())
}


def channel_of(route: Route) -> Channel:
    """Return the channel of a route."""
    return CHANNELS[route.kind]


def keeper(noted_as: str | None) -> Channel:
    """Return the channel that keeps alerts open of which the outbox has this note."""
    return next(channel for channel in CHANNELS.values() if channel.keeps_open and channel.noted_as == noted_as)
