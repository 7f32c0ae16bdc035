"""Dead letters of a real broker, planned, replayed and followed to their outcome."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from local.kafka_client import Action, Message, Record
from pipelines.broker import Broker
from pipelines.commands import trace
from pipelines.errors import UsageError
from pipelines.replay import actions, store
from pipelines.replay.choice import Choice
from pipelines.replay.judge import Options
from pipelines.settings import ROOT, Dlq, Settings
from pipelines.warehouse.tables import Warehouse
from tests.testing.builders import land, line, run, warehouse_of
from tests.testing.kafka import KafkaAdmin
from tests.testing.replays import no_rules

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SOURCE, LETTERS, BARE = "replayed", "dlq.replayed", "dlq.replayed-bare"
COPIES, DROPS = "replayed-copies", "replayed-drops"
BOTH, LEARNED = "dlq.replayed-both", "dlq.learned"
CLASSIC = ("replayed-spring", "replayed-renewed")
"""Topics with one record, on which a classic group failed."""
LANDED = ("bronze.dlq_records", "silver.dlq_records")
ODD: list[bytes | None] = [None, b"", b"\xff\xfe\x00", 'ä\n\r"'.encode(), b"plain"]


@dataclass(frozen=True)
class Happened:
    """What two share groups could not consume: one copies payloads to its dead letters, the other does not.

    A classic group failed, too: on a record of theirs, on one of each topic of its own, and on three records of which
    only a file tells so far.
    """

    settings: Settings
    sent: Sequence[Record]

    @property
    def warehouse(self) -> Warehouse:
        return Warehouse(self.settings)

    def sent_at(self, place: str) -> Record:
        """The source record of a place."""
        found = {f"{record.topic}:{record.partition}:{record.offset}": record for record in self.sent}
        return found[place]


@pytest.fixture(scope="module")
def happened(
    spark: SparkSession,
    empty_warehouse: Path,
    tmp_path_factory: pytest.TempPathFactory,
    broker: Broker,
    kafka: KafkaAdmin,
) -> Happened:
    settings = warehouse_of(
        empty_warehouse,
        tmp_path_factory.mktemp("replay"),
        kafka={"bootstrap_servers": broker.bootstrap_servers},
        dlq={"source": "kafka", "subscribe_pattern": r"dlq\.replayed.*"},
        replay={"rules": no_rules(tmp_path_factory.mktemp("rules"))},
    )
    kafka.create_topic(SOURCE, 2)
    kafka.create_dead_letter_topic(LETTERS, 2)
    kafka.create_dead_letter_topic(BARE)
    messages = [
        Message(value, key, [("user", value), ("user", b"\x00"), ("trace", None)], partition)
        for partition in range(2)
        for key in ODD
        for value in ODD
    ]
    kafka.produce(SOURCE, messages)
    with kafka.transaction("aborts") as transaction:
        transaction.send(SOURCE, [Message(b"aborted", b"a", partition=0)])
        transaction.abort()
    for group, topic, copy in ((COPIES, LETTERS, True), (DROPS, BARE, False)):
        kafka.dead_letter(group, topic, copy=copy)
        # The broker hands out the marker of the aborted transaction, too.
        seen = kafka.share(group, [SOURCE], lambda record: Action.REJECT)
        kafka.read(topic, expected=len(seen))
    fail_in_a_classic_group(kafka)
    land(settings, {"learned.jsonl": [as_line(record) for record in kafka.read(LEARNED, expected=3)]})
    run(spark, settings, *LANDED)
    return Happened(settings, kafka.read(SOURCE))


def fail_in_a_classic_group(kafka: KafkaAdmin) -> None:
    """Write dead letters as Spring does."""
    kafka.create_topic(BOTH)
    kafka.produce(BOTH, [Message(b"as Spring read it", b"k", spring(SOURCE, 3))])
    for topic in CLASSIC:
        kafka.create_topic(topic)
        kafka.create_topic(f"dlq.{topic}")
        kafka.produce(topic, [Message(b"v", b"k")])
        kafka.produce(f"dlq.{topic}", [Message(b"v", b"k", spring(topic, 0))])
    kafka.create_topic("learned")
    kafka.produce("learned", [Message(b"v", b"k")] * 3)
    kafka.create_topic(LEARNED)
    kafka.produce(LEARNED, [Message(b"v", b"k", spring("learned", offset)) for offset in range(3)])


def spring(topic: str, offset: int) -> list[tuple[str, bytes | None]]:
    return [
        ("kafka_dlt-original-topic", topic.encode()),
        ("kafka_dlt-original-partition", (0).to_bytes(4, "big")),
        ("kafka_dlt-original-offset", offset.to_bytes(8, "big")),
        ("kafka_dlt-original-consumer-group", b"replayed-classic"),
    ]


def as_line(record: Record) -> str:
    """Return a record as a line of a file."""
    return line(
        record.offset,
        topic=record.topic,
        timestamp=record.timestamp,
        key=record.key,
        value=record.value,
        headers=record.headers,
    )


def drawn(happened: Happened, choice: Choice, options: Options = Options()) -> dict[str, list[str]]:  # noqa: B008
    draft = actions.drawn(happened.warehouse, choice, options)
    return {
        f"{entry.source.topic}:{entry.source.partition}:{entry.source.offset}": entry.reasons for entry in draft.entries
    }


def of(topic: str, more: str = "true") -> Choice:
    return Choice(where=f"dlq_topic = '{topic}' AND ({more})")


def test_a_record_of_an_aborted_transaction_is_not_eligible(happened: Happened) -> None:
    for topic in (LETTERS, BARE):
        found = drawn(happened, of(topic))
        refused = {place: reasons for place, reasons in found.items() if reasons}
        assert f"{SOURCE}:0:25" in refused, refused
        assert all(place.startswith(f"{SOURCE}:0:2") for place in refused)
        assert len(found) - len(refused) == 50


def test_each_group_s_records_go_back_as_they_were_and_once(happened: Happened, kafka: KafkaAdmin) -> None:
    """Payloads are copied, or fetched; headers that the share groups dropped come from the originals."""
    warehouse = happened.warehouse
    kafka.create_topic("replayed-target", 3)
    draft = actions.drawn(warehouse, of(BARE), Options(to="replayed-target"))
    assert {record.payload_from for record in draft.eligible} == {"original"}
    assert not any(record.headers_lost for record in draft.eligible)
    assert store.keep(warehouse, draft)
    assert not store.keep(warehouse, draft)
    said = json.loads(actions.run(warehouse, draft.plan.plan_id, form="json").result)
    assert (said["status"], said["replayed"]) == ("FINISHED", 50)

    found = kafka.read("replayed-target", expected=50, committed=True)
    added = [dict(item.headers) for item in found]
    assert {row["afterlog.replay.plan"] for row in added} == {draft.plan.plan_id.encode()}
    originals = [happened.sent_at((row["afterlog.replay.original"] or b"").decode()) for row in added]
    assert len({(original.partition, original.offset) for original in originals}) == 50
    for record, original in zip(found, originals, strict=True):
        assert (record.key, record.value) == (original.key, original.value)
        own = tuple(pair for pair in record.headers if not pair[0].startswith("afterlog.replay."))
        assert own == original.headers
        assert dict(record.headers)["afterlog.replay.timestamp"] == str(original.timestamp).encode()
    by_key: dict[bytes | None, set[int]] = {}
    for record in found:
        by_key.setdefault(record.key, set()).add(record.partition)
    assert all(len(partitions) == 1 for key, partitions in by_key.items() if key is not None)

    again = actions.run(warehouse, draft.plan.plan_id)
    assert len(kafka.read("replayed-target")) == 50, again.result
    assert len(store.replayed(warehouse, draft.plan.plan_id)) == 50
    shutil.rmtree(warehouse.location("gold.replayed_records"))  # as if the run was killed before it wrote there
    actions.run(warehouse, draft.plan.plan_id)
    assert len(store.replayed(warehouse, draft.plan.plan_id)) == 50
    assert len(kafka.read("replayed-target")) == 50
    refused = drawn(happened, of(BARE), Options(to="replayed-target"))
    assert sum("replayed_before" in reasons for reasons in refused.values()) == 50
    both = drawn(happened, of(LETTERS), Options(to="replayed-target"))
    assert sum("replayed_before" in reasons for reasons in both.values()) == 50  # the same source records


def test_the_same_choice_after_a_cancelled_plan_can_be_run(happened: Happened, kafka: KafkaAdmin) -> None:
    """It is the same plan, as it says the same; so it must not stay cancelled for ever."""
    warehouse = happened.warehouse
    kafka.create_topic("replayed-revived")
    choice = of(LETTERS, "original_partition = 1 AND original_offset < 3")
    options = Options(to="replayed-revived", again=True)
    plan = json.loads(actions.plan(warehouse, choice, options, form="json").result)["plan"]
    assert actions.ask_cancel(warehouse, plan).exit_code == 0
    refused = actions.run(warehouse, plan)
    assert (refused.exit_code, f"Plan {plan} is cancelled." in refused.result) == (2, True)
    said = actions.plan(warehouse, choice, options).result
    assert f"Plan {plan}\n" in said
    assert "The same plan was made before; it was cancelled, and can be run now." in said
    assert "it still stands" in actions.plan(warehouse, choice, options).result
    assert json.loads(actions.run(warehouse, plan, form="json").result)["replayed"] == 3
    assert len(kafka.read("replayed-revived", committed=True)) == 3


def test_two_machines_with_copies_of_a_warehouse(happened: Happened, kafka: KafkaAdmin, tmp_path: Path) -> None:
    """No lock is common to them: Kafka fences the run that began first, and nothing stands twice."""
    name = "replayed-copied"
    kafka.create_topic(name, 3)
    draft = actions.drawn(happened.warehouse, of(LETTERS), Options(to=name, again=True))
    store.keep(happened.warehouse, draft)
    plan, count = draft.plan.plan_id, len(draft.plan.records)
    copies = [tmp_path / "one", tmp_path / "two"]
    for copy in copies:
        shutil.copytree(happened.settings.warehouse, copy)

    slow = replaying(happened, copies[0], plan, "--rate", "5", "--batch", "1")
    until = time.monotonic() + 60
    while not kafka.read(name, committed=True) and slow.poll() is None:
        assert time.monotonic() < until
    fast = replaying(happened, copies[1], plan)
    told, _ = fast.communicate(timeout=120)
    assert (fast.returncode, json.loads(told)["status"]) == (0, "FINISHED")
    _, complaint = slow.communicate(timeout=120)
    assert slow.returncode == 4
    sentence = f"Another process took over plan {plan} and goes on with it."
    assert [line for line in complaint.splitlines() if line.startswith("afterlog: ")] == [f"afterlog: {sentence}"]
    assert "Traceback" not in complaint

    def standing_once() -> bool:
        letters = [dict(record.headers)["afterlog.replay.record"] for record in kafka.read(name, committed=True)]
        return len(letters) == len(set(letters)) == count

    assert standing_once()
    there = Warehouse(happened.settings.model_copy(update={"warehouse": str(copies[0])}))
    again = json.loads(actions.run(there, plan, form="json").result)
    assert (again["status"], again["replayed"]) == ("FINISHED", count)
    assert standing_once()


def replaying(happened: Happened, warehouse: Path, plan: str, *how: str) -> subprocess.Popen[str]:
    """Run a plan of a copy of the warehouse, as a user does."""
    variables = {
        "AFTERLOG_KAFKA__BOOTSTRAP_SERVERS": happened.settings.kafka.bootstrap_servers,
        "AFTERLOG_REPLAY__RULES": happened.settings.replay.rules,
    }
    program = [sys.executable, "-c", "from pipelines.cli import main; main()"]
    return subprocess.Popen(
        [*program, "replay", "run", plan, "--format", "json", "--warehouse", str(warehouse), *how],
        cwd=ROOT,
        env={**os.environ, **variables},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def test_targets_that_cannot_take_a_record(happened: Happened, kafka: KafkaAdmin) -> None:
    kafka.create_topic("replayed-small", settings={"max.message.bytes": "400"})
    for target, reason in {LETTERS: "loop", "replayed-nowhere": "target_gone", "replayed-small": "too_large"}.items():
        choice = of(LETTERS, "original_partition = 1 AND original_offset = 0")
        assert list(drawn(happened, choice, Options(to=target, again=True)).values()) == [[reason]]


def test_a_plan_expires_if_its_target_is_created_anew(happened: Happened, kafka: KafkaAdmin) -> None:
    warehouse = happened.warehouse
    kafka.create_topic("replayed-anew")
    options = Options(to="replayed-anew", again=True)
    draft = actions.drawn(warehouse, of(LETTERS, "original_partition = 1"), options)
    store.keep(warehouse, draft)
    kafka.delete_topics("replayed-anew")
    kafka.create_topic("replayed-anew")
    with pytest.raises(UsageError, match="replayed-anew"):
        actions.run(warehouse, draft.plan.plan_id)
    assert kafka.read("replayed-anew") == []


def test_what_dies_again_is_known_and_its_story_is_told(
    happened: Happened, kafka: KafkaAdmin, spark: SparkSession
) -> None:
    warehouse = happened.warehouse
    choice = of(LETTERS, "original_partition = 1 AND original_offset < 4")
    draft = actions.drawn(warehouse, choice, Options(again=True))
    assert {record.partition for record in draft.plan.records} == {1}
    store.keep(warehouse, draft)
    actions.run(warehouse, draft.plan.plan_id)
    letter = draft.plan.records[0].letter.coordinate
    sentence = "no dead letter has landed since, so nobody knows whether it died again: `afterlog run` looks for it"
    assert sentence in trace.answer(warehouse, draft.plan.records[0].source.coordinate or letter).result
    before = len(kafka.read(LETTERS))
    seen = kafka.share(
        COPIES, [SOURCE], lambda record: Action.REJECT if record.offset % 2 else Action.ACCEPT, quiet_seconds=1.0
    )
    rejected = sum(item.action is Action.REJECT for item in seen)
    kafka.read(LETTERS, expected=before + rejected)
    run(spark, happened.settings, *LANDED, "silver.dead_letters", feed=None)

    said = json.loads(actions.status(warehouse, draft.plan.plan_id, "json").result)
    assert said["outcomes"] == {"DIED_AGAIN": rejected, "UNKNOWN": 4 - rejected}
    died = [row for row in store.outcomes(warehouse, draft.plan.plan_id) if row["outcome"] == "DIED_AGAIN"]
    assert {row["died_in_topic"] for row in died} == {LETTERS}
    source = next(
        record.source.coordinate
        for record in draft.plan.records
        if record.letter.offset == died[0]["dlq_offset"] and record.letter.partition == died[0]["dlq_partition"]
    )
    story = trace.answer(warehouse, source or "").result
    assert sentence not in story
    assert "dead-lettered" in story
    assert f"by plan {draft.plan.plan_id}, replay " in story
    assert "dead-lettered on" in story

    place = f"{died[0]['died_in_topic']}:{died[0]['died_in_partition']}:{died[0]['died_in_offset']}"
    chosen = actions.drawn(warehouse, Choice(records=(place,)), Options(max_replays=0))
    assert [entry.reasons for entry in chosen.entries] == [["died_after_replay"]]
    assert actions.drawn(warehouse, Choice(records=(place,)), Options(max_replays=9)).plan.records[0].attempt > 1


def test_a_letter_with_its_own_payload_is_not_compared_with_what_another_groups_letter_lacks(
    happened: Happened,
) -> None:
    """Two groups failed on one record; only the share group's letter needs the original."""
    topics = f"dlq_topic IN ('{BOTH}', '{BARE}')"
    choice = Choice(where=f"original_partition = 0 AND original_offset = 3 AND {topics}")
    draft = actions.drawn(happened.warehouse, choice, Options(again=True))
    found = {entry.letter.topic: entry.reasons for entry in draft.entries}
    assert found == {BOTH: [], BARE: ["same_source_record"]}
    assert [record.value for record in draft.plan.records] == [b"as Spring read it"]


