"""landing/broker-logs -> bronze.broker_events: failed DLQ writes, each with all lines that tell of it, and starts."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from pipelines.settings import Settings
from pipelines.sources import broker_log, landing, request_log

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

events = broker_log.events


def skipped(lines: DataFrame) -> Column:
    """Tell whether an event is of no kind that is kept; a row about a damaged file is never skipped."""
    return F.col("_kind").isNull() & F.col("damage").isNull()


def parse(lines: DataFrame, settings: Settings) -> DataFrame:
    """Return the contract's columns, without those that the run adds, for events of landed files."""
    line = F.col("line")
    logged_at = request_log.logged_at(line, settings.broker_logs.timezone)
    error = F.when(~F.is_valid_utf8(line.cast("string")), "the event is not UTF-8").when(
        logged_at.isNull(), "the event does not begin with a date and a time"
    )
    return lines.select(
        "_source",
        landing.numbered_id("line", "damage", "_occurrence").alias("_bronze_id"),
        F.lit(settings.cluster).alias("cluster"),
        F.col("_kind").alias("kind"),
        logged_at.alias("logged_at"),
        "line",
        F.col("_event_id").alias("event_id"),
        F.col("_is_partial").alias("is_partial"),
        F.coalesce("damage", error).alias("error"),
    )
