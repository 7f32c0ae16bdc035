"""gold.reconciliation: what does not add up, by hour, topic and group."""

from __future__ import annotations

from pyspark.sql import SparkSession

from pipelines.settings import Settings
from tests.testing.builders import rows
from tests.testing.deliveries import at
from tests.testing.delivery_feed import Injected, totals


def test_the_captures_add_up(spark: SparkSession, captured_deliveries: Settings) -> None:
    found = totals(spark, captured_deliveries)

    assert found["dead_lettered_count"] == 1563 + 215
    assert (found["client_rejected_count"], found["no_disposition_count"]) == (1192 + 215, 0)
    assert (found["unacknowledged_count"], found["lost_count"], found["dlq_gap_count"]) == (0, 0, 0)
    assert (found["dlq_write_failure_count"], found["dlq_write_failure_unattributed_count"]) == (5, 3)
    assert found["dlq_write_failure_offset_count"] == 12


def test_what_does_not_add_up_is_counted(spark: SparkSession, mixed_deliveries: Settings) -> None:
    assert totals(spark, mixed_deliveries) == {
        "acknowledged_count": 11,
        "failed_count": 2,
        "unknown_count": 1,
        "aborted_count": 3,
        "open_count": 0,
        "lost_count": 1,
        "absent_count": 0,
        "dead_lettered_count": 5,
        "client_rejected_count": 5,
        "max_delivery_attempts_reached_count": 0,
        "circuit_breaker_archived_count": 0,
        "coordinator_initiated_count": 0,
        "no_disposition_count": 0,
        "dead_lettered_again_count": 1,
        "dead_lettered_aborted_count": 1,
        "unacknowledged_count": 1,
        "control_marker_count": 1,
        "suspected_marker_count": 0,
        "dlq_gap_count": 1,
        "dlq_gap_marker_count": 1,
        "dlq_gap_aborted_count": 0,
        "dlq_gap_compacted_count": 0,
        "dlq_gap_unexplained_count": 0,
        "dlq_write_failure_count": 2,
        "dlq_write_failure_offset_count": 1,
        "dlq_write_failure_unattributed_count": 1,
        "aborted_dlq_write_count": 1,
        "committed_without_headers_count": 1,
    }
    by_place = {
        (row["topic"], row["consumer_group"], row["hour"]): row
        for row in rows(spark, mixed_deliveries, "gold.reconciliation")
    }
    hour = at().replace(tzinfo=None)
    assert by_place["orders", None, hour]["acknowledged_count"] == 11
    assert by_place["orders", "g", hour]["dead_lettered_count"] == 4
    assert by_place["dlq.orders", None, hour]["aborted_dlq_write_count"] == 1
    assert by_place[None, "g", hour]["dlq_write_failure_unattributed_count"] == 1


def test_injected_damage_is_counted(spark: SparkSession, injected_losses: Injected) -> None:
    settings, truth = injected_losses
    found = totals(spark, settings)
    assert found["dlq_gap_unexplained_count"] == len(truth["gaps"]) > 60
    assert found["dead_lettered_again_count"] == len(truth["again"]) > 20
    assert found["lost_count"] == len(truth["lost"]) > 300
