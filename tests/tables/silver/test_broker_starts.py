"""A broker's log -> silver.broker_starts: each line in which a component of a node tells that it has started, once."""

from __future__ import annotations

import gzip
from datetime import UTC

from pyspark.sql import SparkSession

from pipelines.settings import ROOT, Settings
from tests.testing.builders import land, rows, run
from tests.testing.deliveries import archived, at, logged, not_enabled, started, unproduced

TABLES = ("bronze.broker_events", "silver.dlq_write_failures", "silver.broker_starts")
COMPONENTS = ("BrokerServer", "GroupCoordinator", "KafkaRaftServer", "KafkaServer")


def test_lines_about_starts_are_read_beside_failed_writes(spark: SparkSession, settings: Settings) -> None:
    others = [
        logged(
            0, "[ControllerServer id=7] Transition from STARTING to STARTED (kafka.server.ControllerServer)", "INFO"
        ),
        logged(0, "[BrokerServer id=7] Transition from STARTED to SHUTTING_DOWN (kafka.server.BrokerServer)", "INFO"),
        logged(0, "[GroupCoordinator id=7] Starting up. (org.apache.kafka.coordinator.X)", "INFO"),
    ]
    log = [
        *others,
        *(started(1 + index, index, component) for index, component in enumerate(COMPONENTS)),
        "\tat a.continuation(Of.java:1)",
        *unproduced(6, "first"),
        started(6.5, 4),  # of another thread, between the two events of a failure
        *archived(7),
        started(8, 5),
        *not_enabled(9, "second"),
        started(10, 2**31),
        started(11, 6),
    ]
    land(settings, {"a.log": log, "copy/a.log": log}, "broker-logs")
    done = run(spark, settings, *TABLES, feed="delivery")
    found = sorted(rows(spark, settings, "silver.broker_starts"), key=lambda row: row["started_at"])
    assert [(row["node_id"], row["component"], row["started_at"].replace(tzinfo=UTC)) for row in found] == [
        *((index, component, at(1 + index)) for index, component in enumerate(COMPONENTS)),
        (4, "BrokerServer", at(6.5)),
        (5, "BrokerServer", at(8)),
        (6, "BrokerServer", at(11)),
    ]
    judged = done["silver.broker_starts"]
    assert (judged.accepted, judged.duplicates, judged.quarantined, judged.skipped) == (7, 8, 1, 4)
    failed = rows(spark, settings, "silver.dlq_write_failures")
    assert sorted(row["consumer_group"] for row in failed) == ["first", "second"]
    assert done["silver.dlq_write_failures"].skipped == 16


def test_a_file_that_grows_tells_of_no_start_twice(spark: SparkSession, settings: Settings) -> None:
    log = [started(1), started(2, 2), *not_enabled(3)]
    land(settings, {"a.log": log[:2]}, "broker-logs")
    run(spark, settings, *TABLES, feed="delivery")
    land(settings, {"a.log": log}, "broker-logs")
    done = run(spark, settings, *TABLES, feed="delivery")
    assert [done[table].accepted for table in TABLES] == [1, 1, 0]
    assert len(rows(spark, settings, "silver.broker_starts")) == 2


def test_real_logs_tell_of_starts(spark: SparkSession, settings: Settings) -> None:
    logs = (ROOT / "tests" / "data" / "broker-logs").glob("*.log.gz")
    land(settings, {log.stem: gzip.decompress(log.read_bytes()).decode().splitlines() for log in logs}, "broker-logs")
    run(spark, settings, *TABLES, feed="delivery")
    found = rows(spark, settings, "silver.broker_starts")
    assert sorted((f"{row['started_at']:%H:%M:%S.%f}", row["node_id"], row["component"]) for row in found) == [
        ("02:41:04.650000", 1, "GroupCoordinator"),
        ("02:45:49.372000", 1, "GroupCoordinator"),
    ]
