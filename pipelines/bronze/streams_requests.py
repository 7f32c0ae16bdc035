"""landing/streams-requests, a topic -> bronze.streams_requests: lines that concern streams groups, as logged."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from pipelines.settings import Settings
from pipelines.sources import landing, request_log

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame


def skipped(lines: DataFrame) -> Column:
    """Tell whether a line concerns none of the APIs of streams groups; a row about a damaged file is never skipped."""
    return request_log.api(F.col("line")).isNull() & F.col("damage").isNull()


def skipped_as(lines: DataFrame) -> Column:
    """Return what a skipped line is counted as: Kafka's name of its API, because newer brokers have other APIs."""
    return request_log.other_api(F.col("line"))


def parse(lines: DataFrame, settings: Settings) -> DataFrame:
    """Return the contract's columns, without those that the run adds, for numbered lines of files or of a topic."""
    line = F.col("line")
    return lines.select(
        "_source",
        landing.line_id(lines).alias("_bronze_id"),
        F.lit(settings.cluster).alias("cluster"),
        request_log.api(line).alias("api"),
        request_log.logged_at(line, settings.streams_requests.timezone).alias("logged_at"),
        "line",
        F.coalesce("damage", request_log.error(line)).alias("error"),
    )
