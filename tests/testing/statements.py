"""Builders of lines about a cluster's settings, as `afterlog collect` lands them."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta

from pipelines.collect.asking import BROKER, CLUSTER, GROUP, PRESENT, TOPIC, Subject
from pipelines.collect.landing import line_of

BEGIN = datetime(2026, 11, 21, 2, 0, tzinfo=UTC)
DAYS_7 = "604800000"

TOPICS: dict[str, str | None] = {
    "cleanup.policy": "delete",
    "errors.deadletterqueue.group.enable": "true",
    "max.message.bytes": "1048588",
    "min.insync.replicas": "1",
    "retention.ms": DAYS_7,
    "in_sync_replicas": "1",
    "is_outrun": None,
    "partitions": "2",
    "replicas": "1",
}
GROUPS = {
    "errors.deadletterqueue.copy.record.enable": "true",
    "share.isolation.level": "read_committed",
    "group_type": "SHARE",
    "sources": "orders",
}
BROKERS = {
    "errors.deadletterqueue.auto.create.topics.enable": "false",
    "errors.deadletterqueue.topic.name.prefix": "dlq.",
}
CLUSTERS = {"bootstrap_servers": "broker:9092", "share.version": "2"}
DLQ_TOPIC = "errors.deadletterqueue.topic.name"


def at(minutes: float) -> datetime:
    """The time this many minutes after the test's beginning."""
    return BEGIN + timedelta(minutes=minutes)


def statement(kind: str, name: str, minutes: float, values: Mapping[str, str | None], state: str = PRESENT) -> str:
    """One line: what the cluster says about a subject."""
    return line_of(Subject(kind, name, state, {item: (value, None) for item, value in values.items()}), at(minutes))


def cluster(minutes: float, values: Mapping[str, str | None] = CLUSTERS) -> str:
    """A line about the cluster."""
    return statement(CLUSTER, "", minutes, values)


def broker(minutes: float, name: str = "1", changes: Mapping[str, str | None] | None = None) -> str:
    """A line about a broker with the defaults of Kafka."""
    return statement(BROKER, name, minutes, {**BROKERS, **(changes or {})})


def topic(name: str, minutes: float, changes: Mapping[str, str | None] | None = None, state: str = PRESENT) -> str:
    """A line about a topic that groups may dead-letter to; of a topic that is not there, nothing is known."""
    known = TOPICS if state == PRESENT else dict.fromkeys(TOPICS)
    return statement(TOPIC, name, minutes, {**known, **(changes or {})}, state)


def group(
    name: str, dlq: str | None, minutes: float, changes: Mapping[str, str | None] | None = None, state: str = PRESENT
) -> str:
    """A line about a share group that reads orders and dead-letters to a topic with all that is wanted."""
    return statement(GROUP, name, minutes, {**GROUPS, DLQ_TOPIC: dlq, **(changes or {})}, state)
