"""What a replay costs: records a second, against a bare producer of the same client."""

from __future__ import annotations

import time
from pathlib import Path
from statistics import median
from typing import NamedTuple

from confluent_kafka import Producer
from confluent_kafka.admin import NewTopic  # type: ignore[attr-defined]

from pipelines.replay.client import Admin, admin, made_of
from pipelines.replay.journal import Journal, journal_store
from pipelines.replay.model import PlannedRecord
from pipelines.replay.run import run
from pipelines.settings import Settings, load
from tests.testing.replays import numbered, plan_of

SIZE = 1_000
_ATTEMPTS = 3


class Measured(NamedTuple):
    """Seconds of replays and of a bare producer for the same records, each of several attempts."""

    replayed: list[float]
    bare: list[float]

    @property
    def ratio(self) -> float:
        """How many times as long a replay takes."""
        return median(self.replayed) / median(self.bare)


def measured(bootstrap_servers: str, scratch: Path, count: int, batch: int = 500) -> Measured:
    """Replay and produce records of 1 kB to a topic of three partitions, in turns."""
    settings = load(warehouse=str(scratch / "replays"), kafka={"bootstrap_servers": bootstrap_servers})
    asked = admin(settings)
    seconds = Measured([], [])
    for attempt in range(_ATTEMPTS):
        seconds.replayed.append(_replayed(settings, asked, f"replayed-{batch}-{attempt}", count, batch))
        seconds.bare.append(_bare(settings, asked, f"bare-{batch}-{attempt}", count))
    return seconds


def _records(asked: Admin, topic: str, count: int) -> list[PlannedRecord]:
    asked.client.create_topics([NewTopic(topic, 3, 1)])[topic].result()
    return numbered(count, topic, keys=1_000, size=SIZE)


def _replayed(settings: Settings, asked: Admin, topic: str, count: int, batch: int) -> float:
    """Return the seconds of a whole run: the client's start, what stands on the target, all records, the journal."""
    plan = plan_of(topic, settings, _records(asked, topic, count))
    with Journal(journal_store(settings), settings.cluster) as journal:
        journal.add(topic)
    began = time.perf_counter()
    ended = run(plan, journal_store(settings), settings, batch=batch)
    seconds = time.perf_counter() - began
    if ended.replayed != count:
        raise RuntimeError(ended.sentence)
    return seconds


def _bare(settings: Settings, asked: Admin, topic: str, count: int) -> float:
    """Return the seconds of a producer without transactions: its start, and all records acknowledged."""
    records = _records(asked, topic, count)
    began = time.perf_counter()
    producer = made_of(settings, lambda given: Producer(given | {"acks": "all", "enable.idempotence": True}))
    for record in records:
        while True:
            try:
                producer.produce(topic, key=record.key, value=record.value)
                break
            except BufferError:
                producer.poll(0.1)
        producer.poll(0)
    if producer.flush(60):
        raise RuntimeError("the producer did not send all records")
    seconds = time.perf_counter() - began
    producer.close()
    return seconds
