"""silver.log_gaps: offsets between landed segments that no landed segment tells of."""

from __future__ import annotations

from typing import Any

from pyspark.sql import SparkSession

from pipelines.columns.slices import name
from pipelines.settings import Settings
from tests.testing.builders import rows, run
from tests.testing.deliveries import store

TABLE, RANGES = "silver.log_gaps", "silver.log_ranges"


def landed(topic: str, first: int, last: int, *, partition: int = 0, has_batch: bool = True) -> dict[str, Any]:
    log = {"cluster": "default", "segment": f"{topic}-{partition}/0.log", "topic": topic, "partition": partition}
    tells = {"has_batch": has_batch, "is_present": has_batch, "is_compacted": False}
    return {**log, "first_offset": first, "last_offset": last, **tells, "slice": name(topic, partition, first)}


def gaps(spark: SparkSession, settings: Settings) -> list[tuple[Any, ...]]:
    assert run(spark, settings, TABLE, feed="delivery")[TABLE].status == "passed"
    names = ("topic", "partition", "first_offset", "last_offset", "log")
    return sorted(tuple(row[name] for name in names) for row in rows(spark, settings, TABLE))


def test_what_no_segment_tells_of_is_a_gap_until_it_lands(spark: SparkSession, settings: Settings) -> None:
    orders = [landed("orders", 5, 9), landed("orders", 10, 12, has_batch=False), landed("orders", 20, 29)]
    store(settings, RANGES, *orders, landed("orders", 40, 41), landed("orders", 50, 51, partition=1))
    store(settings, RANGES, landed("paid", 0, 30), landed("paid", 3, 4), landed("paid", 31, 31))
    # What the first segment lacks before its beginning is no gap, and neither is a hole that a segment proves.
    assert gaps(spark, settings) == [("orders", 0, 13, 19, "0:orders"), ("orders", 0, 30, 39, "0:orders")]
    store(settings, RANGES, landed("orders", 13, 17), landed("orders", 30, 39))
    assert gaps(spark, settings) == [("orders", 0, 18, 19, "0:orders")]
