"""Coordinates of records -> the records as they stand in their topics."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum

from confluent_kafka import Consumer, KafkaError, Message, TopicPartition

from pipelines.errors import UsageError
from pipelines.kafka.errors import named
from pipelines.replay.client import Admin, Answers, Isolation, Topic, admin, consumer, describe, offsets
from pipelines.replay.model import Headers, Letter
from pipelines.settings import Settings

Coordinate = tuple[str, int, int]

GAP = 5_000  # records that are read and dropped, rather than seeking to the next wanted one
_MANY = 500


class Missing(Enum):
    """Why there is no record at a coordinate."""

    ABSENT = "absent"
    """The topic, the partition or the record is gone, or the offset is that of a transaction marker."""

    ABORTED = "aborted"
    """Its transaction was aborted."""

    OPEN = "open"
    """It stands behind the beginning of a transaction that has not ended."""


ABSENT, ABORTED, OPEN = Missing.ABSENT, Missing.ABORTED, Missing.OPEN


@dataclass(frozen=True)
class Fetched:
    """A record as it stands in its topic; ``timestamp`` in milliseconds since 1970, None if it has none."""

    key: bytes | None
    value: bytes | None
    headers: Headers
    timestamp: int | None


def fetch(
    settings: Settings, coordinates: Iterable[Coordinate], topics: Mapping[str, Topic] | None = None
) -> dict[Coordinate, Fetched | Missing]:
    """Return the record at each coordinate (topic, partition, offset), or why there is none.

    ``topics`` are those of the coordinates as they are now; None: the cluster is asked for them.

    Raises AfterlogError: the cluster does not answer, or Afterlog is not allowed to read one of the topics.
    """
    wanted = sorted(set(coordinates))
    records: dict[Coordinate, Fetched | Missing] = dict.fromkeys(wanted, ABSENT)
    if not wanted:
        return records
    asked = admin(settings)
    here, behind = _readable(asked, wanted, topics)
    records |= dict.fromkeys(behind, OPEN)
    committed = _read(settings, here, "read_committed")
    records |= committed
    hidden = _read(settings, [coordinate for coordinate in here if coordinate not in committed], "read_uncommitted")
    records |= dict.fromkeys(hidden, ABORTED)
    return records


def coordinate_of(letter: Letter) -> Coordinate:
    """Return the coordinate of a dead letter."""
    return letter.topic, letter.partition, letter.offset


def headers_of(message: Message) -> Headers:
    """Return a record's headers in order."""
    return tuple(message.headers() or ())  # type: ignore[arg-type]


def _readable(
    asked: Admin, wanted: Sequence[Coordinate], topics: Mapping[str, Topic] | None
) -> tuple[list[Coordinate], list[Coordinate]]:
    """Return the coordinates that the logs cover: before the last stable offset, and behind it."""
    topics = describe(asked, {topic for topic, _, _ in wanted}) if topics is None else topics
    refused = sorted(name for name, topic in topics.items() if topic.may_read is False)
    if refused:
        raise UsageError(
            f"Afterlog is not allowed to read {named(refused)}, where the original records are: grant it the operation "
            "Read there."
        )
    logs = {
        (name, partition): (topic.starts[partition], topic.ends[partition])
        for name, topic in topics.items()
        if topic.starts is not None and topic.ends is not None
        for partition in range(topic.partitions)
    }
    there = [
        coordinate
        for coordinate in wanted
        if coordinate[:2] in logs and logs[coordinate[:2]][0] <= coordinate[2] < logs[coordinate[:2]][1]
    ]
    stable = offsets(asked, {coordinate[:2] for coordinate in there}, "latest", "read_committed")
    here = [coordinate for coordinate in there if coordinate[2] < stable.get(coordinate[:2], 0)]
    return here, [coordinate for coordinate in there if coordinate[2] >= stable.get(coordinate[:2], 0)]


def _read(settings: Settings, coordinates: Sequence[Coordinate], isolation: Isolation) -> dict[Coordinate, Fetched]:
    """Return the records that are there; read ranges of offsets that are near each other in one go."""
    ranges: dict[tuple[str, int], list[list[int]]] = defaultdict(list)
    for topic, partition, offset in coordinates:
        of_partition = ranges[topic, partition]
        if of_partition and offset - of_partition[-1][-1] <= GAP:
            of_partition[-1].append(offset)
        else:
            of_partition.append([offset])
    records: dict[Coordinate, Fetched] = {}
    if not ranges:
        return records
    answers = Answers(settings)
    reader = consumer(settings, isolation, answers=answers)
    try:
        for number in range(max(map(len, ranges.values()))):
            spans = {
                topic_partition: of_partition[number]
                for topic_partition, of_partition in ranges.items()
                if number < len(of_partition)
            }
            records |= _read_spans(reader, answers, spans)
    finally:
        reader.close()
    return records


def _read_spans(
    reader: Consumer, answers: Answers, spans: Mapping[tuple[str, int], Sequence[int]]
) -> dict[Coordinate, Fetched]:
    """Read one range of each partition."""
    records: dict[Coordinate, Fetched] = {}
    left = {topic_partition: set(span) for topic_partition, span in spans.items()}
    reader.assign([TopicPartition(*topic_partition, span[0]) for topic_partition, span in spans.items()])
    for topic_partition, offset, message in stream(reader, answers):
        if topic_partition not in left:
            continue
        if message is not None and offset in left[topic_partition]:
            records[*topic_partition, offset] = Fetched(
                message.key(), message.value(), headers_of(message), _timestamp(message)
            )
        if message is None or offset >= spans[topic_partition][-1]:
            del left[topic_partition]
            if not left:
                break
            reader.incremental_unassign([TopicPartition(*topic_partition)])
    reader.unassign()
    return records


def stream(reader: Consumer, answers: Answers) -> Iterator[tuple[tuple[str, int], int, Message | None]]:
    """Yield records with partition and offset, and None at the end of a partition.

    Raises AfterlogError: no record comes within the time that a request may take.
    """
    last = time.monotonic()
    while True:
        # Asked for many, a client waits for all of them until its time is up; asked for one, it returns with it.
        messages = reader.consume(_MANY, timeout=0) or reader.consume(1, timeout=0.2)
        for message in messages:
            error = message.error()
            if error is None:
                yield (message.topic() or "", message.partition() or 0), message.offset() or 0, message
            elif error.code() == KafkaError._PARTITION_EOF:
                yield (message.topic() or "", message.partition() or 0), message.offset() or 0, None
        if messages:
            last = time.monotonic()
        elif answers.hopeless or time.monotonic() - last > answers.seconds:
            raise answers.sentence(None)


def _timestamp(message: Message) -> int | None:
    kind, millis = message.timestamp()
    return millis if kind and millis >= 0 else None