def test_a_letter_stays_the_same_when_its_topics_id_is_learned(
    happened: Happened, kafka: KafkaAdmin, spark: SparkSession
) -> None:
    """A file tells no topic id; the topic, read later, does."""
    warehouse = happened.warehouse
    actions.discard(warehouse, Choice(records=(f"{LEARNED}:0:0",)), None)
    draft = actions.drawn(warehouse, of(LEARNED, "dlq_offset = 1"), Options())
    assert draft.plan.records[0].letter.topic_id == ""
    store.keep(warehouse, draft)
    to_another = actions.drawn(warehouse, of(LEARNED, "dlq_offset = 2"), Options(to="learned"))
    store.keep(warehouse, to_another)
    actions.run(warehouse, to_another.plan.plan_id)

    dlq = Dlq(source="kafka", subscribe_pattern=r"dlq\.(replayed.*|learned)")
    run(spark, happened.settings.model_copy(update={"dlq": dlq}), *LANDED)
    now = actions.drawn(warehouse, of(LEARNED), Options())
    assert {entry.letter.topic_id for entry in now.entries} == {kafka.topic_id(LEARNED)}
    assert [entry.reasons for entry in now.entries] == [["discarded"], [], ["replayed_before"]]
    assert json.loads(actions.run(warehouse, draft.plan.plan_id, form="json").result)["replayed"] == 1
    assert len(kafka.read("learned", committed=True)) == 5


