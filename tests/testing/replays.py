"""Plans of replays, runs of them that are killed, and what a reader then sees on the target."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from multiprocessing.context import ForkServerProcess
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from confluent_kafka import KafkaError, TopicPartition

from expectations.contract import contract_of
from pipelines.replay import runners
from pipelines.replay.accepted import LETTERS, MARKERS, RECORDS, TRANSACTIONS
from pipelines.replay.client import admin, cluster_id, consumer, describe
from pipelines.replay.fetch import headers_of
from pipelines.replay.journal import Journal, journal_store
from pipelines.replay.model import RECORD, Headers, Letter, Plan, PlannedRecord, Replayed, Source, Target
from pipelines.replay.run import Ended, run
from pipelines.replay.sender import Sender
from pipelines.replay.states import State
from pipelines.settings import Settings
from pipelines.stores.base import Store
from pipelines.warehouse import append
from pipelines.warehouse.tables import Warehouse
from tests.testing.kafka import KafkaAdmin


class Standing(NamedTuple):
    """A record as a reader sees it."""

    partition: int
    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: Headers

    @property
    def letter(self) -> str:
        """The place of the dead letter whose replay it is; empty for other records."""
        return (dict(self.headers).get(RECORD) or b"").decode()


def no_rules(directory: Path) -> str:
    """Write an empty file of rules; return its path."""
    file = directory / "no-rules.toml"
    file.write_text("")
    return str(file)


def record(
    position: int,
    topic: str,
    *,
    key: bytes | None = None,
    value: bytes | None = b"",
    headers: Headers = (),
    partition: int | None = None,
    letters: str = "dlq.of-tests",
    letter: int | None = None,
    source: Source | None = None,
) -> PlannedRecord:
    """Return a record of a plan, whose dead letter has the offset ``letter``, else the position."""
    offset = position if letter is None else letter
    of = "orders" if letters == "dlq.of-tests" else f"source-of-{letters}"
    return PlannedRecord(
        position=position,
        letter=Letter(letters, "AAAAAAAAAAAAAAAAAAAAAQ", 0, offset),
        source=source or Source(of, position % 3, offset, 1_600_000_000_000 + position),
        group="billing",
        attempt=1,
        topic=topic,
        partition=partition,
        key=key,
        value=value,
        headers=headers,
    )


def numbered(count: int, topic: str, *, keys: int = 5, letters: str = "", size: int = 0) -> list[PlannedRecord]:
    """Return records whose values tell their order, under a few keys; without ``letters``, of letters of their own."""
    letters = letters or f"dlq.{topic}"
    return [
        record(at, topic, key=f"key {at % keys}".encode(), value=f"{at:06}".encode().ljust(size, b"."), letters=letters)
        for at in range(count)
    ]


def claimed_at_once(
    kept: Store, records: Sequence[PlannedRecord], before_each: Callable[[], None] = lambda: None
) -> list[str]:
    """Let three plans claim the same records in a journal at once; return the letters that they got, in order."""
    claimed: list[str] = []

    def claim(plan_id: str) -> None:
        with Journal(kept, "default") as opened:
            for first in range(0, len(records), 10):
                before_each()
                claimed.extend(
                    item.letter.coordinate for item in opened.claim(plan_id, records[first : first + 10], False)
                )

    claimants = [threading.Thread(target=claim, args=(plan_id,)) for plan_id in ("a", "b", "c")]
    for claimant in claimants:
        claimant.start()
    for claimant in claimants:
        claimant.join()
    return sorted(claimed)


def letters_in(settings: Settings, count: int, **more: Callable[[int], Any]) -> Warehouse:
    """Return a warehouse with dead letters of one topic, written without Spark; ``more`` gives columns by number."""
    at = datetime(2026, 11, 20, tzinfo=UTC)
    columns = dict.fromkeys(column.name for column in contract_of(RECORDS).stored)
    known = {
        **{"_source": "a test", "_run_id": "a test", "_ingested_at": at, "cluster": settings.cluster},
        **{"dlq_topic": "dlq.many", "dlq_topic_id": "AAAAAAAAAAAAAAAAAAAAAQ", "header_profile": "spring"},
        **{"original_topic": "many", "original_timestamp": at, "consumer_group": "billing", "routed_at": at},
        **{"exception_class": "com.acme.TimeoutException", "error_message": "no answer", "payload_copied": True},
        **{"control_marker_suspected": False, "lossy_encoding": False, "user_headers": [("trace", b"t")]},
    }
    rows = []
    for number in range(count):
        place = {"dlq_partition": number % 3, "dlq_offset": number // 3}
        place |= {"original_partition": number % 3, "original_offset": number // 3}
        payload = {"_bronze_id": f"{number:064x}", "key": f"key {number % 100}".encode(), "value": f"{number}".encode()}
        rows.append(columns | known | place | payload | {name: of(number) for name, of in more.items()})
    warehouse = Warehouse(settings)
    for table in (MARKERS, LETTERS, TRANSACTIONS):
        append.append(warehouse, contract_of(table), [])
    append.append(warehouse, contract_of(RECORDS), rows)
    return warehouse


def plan_of(plan_id: str, settings: Settings, records: Sequence[PlannedRecord], again: bool = False) -> Plan:
    """Return a plan with its targets as they are now."""
    asked = admin(settings)
    topics = describe(asked, {record.topic for record in records})
    targets = [Target(name, topic.topic_id or "", topic.ends or ()) for name, topic in sorted(topics.items())]
    return Plan(
        plan_id=plan_id,
        plan_hash="0" * 64,
        cluster=settings.cluster,
        kafka_cluster_id=cluster_id(asked),
        created_at=datetime(2026, 1, 1, tzinfo=UTC),
        targets=tuple(targets),
        records=tuple(records),
        again=again,
    )


def standing(settings: Settings, topic: str, *, committed: bool = True) -> list[Standing]:
    """Return the records of a topic as a reader sees them, by partition and offset."""
    ends = describe(admin(settings), [topic])[topic].ends or ()
    reader = consumer(settings, "read_committed" if committed else "read_uncommitted")
    found = []
    left = {partition for partition, end in enumerate(ends) if end}
    reader.assign([TopicPartition(topic, partition, 0) for partition in left])
    deadline = time.monotonic() + 60
    while left:
        assert time.monotonic() < deadline
        for message in reader.consume(1000, timeout=0.2):
            error = message.error()
            if error is None:
                place = message.partition() or 0, message.offset() or 0, message.timestamp()[1]
                found.append(Standing(*place, message.key(), message.value(), headers_of(message)))
            elif error.code() == KafkaError._PARTITION_EOF:
                left.discard(message.partition() or 0)
    reader.close()
    return sorted(found)


def in_order_of_keys(records: Sequence[Standing]) -> bool:
    """Tell whether the values of each key stand in order."""
    last: dict[bytes | None, bytes] = {}
    for record in records:
        if last.get(record.key, b"") > (record.value or b""):
            return False
        last[record.key] = record.value or b""
    return True


# Runs in processes of their own


def die_at(owner: Any, name: str, *, after: bool, nth: int, first: Callable[..., None] | None = None) -> None:
    """Kill this process with -9 before or after the nth call of a method; ``first`` gets its arguments before."""
    method = getattr(owner, name)
    calls = 0

    def dying(*arguments: Any, **named: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls == nth and not after:
            os.kill(os.getpid(), signal.SIGKILL)
        result = method(*arguments, **named)
        if calls == nth:
            if first is not None:
                first(*arguments, **named)
            os.kill(os.getpid(), signal.SIGKILL)
        return result

    setattr(owner, name, dying)


def _flushed(sender: Sender, *_: Any) -> None:
    sender._producer.flush(10)


POINTS: Mapping[str, Callable[[], None]] = {
    "after initTransactions": lambda: die_at(Sender, "initialise", after=True, nth=1),
    "before the offsets are noted": lambda: die_at(Journal, "note", after=False, nth=1),
    "after the offsets are noted": lambda: die_at(Journal, "note", after=True, nth=1),
    "after the first batch is claimed": lambda: die_at(Journal, "claim", after=True, nth=1),
    "after a batch is claimed": lambda: die_at(Journal, "claim", after=True, nth=3),
    "in a transaction without records": lambda: die_at(Sender, "_begin", after=True, nth=3),
    "in a transaction with records": lambda: die_at(Sender, "_produce", after=True, nth=3, first=_flushed),
    "after the first commit": lambda: die_at(Sender, "_commit", after=True, nth=1),
    "after a commit": lambda: die_at(Sender, "_commit", after=True, nth=3),
    "after the journal knows of a batch": lambda: die_at(Journal, "confirm", after=True, nth=3),
    "after the last batch": lambda: die_at(Journal, "end", after=False, nth=1),
}
"""Where a run can be killed."""


def run_to_its_death(plan: Plan, place: Store, settings: Settings, point: str | None, batch: int) -> None:
    """Run a plan, and be killed at a named point."""
    if point is not None:
        POINTS[point]()
    run(plan, place, settings, batch=batch)


def run_without_lock(
    plan: Plan, place: Store, settings: Settings, batch: int, rate: float | None, ready: Any, told: Any
) -> None:
    """Run a plan although another process may run it, and tell how it ended."""
    runners.alone = lambda *_: contextlib.nullcontext()  # type: ignore[assignment]
    ready.wait(60)
    try:
        ended = run(plan, place, settings, batch=batch, rate=rate)
        told.put((ended.status, ended.exit_code))
    except Exception as error:
        told.put((type(error).__name__, getattr(error, "exit_code", str(error))))


def context() -> Any:
    """Return a context of processes that are forked from one where nothing but imports happened."""
    made = multiprocessing.get_context("forkserver")
    made.set_forkserver_preload(["tests.testing.replays"])
    return made


def killed(
    plan: Plan,
    place: Store,
    settings: Settings,
    point: str | None = None,
    seconds: float | None = None,
    batch: int = 10,
) -> bool:
    """Run a plan in a process that is killed, at a point or after some seconds; return False if it ended before."""
    process: ForkServerProcess = context().Process(target=run_to_its_death, args=(plan, place, settings, point, batch))
    process.start()
    process.join(seconds if seconds is not None else 120)
    if process.is_alive():
        process.kill()
        process.join()
    return process.exitcode == -signal.SIGKILL


def letters_of(records: Sequence[Standing]) -> list[str]:
    """Return the places of the dead letters that were replayed, in order."""
    return sorted((record.letter for record in records if record.letter), key=lambda place: (len(place), place))


def planned_letters(plan: Plan) -> list[str]:
    """Return the places of the dead letters of a plan, in order."""
    return sorted((record.letter.coordinate for record in plan.records), key=lambda place: (len(place), place))


class Replays:
    """Plans to topics of their own on a broker, and one journal."""

    def __init__(self, settings: Settings, kafka: KafkaAdmin) -> None:
        self.settings = settings
        self.kafka = kafka
        self.place = journal_store(settings)
        self.directory = Path(self.place.root)

    def plan(self, plan_id: str, count: int = 40, *, partitions: int = 3, **configs: str) -> Plan:
        """Create a topic and a plan of numbered records to it, both with the same name."""
        settings = {name.replace("_", "."): value for name, value in configs.items()}
        self.kafka.create_topic(plan_id, partitions, settings)
        plan = plan_of(plan_id, self.settings, numbered(count, plan_id))
        with self.journal() as journal:
            journal.add(plan_id)
        return plan

    @contextlib.contextmanager
    def journal(self) -> Iterator[Journal]:
        with Journal(self.place, self.settings.cluster) as journal:
            yield journal

    def run(self, plan: Plan, **how: object) -> Ended:
        return run(plan, self.place, self.settings, **{"batch": 10, **how})  # type: ignore[arg-type]

    def run_partly(self, plan: Plan, batches: int = 2) -> list[Replayed]:
        """Replay some batches of a plan, and leave it as a run that died does."""
        found: list[Replayed] = []

        def confirmed(replayed: object) -> None:
            found.extend(replayed)  # type: ignore[arg-type]
            if len(found) >= batches * 10:
                raise Died

        with pytest.raises(Died):
            self.run(plan, confirmed=confirmed)
        return found

    def is_replayed_once(self, plan: Plan) -> bool:
        """Tell whether a reader sees each record of a plan once, and those of a key in order."""
        seen = standing(self.settings, plan.targets[0].topic)
        return letters_of(seen) == planned_letters(plan) and in_order_of_keys(seen)

    def replayed(self, plan: Plan) -> int:
        return len(standing(self.settings, plan.targets[0].topic))

    def state(self, plan: Plan) -> State:
        with self.journal() as journal:
            status = journal.status(plan.plan_id)
        assert status is not None
        return status.state


class Died(Exception):
    """Stands for the end of a process."""
