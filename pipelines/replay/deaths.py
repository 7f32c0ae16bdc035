"""A plan's dead-letter topics -> which of its records died again since the run began."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterable
from typing import Self

from confluent_kafka import KafkaException, TopicPartition

from pipelines.errors import AfterlogError
from pipelines.kafka.errors import named
from pipelines.replay.client import Admin, Answers, consumer, describe
from pipelines.replay.fetch import headers_of
from pipelines.replay.model import PLAN, RECORD, Headers, Plan, Replayed, bytes_of, text_of
from pipelines.settings import Settings

# Headers of share groups, as Kafka 4.4 writes them and as KIP-1317 drafts them: topic, partition, offset.
_COORDINATES = (
    ("__dlq.errors.topic", "__dlq.errors.partition", "__dlq.errors.offset"),
    ("_dlq.errors.original.topic", "_dlq.errors.original.partition", "_dlq.errors.original.offset"),
)
_MOST = 2_000  # records of one look, so that a flood of dead letters does not hold a run up

log = logging.getLogger("afterlog")


class Deaths:
    """Watches the topics of the plan's dead letters from their present ends on.

    A record that died again carries the plan's header, if what dead-letters keeps headers, or the coordinates of a
    record that the plan replayed. Topics that are gone, or that Afterlog is not allowed to read, are not watched.
    """

    def __init__(self, settings: Settings, admin: Admin, plan: Plan) -> None:
        """Find the ends; raises AfterlogError: the cluster does not answer."""
        self._plan = bytes_of(plan.plan_id)
        self._coordinates: dict[tuple[str, int, int], str] = {}
        self._records = {record.letter.coordinate for record in plan.records}
        self.died: set[str] = set()
        names = {record.letter.topic for record in plan.records}
        topics = describe(admin, names)
        watched = {
            name: topic for name, topic in topics.items() if topic.ends is not None and topic.may_read is not False
        }
        if unwatched := sorted(names - watched.keys()):
            log.warning("Afterlog cannot read %s, so it will not notice if records die again.", named(unwatched))
        ends = [
            TopicPartition(name, partition, end)
            for name, topic in watched.items()
            for partition, end in enumerate(topic.ends or ())
        ]
        self._reader = consumer(settings, "read_uncommitted", answers=Answers(settings)) if ends else None
        if self._reader is not None:
            self._reader.assign(ends)

    def __enter__(self) -> Self:
        """Return the watch."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close the consumer."""
        if self._reader is not None:
            self._reader.close()

    def replayed(self, records: Iterable[Replayed]) -> None:
        """Take records that were replayed, so that their coordinates are known."""
        for replayed in records:
            self._coordinates[replayed.record.topic, replayed.partition, replayed.offset] = (
                replayed.record.letter.coordinate
            )

    def look(self) -> int:
        """Read what has come, and return how many records of the plan have died again."""
        if self._reader is not None:
            for _ in range(_MOST // 200):
                messages = []
                with contextlib.suppress(KafkaException, AfterlogError):
                    messages = self._reader.consume(200, timeout=0)
                for message in messages:
                    if message.error() is None and (letter := self._letter(headers_of(message))) is not None:
                        self.died.add(letter)
                if not messages:
                    break
        return len(self.died)

    def _letter(self, headers: Headers) -> str | None:
        """Return the coordinate of the dead letter whose replay died, given the headers of the new one."""
        last = dict(headers)
        if last.get(PLAN) == self._plan:
            coordinate = text_of(last.get(RECORD))
            return coordinate if coordinate in self._records else None
        for names in _COORDINATES:
            topic, partition, offset = ((last.get(name) or b"").decode("utf-8", "replace") for name in names)
            if partition.isascii() and partition.isdigit() and offset.isascii() and offset.isdigit():
                known_coordinate = self._coordinates.get((topic, int(partition), int(offset)))
                if known_coordinate is not None:
                    return known_coordinate
        return None
