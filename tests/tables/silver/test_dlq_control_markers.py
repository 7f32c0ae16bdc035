"""silver.dlq_control_markers: the source's log and the payload of a dead letter tell a marker from data."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from pyspark.sql import SparkSession

from pipelines.columns.slices import name
from pipelines.steps.refresh import select_of
from tests.testing.engines import selected

LETTERS = (
    "cluster string, _bronze_id string, dlq_topic string, dlq_topic_id string, dlq_partition int, dlq_offset bigint, "
    "original_topic string, original_partition int, original_offset bigint, routed_at timestamp, key binary, "
    "value binary, payload_copied boolean, lossy_encoding boolean, control_marker_suspected boolean"
)
BATCHES = (
    "cluster string, topic string, partition int, base_offset bigint, control_type string, is_control boolean, "
    "superseded_by string, max_timestamp timestamp"
)
RANGES = "cluster string, topic string, partition int, first_offset bigint, last_offset bigint, has_batch boolean"
WRITTEN = datetime(2026, 11, 21, tzinfo=UTC)
COMMIT, OF_MARKER = b"\0\0\0\1", b"\0\0\0\0\0\0"


@pytest.fixture(scope="module")
def markers(spark: SparkSession) -> dict[str, bool]:
    """Dead letters of offset 3, where the source's log has a commit marker now: which have a row, and what it says."""
    letters = {
        "a marker": (COMMIT, OF_MARKER, True, False, True),
        "no payload": (None, None, False, False, False),
        "a type that no version knows": (b"\0\0\0\7", b"", True, False, False),
        "data": (b"k", b"v", True, False, False),
        "data without a key": (None, b"v", True, False, False),
        "a form that loses bytes": (b"??", b"??", True, True, False),
        "no profile": (None, None, None, False, False),
    }
    hours = {"a marker": 0, "no payload": -0.5, "a type that no version knows": 9, "data": 9}
    rows = [
        (
            *("kafka", what, "dlq", None, 0, at, "orders", 0, 3),
            *(WRITTEN + timedelta(hours=hours[what]) if what in hours else None, *payload),
        )
        for at, (what, payload) in enumerate(letters.items())
    ]
    early = {"a marker's bytes, earlier": letters["a marker"], "no payload, earlier": letters["no payload"]}
    rows += [
        ("kafka", what, "dlq", None, 1, at, "orders", 0, 3, WRITTEN - timedelta(hours=2), *payload)
        for at, (what, payload) in enumerate(early.items())
    ]
    inputs = {
        "dlq_records": spark.createDataFrame(rows, LETTERS).coalesce(1),
        "log_batches": spark.createDataFrame([("kafka", "orders", 0, 3, "COMMIT", True, None, WRITTEN)], BATCHES),
        "log_ranges": spark.createDataFrame([("kafka", "orders", 0, 0, 9, True)], RANGES),
    }
    found = selected(spark, select_of("silver.dlq_control_markers"), inputs, {}).collect()
    assert {row["source_slice"] for row in found} == {name("orders", 0, 3)}
    return {row["_bronze_id"]: row["is_control_marker"] for row in found}


def test_a_record_whose_payload_is_no_markers_is_data(markers: dict[str, bool]) -> None:
    """The topic was created again, or its log was truncated: another record stood at the offset before."""
    assert not {"data", "data without a key"} & set(markers)


def test_a_record_that_was_dead_lettered_before_the_marker_was_written_is_another_one(markers: dict[str, bool]) -> None:
    assert not {"a marker's bytes, earlier", "no payload, earlier"} & set(markers)


@pytest.mark.parametrize(
    "what", ["a marker", "no payload", "a type that no version knows", "a form that loses bytes", "no profile"]
)
def test_a_record_that_can_be_a_marker_is_one_where_the_log_has_one(what: str, markers: dict[str, bool]) -> None:
    assert markers[what]
