"""landing/streams-requests, a topic -> bronze.streams_requests: lines that concern streams groups, as logged."""

from __future__ import annotations

from functools import partial

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from pipelines.settings import Settings
from pipelines.sources import landing, request_log
from pipelines.sources.logs import files

read_files = partial(files.read, request_log.rows, "streams_requests")
read_records = request_log.read_records


def skipped(lines: DataFrame) -> Column:
    """Tell whether a line concerns none of the APIs of streams groups; a row about a damaged file is never skipped."""
    return F.col("_kind").isNull() & F.col("damage").isNull()


def skipped_as(lines: DataFrame) -> Column:
    """Return what a skipped line is counted as: Kafka's name of its API, because newer brokers have other APIs."""
    return F.col("_other")


def parse(lines: DataFrame, settings: Settings) -> DataFrame:
    """Return the contract's columns, without those that the run adds, for numbered lines of files or of a topic."""
    return lines.select(
        "_source",
        landing.line_id(lines).alias("_bronze_id"),
        F.lit(settings.cluster).alias("cluster"),
        F.col("_kind").alias("api"),
        F.timestamp_micros("_logged_micros").alias("logged_at"),
        "line",
        "message",
        F.coalesce("damage", "error").alias("error"),
    )
