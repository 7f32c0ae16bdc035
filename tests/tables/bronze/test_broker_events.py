"""Brokers' logs -> bronze.broker_events: events of failed DLQ writes, with all lines that tell of them, and starts."""

from __future__ import annotations

from datetime import UTC

from pyspark.sql import SparkSession

from pipelines.settings import Settings
from tests.testing.builders import land, rows, run
from tests.testing.deliveries import archived, at, logged, started, unproduced

TABLE = "bronze.broker_events"


def test_events_of_interest_are_kept_with_all_lines_that_tell_of_them(spark: SparkSession, settings: Settings) -> None:
    noise = logged(0, "Nothing of interest. (kafka.X)", "INFO")
    failed, given_up = unproduced(1, "workers"), archived(1.001)
    land(settings, {"a.log": [noise, *failed, *given_up, noise, started(2)]}, "broker-logs")

    done = run(spark, settings, TABLE, feed="delivery")[TABLE]

    assert (done.accepted, done.skipped) == (2, 2)
    failure, start = sorted(rows(spark, settings, TABLE), key=lambda row: row["logged_at"])
    assert (failure["kind"], failure["logged_at"].replace(tzinfo=UTC)) == ("DLQ_WRITE_FAILED", at(1))
    assert bytes(failure["line"]).decode().splitlines() == [*failed, *given_up]  # both events tell of one failed write
    assert (start["kind"], start["logged_at"].replace(tzinfo=UTC)) == ("BROKER_STARTED", at(2))
    assert bytes(start["line"]).decode() == started(2)
    assert [(row["error"], row["is_partial"]) for row in (failure, start)] == [(None, False)] * 2
