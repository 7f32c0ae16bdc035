"""bronze.cluster_settings -> silver.cluster_settings: statements on topics, groups, brokers and the cluster."""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from expectations.silver.cluster_settings import CONTRACT, SETTINGS
from pipelines.columns import contract as columns
from pipelines.settings import Settings
from pipelines.sources import json_lines

RECORD = f"struct<kind: string, name: string, state: string, observed_at: bigint, settings: {SETTINGS}>"


def transform(bronze: DataFrame, settings: Settings) -> DataFrame:
    """Return one candidate for each bronze row, in the contract's columns; unreadable values are null."""
    stated = F.col("_object")
    read = json_lines.objects(bronze, RECORD).select(
        "*",
        *(stated[name].alias(name) for name in ("kind", "name", "state", "settings")),
        stated["observed_at"].alias("observed_at_millis"),
    )
    values = {
        "observed_at": columns.time_of_millis(F.col("observed_at_millis")),
        "_content_hash": F.xxhash64(F.col("state"), F.array_sort("settings")),
    }
    return read.select(*columns.of_contract(CONTRACT, values))
