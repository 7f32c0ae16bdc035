"""Topics into bronze, against a model of a cluster and a table: each record lands once, each gap is recorded once."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from pipelines import moments
from pipelines.catalog import stages
from pipelines.errors import AfterlogError
from pipelines.kafka import offsets, records
from pipelines.kafka.cluster import TopicSnapshot
from pipelines.kafka.errors import Changed
from pipelines.kafka.offsets import Gap, Log, OffsetRange, TopicProgress
from pipelines.kafka.records import few_records
from pipelines.settings import Settings, Topics, load
from pipelines.steps import land
from pipelines.warehouse import progress, quality
from pipelines.warehouse.tables import Warehouse

(STAGE,) = stages(only="bronze.dlq_records")
NAMES = ("dlq.a", "dlq.b")
FAR = 7  # of each so many records one has a time that Spark cannot hold
Place = tuple[str, int, int]


class Killed(BaseException):
    """Stands for a process that is killed."""


@dataclass
class Partition:
    start: int = 0
    records: list[int] = field(default_factory=list)  # by offset from 0 on, a number that is unique to the record

    @property
    def end(self) -> int:
        return len(self.records)


@dataclass
class World:
    """A cluster, a table, and random deaths of the process that reads the cluster into the table."""

    chance: random.Random
    topics: dict[str, tuple[str, list[Partition]]] = field(default_factory=dict)
    leaderless: set[tuple[str, int]] = field(default_factory=set)
    table: list[tuple[Place, int]] = field(default_factory=list)
    gaps: dict[tuple[str, int, int], int] = field(default_factory=dict)
    written: dict[Place, set[int]] = field(default_factory=dict)
    seen: dict[tuple[str, int], int] = field(default_factory=dict)
    version: int = 1
    added: list[tuple[int, str]] = field(default_factory=list)
    hidden: set[str] = field(default_factory=set)
    torn: set[tuple[str, int]] = field(default_factory=set)
    made: int = 0
    deadly: float = 0.0
    restless: float = 0.2

    def number(self) -> int:
        self.made += 1
        return self.made

    def perhaps_die(self) -> None:
        if self.chance.random() < self.deadly:
            raise Killed

    def create(self, name: str) -> None:
        self.topics[name] = (f"{name}#{self.number()}", [Partition() for _ in range(self.chance.randint(1, 2))])

    def produce(self, name: str) -> None:
        topic_id, partitions = self.topics[name]
        at = self.chance.randrange(len(partitions))
        for _ in range(self.chance.randint(1, 9)):
            stamp = self.number()
            self.written.setdefault((topic_id, at, partitions[at].end), set()).add(stamp)
            partitions[at].records.append(stamp)

    def remove(self, name: str) -> None:
        partition = self.chance.choice(self.topics[name][1])
        partition.start = self.chance.randint(partition.start, partition.end)

    def happen(self) -> None:
        """Change a topic in a random way."""
        name = self.chance.choice(NAMES)
        if name not in self.topics:
            self.create(name)
            return
        what = self.chance.random()
        if what < 0.05:
            self.hidden ^= {name}
        elif what < 0.09:
            topic_id, partitions = self.topics[name]
            self.torn ^= {(topic_id, self.chance.randrange(len(partitions)))}
        elif what < 0.6:
            self.produce(name)
        elif what < 0.8:
            self.remove(name)
        elif what < 0.87:
            self.topics[name][1].append(Partition())
        elif what < 0.94:
            topic_id, partitions = self.topics[name]
            self.leaderless ^= {(topic_id, self.chance.randrange(len(partitions)))}
        else:
            del self.topics[name]

    # What the cluster answers

    def snapshot(self, topics: Topics, topic_progress: TopicProgress) -> TopicSnapshot:
        logs = []
        shown = {name: topic for name, topic in self.topics.items() if name not in self.hidden}
        for name, (topic_id, partitions) in shown.items():
            away = {at for id_, at in self.leaderless if id_ == topic_id}
            if away and topic_id not in topic_progress.followed:
                continue
            logs += [
                Log(name, topic_id, at, item.start, item.end) for at, item in enumerate(partitions) if at not in away
            ]
        return TopicSnapshot(tuple(logs), {name: topic_id for name, (topic_id, _) in shown.items()})

    # What the table does

    def insert(self, landing: Any, batch: Sequence[OffsetRange], by_spark: bool) -> tuple[int, int, int]:
        assert sum(span.length for span in batch) <= landing.settings.dlq.max_records_per_batch
        if self.chance.random() < self.restless:
            self.happen()  # between the plan and the read
        self.perhaps_die()
        rows = []
        for span in batch:
            topic_id, partitions = self.topics.get(span.topic, ("", []))
            if topic_id != span.topic_id:
                raise Changed
            partition = partitions[span.partition]
            if (topic_id, span.partition) in self.torn:
                raise RuntimeError("org.apache.kafka.common.errors.CorruptRecordException")
            if span.start < partition.start or span.end > partition.end:
                raise RuntimeError("org.apache.kafka.clients.consumer.OffsetOutOfRangeException")
            rows += [((topic_id, span.partition, at), partition.records[at]) for at in range(span.start, span.end)]
        if by_spark and any(stamp % FAR == 0 for _, stamp in rows):
            raise RuntimeError("java.lang.ArithmeticException at org.apache.spark.sql.kafka010")
        read = len(rows)
        if offsets.is_doubtful(landing.topic_progress.followed, batch):
            rows = [row for row in rows if row not in set(self.table)]
        if rows:
            self.table += rows
            self.version += 1
            self.added.append((self.version, offsets.mark_of(landing.settings.cluster, batch)))
        self.perhaps_die()
        return read, 0, len(rows)

    def record(self, gaps: Sequence[Gap]) -> None:
        self.perhaps_die()
        for gap in gaps:
            self.gaps.setdefault((gap.span.topic_id, gap.span.partition, gap.span.start), gap.span.end)
        self.perhaps_die()

    def missing(self) -> set[Place]:
        return {
            (topic_id, at, offset) for (topic_id, at, start), end in self.gaps.items() for offset in range(start, end)
        }


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    made = World(random.Random(0))

    @contextlib.contextmanager
    def connected(settings: Settings) -> Iterator[World]:
        yield made

    save = progress.save

    def saving(warehouse: Warehouse, table: str, saved: progress.Progress) -> None:
        made.perhaps_die()
        save(warehouse, table, saved)
        for topics in saved.topics.values():
            for topic_id, topic in topics.followed.items():
                made.seen |= {(topic_id, at): end for at, end in topic.seen.items()}
        made.perhaps_die()

    monkeypatch.setattr(land, "connected", connected)
    monkeypatch.setattr(progress, "save", saving)
    monkeypatch.setattr(Warehouse, "state", lambda *_: ("the table", made.version))
    monkeypatch.setattr(
        Warehouse,
        "was_committed",
        lambda *given: any(version > given[-2] and mark == given[-1] for version, mark in made.added),
    )
    monkeypatch.setattr(quality, "record_gaps", lambda warehouse, table, gaps: made.record(gaps))
    monkeypatch.setattr(quality, "note", lambda *_: None)
    monkeypatch.setattr(
        land._Landing,
        "insert_records",
        lambda landing, cluster, topics, batch, read=None: made.insert(landing, batch, read is not few_records),
    )
    monkeypatch.setattr(records, "FEW", 2)
    return made


def following(settings: Settings) -> Settings:
    kafka_settings = {"bootstrap_servers": "127.0.0.1:1"}
    where = {"warehouse": settings.warehouse, "landing": settings.landing}
    return load(kafka=kafka_settings, dlq={"source": "kafka", "max_records_per_batch": 5}, **where)


def run(settings: Settings) -> AfterlogError | None:
    spark: Any = None
    return land.land(Warehouse(settings, spark), STAGE, "a run", moments.now()).left


def places_of(world: World) -> set[Place]:
    return {
        (topic_id, at, offset)
        for topic_id, partitions in world.topics.values()
        for at, item in enumerate(partitions)
        for offset in range(item.start, item.end)
    }


def test_every_record_lands_once_and_every_gap_is_recorded_once(world: World, settings: Settings) -> None:
    settings = following(settings)
    for seed in range(150):
        world.__init__(random.Random(seed))  # type: ignore[misc]
        progress.save(Warehouse(settings), STAGE.table, progress.Progress(target_id="the table", target_version=1))
        for _ in range(world.chance.randint(1, 12)):
            for _ in range(world.chance.randint(0, 4)):
                world.happen()
            world.deadly = world.chance.choice((0.0, 0.15))
            with contextlib.suppress(Killed):
                run(settings)
            world.deadly = 0.0
            if world.chance.random() < 0.1:
                world.version += 1  # files landed, or somebody ran maintenance on the table
                world.added.append((world.version, ""))
        world.leaderless.clear()
        world.hidden.clear()
        world.restless = 0.0
        run(settings)
        there = places_of(world)
        assert {place for place in there if place[:2] not in world.torn} <= {place for place, _ in world.table}, seed
        world.torn.clear()
        for _ in range(2):
            assert run(settings) is None

        assert len(world.table) == len(set(world.table)), seed
        rows = {place for place, _ in world.table}
        assert there <= rows, seed
        gone = [
            (topic_id, at, offset) for (topic_id, at, start), end in world.gaps.items() for offset in range(start, end)
        ]
        assert len(gone) == len(set(gone)), seed
        assert not rows & set(gone), seed
        assert set(gone) <= world.written.keys(), seed
        for topic_id, partitions in world.topics.values():
            for at, item in enumerate(partitions):
                known = {offset for id_, number, offset in rows | set(gone) if (id_, number) == (topic_id, at)}
                if known:  # from the first known offset to the end nothing is missing
                    assert known >= set(range(min(known), item.end)), (seed, topic_id, at)
        for (topic_id, at), end in world.seen.items():
            name = topic_id.partition("#")[0]
            if name in world.topics and world.topics[name][0] != topic_id:  # nothing of what was seen is missing
                known = {offset for id_, number, offset in rows | set(gone) if (id_, number) == (topic_id, at)}
                assert known >= set(range(min(known), end)), (seed, topic_id, at)


def test_leaders_that_do_not_answer_are_not_all_waited_for(
    world: World, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = following(settings)
    world.restless = 0.0
    world.topics["dlq.a"] = ("dlq.a#1", [Partition() for _ in range(20)])
    run(settings)
    world.topics["dlq.a"] = ("dlq.a#1", [Partition(records=[at * FAR + 1]) for at in range(20)])
    world.torn = {("dlq.a#1", at) for at in range(0, 20, 2)}
    settings = settings.model_copy(update={"dlq": settings.dlq.model_copy(update={"max_records_per_batch": 20})})
    insert, clock = land._Landing.insert_records, [0.0]

    def slow(landing: Any, cluster: Any, topics: Topics, batch: Sequence[OffsetRange], *read: Any) -> Any:
        try:
            return insert(landing, cluster, topics, batch, *read)
        except RuntimeError:
            clock[0] += records.poll_seconds(settings)
            raise

    monkeypatch.setattr(land, "monotonic", lambda: clock[0])
    monkeypatch.setattr(land._Landing, "insert_records", slow)
    assert run(settings) is not None
    assert clock[0] <= (2 * land.MOST_ATTEMPTS + 1) * records.poll_seconds(settings)
    world.torn.clear()
    assert run(settings) is None
    assert sorted(place for place, _ in world.table) == sorted(places_of(world))


def test_a_table_that_is_older_than_its_progress_is_filled_again(world: World, settings: Settings) -> None:
    settings = following(settings)
    world.restless = 0.0
    world.create("dlq.a")
    world.produce("dlq.a")
    run(settings)
    old = list(world.table), world.version
    for _ in range(3):
        world.produce("dlq.a")
    run(settings)
    whole = sorted(world.table)
    world.table, world.version = old  # somebody restored a backup
    run(settings)
    assert sorted(world.table) == whole


def test_a_commit_of_files_says_nothing_of_a_batch_of_topics(world: World, settings: Settings) -> None:
    settings = following(settings)
    world.restless = 0.0
    world.create("dlq.a")
    topic_id, partitions = world.topics["dlq.a"]
    del partitions[1:]
    world.produce("dlq.a")
    run(settings)
    begin = partitions[0].end
    for _ in range(3):
        world.produce("dlq.a")
    known = progress.load(Warehouse(settings), STAGE.table)
    assert known is not None
    pending = (OffsetRange("dlq.a", topic_id, 0, begin, begin + 3),)  # a run ended before it wrote this batch
    topic_progress = replace(known.topics[settings.cluster], pending=pending)
    progress.save(Warehouse(settings), STAGE.table, replace(known, topics={settings.cluster: topic_progress}))
    world.version += 1
    world.added.append((world.version, ""))
    partitions[0].start = begin + 2
    run(settings)
    assert world.gaps == {(topic_id, 0, begin): begin + 2}
