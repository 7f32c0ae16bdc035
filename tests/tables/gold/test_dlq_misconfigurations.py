"""Mistakes in settings that lose dead letters: each kind, its severity, its age and its command; repaired ones end."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from expectations.gold.dlq_misconfigurations import SEVERITIES
from pipelines.settings import Settings
from tests.testing.builders import land, rows, run, warehouse_of
from tests.testing.statements import CLUSTERS, at, broker, cluster, group, topic

TABLE = "gold.dlq_misconfigurations"
COPY = "errors.deadletterqueue.copy.record.enable"
FOREVER = "-1"


@pytest.fixture
def settings(empty_warehouse: Path, tmp_path: Path) -> Settings:
    return warehouse_of(empty_warehouse, tmp_path)


def found(spark: SparkSession, settings: Settings, *lines: str) -> dict[tuple[str, str], dict[str, Any]]:
    """Land lines and run; return the findings by group and kind."""
    number = sum(1 for _ in settings.landing_of("cluster-settings").glob("*"))
    land(settings, {f"{number}.jsonl": lines}, "cluster-settings")
    done = run(spark, settings, feed="collect")
    assert {one.status for one in done.values()} <= {"passed", "idle"}
    return {(row["group_id"], row["kind"]): row for row in rows(spark, settings, TABLE)}


def add(row: dict[str, Any]) -> tuple[str, str, str]:
    """What a command of kafka-configs changes: the type and the name of the entity, and the setting."""
    words = shlex.split(row["remedy"])
    assert words[:4] == ["kafka-configs.sh", "--bootstrap-server", "broker:9092", "--alter"]
    options = dict(zip(words[4::2], words[5::2], strict=True))
    return options["--entity-type"], options["--entity-name"], options["--add-config"]


def test_each_mistake_is_found_and_ends_with_its_repair(spark: SparkSession, settings: Settings) -> None:
    odd = 'it\'s; $(x) "odd"'
    wrong = [
        cluster(0),
        broker(0),
        topic("orders", 0),
        topic("big", 0, {"max.message.bytes": "5000000", "partitions": "6"}),
        topic("long", 0, {"retention.ms": FOREVER}),
        topic("dlq.fine", 0),
        group("fine", "dlq.fine", 0),
        group("without", "", 0, {COPY: "false"}),
        group("gone", "dlq.gone", 0, state="missing"),
        group("missing", "dlq.missing", 0, {"sources": "orders,big"}),
        topic("dlq.missing", 0, state="missing"),
        group(odd, "dlq.closed", 3),
        topic("dlq.closed", 1, {"errors.deadletterqueue.group.enable": "false"}),
        group("prefixless", "other.x", 0),
        topic("other.x", 0),
        group("compacted", "dlq.compacted", 0, {COPY: "false"}),
        topic("dlq.compacted", 4, {"cleanup.policy": "compact,delete"}),
        group("keyed", "dlq.keyed", 0),
        topic("dlq.keyed", 0, {"cleanup.policy": "compact"}),
        group("small", "dlq.fine", 0, {"sources": "big,orders"}),
        group("without values", "dlq.fine", 0, {COPY: "false", "sources": "big"}),
        group("looped", "dlq.loop", 0, {"sources": "dlq.loop,orders"}),
        topic("dlq.loop", 0),
        group("short", "dlq.short", 0, {"sources": "orders,long"}),
        topic("dlq.short", 0, {"retention.ms": "3600000"}),
        group("outrun", "dlq.outrun", 0),
        topic("dlq.outrun", 0, {"is_outrun": "true"}),
        group("few", "dlq.few", 0),
        topic("dlq.few", 0, {"min.insync.replicas": "2", "replicas": "3"}),
        group("streams", "dlq.fine", 0, {"group_type": "STREAMS"}),
        group("hopping", "dlq.fine", 0, {"sources": "dlq.keyed"}),
        group("uncommitted", "dlq.fine", 0, {"share.isolation.level": "read_uncommitted"}),
    ]
    mistakes = found(spark, settings, *wrong)

    assert {key: row["severity"] for key, row in mistakes.items()} == {
        ("missing", "DLQ_MISSING"): "critical",
        (odd, "DLQ_NOT_ENABLED"): "critical",
        ("prefixless", "WRONG_PREFIX"): "critical",
        ("compacted", "COMPACTED_DLQ"): "critical",
        ("compacted", "COPY_OFF"): "medium",
        ("keyed", "COMPACTED_DLQ"): "high",
        ("small", "SMALLER_MESSAGES"): "high",
        ("without values", "COPY_OFF"): "medium",
        ("looped", "OWN_INPUT"): "critical",
        ("short", "SHORTER_RETENTION"): "medium",
        ("outrun", "NOT_LANDED_IN_TIME"): "high",
        ("few", "TOO_FEW_IN_SYNC"): "high",
        ("streams", "NOT_A_SHARE_GROUP"): "high",
        ("hopping", "READS_A_DLQ"): "low",
        ("uncommitted", "READS_UNCOMMITTED"): "low",
    }
    assert all(row["severity"] in SEVERITIES[row["kind"]] for row in mistakes.values())
    sources = {key[0]: row["source_topic"] for key, row in mistakes.items() if row["source_topic"] is not None}
    assert sources == {"small": "big", "looped": "dlq.loop", "short": "long", "hopping": "dlq.keyed"}
    since = {key: (row["since"] - at(0).replace(tzinfo=None)).total_seconds() / 60 for key, row in mistakes.items()}
    assert since == dict.fromkeys(mistakes, 0) | {(odd, "DLQ_NOT_ENABLED"): 3, ("compacted", "COMPACTED_DLQ"): 4}
    assert add(mistakes[odd, "DLQ_NOT_ENABLED"]) == (
        "topics",
        "dlq.closed",
        "errors.deadletterqueue.group.enable=true",
    )
    assert add(mistakes["looped", "OWN_INPUT"]) == ("groups", "looped", "errors.deadletterqueue.topic.name=dlq.looped")
    assert add(mistakes["prefixless", "WRONG_PREFIX"])[2] == "errors.deadletterqueue.topic.name=dlq.other.x"
    assert add(mistakes["small", "SMALLER_MESSAGES"]) == ("topics", "dlq.fine", "max.message.bytes=5000000")
    assert add(mistakes["short", "SHORTER_RETENTION"]) == ("topics", "dlq.short", "retention.ms=-1")
    assert add(mistakes["without values", "COPY_OFF"]) == ("groups", "without values", f"{COPY}=true")
    assert shlex.split(mistakes["missing", "DLQ_MISSING"]["remedy"])[3:] == [
        *("--create", "--topic", "dlq.missing", "--partitions", "6"),
        *("--config", "errors.deadletterqueue.group.enable=true", "--config", "max.message.bytes=5000000"),
    ]

    repaired = [
        cluster(10),
        topic("dlq.missing", 10, {"max.message.bytes": "5000000"}),
        topic("dlq.closed", 10),
        group("prefixless", "dlq.fine", 10),
        group("compacted", "dlq.compacted", 10),
        *(topic(name, 10) for name in ("dlq.compacted", "dlq.loop", "dlq.outrun", "dlq.few")),
        topic("dlq.keyed", 10, {"retention.ms": FOREVER}),
        topic("dlq.fine", 10, {"max.message.bytes": "5000000"}),
        group("without values", "dlq.fine", 10, {"sources": "big"}),
        group("looped", "dlq.fine", 10, {"sources": "dlq.loop,orders"}),
        topic("dlq.short", 10, {"retention.ms": FOREVER}),
        group("streams", "", 10, {"group_type": "STREAMS"}),
        group("uncommitted", "dlq.fine", 10),
    ]
    assert found(spark, settings, *repaired) == {}


def test_statements_that_are_nonsense_break_no_run(spark: SparkSession, settings: Settings) -> None:
    hostile = "'; rm -rf /; '"
    values = ("partitions", "replicas", "in_sync_replicas", "min.insync.replicas", "max.message.bytes", "retention.ms")
    lines = [
        cluster(0, {"share.version": "two", "bootstrap_servers": "broker:9092"}),
        broker(0, changes={"errors.deadletterqueue.auto.create.topics.enable": "perhaps"}),
        broker(0, "2", {"errors.deadletterqueue.topic.name.prefix": f"{hostile}dlq."}),
        topic(hostile, 0, dict.fromkeys(values, "many; $(x)")),
        topic("orders", 0, dict.fromkeys(values, "many; $(x)")),
        group(hostile, hostile, 0, {"sources": f"orders,,{hostile}", COPY: "false"}),
    ]
    mistakes = found(spark, settings, *lines)
    assert {kind for _, kind in mistakes} == {"WRONG_PREFIX", "OWN_INPUT", "COPY_OFF"}
    for row in mistakes.values():
        kind, name, change = add(row)
        assert (kind, name) == ("groups", hostile)
        assert "'" not in change


def test_what_is_unknown_is_no_mistake_and_what_every_group_lacks_is_one_of_each(
    spark: SparkSession, settings: Settings
) -> None:
    unknown = [
        cluster(0, {**CLUSTERS, "bootstrap_servers": None}),
        broker(0, "1", dict.fromkeys(("errors.deadletterqueue.topic.name.prefix",))),
        broker(0, "2", {"errors.deadletterqueue.auto.create.topics.enable": None}),
        topic("dlq.hidden", 0, state="unknown"),
        group("hidden", "dlq.hidden", 0, {COPY: None, "sources": None, "group_type": None}),
        group("unsaid", None, 0),
    ]
    assert found(spark, settings, *unknown) == {}

    new = [
        cluster(5, {**CLUSTERS, "share.version": "1"}),
        broker(5, "1", {"errors.deadletterqueue.auto.create.topics.enable": "true"}),
        topic("dlq.absent", 5, state="missing"),
        group("hopeful", "dlq.absent", 5),
    ]
    mistakes = found(spark, settings, *new)
    assert {key: row["remedy"] for key, row in mistakes.items()} == dict.fromkeys(
        [("hidden", "SHARE_VERSION"), ("hopeful", "SHARE_VERSION")],
        "kafka-features.sh --bootstrap-server broker:9092 upgrade --feature share.version=2",
    )
    assert {row["since"] for row in mistakes.values()} == {at(5).replace(tzinfo=None)}

    secret = {"errors.deadletterqueue.auto.create.topics.enable": None}
    mistakes = found(spark, settings, cluster(9), broker(9, "1", secret), broker(9, "2", secret))
    assert {key: row["severity"] for key, row in mistakes.items()} == {("hopeful", "DLQ_MISSING"): "high"}

    mistakes = found(spark, settings, cluster(1500))
    assert {row["last_seen_at"] for row in mistakes.values()} == {at(1500).replace(tzinfo=None)}
