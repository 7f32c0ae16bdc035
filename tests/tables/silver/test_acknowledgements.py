"""What producers report of their records -> silver.acknowledgements: outcomes, traces, and what is quarantined."""

from __future__ import annotations

import base64
from collections import Counter
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from pipelines.settings import Settings
from tests.testing.builders import land, rows, run, warehouse_of
from tests.testing.deliveries import acknowledgement

TABLES = ("bronze.acknowledgements", "silver.acknowledgements")


@pytest.fixture
def settings(empty_warehouse: Path, tmp_path: Path) -> Settings:
    return warehouse_of(empty_warehouse, tmp_path)


def test_acknowledgements_that_contradict_themselves_are_quarantined(spark: SparkSession, settings: Settings) -> None:
    good = [acknowledgement(offset=offset) for offset in range(3)]
    half = {"partition": None, "offset": None, "error": "X: y"}
    headers = [{"key": "traceparent", "value": None}, {"key": "traceparent", "value": "//79"}]
    land(
        settings,
        {
            "a.jsonl": [
                *good,
                good[0],
                acknowledgement(offset=None, baseOffset=-1, relativeOffset=3),
                acknowledgement(offset=None, baseOffset=100, relativeOffset=3),
                acknowledgement(**half),
                acknowledgement(offset=50, headers=headers),
                acknowledgement(offset=51, trace="00-" + "0" * 32 + "-00f067aa0ba902b7-01"),
                acknowledgement(offset=52, trace=None, unknown_field={"kept": True}),
                *("{", "[]", '{"topic":"orders"', '{"topic":"orders"} more', "text"),
                acknowledgement(offset="7"),
                acknowledgement(partition=-1, offset=5),
                acknowledgement(partition=-2, offset=5),
                acknowledgement(offset=-2),
                acknowledgement(offset=9, error="X: y"),
                acknowledgement(topic=""),
                acknowledgement(topic=None),
                acknowledgement(timestamp=-7),
            ]
        },
        "acknowledgements",
    )
    lenient = settings.model_copy(update={"tolerance": 1.0})

    done = run(spark, lenient, *TABLES, feed="delivery")

    accepted = rows(spark, settings, "silver.acknowledgements")
    assert done["bronze.acknowledgements"].accepted == 23
    assert sorted((row["partition"], row["offset"], row["outcome"]) for row in accepted) == [
        (-1, -1, "FAILED"),
        (0, -1, "UNKNOWN"),
        *((0, offset, "ACKNOWLEDGED") for offset in (0, 0, 1, 2, 50, 51, 52, 103)),
    ]
    assert {row["trace_id"] for row in accepted if row["offset"] in (50, 51, 52)} == {None}
    why = Counter(code for row in rows(spark, settings, "quarantine.acknowledgements") for code in row["violations"])
    assert why == {
        "line_error.readable": 6,
        "partition.of_success": 2,
        "partition.at_least_minus_1": 1,
        "offset.at_least_minus_1": 1,
        "offset.unknown_on_failure": 1,
        "topic.named": 1,
        "topic.not_null": 1,
        "timestamp.between_minus_1_and_253402300799999": 1,
    }


def test_another_header_may_hold_the_trace(spark: SparkSession, settings: Settings) -> None:
    headers = [{"key": "x-request", "value": base64.b64encode(text.encode()).decode()} for text in ("old", "r-\u202e1")]
    land(settings, {"a.jsonl": [acknowledgement(headers=headers), acknowledgement(offset=1)]}, "acknowledgements")
    named = settings.model_copy(
        update={"acknowledgements": settings.acknowledgements.model_copy(update={"trace_header": "x-request"})}
    )

    run(spark, named, *TABLES, feed="delivery")

    found = {row["offset"]: row["trace_id"] for row in rows(spark, settings, "silver.acknowledgements")}
    assert found == {0: "r-\u202e1", 1: None}
