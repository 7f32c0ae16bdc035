"""gold.dlq_counts: how many source records are behind dead letters, also where headers do not name them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from pipelines.steps.refresh import select_of
from tests.testing.engines import selected

AT = datetime(2026, 11, 21, 2, 30, tzinfo=UTC)
RECORDS = (
    "_bronze_id string, cluster string, dlq_topic string, original_topic string, original_partition int, "
    "original_offset bigint, consumer_group string, disposition string, payload_copied boolean, delivery_count int, "
    "routed_at timestamp, _ingested_at timestamp, owner string"
)
MARKERS = "cluster string, _bronze_id string, is_control_marker boolean"


def letter(number: int, topic: str | None, partition: int | None, offset: int | None) -> tuple[Any, ...]:
    place = (topic, partition, offset)
    return (f"{number:064}", "c", "dlq.orders", *place, "g", None, True, None, AT, AT + timedelta(minutes=1), None)


def counted(spark: SparkSession, *letters: tuple[Any, ...]) -> dict[tuple[str | None, str | None], tuple[int, int]]:
    """Records and source records, by slice and source topic."""
    frames: dict[str, DataFrame] = {
        "dlq_records": spark.createDataFrame([*letters], RECORDS),
        "dlq_control_markers": spark.createDataFrame([], MARKERS),
    }
    rows = selected(spark, select_of("gold.dlq_counts"), frames, {}).collect()
    return {
        (row["source_slice"], row["original_topic"]): (row["record_count"], row["source_record_count"]) for row in rows
    }


def test_a_record_whose_headers_do_not_name_its_place_is_a_source_record_of_its_own(spark: SparkSession) -> None:
    """So silver.dlq_errors counts: a hundred of them are not one poison pill."""
    places = [("orders", 0, 7), ("orders", 0, 7), ("orders", 0, 8)]
    unplaced = [
        (None, None, None),
        (None, None, None),
        (None, 0, 7),
        (None, 0, 7),
        ("orders", None, 7),
        ("orders", 0, None),
    ]
    letters = [letter(number, *coordinate) for number, coordinate in enumerate([*places, *unplaced])]
    assert counted(spark, *letters) == {
        ("0000000000000000:0:orders", "orders"): (3, 2),
        (None, None): (4, 4),
        (None, "orders"): (2, 2),
    }


def test_two_owners_are_not_counted_as_one(spark: SparkSession) -> None:
    """A group that is called like a connector is another owner; an old record of a group is its own."""
    owners = [("g", "g"), ("g", None), (None, "connector a"), (None, "connector b"), ("connector a",) * 2, (None, None)]
    letters = []
    for number, (group, owner) in enumerate(owners):
        row = [*letter(number, "orders", 0, number)]
        row[6], row[-1] = group, owner
        letters.append(tuple(row))
    frames: dict[str, DataFrame] = {
        "dlq_records": spark.createDataFrame(letters, RECORDS),
        "dlq_control_markers": spark.createDataFrame([], MARKERS),
    }
    rows = selected(spark, select_of("gold.dlq_counts"), frames, {}).collect()
    assert {(row["consumer_group"], row["owner"]): row["record_count"] for row in rows} == {
        ("g", "g"): 2,
        (None, "connector a"): 1,
        (None, "connector b"): 1,
        ("connector a", "connector a"): 1,
        (None, None): 1,
    }
