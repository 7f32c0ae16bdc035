"""Request logs -> silver.topology_statuses: what brokers answered to describes."""

from __future__ import annotations

import json

from pyspark.sql import SparkSession

from pipelines.settings import Settings
from tests.testing.builders import rows
from tests.testing.topology_feed import Ran, exchanges, failing_rows


def test_statuses_are_those_that_the_broker_answered(spark: SparkSession, captured_requests: Settings) -> None:
    answered = [
        (
            exchange["correlationId"],
            group["groupId"],
            group["errorCode"],
            group["groupState"] or None,
            None if group["topology"] is None else group["topology"]["epoch"],
            group.get("topologyDescriptionStatus", 0),
            group.get("topologyDescription"),
        )
        for exchange in exchanges()
        if exchange["apiName"] == "STREAMS_GROUP_DESCRIBE"
        for group in exchange["response"]["groups"]
    ]
    found = [
        (
            *(row[name] for name in ("correlation_id", "group_id", "error_code", "group_state")),
            *(row[name] for name in ("topology_epoch", "status")),
            None if row["description"] is None else json.loads(row["description"]),
        )
        for row in rows(spark, captured_requests, "silver.topology_statuses")
    ]
    assert sorted(found, key=repr) == sorted(answered, key=repr)


def test_a_status_that_the_specification_does_not_know_is_kept(spark: SparkSession, mixed_requests: Ran) -> None:
    statuses = {row["group_id"]: row["status"] for row in rows(spark, mixed_requests[0], "silver.topology_statuses")}
    assert (statuses["unknown status"], statuses["no status"]) == (7, 0)


def test_statuses_without_an_answer_or_a_readable_description_are_counted(mixed_requests: Ran) -> None:
    assert failing_rows(mixed_requests, "silver.topology_statuses", "status.answered") == 1
    assert failing_rows(mixed_requests, "silver.topology_statuses", "topology_hash.not_null") == 2
