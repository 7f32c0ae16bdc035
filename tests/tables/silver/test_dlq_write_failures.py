"""A broker's log -> silver.dlq_write_failures: the events of failed DLQ writes, each read whole and once."""

from __future__ import annotations

from typing import Any

from pyspark.sql import SparkSession

from pipelines.settings import Settings
from tests.testing.builders import land, rows, run
from tests.testing.deliveries import archived, logged, not_enabled, unproduced

TABLES = ("bronze.broker_events", "silver.dlq_write_failures")


def failures(spark: SparkSession, settings: Settings) -> list[tuple[Any, ...]]:
    found = rows(spark, settings, "silver.dlq_write_failures")
    return sorted(
        (f"{row['failed_at']:%M:%S}", row["consumer_group"], row["dlq_topic"], row["first_offset"], row["error_class"])
        for row in found
    )


def test_events_are_read_whole(spark: SparkSession, settings: Settings) -> None:
    noise = [logged(0, "Nothing of interest. (kafka.X)", "INFO"), "\tat a.continuation(Of.java:1)"]
    hostile = "g], topicIdPartition=x\u202e<b>"
    land(
        settings,
        {
            "a.log": [
                "\tat the.end(OfAnEvent.java:7)",
                *noise,
                *unproduced(1, "first", first=10, last=12),
                logged(1.0005, "Records with errors 0 - no. (kafka.X)"),
                *not_enabled(1.0007, "between"),
                *archived(1.001, "a.b.First: said\n\tat x.y(Z.java:1)\nCaused by: c.D: e"),
                *archived(2),
                *archived(2),
                *unproduced(3, hostile),
                *archived(3, "java.util.concurrent.CompletionException: a.b.Third: two\nlines"),
                *noise,
            ],
            "b.log": [*noise, *unproduced(4, "cut off")],
            "of another kind.log": ["no time at all", "nor here"],
        },
        "broker-logs",
    )

    done = run(spark, settings, *TABLES, feed="delivery")

    assert failures(spark, settings) == [
        ("00:01", "between", "dlq.orders", None, "org.apache.kafka.common.config.ConfigException"),
        ("00:01", "first", "dlq.orders", 10, "a.b.First"),
        ("00:02", None, None, None, "org.apache.kafka.common.errors.RecordTooLargeException"),
        ("00:02", None, None, None, "org.apache.kafka.common.errors.RecordTooLargeException"),
        ("00:03", hostile, "dlq.orders", 0, "a.b.Third"),
        ("00:04", "cut off", "dlq.orders", 0, None),
    ]
    bronze = done["bronze.broker_events"]
    # Accepted: the finding about the file of another kind, too. Skipped: a line before the first event, the two lines
    # of that file, and four events of no interest.
    assert (bronze.accepted, bronze.skipped, bronze.duplicates) == (7, 7, 0)
    assert bronze.message == "3 new or changed files; skipped lines of no known layout 3"
    [unknown] = rows(spark, settings, "quarantine.dlq_write_failures")
    assert unknown["error"] == (
        "Most lines are in no known layout, 2 of 2: the line does not begin with a date and a time. The first looks"
        " like 'aa aaaa aa aaa'. Name it as layout under [broker_logs] in the settings, then land the file again."
    )
    found = {row["consumer_group"]: row for row in rows(spark, settings, "silver.dlq_write_failures")}
    assert (found["first"]["reason"], found[hostile]["reason"]) == ("said", "two\nlines")
    assert found["cut off"]["is_partial"]


def test_a_file_that_grows_tells_of_no_failure_twice(spark: SparkSession, settings: Settings) -> None:
    whole = [*not_enabled(1, "a"), *unproduced(2, "b"), *archived(2), *not_enabled(3, "c")]
    land(settings, {"a.log": whole[:5]}, "broker-logs")
    run(spark, settings, *TABLES, feed="delivery")
    land(settings, {"a.log": whole, "copy/a.log": whole}, "broker-logs")

    done = run(spark, settings, *TABLES, feed="delivery")

    found = {row["consumer_group"]: row for row in rows(spark, settings, "silver.dlq_write_failures")}
    assert sorted(found) == ["a", "b", "c"]
    assert found["b"]["error_class"].endswith("RecordTooLargeException")
    assert not any(row["is_partial"] for group, row in found.items() if group != "c")
    assert done["silver.dlq_write_failures"].quarantined == 0


def test_failed_writes_are_those_that_the_brokers_logged(spark: SparkSession, captured_deliveries: Settings) -> None:
    found = {row["consumer_group"]: row for row in rows(spark, captured_deliveries, "silver.dlq_write_failures")}

    assert {group: row["error_class"].rpartition(".")[2] for group, row in found.items()} == {
        "g-topic-not-enabled": "ConfigException",
        "g-wrong-prefix": "ConfigException",
        "g-tiny-max-message": "RecordTooLargeException",
        "g-compacted-headers-only": "InvalidRecordException",
        "g-no-such-topic-no-autocreate": "ConfigException",
    }
    tiny, prefix = found["g-tiny-max-message"], found["g-wrong-prefix"]
    assert (tiny["original_topic"], tiny["original_partition"]) == ("src.tiny-max-message", 0)
    assert (tiny["first_offset"], tiny["last_offset"], tiny["delivery_count"]) == (0, 5, 1)
    assert (tiny["dlq_topic"], tiny["cause"]) == ("dlq.tiny-max-message", "Offset rejected by client.")
    assert tiny["reason"].startswith("The request included a message larger than the max message size")
    assert f"{tiny['failed_at']:%H:%M:%S.%f}" == "02:43:01.138000"
    assert (prefix["dlq_topic"], prefix["original_topic"], prefix["is_attributed"]) == ("rejects.orders", None, False)
    assert "Compacted topic cannot accept" in found["g-compacted-headers-only"]["reason"]
    assert not any(row["is_partial"] for row in found.values())