def replayed_to_a_classic_group(happened: Happened, topic: str) -> str:
    """Replay the dead letter of a record of a topic to the topic, and return the id of the plan."""
    draft = actions.drawn(happened.warehouse, of(f"dlq.{topic}"), Options())
    store.keep(happened.warehouse, draft)
    actions.run(happened.warehouse, draft.plan.plan_id)
    return draft.plan.plan_id


def commit(kafka: KafkaAdmin, topic: str, offset: int) -> None:
    from confluent_kafka import Consumer, TopicPartition

    consumer = Consumer({"bootstrap.servers": kafka.bootstrap_servers, "group.id": "replayed-classic"})
    consumer.commit(offsets=[TopicPartition(topic, 0, offset)], asynchronous=False)
    consumer.close()


def outcomes_of(warehouse: Warehouse, plan_id: str) -> dict[str, int]:
    counts: dict[str, int] = json.loads(actions.status(warehouse, plan_id, "json").result)["outcomes"]
    return counts


def test_a_classic_group_that_commits_behind_a_record_has_it(happened: Happened, kafka: KafkaAdmin) -> None:
    plan_id = replayed_to_a_classic_group(happened, CLASSIC[0])
    (row,) = store.replayed(happened.warehouse, plan_id)
    assert outcomes_of(happened.warehouse, plan_id) == {"UNKNOWN": 1}

    commit(kafka, "replayed-spring", row["target_offset"] + 1)
    assert outcomes_of(happened.warehouse, plan_id) == {"DELIVERED": 1}
    assert "committed an offset behind it" in trace.answer(happened.warehouse, "replayed-spring:0:0").result


def test_offsets_of_a_target_that_was_created_anew_tell_nothing(happened: Happened, kafka: KafkaAdmin) -> None:
    plan_id = replayed_to_a_classic_group(happened, CLASSIC[1])
    (row,) = store.replayed(happened.warehouse, plan_id)
    kafka.delete_topics("replayed-renewed")
    kafka.create_topic("replayed-renewed")
    kafka.produce("replayed-renewed", [Message(b"other", b"k")] * (row["target_offset"] + 1))

    commit(kafka, "replayed-renewed", row["target_offset"] + 1)
    assert outcomes_of(happened.warehouse, plan_id) == {"UNKNOWN": 1}
