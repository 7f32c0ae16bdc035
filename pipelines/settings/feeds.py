"""Settings of single feeds: their topics, the time zone of their logs, their profiles and policies."""

from __future__ import annotations

import re
from typing import Annotated, Literal
from zoneinfo import available_timezones

from pydantic import Field, field_validator, model_validator

from expectations.silver.dlq_records import PROFILES
from pipelines.settings.profiles import MAX_PROFILES, OwnProfile, RequiredProfile, shipped_profiles
from pipelines.settings.section import Section

LANDING_DIRECTORIES = (
    *("dlq", "streams-requests", "cluster-settings"),
    *("acknowledgements", "producers", "changes", "broker-logs", "segments"),
)


class Topics(Section):
    """Whether a feed also reads topics (``source = "kafka"``), and how.

    A batch takes at most ``max_records_per_batch`` offsets, however many wait.
    """

    source: Literal["files", "kafka"] = "files"
    isolation_level: Literal["read_committed", "read_uncommitted"] = "read_committed"
    max_records_per_batch: Annotated[int, Field(ge=1)] = 500_000

    @property
    def pattern(self) -> str:
        """The regular expression that the whole name of a topic must match."""
        raise NotImplementedError

    @property
    def wanted(self) -> str:
        """The topics to read, as a phrase for messages."""
        raise NotImplementedError


class _OneTopic(Topics):
    topic: Annotated[str, Field(min_length=1)] | None = None

    @model_validator(mode="after")
    def _check_topic(self) -> _OneTopic:
        if self.source == "kafka" and self.topic is None:
            raise ValueError('source = "kafka" needs the name of a topic')
        return self

    @property
    def pattern(self) -> str:
        """The topic's name, as a regular expression."""
        return re.escape(self.topic or "")

    @property
    def wanted(self) -> str:
        """The topic, as a phrase for messages."""
        return f"topic {self.topic}"


class Dlq(Topics):
    """Dead letters; the feed reads all topics, also new ones, whose whole name matches ``subscribe_pattern``."""

    require: tuple[RequiredProfile, ...] = ()
    profile: Annotated[tuple[OwnProfile, ...], Field(max_length=MAX_PROFILES)] = ()
    disabled_profiles: tuple[str, ...] = ()
    subscribe_pattern: Annotated[str, Field(min_length=1)] = r"dlq\..*"

    @model_validator(mode="after")
    def _check_profiles(self) -> Dlq:
        own = [profile.name for profile in self.profile]
        for name in own:
            if own.count(name) > 1:
                raise ValueError(f"two profiles have the name {name}")
        shipped = [profile.name for profile in shipped_profiles()]
        for name in self.disabled_profiles:
            if name not in shipped:
                raise ValueError(f"disabled_profiles: {name} is no shipped profile; they are: {', '.join(shipped)}")
        known = [*PROFILES, *dict.fromkeys((*own, *(name for name in shipped if name not in self.disabled_profiles)))]
        for number, required in enumerate(self.require):
            if required.profile not in known:
                raise ValueError(f"require.{number}.profile names no profile; profiles: {', '.join(known)}")
        return self

    @property
    def mapped(self) -> tuple[OwnProfile, ...]:
        """The profiles beside the specified ones: those of the settings, then the shipped ones that they leave."""
        left = {*self.disabled_profiles, *(profile.name for profile in self.profile)}
        return (*self.profile, *(profile for profile in shipped_profiles() if profile.name not in left))

    @field_validator("subscribe_pattern")
    @classmethod
    def _check_pattern(cls, pattern: str) -> str:
        try:
            re.compile(pattern)
        except re.error as error:
            raise ValueError(f"it is not a regular expression ({error})") from None
        return pattern

    @property
    def pattern(self) -> str:
        """The pattern of the topics' names."""
        return self.subscribe_pattern

    @property
    def wanted(self) -> str:
        """The topics, as a phrase for messages."""
        return f"topics that match {self.subscribe_pattern}"


class _Log(Section):
    timezone: str = "UTC"
    layout: Annotated[str, Field(min_length=1)] | None = None

    @field_validator("timezone")
    @classmethod
    def _check_timezone(cls, name: str) -> str:
        if name not in available_timezones():
            raise ValueError("no such time zone; name one like Europe/Berlin")
        return name


class StreamsRequests(_Log, _OneTopic):
    """The brokers' request log: the time zone of its timestamps, which name none, and the topic that holds it.

    ``layout`` is the logger's layout in log4j's pattern language, for one that is not found by looking.

    A member is silent when its last heartbeat is ``silent_after_seconds`` older than the latest logged exchange of its
    group.
    """

    silent_after_seconds: Annotated[float, Field(gt=0.0, le=86_400.0)] = 60.0


class BrokerLogs(_Log):
    """The brokers' own log: the time zone of its timestamps, which name none, and its ``layout`` as above."""


class Acknowledgements(_OneTopic):
    """Producers' acknowledgements; the record header ``trace_header`` holds a message's trace."""

    trace_header: Annotated[str, Field(min_length=1)] = "traceparent"


class CleanupPolicy(Section):
    """The topic configuration ``cleanup.policy`` of the topics that match a glob pattern."""

    topic: Annotated[str, Field(min_length=1)]
    policy: str

    @field_validator("policy")
    @classmethod
    def _check_policy(cls, policy: str) -> str:
        parts = {part.strip() for part in policy.split(",")} - {""}
        if not parts <= {"compact", "delete"}:
            raise ValueError("write it as Kafka does: delete, compact, or both with a comma")
        return ",".join(sorted(parts))


class Segments(Section):
    """Log segments; the first entry of ``cleanup_policy`` that matches a topic says its policy.

    An acknowledged message that is absent from the log is lost only if the log is known not to be compacted.
    """

    cleanup_policy: tuple[CleanupPolicy, ...] = ()


class Collect(Section):
    """How often `afterlog run --follow` asks the cluster for its settings; without ``every_seconds`` it does not."""

    every_seconds: Annotated[float, Field(ge=1.0, le=86_400.0)] | None = None
