"""bronze.broker_events -> silver.dlq_write_failures: whose records could not be written to which DLQ, and why."""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from expectations.silver.dlq_write_failures import CONTRACT
from pipelines.columns import contract as columns
from pipelines.columns.once import computed_once
from pipelines.settings import Settings
from pipelines.sources import broker_log
from pipelines.sources.logs import files


def transform(bronze: DataFrame, settings: Settings) -> DataFrame:
    """Return one candidate for each bronze row, in the contract's columns; values that the log lacks are null.

    Rows about starts belong to silver.broker_starts.
    """
    text = files.said(bronze)
    values = {name: computed_once(part) for name, part in broker_log.failure(text).items()}
    events = bronze.select("*", *(part.alias(name) for name, part in values.items()))
    derived = {
        "failed_at": F.col("logged_at"),
        "is_attributed": F.col("first_offset").isNotNull(),
        "offset_count": F.try_add(F.try_subtract("last_offset", "first_offset"), F.lit(1)),
        "_content_hash": F.xxhash64("line"),
    }
    is_start = F.coalesce(F.col("kind") == broker_log.STARTED, F.lit(False))
    return events.select(*columns.of_contract(CONTRACT, derived), is_start.alias("_skipped"))
