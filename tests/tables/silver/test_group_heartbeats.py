"""Request logs -> silver.group_heartbeats: one row for a run of steady heartbeats."""

from __future__ import annotations

from pyspark.sql import SparkSession

from tests.testing.builders import rows
from tests.testing.requests import at
from tests.testing.topology_feed import Ran


def test_the_last_of_a_run_of_steady_heartbeats_stands_for_all(spark: SparkSession, mixed_requests: Ran) -> None:
    beats = rows(spark, mixed_requests[0], "silver.group_heartbeats")
    assert [row["steady_since"] for row in beats if row["group_id"] == "asked"].count(None) == 5
    kept = [
        (row["member_id"], row["statuses"], row["steady_since"], row["heartbeat_at"])
        for row in beats
        if row["group_id"] == "steady" and row["steady_since"] is not None
    ]
    assert sorted(kept, key=repr) == sorted(
        [
            ("m1", None, *(at(second).replace(tzinfo=None) for second in (800, 920))),
            ("m1", None, *[at(981).replace(tzinfo=None)] * 2),
            ("m1", ["STALE_TOPOLOGY"], *[at(890).replace(tzinfo=None)] * 2),
            ("m2", None, *[at(805).replace(tzinfo=None)] * 2),
        ],
        key=repr,
    )
    statuses = {row["group_id"]: row["statuses"] for row in beats}
    assert statuses["a member of an older epoch joins"] == ["STALE_TOPOLOGY"]
