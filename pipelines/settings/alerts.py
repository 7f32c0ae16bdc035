"""Settings of alerts: which news goes to which receiver, when, and how."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from datetime import time
from typing import Annotated, Literal, NamedTuple
from zoneinfo import ZoneInfo

from pydantic import Field, SecretStr, field_validator, model_validator

from pipelines.settings.payloads import Glob
from pipelines.settings.section import Section

Severity = Literal["critical", "high", "medium", "low"]
NewsKind = Literal["opened", "regressed", "worse", "resolved", "passed", "finding", "finding_over"]
Verdict = Literal[
    "POISON_PILL", "KEY_LOCAL", "PARTITION_LOCAL", "PRODUCER_LOCAL", "SYSTEMIC", "REJECTION", "FLOOD", "UNDETERMINED"
]
Variable = Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")]

_URL = re.compile(r"https?://[!-~]+")
Mailbox = Annotated[str, Field(pattern=r"^[A-Za-z0-9.!#$%&'*+/=?^_`{|}~-]{1,64}@[A-Za-z0-9.-]{1,189}$")]


class Needs(NamedTuple):
    """The settings that a channel needs, else it says ``otherwise``, and those that only it takes."""

    is_met: Callable[[Route], bool]
    otherwise: str
    own: tuple[str, ...] = ()


_WEBHOOK = Needs(lambda route: route.url is not None or route.url_env is not None, "give url or url_env")
CHANNELS: Mapping[str, Needs] = {
    "json": _WEBHOOK,
    "slack": _WEBHOOK,
    "teams": _WEBHOOK,
    "pagerduty": Needs(lambda route: route.routing_key_env is not None, "a route to PagerDuty needs routing_key_env"),
    "opsgenie": Needs(
        lambda route: route.api_key_env is not None, "a route to Opsgenie needs api_key_env", ("api_key_env",)
    ),
    "email": Needs(
        lambda route: None not in (route.host, route.sender) and bool(route.to) and not (route.url or route.url_env),
        "a route by e-mail needs host, from and to, and no url",
        ("host", "encryption", "user", "password_env", "sender", "to"),
    ),
}


class QuietHours(Section):
    """Hours of each day in which a route is silent: from ``begin`` to ``end``, in a timezone.

    What comes meanwhile is told at their end in one message. News of ``except_severity`` or worse is told at once.
    """

    begin: time
    end: time
    timezone: str = "UTC"
    except_severity: Severity | None = "critical"

    @field_validator("begin", "end")
    @classmethod
    def _check_time(cls, at: time) -> time:
        if at.tzinfo is not None:
            raise ValueError("write a time such as 22:00, and its timezone as timezone")
        return at

    @field_validator("timezone")
    @classmethod
    def _check_timezone(cls, name: str) -> str:
        try:
            ZoneInfo(name)
        except (ValueError, OSError, LookupError):
            raise ValueError("name a timezone such as Europe/Berlin") from None
        return name


class Route(Section):
    """A receiver and the news that goes to it; a route without conditions gets all.

    ``url`` or the environment variable ``url_env`` has the address, ``host`` that of a mail server. Keys and passwords
    are in the environment variables that ``routing_key_env``, ``api_key_env`` and ``password_env`` name.
    ``severity`` is the least that is told. ``group`` and ``topic`` are glob patterns for owner and topic: an
    incident has a source topic and DLQ topics. ``team`` is one of ``[[team]]``. ``suppress_minutes`` is the least time
    between two alerts about one incident or finding, unless it got more severe or ended. From ``storm_from`` alerts
    within ten minutes on, one message tells all.
    """

    name: Annotated[str, Field(pattern=r"^[A-Za-z0-9_.-]{1,64}$")]
    kind: Literal["json", "slack", "teams", "pagerduty", "opsgenie", "email"] = "json"
    url: SecretStr | None = None
    url_env: Variable | None = None
    routing_key_env: Variable | None = None
    api_key_env: Variable | None = None
    host: Annotated[str, Field(pattern=r"^[A-Za-z0-9.-]{1,253}(:[0-9]{1,5})?$")] | None = None
    encryption: Literal["starttls", "tls"] | None = None
    user: Annotated[str, Field(max_length=320)] | None = None
    password_env: Variable | None = None
    sender: Mailbox | None = Field(default=None, alias="from")
    to: tuple[Mailbox, ...] = ()
    severity: Severity = "low"
    group: Glob = "*"
    topic: Glob = "*"
    team: str | None = None
    verdicts: tuple[Verdict, ...] = ()
    news: tuple[NewsKind, ...] = ()
    owner: Annotated[str, Field(max_length=200)] | None = None
    suppress_minutes: Annotated[float, Field(ge=0, le=10_080)] = 60.0
    storm_from: Annotated[int, Field(ge=2)] = 5
    quiet_hours: QuietHours | None = None

    @field_validator("url")
    @classmethod
    def _check_url(cls, url: SecretStr | None) -> SecretStr | None:
        if url is not None and not _URL.fullmatch(url.get_secret_value()):
            raise ValueError("write an address that begins with https:// or http://")
        return url

    @model_validator(mode="after")
    def _check_address(self) -> Route:
        if self.url is not None and self.url_env is not None:
            raise ValueError("give one of url, url_env")
        channel = CHANNELS[self.kind]
        if not channel.is_met(self):
            raise ValueError(channel.otherwise)
        for kind, needs in CHANNELS.items():
            if foreign := next((name for name in needs.own if kind != self.kind and getattr(self, name)), None):
                raise ValueError(f'{Route.model_fields[foreign].alias or foreign} is a setting of kind = "{kind}"')
        if (self.user is None) != (self.password_env is None):
            raise ValueError("user and password_env go together")
        return self


class Alerts(Section):
    """Where news goes: ``route`` by route. Findings about trust are told from the severity ``findings_from`` on.

    ``timeout_seconds`` is for a whole request. An alert that no receiver took for ``retry_hours`` is given up.
    """

    route: tuple[Route, ...] = ()
    findings_from: Severity = "high"
    timeout_seconds: Annotated[float, Field(gt=0, le=60)] = 10.0
    retry_hours: Annotated[float, Field(gt=0, le=720)] = 24.0

    @model_validator(mode="after")
    def _check_names(self) -> Alerts:
        names = [route.name for route in self.route]
        if twice := next((name for name in names if names.count(name) > 1), None):
            raise ValueError(f"two routes have the name {twice}")
        return self
