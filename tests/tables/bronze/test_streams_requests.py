"""Brokers' request logs -> bronze.streams_requests: lines about streams groups, with their errors."""

from __future__ import annotations

from pyspark.sql import SparkSession

from pipelines.settings import Settings
from tests.testing.builders import rows
from tests.testing.requests import push
from tests.testing.topology_feed import APIS, CUT, EQUAL, FOREIGN, Ran, landed, run


def test_other_lines_are_skipped_and_counted(mixed_requests: Ran) -> None:
    bronze = mixed_requests[1]["bronze.streams_requests"]
    assert bronze.skipped == len(FOREIGN)
    assert bronze.message == (
        "4 new or changed files; skipped SHARE_GROUP_COMMIT_TRANSACTION 2, METADATA 1, lines of no API 1"
    )
    assert bronze.read == bronze.accepted + bronze.skipped


def test_unreadable_lines_are_kept_with_the_api_that_they_mention(spark: SparkSession, mixed_requests: Ran) -> None:
    errors = [
        (row["api"], row["error"]) for row in rows(spark, mixed_requests[0], "bronze.streams_requests") if row["error"]
    ]
    broken = "the JSON of the request is cut off or not valid"
    assert sorted(errors) == sorted(
        [
            (APIS[0], broken),
            (APIS[0], broken),
            (APIS[0], broken if "}" in EQUAL else CUT),
            (APIS[0], broken if "}" in EQUAL else CUT),
            (APIS[0], "the line does not begin with a date and a time"),
            ("DELETE_GROUPS", CUT),
            ("DELETE_GROUPS", "the time of the line is in no year in which a broker can have logged"),
        ]
    )


def test_equal_lines_of_a_file_are_numbered_and_a_grown_file_keeps_their_ids(
    spark: SparkSession, settings: Settings
) -> None:
    table = "bronze.streams_requests"
    cut = push(1)[:400]
    landed(settings, a=[cut, cut])
    run(spark, settings, table)
    before = {row["_bronze_id"] for row in rows(spark, settings, table)}
    landed(settings, a=[cut, cut, push(2), cut])
    done = run(spark, settings, table)[table]
    after = {row["_bronze_id"] for row in rows(spark, settings, table)}
    assert len(before) == 2
    assert before < after
    assert (done.read, done.accepted, done.duplicates) == (4, 2, 2)


def test_timestamps_are_read_in_the_settings_time_zone(spark: SparkSession, settings: Settings) -> None:
    table = "bronze.streams_requests"
    zoned = settings.model_copy(
        update={"streams_requests": settings.streams_requests.model_copy(update={"timezone": "Europe/Berlin"})}
    )
    landed(zoned, a=[push(0), push(0, "stated").replace(",000]", ",000Z]")])
    run(spark, zoned, table)
    assert sorted(row["logged_at"].hour for row in rows(spark, zoned, table)) == [1, 2]
