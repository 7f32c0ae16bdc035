"""Dead letters of a real broker, planned, replayed and followed to their outcome."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from local.broker import Broker
from local.kafka_client import Action, Message, Record
from pipelines.replay import actions
from pipelines.replay.candidates import Choice
from pipelines.replay.judge import Options
from pipelines.settings import Settings
from pipelines.warehouse.tables import Warehouse
from tests.testing.builders import run, warehouse_of
from tests.testing.kafka import KafkaAdmin

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SOURCE, LETTERS, BARE = "replayed", "dlq.replayed", "dlq.replayed-bare"
COPIES, DROPS = "replayed-copies", "replayed-drops"
ODD: list[bytes | None] = [None, b"", b"\xff\xfe\x00", 'ä\n\r"'.encode(), b"plain"]


@dataclass(frozen=True)
class Happened:
    """What two groups could not consume: one copies payloads to its dead letters, the other does not."""

    settings: Settings
    sent: Sequence[Record]

    @property
    def warehouse(self) -> Warehouse:
        return Warehouse(self.settings)

    def sent_at(self, place: str) -> Record:
        """The source record of a place."""
        found = {f"{one.topic}:{one.partition}:{one.offset}": one for one in self.sent}
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
        replay={"rules": str(tmp_path_factory.mktemp("rules") / "none.toml")},
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
        kafka.share(group, [SOURCE], lambda record: Action.REJECT, expected=51)
    kafka.read(LETTERS, expected=50)
    kafka.read(BARE, expected=50)
    run(spark, settings)
    return Happened(settings, kafka.read(SOURCE))


def drawn(happened: Happened, choice: Choice, options: Options = Options()) -> dict[str, list[str]]:  # noqa: B008
    draft = actions.drawn(happened.warehouse, choice, options)
    return {f"{one.source.topic}:{one.source.partition}:{one.source.offset}": one.reasons for one in draft.entries}


def of(topic: str, more: str = "true") -> Choice:
    return Choice(where=f"dlq_topic = '{topic}' AND ({more})")


def test_a_record_of_an_aborted_transaction_is_not_eligible(happened: Happened) -> None:
    for topic in (LETTERS, BARE):
        found = drawn(happened, of(topic))
        refused = {place: reasons for place, reasons in found.items() if reasons}
        assert f"{SOURCE}:0:25" in refused, refused
        assert all(place.startswith(f"{SOURCE}:0:2") for place in refused)
        assert len(found) - len(refused) == 50
