"""The live part of the demo: what it produces and pushes, and how it reads the landed rows."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from local import live
from local.kafka_client import Record
from pipelines.settings import load


def happened(*letters: Record) -> live.Happened:
    return live.Happened("127.0.0.1:9092", letters, {"dlq.live-orders": "id"}, {"live-orders-app": "OK"}, "")


def test_every_third_message_is_poisoned_each_in_its_own_way() -> None:
    messages = live._messages("live.orders")
    poisoned = [message for message in messages if live._is_poisoned(message)]
    assert (len(messages), len(poisoned)) == (24, 8)
    assert {message.value for message in poisoned} == {b'{"amount": 12', b"\xff\xfe\x00 no text", None}


@pytest.mark.parametrize("push", live.PUSHES, ids=lambda push: push.group)
def test_internal_topics_bear_the_name_of_the_application_that_pushes(push: live.Push) -> None:
    description = live._description(push)
    topics = {
        topic
        for subtopology in description["subtopologies"]
        for node in subtopology["nodes"]
        for topic in (*node["sourceTopics"], node["sinkTopic"])
        if topic
    }
    assert topics
    internal = {topic for topic in topics if topic.endswith("-repartition")}
    assert {topic for topic in internal if not topic.startswith(f"{push.group}-")} == set()
    assert not any(topic.startswith(f"{push.description}-") for topic in topics)


def test_runs_read_the_live_topics_whatever_else_is_set(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AFTERLOG_KAFKA__SECURITY_PROTOCOL", "SASL_SSL")
    for name, value in happened().variables.items():
        monkeypatch.setenv(name, value)
    settings = load()
    topics = settings.topics_of("dlq")
    assert topics is not None
    assert topics.pattern == r"dlq\.live-.*"
    assert settings.kafka.bootstrap_servers == "127.0.0.1:9092"
    assert settings.kafka.security_protocol == "PLAINTEXT"


def test_a_row_of_bronze_is_the_record_that_a_consumer_reads() -> None:
    row = {
        "topic": "dlq.live-orders",
        "partition": 1,
        "offset": 7,
        "timestamp": datetime(2026, 11, 21, 2, 41, 15, 344_000, tzinfo=UTC),
        "timestamp_type": 0,
        "key": b"",
        "value": None,
        "headers": [{"key": "a", "value": None}, {"key": "a", "value": b"\xff"}],
    }
    headers = (("a", None), ("a", b"\xff"))
    assert live.consumed(row) == Record("dlq.live-orders", 1, 7, 1795228875344, 0, b"", None, headers)
