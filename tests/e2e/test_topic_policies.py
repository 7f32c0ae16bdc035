"""A real broker's cleanup.policy decides whether messages that a log lacks are lost."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from pipelines.broker import Broker
from pipelines.catalog import stages
from pipelines.commands import trace
from pipelines.errors import UsageError
from pipelines.kafka.cluster import connected
from pipelines.run import idleness, runner
from pipelines.settings import Settings
from pipelines.stores import lock
from pipelines.warehouse import jvmless
from pipelines.warehouse.tables import Warehouse
from tests.testing import segments
from tests.testing.broker import SecuredBroker
from tests.testing.builders import land, warehouse_of
from tests.testing.deliveries import acknowledgement
from tests.testing.kafka import KafkaAdmin

STAGES = tuple(
    stage
    for stage in stages("delivery")
    if stage.table.endswith((".acknowledgements", ".record_batches", ".topic_policies", ".message_ledger"))
    or stage.table.startswith("silver.log_")
)
TOPICS = ("policy.orders", "policy.state", "policy.gone")


def landed(settings: Settings) -> Settings:
    """Land logs that lack offset 3, and acknowledgements of all their messages."""
    for topic in TOPICS:
        directory = settings.landing_of("segments") / f"{topic}-0"
        directory.mkdir(parents=True)
        (directory / f"{0:020}.log").write_bytes(segments.batch(0, 3) + segments.batch(4, 2))
    told = [acknowledgement(topic, 0, offset) for topic in TOPICS for offset in range(6)]
    land(settings, {"a.jsonl": told}, "acknowledgements")
    return settings


def run(spark: SparkSession, settings: Settings) -> dict[str, str]:
    """Run the stages up to the ledger; return the outcome of offset 3 by topic."""
    with lock.writer(settings, "test"):
        done = runner.run(Warehouse(settings, spark), STAGES)
    assert {stage_run.status for stage_run in done} <= {"passed", "idle"}
    found = jvmless.rows(Warehouse(settings), "gold.message_ledger", {"cluster": settings.cluster, "offset": 3})
    return {row["topic"]: row["outcome"] for row in found}


def told(settings: Settings) -> dict[str, Any]:
    """What `afterlog trace` tells of offset 3 of the first topic."""
    answer: dict[str, Any] = json.loads(trace.answer(Warehouse(settings), "policy.orders:0:3", "json").result)
    return answer


def test_a_topics_policy_decides_and_is_asked_again_at_each_run(
    spark: SparkSession, kafka: KafkaAdmin, broker: Broker, empty_warehouse: Path, tmp_path: Path
) -> None:
    kafka.create_topic("policy.orders")
    kafka.create_topic("policy.state", settings={"cleanup.policy": "compact,delete"})
    settings = landed(warehouse_of(empty_warehouse, tmp_path, kafka={"bootstrap_servers": broker.bootstrap_servers}))

    found = run(spark, settings)
    assert found == {"policy.orders": "LOST", "policy.state": "ACKNOWLEDGED", "policy.gone": "ABSENT"}
    assert told(settings)["events"][-1]["cleanup_policy"] == "delete"
    assert idleness.idle(Warehouse(settings), STAGES)

    kafka.configure("TOPIC", "policy.orders", {"cleanup.policy": "compact"})
    kafka.configure("TOPIC", "policy.state", {"cleanup.policy": "delete"})
    assert not idleness.idle(Warehouse(settings), STAGES)
    found = run(spark, settings)
    assert (found["policy.orders"], found["policy.state"]) == ("ACKNOWLEDGED", "LOST")
    kafka.delete_topics("policy.orders", "policy.state")
    assert run(spark, settings) == found  # the known policy stays


@pytest.mark.thorough
def test_without_the_right_to_describe_configurations_nothing_is_claimed(
    spark: SparkSession, secured_broker: SecuredBroker, secured: Settings
) -> None:
    settings = landed(secured)
    with KafkaAdmin(secured_broker.bootstrap_servers) as admin:
        admin.create_topic("policy.orders")
        admin.allow("reader", "DESCRIBE", "TOPIC", "policy.orders")
        assert run(spark, settings)["policy.orders"] == "ABSENT"
        assert told(settings)["remark"] is not None
        admin.allow("reader", "DESCRIBE_CONFIGS", "TOPIC", "policy.orders")
        assert run(spark, settings)["policy.orders"] == "LOST"
    with connected(settings) as cluster, pytest.raises(UsageError, match="not the cluster that was read before"):
        cluster.cleanup_policies(["policy.orders"], {"another"})


@pytest.fixture
def secured(secured_broker: SecuredBroker, empty_warehouse: Path, tmp_path: Path) -> Settings:
    """Settings of a user who can do what an ACL allows."""
    user = {"username": "reader", "password": 'a "secret" \\ of a reader', "sasl_mechanism": "SCRAM-SHA-512"}
    servers = {"bootstrap_servers": secured_broker.secured_servers, "security_protocol": "SASL_SSL"}
    kafka = {**servers, **user, "ca_file": str(secured_broker.authority)}
    return warehouse_of(empty_warehouse, tmp_path, kafka=kafka)
