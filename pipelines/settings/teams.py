"""Settings of teams: what is theirs, when their routes of alerts are silent, how they limit replays."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field, field_validator, model_validator

from pipelines.settings.alerts import QuietHours
from pipelines.settings.payloads import Glob
from pipelines.settings.section import Section

NO_TEAM = "no team"
"""What stands for a team where no team has a pattern for something."""


class ReplayLimits(Section):
    """What a team allows at most of replays of its dead letters; a limit of ``[replay]`` that is lower stays.

    ``most_records`` are those of one plan. Its dead letters never go to topics that match ``never_to``.
    """

    most_records: Annotated[int, Field(ge=1)] | None = None
    max_replays: Annotated[int, Field(ge=0)] | None = None
    never_to: tuple[Glob, ...] = ()


class Team(Section):
    """A team and the glob patterns of what is its own.

    ``topics`` are source topics and DLQ topics, ``groups`` owners as everywhere: consumer groups, ``connector *``.
    ``applications`` are those of Kafka Streams, those that headers name, and producers by their client id. Routes of
    alerts with this ``team`` and without quiet hours of their own have its ``quiet_hours``.
    """

    name: Annotated[str, Field(min_length=1, max_length=64)]
    topics: tuple[Glob, ...] = ()
    groups: tuple[Glob, ...] = ()
    applications: tuple[Glob, ...] = ()
    quiet_hours: QuietHours | None = None
    replay: ReplayLimits = ReplayLimits()

    @field_validator("name")
    @classmethod
    def _check_name(cls, name: str) -> str:
        if not name.isprintable() or name != name.strip():
            raise ValueError("write it in characters that can be seen, without spaces around it")
        if name.casefold() == NO_TEAM:
            raise ValueError(f"'{NO_TEAM}' stands for what is of no team")
        return name

    @model_validator(mode="after")
    def _check_patterns(self) -> Team:
        if not (self.topics or self.groups or self.applications):
            raise ValueError("give topics, groups or applications")
        return self
