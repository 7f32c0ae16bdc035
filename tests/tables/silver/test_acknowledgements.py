"""What producers report of their records -> silver.acknowledgements: outcomes, traces, and what is quarantined."""

from __future__ import annotations

import base64
from collections import Counter

from pyspark.sql import SparkSession

from pipelines.settings import Settings
from tests.testing.builders import land, rows, run
from tests.testing.clients import ERRORS, NO_NUMBERS
from tests.testing.deliveries import TRACE, acknowledgement, millis

TABLES = ("bronze.acknowledgements", "silver.acknowledgements")


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
        (-1, -1, "UNKNOWN"),  # an error that says nothing of the partition
        (0, -1, "UNKNOWN"),
        *((0, offset, "ACKNOWLEDGED") for offset in (0, 0, 1, 2, 7, 50, 51, 52, 103)),
    ]
    assert {row["trace_id"] for row in accepted if row["offset"] in (50, 51, 52)} == {None}
    why = Counter(code for row in rows(spark, settings, "quarantine.acknowledgements") for code in row["violations"])
    assert why == {
        "line_error.readable": 5,
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


def test_an_error_decides_only_if_it_rules_a_write_out(spark: SparkSession, settings: Settings) -> None:
    lines = [acknowledgement(offset=-1, error=error, client_id=error) for _, error in ERRORS]
    lines += [acknowledgement(partition=-1, offset=-1, error=error, client_id=f"-1 {error}") for _, error in ERRORS]
    codes = {7: "UNKNOWN", 13: "UNKNOWN", 20: "UNKNOWN", 59: "UNKNOWN", 9999: "UNKNOWN", 10: "FAILED", 19: "FAILED"}
    lines += [acknowledgement(offset=-1, errorCode=code, client_id=f"code {code}") for code in codes]
    lines += [acknowledgement(offset=-1, errorCode=str(code), client_id=f"code '{code}'") for code in codes]
    lines += [
        acknowledgement(offset=3, error=none, errorCode=0, client_id=f"none {none}") for none in ("", "null", "None")
    ]
    land(settings, {"a.jsonl": lines}, "acknowledgements")

    run(spark, settings, *TABLES, feed="delivery")

    found = {row["client_id"]: row for row in rows(spark, settings, "silver.acknowledgements")}
    expected = {error: outcome for outcome, error in ERRORS}
    expected |= {f"-1 {error}": "FAILED" for _, error in ERRORS}
    expected |= {f"code {code}": outcome for code, outcome in codes.items()}
    expected |= {f"code '{code}'": outcome for code, outcome in codes.items()}
    expected |= {f"none {none}": "ACKNOWLEDGED" for none in ("", "null", "None")}
    assert {name: row["outcome"] for name, row in found.items()} == expected
    assert (found["code 7"]["error"], found["code 9999"]["error"]) == ("REQUEST_TIMED_OUT", "error code 9999")


def test_what_clients_write_for_no_number_is_no_number(spark: SparkSession, settings: Settings) -> None:
    fields = ("offset", "timestamp", "serializedKeySize", "serializedValueSize", "acknowledged_at", "baseOffset")
    lines = [acknowledgement(**dict.fromkeys(fields, none), client_id=repr(none)) for none in NO_NUMBERS]
    texts = {"partition": "2", "offset": " 7 ", "timestamp": str(millis()), "acknowledged_at": str(millis(1))}
    lines.append(acknowledgement(**texts, serializedKeySize="3", client_id="text"))
    land(settings, {"a.jsonl": lines}, "acknowledgements")
    names = ("partition", "offset", "timestamp", "key_size", "value_size", "acknowledged_at", "outcome")

    run(spark, settings, *TABLES, feed="delivery")

    found = {row["client_id"]: row for row in rows(spark, settings, "silver.acknowledgements")}
    for none in NO_NUMBERS:
        assert [found[repr(none)][name] for name in names] == [0, -1, None, -1, -1, None, "UNKNOWN"], none
    text = found["text"]
    assert (text["partition"], text["offset"], text["key_size"], text["outcome"]) == (2, 7, 3, "ACKNOWLEDGED")
    assert None not in (text["timestamp"], text["acknowledged_at"])


def test_acknowledgements_of_every_case(spark: SparkSession, captured_deliveries: Settings) -> None:
    read = {
        (row["topic"], row["offset"], row["outcome"], row["partition"], row["error_class"], row["trace_id"])
        for row in rows(spark, captured_deliveries, "silver.acknowledgements")
        if row["client_id"] is None
    }

    assert Counter(outcome for _, _, outcome, *_ in read)["UNKNOWN"] == 2
    assert {trace_id for *_, trace_id in read} == {TRACE}
    assert ("bad topic!", -1, "FAILED", -1, "org.apache.kafka.common.errors.InvalidTopicException", TRACE) in read
    assert ("acks", -1, "UNKNOWN", 2, None, TRACE) in read
    closed = "org.apache.kafka.common.KafkaException"  # "Producer is closed forcefully.", perhaps after it was sent
    assert ("acks", -1, "UNKNOWN", 2, closed, TRACE) in read
