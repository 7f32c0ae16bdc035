"""Topics as a source: users, secured listeners, and a cluster under another one's name."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from pipelines.errors import AfterlogError, UsageError
from pipelines.kafka import records as kafka_records
from pipelines.kafka.offsets import OffsetRange
from pipelines.settings import Settings
from tests.testing.broker import SecuredBroker
from tests.testing.builders import run, warehouse_of
from tests.testing.kafka import KafkaAdmin
from tests.testing.kafka_source import BRONZE, asked, gaps, landed, numbers, texts, values

SECRET = 'a "secret" \\ of a reader'

SPEAKS = "set it to SASL_SSL"


def test_another_cluster_under_the_same_name_is_refused(
    spark: SparkSession, kafka: KafkaAdmin, following: Callable[..., Settings], secured_kafka: KafkaAdmin
) -> None:
    settings = following(r"dlq\.whose")
    kafka.create_topic("dlq.whose")
    kafka.produce("dlq.whose", values(3))
    run(spark, settings, BRONZE)

    moved = settings.kafka.model_copy(update={"bootstrap_servers": secured_kafka.bootstrap_servers})
    secured_kafka.create_topic("dlq.whose")
    secured_kafka.produce("dlq.whose", values(2, begin=10))
    other = settings.model_copy(update={"kafka": moved})
    with pytest.raises(UsageError, match=r"topics were read from .*: fix bootstrap_servers"):
        run(spark, other, BRONZE)
    assert texts(settings) == numbers(0, 3)
    assert gaps(settings) == []

    named = other.model_copy(update={"cluster": "another"})
    run(spark, named, BRONZE)
    assert texts(named) == numbers(10, 12)
    kafka.produce("dlq.whose", values(1, begin=3))
    run(spark, settings, BRONZE)
    assert texts(settings) == numbers(0, 4)


@pytest.fixture
def secured(secured_broker: SecuredBroker, empty_warehouse: Path, tmp_path: Path) -> Callable[..., Settings]:
    """Return a maker of settings for a user of the secured listener."""

    def settings(**changes: Any) -> Settings:
        return warehouse_of(
            empty_warehouse,
            tmp_path,
            dlq={"source": "kafka", "subscribe_pattern": r"dlq\.guarded"},
            kafka={
                "bootstrap_servers": secured_broker.secured_servers,
                "security_protocol": "SASL_SSL",
                "sasl_mechanism": "SCRAM-SHA-512",
                "username": "reader",
                "password": SECRET,
                "ca_file": str(secured_broker.authority),
                "timeout_seconds": 5,
                **changes,
            },
        )

    return settings


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        pytest.param({"security_protocol": "PLAINTEXT"}, SPEAKS, id="plain"),
        # These two end as "plain" does, after the same wait; test_cluster.py has their answers over sockets.
        pytest.param({"security_protocol": "SASL_PLAINTEXT"}, SPEAKS, id="no tls", marks=pytest.mark.thorough),
        pytest.param({"security_protocol": "SSL"}, SPEAKS, id="no sasl", marks=pytest.mark.thorough),
        pytest.param({"sasl_mechanism": "PLAIN"}, "to one of SCRAM-SHA-512", id="mechanism"),
        pytest.param({"password": "wrong"}, "fix username and password", id="password"),
        pytest.param({"username": "nobody"}, "fix username and password", id="user"),
        pytest.param({"ca_file": None}, "name it in ca_file of [kafka]", id="authority"),
        pytest.param({"ca_file": "no/such.pem"}, "ca_file of [kafka] cannot be read", id="no authority"),
    ],
)
def test_what_is_wrong_with_security_is_one_sentence(
    secured: Callable[..., Settings], changes: dict[str, Any], sentence: str
) -> None:
    with pytest.raises(AfterlogError) as raised:
        asked(secured(**changes))
    assert sentence in str(raised.value)
    assert "secret" not in str(raised.value)


def test_a_user_reads_what_acls_allow_and_is_told_what_is_missing(
    spark: SparkSession,
    secured_kafka: KafkaAdmin,
    secured: Callable[..., Settings],
    capfd: pytest.CaptureFixture[str],
) -> None:
    settings = secured()
    secured_kafka.create_topic("dlq.guarded")
    secured_kafka.produce("dlq.guarded", values(3))
    with pytest.raises(UsageError, match="grant Afterlog the operations Describe and Read on them"):
        asked(settings)
    secured_kafka.allow("reader", "DESCRIBE", "TOPIC", "dlq.guarded")
    with pytest.raises(UsageError, match=r"not allowed to read topic dlq\.guarded: grant it the operation Read"):
        run(spark, settings, BRONZE)
    secured_kafka.allow("reader", "READ", "TOPIC", "dlq.guarded")
    assert run(spark, settings, BRONZE)[BRONZE].accepted == 3
    assert texts(settings) == numbers(0, 3)
    topics = settings.topics_of("dlq")
    assert topics is not None
    plan = kafka_records.records(spark, settings, topics, [OffsetRange("dlq.guarded", "id", 0, 0, 3)])
    plan.explain(True)
    shown = capfd.readouterr()
    everything = [shown.out, shown.err, json.dumps(landed(settings, "quality.stage_runs"), default=str)]
    everything += [file.read_text() for file in (Path(settings.warehouse) / "_progress").iterdir()]
    assert not [text for text in everything if "secret" in text]
