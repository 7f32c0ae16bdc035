"""A plan of a replay: which records go where, with which bytes, in which order."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, NamedTuple, Self

Headers = tuple[tuple[str, bytes | None], ...]

PREFIX = "afterlog.replay."
PLAN, RECORD, ATTEMPT = f"{PREFIX}plan", f"{PREFIX}record", f"{PREFIX}attempt"
ORIGINAL, TIMESTAMP = f"{PREFIX}original", f"{PREFIX}timestamp"
"""Headers of a replayed record: its plan; its dead letter's place; the number of the attempt; the place of the record
that failed, TOPIC:PARTITION:OFFSET; that record's timestamp in milliseconds since 1970. All values are ASCII text; a
header whose value is unknown is left out."""


class Letter(NamedTuple):
    """The place of a dead letter: its topic with id (empty if unknown), partition and offset."""

    topic: str
    topic_id: str
    partition: int
    offset: int

    @classmethod
    def of(cls, row: Mapping[str, Any]) -> Self:
        """Return the place of a row's dead letter."""
        return cls(row["dlq_topic"], row["dlq_topic_id"] or "", row["dlq_partition"], row["dlq_offset"])

    @property
    def place(self) -> str:
        """TOPIC:PARTITION:OFFSET."""
        return f"{self.topic}:{self.partition}:{self.offset}"

    def may_be(self, other: Letter) -> bool:
        """Tell whether it can be the same dead letter: a file does not tell the topic's id, which is learned later."""
        return self.place == other.place and (self.topic_id == other.topic_id or "" in (self.topic_id, other.topic_id))


class Source(NamedTuple):
    """The place of the record that failed, as far as it is known, and its timestamp in milliseconds since 1970."""

    topic: str | None
    partition: int | None
    offset: int | None
    timestamp: int | None = None

    @property
    def place(self) -> str | None:
        """TOPIC:PARTITION:OFFSET; None if a part is unknown."""
        if self.topic is None or self.partition is None or self.offset is None:
            return None
        return f"{self.topic}:{self.partition}:{self.offset}"


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
    """A record to replay; ``position`` is its place in the plan's order, from 0.

    ``key``, ``value`` and ``headers`` are what is produced, without the headers of dead-letter profiles and without
    those that a replay adds. ``partition`` is that of the target; None: the key decides, as in Kafka's own producer.
    ``attempt`` counts the replays of the record that failed first, from 1.
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

    def target(self, topic: str) -> Target:
        """Return the target of a topic of the plan."""
        return next(target for target in self.targets if target.topic == topic)


@dataclass(frozen=True)
class Replayed:
    """A record of a plan that stands committed on its target; ``timestamp`` in milliseconds since 1970."""

    record: PlannedRecord
    partition: int
    offset: int
    timestamp: int
