"""How settings changed: a row per change, whatever order the statements come in."""

from __future__ import annotations

from typing import Any

from pyspark.sql import SparkSession

from pipelines.settings import Settings
from tests.testing.builders import land, rows, run
from tests.testing.statements import at, group, statement, topic

TABLES = ("bronze.cluster_settings", "silver.cluster_settings", "silver.dlq_settings")
COPY = "errors.deadletterqueue.copy.record.enable"


def changes(spark: SparkSession, settings: Settings, name: str, setting: str) -> list[tuple[Any, ...]]:
    """Minutes of the beginning and the end, value and previous value of each change, in order."""
    found = [row for row in rows(spark, settings, TABLES[-1]) if (row["name"], row["setting"]) == (name, setting)]

    def minutes(time: Any) -> float | None:
        return None if time is None else (time - at(0).replace(tzinfo=None)).total_seconds() / 60

    return sorted((minutes(row["since"]), minutes(row["until"]), row["value"], row["previous_value"]) for row in found)


def test_each_change_is_a_row_and_a_late_statement_finds_its_place(spark: SparkSession, settings: Settings) -> None:
    lines = [group("g", "dlq.a", 0), group("g", "dlq.a", 5), group("g", "dlq.b", 20), topic("orders", 0)]
    land(settings, {"a.jsonl": lines}, "cluster-settings")
    run(spark, settings, *TABLES, feed="collect")
    name = "errors.deadletterqueue.topic.name"
    assert changes(spark, settings, "g", name) == [(0, 20, "dlq.a", None), (20, None, "dlq.b", "dlq.a")]
    assert changes(spark, settings, "g", "state") == [(0, None, "present", None)]
    untouched = changes(spark, settings, "orders", "cleanup.policy")

    later = [group("g", "dlq.c", 10, {COPY: None}), group("g", None, 30, state="missing")]
    land(settings, {"b.jsonl": later}, "cluster-settings")
    done = run(spark, settings, *TABLES, feed="collect")

    assert changes(spark, settings, "g", name) == [
        (0, 10, "dlq.a", None),
        (10, 20, "dlq.c", "dlq.a"),
        (20, 30, "dlq.b", "dlq.c"),
        (30, None, None, "dlq.b"),
    ]
    assert changes(spark, settings, "g", COPY) == [
        (0, 10, "true", None),
        (10, 20, None, "true"),
        (20, None, "true", None),
    ]
    assert changes(spark, settings, "g", "state") == [(0, 30, "present", None), (30, None, "missing", "present")]
    assert changes(spark, settings, "orders", "cleanup.policy") == untouched == [(0, None, "delete", None)]
    assert done[TABLES[-1]].refreshed < len(rows(spark, settings, TABLES[-1]))  # the topic's rows stay


def test_a_statement_that_leaves_a_setting_out_says_nothing_about_it(spark: SparkSession, settings: Settings) -> None:
    lines = [topic("t", 0), statement("topic", "t", 1, {"partitions": "3"}), statement("group", "t", 2, {})]
    land(settings, {"a.jsonl": lines}, "cluster-settings")
    run(spark, settings, *TABLES, feed="collect")
    assert changes(spark, settings, "t", "cleanup.policy") == [(0, None, "delete", None)]
    assert changes(spark, settings, "t", "partitions") == [(0, 1, "2", None), (1, None, "3", "2")]
    assert changes(spark, settings, "t", "state") == [(0, None, "present", None), (2, None, "present", None)]


def test_a_setting_named_state_does_not_count(spark: SparkSession, settings: Settings) -> None:
    lines = [topic("t", 0, {"state": "odd"}), topic("t", 1, {"state": "even"}), topic("t", 2, state="missing")]
    land(settings, {"a.jsonl": lines}, "cluster-settings")
    done = run(spark, settings, *TABLES, feed="collect")
    assert {ran.status for ran in done.values()} == {"passed"}
    assert changes(spark, settings, "t", "state") == [(0, 2, "present", None), (2, None, "missing", "present")]
