"""silver.topology_solicitations: what brokers asked for, held against the back-off and what they already had."""

from __future__ import annotations

from pyspark.sql import SparkSession

from pipelines.settings import Settings
from tests.testing.builders import rows
from tests.testing.topology_feed import APIS, Ran, exchanges


def test_solicitations_are_those_of_the_broker(spark: SparkSession, captured_requests: Settings) -> None:
    asked = [
        (exchange["correlationId"], exchange["request"]["groupId"], exchange["request"]["memberId"])
        for exchange in exchanges()
        if exchange["apiName"] == APIS[1] and exchange["response"].get("topologyDescriptionRequired")
    ]
    found = rows(spark, captured_requests, "silver.topology_solicitations")
    assert sorted((row["correlation_id"], row["group_id"], row["member_id"]) for row in found) == sorted(asked)


def test_questions_are_numbered_and_held_against_the_back_off(spark: SparkSession, mixed_requests: Ran) -> None:
    found = [
        row for row in rows(spark, mixed_requests[0], "silver.topology_solicitations") if row["group_id"] == "asked"
    ]
    found.sort(key=lambda row: row["solicited_at"])
    assert [(row["attempt"], row["seconds_since_previous"], row["too_early"]) for row in found] == [
        (1, None, False),
        (2, 30.0, False),
        (3, 50.0, False),
        (4, 20.0, True),
        (1, None, False),
    ]
    assert [row["least_back_off_seconds"] for row in found] == [None, 24.0, 48.0, 96.0, None]
    assert [(row["followed"], row["seconds_to_push"]) for row in found] == [
        *[(False, None)] * 3,
        (True, 1.0),
        (False, None),
    ]


def test_questions_are_held_against_the_broker(spark: SparkSession, mixed_requests: Ran) -> None:
    found = [
        row
        for row in rows(spark, mixed_requests[0], "silver.topology_solicitations")
        if row["group_id"] == "held against"
    ]
    found.sort(key=lambda row: row["solicited_at"])
    names = ("topology_epoch", "attempt", "too_early", "although_stored", "although_stale")
    assert [tuple(row[name] for name in names) for row in found] == [
        (0, 1, False, True, False),  # a second after the broker accepted a push
        (0, 2, False, False, False),  # after a describe said that nothing is stored
        (3, 1, False, False, False),  # the epoch has advanced, which clears the back-off
        (3, 2, True, False, True),  # within the back-off, from a member with a stale topology
    ]
