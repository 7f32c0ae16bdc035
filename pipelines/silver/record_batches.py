"""bronze.record_batches -> silver.record_batches: times typed, delete horizon and base timestamp separated."""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from expectations.bronze.record_batches import UNREAD
from expectations.silver.record_batches import CONTRACT
from pipelines.columns import contract as columns
from pipelines.settings import Settings


def transform(bronze: DataFrame, settings: Settings) -> DataFrame:
    """Return one candidate for each bronze row, in the contract's columns; rows of files are skipped.

    Values that cannot be typed are null.
    """
    has_horizon = F.col("has_delete_horizon")
    unread = F.create_map(
        *(F.lit(text) for code, (what, remedy) in UNREAD.items() for text in (code, f"it {what}. {remedy}"))
    )
    values = {
        "base_timestamp": F.when(~has_horizon, columns.time_of_millis(F.col("base_timestamp"))),
        "max_timestamp": columns.time_of_millis(F.col("max_timestamp")),
        "delete_horizon_at": F.when(has_horizon, columns.time_of_millis(F.col("base_timestamp"))),
        "unread": unread[F.col("error")],
        "_content_hash": F.xxhash64("header"),
    }
    return bronze.select(
        *(values.get(column.name, F.col(column.name)).alias(column.name) for column in CONTRACT.columns),
        F.col("file").isNotNull().alias("_skipped"),
    )
