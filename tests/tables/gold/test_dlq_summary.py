"""gold.dlq_summary: the dead letters of an hour, added up over the slices of their source records."""

from __future__ import annotations

from typing import Any

from pyspark.sql import SparkSession

from pipelines.columns.slices import name
from pipelines.settings import Settings
from tests.testing.builders import rows, run
from tests.testing.deliveries import at, store

TABLE = "gold.dlq_summary"


def counts(offset: int, records: int, sources: int, *, hours: int = 0, **more: Any) -> dict[str, Any]:
    """A row of gold.dlq_counts, for the slice of an offset."""
    place = {"source_slice": name("orders", 0, offset), "dlq_topic": "dlq.orders", "original_topic": "orders"}
    known = {"cluster": "default", "hour": at(3600 * hours), "consumer_group": "workers", "owner": "workers"}
    numbers = {"record_count": records, "source_record_count": sources, "without_payload_count": 0, "late_count": 1}
    times = {"first_routed_at": at(3600 * hours + offset), "last_routed_at": at(3600 * hours + offset + 1)}
    accepted = {"first_accepted_at": at(9000 + offset), "last_accepted_at": at(9000 + offset)}
    return {**known, **place, **numbers, **times, **accepted, "most_deliveries": records, **more}


def test_slices_of_an_hour_are_added_up_and_owners_are_kept_apart(spark: SparkSession, settings: Settings) -> None:
    connector = {"consumer_group": None, "owner": "connector sink"}
    ours = [counts(0, 3, 2), counts(1000, 2, 2, owner=None), counts(5, 1, 1, hours=1), counts(7, 4, 4, **connector)]
    store(settings, "gold.dlq_counts", *ours)
    assert run(spark, settings, TABLE)[TABLE].status == "passed"
    found = {(row["hour"].hour, row["owner"]): row for row in rows(spark, settings, TABLE)}
    assert len(rows(spark, settings, TABLE)) == 3
    sums = ("record_count", "source_record_count", "late_count", "most_deliveries")
    assert {key: tuple(row[name] for name in sums) for key, row in found.items()} == {
        (2, "workers"): (5, 4, 2, 3),  # a row of an earlier version, without an owner, is its group's
        (2, "connector sink"): (4, 4, 1, 4),
        (3, "workers"): (1, 1, 1, 1),
    }
    whole = found[2, "workers"]
    assert (whole["first_routed_at"], whole["last_routed_at"]) == tuple(at(s).replace(tzinfo=None) for s in (0, 1001))

    store(settings, "gold.dlq_counts", counts(2000, 1, 1, hours=1))
    assert run(spark, settings, TABLE)[TABLE].message == "1 row refreshed"
    found = {(row["hour"].hour, row["owner"]): row for row in rows(spark, settings, TABLE)}
    assert found[3, "workers"]["record_count"] == 2
