"""bronze.broker_events -> silver.broker_starts: which component of which node said when that it has started."""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from expectations.silver.broker_starts import CONTRACT
from pipelines.columns import contract as columns
from pipelines.settings import Settings
from pipelines.sources import broker_log
from pipelines.sources.logs import files


def transform(bronze: DataFrame, settings: Settings) -> DataFrame:
    """Return one candidate for each bronze row, in the contract's columns; rows about anything else are skipped."""
    text = files.said(bronze)
    events = bronze.select("*", *(part.alias(name) for name, part in broker_log.start(text).items()))
    derived = {"started_at": F.col("logged_at"), "_content_hash": F.xxhash64("component", "node_id", "logged_at")}
    is_start = F.coalesce(F.col("kind") == broker_log.STARTED, F.lit(False))
    return events.select(*columns.of_contract(CONTRACT, derived), (~is_start).alias("_skipped"))
