"""Statements about producers -> silver.producers: those that cannot be judged are quarantined."""

from __future__ import annotations

from collections.abc import Iterable

from pyspark.sql import SparkSession

from pipelines.settings import Settings
from tests.testing.builders import land, rows, run
from tests.testing.deliveries import producer


def test_statements_that_cannot_be_judged_are_quarantined(spark: SparkSession, settings: Settings) -> None:
    bad: Iterable[str] = (
        producer("a", mode="sometimes"),
        producer("b", retries="some"),
        producer("c", broker_version="new"),
        producer("d", message_format_version="3"),
        producer("e", producer_id=-1),
        producer("f", topic=None),
        "no JSON",
    )
    land(settings, {"a.jsonl": [*bad, producer("good"), producer("good")]}, "producers")

    run(spark, settings.model_copy(update={"tolerance": 1.0}), "bronze.producers", "silver.producers", feed="delivery")

    assert [row["client_id"] for row in rows(spark, settings, "silver.producers")] == ["good"]
    why = {row["client_id"]: row["violations"] for row in rows(spark, settings, "quarantine.producers")}
    assert why == {
        "a": ["requested_mode.one_of"],
        "c": ["broker_version.version"],
        "d": ["message_format_version.format"],
        "e": ["producer_id.at_least_0"],
        "f": ["topic.not_null"],
        None: ["line_error.readable"],
    }
