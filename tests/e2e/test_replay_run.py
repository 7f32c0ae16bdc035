"""Replays to a real broker: every byte as it was, each record once, whatever happens to the run."""

from __future__ import annotations

from pathlib import Path

import pytest

from local.broker import Broker
from local.kafka_client import Message
from pipelines.errors import AfterlogError, EnvironmentLacking, UsageError
from pipelines.replay.client import admin, cluster_id, describe
from pipelines.replay.fetch import ABORTED, ABSENT, OPEN, Fetched, fetch
from pipelines.settings import Kafka, Settings, load
from tests.testing.broker import SecuredBroker
from tests.testing.kafka import KafkaAdmin

SECRET = 'a "secret" \\ of a reader'


@pytest.fixture
def settings(tmp_path: Path, broker: Broker) -> Settings:
    return load(
        warehouse=str(tmp_path / "warehouse"),
        kafka={"bootstrap_servers": broker.bootstrap_servers, "timeout_seconds": 30},
    )


def as_reader(secured_broker: SecuredBroker, tmp_path: Path, user: str = "reader", password: str = SECRET) -> Settings:
    """Settings of a user of the secured listener."""
    kafka = {
        "bootstrap_servers": secured_broker.secured_servers,
        "security_protocol": "SASL_SSL",
        "sasl_mechanism": "SCRAM-SHA-512",
        "username": user,
        "password": password,
        "ca_file": str(secured_broker.authority),
        "timeout_seconds": 30,
    }
    return load(warehouse=str(tmp_path / "warehouse"), kafka=kafka)


def test_describe(settings: Settings, kafka: KafkaAdmin) -> None:
    kafka.create_topic("described", 3, {"cleanup.policy": "delete, compact", "max.message.bytes": "12345"})
    kafka.create_dead_letter_topic("described.dlq")
    kafka.produce("described", [Message(b"a", key=b"k", partition=1), Message(b"b", key=b"k", partition=1)])
    kafka.delete_records("described", 1, 1)
    asked = admin(settings)
    found = describe(asked, ["described", "described.dlq", "no such name", "absent"])
    assert set(found) == {"described", "described.dlq"}
    topic = found["described"]
    assert topic.topic_id == kafka.topic_id("described")
    assert (topic.partitions, topic.starts, topic.ends) == (3, (0, 1, 0), (0, 2, 0))
    assert (topic.max_message_bytes, topic.cleanup_policy, topic.is_compacted) == (12345, "compact,delete", True)
    assert (topic.is_dead_letter_topic, found["described.dlq"].is_dead_letter_topic) == (False, True)
    assert (topic.may_read, topic.may_write) == (True, True)
    assert cluster_id(asked) == str(kafka.admin.describeCluster().clusterId().get())


def test_topic_ids_are_written_as_kafka_writes_them(settings: Settings, kafka: KafkaAdmin) -> None:
    names = [f"ids-{number}" for number in range(12)]  # most of 12 ids have a character of which alphabets differ
    for name in names:
        kafka.create_topic(name)
    found = describe(admin(settings), names)
    assert {name: topic.topic_id for name, topic in found.items()} == {name: kafka.topic_id(name) for name in names}


def test_fetch(settings: Settings, kafka: KafkaAdmin) -> None:
    kafka.create_topic("fetched", 2)
    odd = Message(b"\xff\x00", b"", [("a", None), ("a", b""), ("b", b"\xfe")], partition=0, timestamp=1_600_000_000_000)
    kafka.produce("fetched", [odd, Message(None, None, partition=0), Message(b"", b"x", partition=0)])
    with kafka.transaction("fetch-1") as one:
        one.send("fetched", [Message(b"aborted", partition=0)])
        one.abort()
    kafka.produce("fetched", [Message(b"deleted", partition=1), Message(b"kept", partition=1)])
    kafka.delete_records("fetched", 1, 1)
    with kafka.transaction("fetch-2") as two:
        two.send("fetched", [Message(b"open", partition=1)])
        places = [("fetched", 0, offset) for offset in range(6)] + [("fetched", 1, offset) for offset in range(4)]
        found = fetch(settings, [*places, ("fetched", 2, 0), ("absent", 0, 0)])
    in_order = [found[place] for place in places]
    assert in_order[0] == Fetched(b"", b"\xff\x00", (("a", None), ("a", b""), ("b", b"\xfe")), 1_600_000_000_000)
    assert [one.value for one in in_order[1:3] if isinstance(one, Fetched)] == [None, b""]
    assert [one.key for one in in_order[1:3] if isinstance(one, Fetched)] == [None, b"x"]
    assert in_order[3:6] == [ABORTED, ABSENT, ABSENT]  # the marker, and an offset behind the end
    assert in_order[6] is ABSENT
    assert isinstance(in_order[7], Fetched)
    assert in_order[8:] == [OPEN, ABSENT]
    assert found["fetched", 2, 0] is found["absent", 0, 0] is ABSENT


