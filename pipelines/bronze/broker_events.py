"""landing/broker-logs -> bronze.broker_events: failed DLQ writes, each with all lines that tell of it, and starts."""

from __future__ import annotations

from functools import partial

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from pipelines.settings import Settings
from pipelines.sources import broker_log, landing
from pipelines.sources.logs import files

read_files = partial(files.read, broker_log.rows, "broker_logs")


def skipped(lines: DataFrame) -> Column:
    """Tell whether an event is of no kind that is kept; a row about a damaged file is never skipped."""
    return F.col("_kind").isNull() & F.col("damage").isNull()


def skipped_as(lines: DataFrame) -> Column:
    """Return what a skipped line is counted as if it belongs to no event; null for other events."""
    return F.col("_other")


def parse(lines: DataFrame, settings: Settings) -> DataFrame:
    """Return the contract's columns, without those that the run adds, for events of landed files."""
    return lines.select(
        "_source",
        landing.numbered_id("_occurrence").alias("_bronze_id"),
        F.lit(settings.cluster).alias("cluster"),
        F.col("_kind").alias("kind"),
        F.timestamp_micros("_logged_micros").alias("logged_at"),
        "line",
        "message",
        F.coalesce("_event_id", F.sha2(F.concat_ws("\n", "_source", "damage").cast("binary"), 256)).alias("event_id"),
        F.col("_is_partial").alias("is_partial"),
        F.coalesce("damage", "error").alias("error"),
    )
