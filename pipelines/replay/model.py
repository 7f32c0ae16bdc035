"""A plan of a replay: which records go where, with which bytes, in which order."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple, Self

from expectations.rules import GREATEST_MILLIS

Headers = tuple[tuple[str, bytes | None], ...]

_COORDINATE = re.compile(r"(?s)(.{1,249}):([0-9]{1,10}):([0-9]{1,19})")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MILLIS = re.compile(r"[0-9]{1,15}")
PREFIX = "afterlog.replay."
PLAN, RECORD, ATTEMPT = f"{PREFIX}plan", f"{PREFIX}record", f"{PREFIX}attempt"
ORIGINAL, TIMESTAMP = f"{PREFIX}original", f"{PREFIX}timestamp"
REPLAY_HEADERS = frozenset({PLAN, RECORD, ATTEMPT, ORIGINAL, TIMESTAMP})
"""Headers of a replayed record: its plan; its dead letter's coordinate; the number of the attempt; the coordinate of
the record, TOPIC:PARTITION:OFFSET, before all replays and retries; its timestamp there in milliseconds since 1970. All
values are ASCII text; a header whose value is unknown is left out."""


class Letter(NamedTuple):
    """The coordinate of a dead letter: its topic with id (empty if unknown), partition and offset."""

    topic: str
    topic_id: str
    partition: int
    offset: int

    @classmethod
    def of(cls, row: Mapping[str, Any]) -> Self:
        """Return the coordinate of a row's dead letter."""
        return cls(row["dlq_topic"], row["dlq_topic_id"] or "", row["dlq_partition"], row["dlq_offset"])

    @property
    def coordinate(self) -> str:
        """TOPIC:PARTITION:OFFSET."""
        return f"{self.topic}:{self.partition}:{self.offset}"

    def may_be(self, other: Letter) -> bool:
        """Tell whether it can be the same dead letter: a file does not tell the topic's id, which is learned later."""
        return self.coordinate == other.coordinate and (
            self.topic_id == other.topic_id or "" in (self.topic_id, other.topic_id)
        )


class Source(NamedTuple):
    """The coordinate of the record that failed, as far as it is known, and its timestamp in milliseconds since 1970."""

    topic: str | None
    partition: int | None
    offset: int | None
    timestamp: int | None = None

    @property
    def coordinate(self) -> str | None:
        """TOPIC:PARTITION:OFFSET; None if a part is unknown."""
        if self.topic is None or self.partition is None or self.offset is None:
            return None
        return f"{self.topic}:{self.partition}:{self.offset}"

    @classmethod
    def of(cls, row: Mapping[str, Any], timestamp: int | None = None) -> Self:
        """Return the record that failed, as a row of a dead letter, a plan or a replay names it."""
        return cls(row["original_topic"], row["original_partition"], row["original_offset"], timestamp)

    @classmethod
    def told_by(cls, headers: Iterable[tuple[str, str | bytes | None]]) -> Self | None:
        """Return the first coordinate and time that headers of a replayed record tell; None if they tell none."""
        values = {name: text_of(value) for name, value in headers if name in (ORIGINAL, TIMESTAMP)}
        at = values.get(TIMESTAMP, "")
        is_time = _MILLIS.fullmatch(at) and int(at) <= GREATEST_MILLIS
        return cls.of_coordinate(values.get(ORIGINAL, ""), int(at) if is_time else None)

    @classmethod
    def of_coordinate(cls, text: str, timestamp: int | None = None) -> Self | None:
        """Return the record at TOPIC:PARTITION:OFFSET; None if the text is no coordinate."""
        match = _COORDINATE.fullmatch(text)
        return cls(match[1], int(match[2]), int(match[3]), timestamp) if match is not None else None


def bytes_of(text: str) -> bytes:
    """Return the value of a header that a replay adds."""
    return text.encode("ascii", "backslashreplace")


def text_of(value: str | bytes | None) -> str:
    """Return the text of a header that a replay added; empty if there is none."""
    return value if isinstance(value, str) else (value or b"").decode("ascii", "replace")


def attempt_of(headers: Iterable[tuple[str, str | bytes | None]]) -> int:
    """Return the number of the replay that headers of a replayed record tell; 0 if they tell none."""
    values = {name: text_of(value) for name, value in headers if name in (PLAN, ATTEMPT)}
    number = values.get(ATTEMPT, "")
    return int(number) if PLAN in values and re.fullmatch("[0-9]{1,9}", number) else 0


def millis_of(at: datetime | None) -> int | None:
    """Return a time in milliseconds since 1970, without the rest of a millisecond."""
    return None if at is None else (at - _EPOCH) // timedelta(milliseconds=1)


@dataclass(frozen=True)
class Target:
    """A topic that records are replayed to: its id as Kafka writes it, and the end offset of each partition.

    The end offsets are high watermarks, taken before the plan was written, so nothing of the plan stands before them.
    """

    topic: str
    topic_id: str
    ends: tuple[int, ...]


@dataclass(frozen=True)
class PlannedRecord:
    """A record to replay; ``position`` is its index in the plan's order, from 0.

    ``key``, ``value`` and ``headers`` are what is produced, without the headers of dead-letter profiles and without
    those that a replay adds. ``partition`` is that of the target; None: the key decides, as in Kafka's own producer.
    ``attempt`` counts the replays of the record that failed first, from 1. ``first`` is where and when that record was
    written first, if that is not ``source``. ``dead_lettered_at`` is when the dead letter was written, if it is known.
    """

    position: int
    letter: Letter
    source: Source
    group: str | None
    attempt: int
    topic: str
    partition: int | None
    key: bytes | None
    value: bytes | None
    headers: Headers
    first: Source | None = None
    dead_lettered_at: datetime | None = None

    @property
    def origin(self) -> Source:
        """Where and when the record was written first, as far as it is known."""
        return self.first or self.source


@dataclass(frozen=True)
class Plan:
    """A plan; ``plan_id`` follows from ``plan_hash``, and the hash from all that the plan says."""

    plan_id: str
    plan_hash: str
    cluster: str
    kafka_cluster_id: str
    created_at: datetime
    targets: tuple[Target, ...]
    records: tuple[PlannedRecord, ...]
    again: bool = False
    """Whether records that another plan replayed before may be replayed again."""
    allowed: tuple[str, ...] = ()
    """Doubts (`judge.DOUBTS`) in spite of which records are replayed."""


@dataclass(frozen=True)
class Replayed:
    """A record of a plan that stands committed on its target; ``timestamp`` in milliseconds since 1970."""

    record: PlannedRecord
    partition: int
    offset: int
    timestamp: int
