"""gold.push_health: pushes, questions and failures of each group."""

from __future__ import annotations

from pyspark.sql import SparkSession

from tests.testing.builders import rows
from tests.testing.topology_feed import Ran


def test_pushes_and_questions_are_counted(spark: SparkSession, mixed_requests: Ran) -> None:
    found = {row["group_id"]: row for row in rows(spark, mixed_requests[0], "gold.push_health")}
    asked, held_against = found["asked"], found["held against"]
    assert (asked["solicitation_count"], asked["followed_count"], asked["too_early_count"]) == (5, 1, 1)
    assert (asked["push_count"], asked["accepted_count"], asked["median_ms"]) == (1, 1, 9.008)
    names = ("although_stored_count", "although_stale_count", "too_early_count")
    assert [held_against[name] for name in names] == [1, 1, 1]
    assert (held_against["throttled_count"], held_against["max_throttle_time_ms"]) == (1, 700)


def test_a_plugin_s_failure_is_told_by_what_the_broker_asks_later(spark: SparkSession, mixed_requests: Ran) -> None:
    found = {row["group_id"]: row for row in rows(spark, mixed_requests[0], "gold.push_health")}
    names = (
        "permanent",
        "too soon to tell",
        "with a gap",
        "transient",
        "deleted and asked",
        "asked under another epoch",
    )
    assert {name: found[name]["last_failure"] for name in (*names, "accepted later")} == {
        "permanent": "permanent",
        "too soon to tell": "unknown",
        "with a gap": "unknown",
        "transient": "transient",
        "deleted and asked": "unknown",
        "asked under another epoch": "unknown",
        "accepted later": "unknown",
    }
    kinds = ("plugin", "permanent", "transient", "unknown")
    assert [found["permanent"][f"{kind}_failure_count"] for kind in kinds] == [1, 1, 0, 0]
