"""Request logs -> silver.group_deletions: deletions of streams groups, and their answers."""

from __future__ import annotations

from pyspark.sql import SparkSession

from pipelines.settings import Settings
from tests.testing.builders import rows
from tests.testing.topology_feed import Ran, failing_rows


def test_deletions_are_those_that_the_broker_answered(spark: SparkSession, captured_requests: Settings) -> None:
    found = rows(spark, captured_requests, "silver.group_deletions")
    assert [(row["group_id"], row["error_code"]) for row in found] == [("passthrough-app", 0)]


def test_lines_that_cannot_be_read_are_quarantined(spark: SparkSession, mixed_requests: Ran) -> None:
    found = rows(spark, mixed_requests[0], "quarantine.group_deletions")
    assert [row["violations"] for row in found] == [["error.readable"]] * 2


def test_a_code_that_the_specification_does_not_know_is_counted(mixed_requests: Ran) -> None:
    failing = failing_rows(mixed_requests, "silver.group_deletions", "error_code.of_the_api")
    assert failing == 1  # -1, but to a request of version 3