def test_fetch_of_places_far_apart(settings: Settings, kafka: KafkaAdmin, monkeypatch: pytest.MonkeyPatch) -> None:
    kafka.create_topic("far", 3)
    kafka.produce("far", [Message(f"{at % 3}-{at // 3}".encode(), partition=at % 3) for at in range(900)])
    monkeypatch.setattr("pipelines.replay.fetch.GAP", 20)
    places = [("far", 0, offset) for offset in (0, 5, 100, 250, 299)] + [("far", 2, 299), ("far", 2, 7), ("far", 2, 8)]
    found = fetch(settings, places)
    assert [one.value for one in found.values() if isinstance(one, Fetched)] == [
        *(b"0-0", b"0-5", b"0-100", b"0-250", b"0-299", b"2-7", b"2-8", b"2-299")
    ]


def test_a_user_with_few_rights(secured_broker: SecuredBroker, tmp_path: Path) -> None:
    """Reading a topic takes Read on it and nothing on groups; a topic without rights is there, without its id."""
    with KafkaAdmin(secured_broker.bootstrap_servers) as boss:
        for name in ("rights.shown", "rights.read", "rights.hidden"):
            boss.create_topic(name)
            boss.produce(name, [Message(b"x")])
        boss.allow("reader", "DESCRIBE", "TOPIC", "rights.shown")
        boss.allow("reader", "READ", "TOPIC", "rights.read")
    settings = as_reader(secured_broker, tmp_path)
    found = describe(admin(settings), ["rights.shown", "rights.read", "rights.hidden", "rights.absent"])
    assert {name: (topic.topic_id is not None, topic.may_read, topic.may_write) for name, topic in found.items()} == {
        "rights.shown": (True, False, False),
        "rights.read": (True, True, False),
        "rights.hidden": (False, False, False),
        "rights.absent": (False, False, False),
    }
    assert (found["rights.read"].ends, found["rights.read"].cleanup_policy) == ((1,), None)
    assert isinstance(fetch(settings, [("rights.read", 0, 0)])["rights.read", 0, 0], Fetched)
    with pytest.raises(UsageError, match=r"is not allowed to read topic rights\.shown.*grant it the operation Read"):
        fetch(settings, [("rights.shown", 0, 0)])


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"password": "wrong"}, "refuse the user of [kafka] (SCRAM-SHA-512)"),
        ({"ca_file": None}, "name the authority in ca_file"),
        ({"security_protocol": "SSL"}, "speaks SASL_SSL"),
        ({"sasl_mechanism": "PLAIN"}, "does not offer PLAIN"),
        ({"bootstrap_servers": "127.0.0.1:1"}, "No broker can be reached"),
        ({"bootstrap_servers": "no-such-host.invalid:9092"}, "No broker can be reached"),
    ],
)
def test_wrong_settings(
    change: dict[str, object], sentence: str, secured_broker: SecuredBroker, tmp_path: Path
) -> None:
    right = as_reader(secured_broker, tmp_path)
    kafka = Kafka.model_validate(right.kafka.model_dump() | {"timeout_seconds": 2} | change)
    wrong = right.model_copy(update={"kafka": kafka})
    with pytest.raises(AfterlogError) as told:
        describe(admin(wrong), ["any"])
    assert sentence in str(told.value)
    assert isinstance(told.value, UsageError | EnvironmentLacking)
    assert SECRET not in str(told.value)
