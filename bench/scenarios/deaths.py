"""An incident -> which records of the topic die, as its verdict says."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator
from dataclasses import dataclass, field

from bench.scenarios.errors import Consumer
from bench.scenarios.labels import Suspect, Undecidable
from bench.scenarios.topics import Source, Topic, Trait
from pipelines.commands.generated_letters import Error


@dataclass(eq=False)
class Incident:
    """An incident under construction; ``keys``, ``partition`` and ``trait`` say where a regression strikes again."""

    consumer: Consumer
    error: Error
    verdict: str
    noise: bool
    trait: Trait = Trait()  # noqa: RUF009  # it cannot change
    partition: int = 0
    keys: tuple[bytes, ...] = ()
    suspect: Suspect | None = None
    predecessor: Incident | None = None
    dead: list[tuple[int, Source]] = field(default_factory=list)

    @property
    def times(self) -> list[int]:
        """The times of its dead letters."""
        return [at for at, _ in self.dead]


@dataclass(eq=False)
class DeadLetter:
    """A dead letter of an incident: when it was written, for which record, and where it stands."""

    incident: Incident
    at: int
    source: Source
    partition: int = 0
    offset: int = 0
    line: str = ""


def _skip(r: random.Random, share: float) -> int:
    """Return how many records of the log go through before the next one dies."""
    return 0 if share >= 1 else int(math.log(1 - r.random()) / math.log(1 - share))


def dying(topic: Topic, incident: Incident, times: list[int], share: float) -> Iterator[Source]:
    """Yield the record that dies at each of these times; ``share`` is that of the log that dies."""
    dying_of = {"POISON_PILL": _pills, "UNDETERMINED": _scatter}.get(incident.verdict, _along_the_log)
    return dying_of(topic, incident, times, share)


def _pills(topic: Topic, incident: Incident, times: list[int], share: float) -> Iterator[Source]:
    """Yield few records, mostly dead-lettered again and again, that are no neighbours of each other."""
    r = topic.random
    pills: list[tuple[tuple[int, int], bytes | None]] = []
    for _ in range(len(times) if len(times) <= 3 else r.randrange(1, 5)):
        partition = r.randrange(topic.partitions)
        number = topic.number_at(partition, times[0]) - r.randrange(3, 30)
        while any(pill[0][0] == partition and abs(pill[0][1] - number) < 6 for pill in pills) or not topic.is_free(
            incident.consumer, (partition, number), incident.trait
        ):
            number -= r.randrange(6, 20)
        if number < 0:
            raise Undecidable
        pills.append(((partition, number), topic.scattered_key(partition)))
    for turn in range(len(times)):
        source, key = pills[turn] if turn < len(pills) else r.choice(pills)
        yield topic.record(incident.consumer, source, times[0], incident.trait, key)


def _scatter(topic: Topic, incident: Incident, times: list[int], share: float) -> Iterator[Source]:
    """Yield records far apart, with distinct keys, over all partitions."""
    r = topic.random
    order: list[int] = []
    for at in times:
        order = order or r.sample(range(topic.partitions), topic.partitions)
        partition = order.pop() if r.random() < 0.7 else r.randrange(topic.partitions)
        number = max(0, topic.number_at(partition, at) - r.randrange(4))
        while not topic.is_free(incident.consumer, (partition, number), incident.trait):
            number += 1
        key = topic.scattered_key(partition)
        yield topic.record(incident.consumer, (partition, number), at, incident.trait, key)


def _next(
    topic: Topic, incident: Incident, cursors: dict[int, int], partition: int, start: int, share: float
) -> tuple[int, int]:
    """Return the next record of a partition that dies, if this share of the partition dies."""
    number = cursors.get(partition, topic.number_at(partition, start) - 1)
    number += 1 + _skip(topic.random, share)
    while not topic.is_free(incident.consumer, (partition, number), incident.trait):
        number += 1
    cursors[partition] = number
    return partition, number


def _along_the_log(topic: Topic, incident: Incident, times: list[int], share: float) -> Iterator[Source]:
    """Yield records one after another: of some keys, of one partition, or of all, where in each the same share dies."""
    r, keys, cursors, order = topic.random, incident.keys, dict[int, int](), list[int]()
    for turn, at in enumerate(times):
        key = None
        if incident.verdict == "KEY_LOCAL":
            key = keys[turn] if turn < len(keys) else r.choice(keys)
            partition = topic.partition_of(key)
        elif incident.verdict == "PARTITION_LOCAL":
            partition = incident.partition
        else:
            order = order or r.sample(range(topic.partitions), topic.partitions)
            partition = order.pop()
        source = _next(topic, incident, cursors, partition, times[0], share)
        yield topic.record(incident.consumer, source, at, incident.trait, key)
