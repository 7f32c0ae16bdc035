"""Records of dead-letter topics on a broker, and what landed of them."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from local.kafka_client import Message
from pipelines.broker import Broker
from pipelines.errors import AfterlogError
from pipelines.kafka import records as kafka_records
from pipelines.kafka.cluster import TopicSnapshot, connected
from pipelines.kafka.offsets import TopicProgress
from pipelines.settings import ROOT, Settings
from pipelines.warehouse import jvmless
from pipelines.warehouse.tables import Warehouse
from tests.testing.builders import kip_1191
from tests.testing.kafka import KafkaAdmin

BRONZE, SILVER = "bronze.dlq_records", "silver.dlq_records"

GAPS = "quality.gaps"


def values(count: int, begin: int = 0) -> list[Message]:
    return [Message(f"{number}".encode(), headers=kip_1191(offset=number)) for number in range(begin, begin + count)]


def to(partition: int, messages: Iterable[Message]) -> list[Message]:
    return [Message(message.value, message.key, message.headers, partition, message.timestamp) for message in messages]


def landed(settings: Settings, table: str = BRONZE) -> list[dict[str, Any]]:
    return jvmless.rows(Warehouse(settings), table, {"cluster": settings.cluster})


def texts(settings: Settings) -> list[str]:
    """The values of the landed records, in order."""
    return sorted((row["value"].decode() for row in landed(settings)), key=lambda text: (len(text), text))


def gaps(settings: Settings) -> list[tuple[Any, ...]]:
    names = ("topic", "topic_id", "partition", "from_offset", "to_offset")
    return sorted(tuple(row[name] for name in names) for row in landed(settings, GAPS))


def numbers(begin: int, end: int) -> list[str]:
    return [str(number) for number in range(begin, end)]


def created(kafka: KafkaAdmin, topic: str) -> None:
    """Create a topic as soon as the old topic with its name is deleted."""
    until = time.monotonic() + 30
    while True:
        try:
            kafka.create_topic(topic)
            return
        except AfterlogError:
            if time.monotonic() > until:
                raise
            time.sleep(0.2)


def once_before_reading(monkeypatch: pytest.MonkeyPatch, act: Callable[[], None]) -> None:
    """Call a function once, between the plan of the first batch and its read."""
    records = kafka_records.records
    acted: list[bool] = []

    def acting(spark: SparkSession, settings: Settings, topics: Any, spans: Any) -> DataFrame:
        if not acted:
            acted.append(True)
            act()
        return records(spark, settings, topics, spans)

    monkeypatch.setattr(kafka_records, "records", acting)


def environment(broker: Broker, pattern: str, **more: str) -> dict[str, str]:
    return os.environ | {
        "PYTHONPATH": str(ROOT),
        "AFTERLOG_KAFKA__BOOTSTRAP_SERVERS": broker.bootstrap_servers,
        "AFTERLOG_DLQ__SOURCE": "kafka",
        "AFTERLOG_DLQ__SUBSCRIBE_PATTERN": pattern,
        **more,
    }


def asked(settings: Settings) -> TopicSnapshot:
    topics = settings.topics_of("dlq")
    assert topics is not None
    with connected(settings) as cluster:
        return cluster.snapshot(topics, TopicProgress())
