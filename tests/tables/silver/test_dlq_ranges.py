"""silver.dlq_ranges: which offsets of DLQ topics landed, as ranges that end with their slice."""

from __future__ import annotations

from typing import Any

from pyspark.sql import SparkSession

from pipelines.columns.slices import OFFSETS, name
from pipelines.settings import Settings
from tests.testing.builders import rows, run
from tests.testing.deliveries import at, store

TABLE = "silver.dlq_ranges"


def letter(offset: int, topic_id: str | None = None, partition: int = 0, **more: Any) -> dict[str, Any]:
    topic = {"cluster": "default", "dlq_topic": "dlq.orders", "dlq_topic_id": topic_id, "dlq_partition": partition}
    slice_ = name("dlq.orders", partition, offset)
    return {**topic, "dlq_offset": offset, "routed_at": at(offset), "slice": slice_, "is_counted": True, **more}


def test_ranges_end_at_gaps_and_at_the_end_of_a_slice(spark: SparkSession, settings: Settings) -> None:
    last = OFFSETS - 1
    landed = [letter(offset) for offset in (2, 0, 1, 5, last - 1, last, last + 1, last + 3)]
    others = [letter(1, "id"), letter(2, "id"), letter(4, partition=1, routed_at=None, dlq_timestamp=at(9))]
    store(settings, "silver.dead_letters", *landed, *others)

    assert run(spark, settings, TABLE, feed="delivery")[TABLE].status == "passed"

    names = ("dlq_topic_id", "dlq_partition", "first_offset", "last_offset")
    found = rows(spark, settings, TABLE)
    assert sorted((tuple(row[name] for name in names) for row in found), key=repr) == sorted(
        [
            *((None, 0, *ends) for ends in ((0, 2), (5, 5), (last - 1, last), (last + 1, last + 1))),
            (None, 0, last + 3, last + 3),
            ("id", 0, 1, 2),
            (None, 1, 4, 4),
        ],
        key=repr,
    )
    routed_at = {(row["dlq_topic_id"], row["dlq_partition"], row["first_offset"]): row["routed_at"] for row in found}
    assert routed_at[None, 0, 0] == at(0).replace(tzinfo=None)  # that of the first offset
    assert routed_at[None, 1, 4] == at(9).replace(tzinfo=None)
