"""A broker of our own -> real dead letters, pushed topologies and a request log: the live part of the demo."""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from expectations.rules import counted
from local.kafka_client import Action, KafkaClient, KafkaFailure, Message, Record
from local.kafka_requests import Connection
from pipelines.broker import DIRECTORY as OTHER_BROKER
from pipelines.broker import Broker
from pipelines.replay import actions, store
from pipelines.replay.choice import Choice
from pipelines.replay.judge import Options
from pipelines.settings import ROOT, Kafka, Settings
from pipelines.warehouse import jvmless
from pipelines.warehouse.tables import Warehouse

DIRECTORY = OTHER_BROKER.with_name("demo-broker")
PATTERN = r"dlq\.live-.*"
"""Of the dead-letter topics that the demo's runs read."""

REPAIRED = "live.orders-repaired"
"""The topic that the demo replays to."""
_REPAIR = """SELECT record, '{"amount": 0, "repaired": true}' AS value FROM records"""
_TOPOLOGIES = ROOT / "tests" / "data" / "topology"
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_LIMIT = 2
_FOREVER = {"retention.ms": "-1"}
_TOPIC_EXISTS = "TopicExistsException"


@dataclass(frozen=True)
class Failing:
    """A share group that cannot consume some records of a topic."""

    group: str
    source: str
    dead_letters: str
    action: Action
    copied: bool


GROUPS = (
    Failing("live-packing", "live.orders", "dlq.live-orders", Action.REJECT, copied=True),
    Failing("live-invoicing", "live.orders", "dlq.live-orders", Action.RELEASE, copied=False),
    Failing("live-ledger", "live.payments", "dlq.live-payments", Action.RELEASE, copied=True),
    Failing("live-fraud", "live.payments", "dlq.live-payments", Action.REJECT, copied=False),
)


@dataclass(frozen=True)
class Push:
    """A topology that an application pushes; ``description`` names a captured description."""

    group: str
    description: str
    epoch: int = 0
    deletes: bool = False


PUSHES = (
    Push("live-orders-app", "orders-app"),
    Push("live-hops-app", "hops-app", epoch=7),  # the group's epoch is 0, so the broker refuses this push
    Push("live-globals-app", "globals-app", deletes=True),
)


@dataclass(frozen=True)
class Happened:
    """What happened on the broker: its dead letters as a plain consumer reads them, its topologies, its request log."""

    bootstrap_servers: str
    letters: tuple[Record, ...]
    topic_ids: Mapping[str, str]
    health: Mapping[str, str]
    """By streams group: what its topology's health is, by what the broker answered."""
    request_log: str

    @property
    def variables(self) -> dict[str, str]:
        """The environment variables that let runs read the dead-letter topics."""
        return {
            "AFTERLOG_KAFKA__BOOTSTRAP_SERVERS": self.bootstrap_servers,
            "AFTERLOG_KAFKA__SECURITY_PROTOCOL": "PLAINTEXT",
            "AFTERLOG_DLQ__SOURCE": "kafka",
            "AFTERLOG_DLQ__SUBSCRIBE_PATTERN": PATTERN,
        }


def play(broker: Broker) -> Happened:
    """Start a broker and let share groups and Streams applications fail on it; the broker keeps running.

    Its data stays from demo to demo. It starts anew if the last demo was interrupted. Raises AfterlogError, OSError:
    the broker cannot start, or it ended.
    """
    whole = broker.directory / "whole"
    if not whole.exists():
        broker.stop()
        shutil.rmtree(broker.directory, ignore_errors=True)
    broker.start()
    whole.unlink(missing_ok=True)
    with KafkaClient(broker.bootstrap_servers) as client:
        letters = _dead_letters(client)
        ids = {letter.topic: client.topic_id(letter.topic) for letter in letters}
        with broker.request_log.open("rb") as log:
            log.seek(0, 2)
            health = _topologies(client)
            lines = log.read().decode()
    whole.touch()
    return Happened(broker.bootstrap_servers, tuple(letters), ids, health, lines)


def _dead_letters(client: KafkaClient) -> list[Record]:
    """Produce messages, let each group fail on some of them, and return all records of the dead-letter topics."""
    for topic, partitions in {"live.orders": 2, "live.payments": 1}.items():
        _create(client.create_topic, topic, partitions)
        client.produce(topic, _messages(topic))
    topics = sorted({group.dead_letters for group in GROUPS})
    for topic in topics:
        _create(client.create_dead_letter_topic, topic, 2)
    expected = {topic: len(client.read(topic)) for topic in topics}
    _create(client.create_topic, REPAIRED, 2)
    for group in GROUPS:
        client.dead_letter(group.group, group.dead_letters, copy=group.copied, limit=_LIMIT)
        messages = _messages(group.source)
        poisoned = sum(_is_poisoned(message) for message in messages)
        again = poisoned * (_LIMIT - 1) if group.action is Action.RELEASE else 0
        client.share(group.group, [group.source], _decision(group.action), expected=len(messages) + again)
        expected[group.dead_letters] += poisoned
    return [letter for topic in topics for letter in client.read(topic, expected=expected[topic])]


def _decision(action: Action) -> Callable[[Record], Action]:
    return lambda record: action if _is_poisoned(record) else Action.ACCEPT


