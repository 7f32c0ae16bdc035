"""A channel: a kind of receiver, with its settings, its payload, how it is reached, and what stays open at it."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, ClassVar

from pipelines.alerts.delivery import Outcome, Post
from pipelines.alerts.messages import Alert
from pipelines.settings.alerts import Route


@dataclass(frozen=True)
class Frame:
    """What a payload has beside its alert; ``front`` is the address of the report, ``key`` the secret of the route."""

    route: Route
    cluster: str
    front: str | None
    now: datetime
    key: str = field(default="", repr=False)


class Channel(ABC):
    """What the outbox and the sender ask of a kind of receiver."""

    kind: ClassVar[str]
    keeps_open: ClassVar[bool] = False
    """Whether an alert stays open at the receiver, under its ``dedup_key``, until its end comes.

    Then each gets its end, also in quiet hours and if the route is gone. ``passed`` is not told, as it calls nobody.
    """
    label: ClassVar[str]
    """The receiver's name in sentences about what is open there."""
    noted_as: ClassVar[str | None] = None
    """What the outbox notes of a channel that keeps alerts open; the first one has no note."""
    key_setting: ClassVar[str] = "routing_key_env"
    """The setting that names the environment variable with the secret."""
    addresses: ClassVar[tuple[str, ...]] = ()
    """The receiver's public addresses; the first one is meant if a route has none."""

    def address(self, route: Route, environment: Mapping[str, str] = os.environ) -> tuple[str | None, str]:
        """Return the address of a route and its secret; None and the reason if one is not known."""
        values = {}
        for name in (route.url_env, getattr(route, self.key_setting)):
            values[name] = environment.get(name or "", "").strip()  # files of secrets often end with a line end
            if name is not None and not values[name]:
                return None, f"the environment variable {name} is not set"
        key = values[getattr(route, self.key_setting)]
        if route.url is not None:
            return route.url.get_secret_value(), key
        return (values[route.url_env] if route.url_env else self.where(route)), key

    def where(self, route: Route) -> str:
        """Return the receiver of a route that has no address."""
        return self.addresses[0]

    @abstractmethod
    def body(self, alert: Alert, frame: Frame) -> Mapping[str, Any]:
        """Return the payload of an alert."""

    def send(self, alert: Alert, frame: Frame, address: str, seconds: float, post: Post) -> Outcome:
        """Send an alert within so many seconds, and return what became of it; ``post`` makes one request."""
        return post(address, self.body(alert, frame), alert.id, seconds)