def _messages(topic: str) -> list[Message]:
    """Return 24 messages; every third cannot be consumed: it is cut off, not UTF-8, or has no value."""
    poison = (b'{"amount": 12', b"\xff\xfe\x00 no text", None)
    return [
        Message(
            value=poison[number // 3 % 3] if number % 3 == 0 else json.dumps({"amount": number}).encode(),
            key=f"{topic.removeprefix('live.')}-{number}".encode(),
            headers=[("traceparent", f"00-{number:032x}-{number:016x}-01".encode())],
        )
        for number in range(24)
    ]


def _is_poisoned(record: Message | Record) -> bool:
    try:
        json.loads(record.value or b"")
    except ValueError:  # also for bytes that are not UTF-8
        return True
    return False


def _topologies(client: KafkaClient) -> dict[str, str]:
    """Push topologies while the request log is on; return each group's health according to the broker's answers."""
    health = {}
    for topic in ("live.orders", "payments", "customers", "hop-in", "rates", "countries", "quotes"):
        _create(client.create_topic, topic, 1)
    with Connection(client, "live-apps") as connection:
        for push in PUSHES:  # an earlier demo left these groups; the broker's plugin has forgotten their topologies
            connection.leave(push.group, "member-1")
            connection.delete(push.group)
        client.log_requests()
        try:
            for push in PUSHES:
                description = _description(push)
                connection.join(push.group, "member-1", description)
                refused = connection.push(push.group, "member-1", description, push.epoch)["errorCode"]
                connection.describe(push.group)
                health[push.group] = "REJECTED" if refused else "OK"
                if push.deletes:
                    connection.leave(push.group, "member-1")
                    if connection.delete(push.group)[0]["errorCode"] == 0:
                        health[push.group] = "DELETED"
            connection.describe(PUSHES[0].group)  # answered only after the request before it is logged
        finally:
            client.log_requests(False)
    return health


def _description(push: Push) -> dict[str, Any]:
    """Return a captured description for this application, with the group's name in its internal topics."""
    text = (_TOPOLOGIES / f"{push.description}.json").read_text(encoding="utf-8")
    text = text.replace(f'"{push.description}-', f'"{push.group}-').replace('"orders"', '"live.orders"')
    described: dict[str, Any] = json.loads(text)
    return described


def _create(create: Callable[[str, int, Mapping[str, str]], None], topic: str, partitions: int) -> None:
    try:
        create(topic, partitions, _FOREVER)
    except KafkaFailure as failure:
        if failure.reason != _TOPIC_EXISTS:
            raise


def replay(settings: Settings, happened: Happened) -> list[str]:
    """Repair the dead letters of a group, replay them to another topic, and return in sentences what became of it.

    Raises AfterlogError: it cannot be done. ContractBroken: the topic does not hold each record once.
    """
    kafka = Kafka(bootstrap_servers=happened.bootstrap_servers)
    warehouse = Warehouse(settings.model_copy(update={"kafka": kafka}))
    with tempfile.TemporaryDirectory() as directory:
        repair = Path(directory) / "repair.sql"
        repair.write_text(_REPAIR, encoding="utf-8")
        choice = Choice(where=f"consumer_group = '{GROUPS[0].group}'")
        draft = actions.drawn(warehouse, choice, Options(to=REPAIRED), file=repair)
    store.keep(warehouse, draft)
    ended = json.loads(actions.run(warehouse, draft.plan.plan_id, form="json").result)
    held_back = ", ".join(f"{count} {reason}" for reason, count in draft.reasons.most_common())
    return [
        f"Replay: plan {draft.plan.plan_id} repairs {counted(len(draft.plan.records), 'dead letter')} of "
        f"{GROUPS[0].group} for {REPAIRED}" + (f" (not eligible: {held_back})." if held_back else "."),
        f"{ended['replayed']} stand there, each once; outcome: "
        + ", ".join(f"{count} {name}" for name, count in ended["outcomes"].items())
        + f"; afterlog trace {draft.plan.records[0].source.coordinate} tells the story.",
    ]


def landed(settings: Settings, happened: Happened) -> Iterator[Record]:
    """Yield the bronze rows of the live dead letters as a plain consumer shows their records."""
    for topic_id in happened.topic_ids.values():
        for row in jvmless.rows(Warehouse(settings), "bronze.dlq_records", {"topic_id": topic_id}):
            yield consumed(row)


def accepted(settings: Settings, happened: Happened) -> Iterator[tuple[str, str, bool]]:
    """Yield group, disposition and whether the payload was copied, for each silver row of the live dead letters."""
    names = ["consumer_group", "disposition", "payload_copied"]
    for topic_id in happened.topic_ids.values():
        for row in jvmless.rows(Warehouse(settings), "silver.dlq_records", {"dlq_topic_id": topic_id}, names):
            yield row["consumer_group"], row["disposition"], row["payload_copied"]


def group_of(letter: Record) -> str:
    """Return the share group that a dead letter names."""
    return (dict(letter.headers)["__dlq.errors.group"] or b"").decode()


def consumed(row: Mapping[str, Any]) -> Record:
    """Return a row of bronze.dlq_records as a plain consumer shows its record."""
    return Record(
        topic=row["topic"],
        partition=row["partition"],
        offset=row["offset"],
        timestamp=-1 if row["timestamp"] is None else (row["timestamp"] - _EPOCH) // timedelta(milliseconds=1),
        timestamp_type=row["timestamp_type"],
        key=row["key"],
        value=row["value"],
        headers=tuple((header["key"], header["value"]) for header in row["headers"]),
    )
