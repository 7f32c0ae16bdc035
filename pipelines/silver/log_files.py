"""bronze.record_batches -> silver.log_files: the rows of segments' versions, their facts in columns."""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from expectations.silver.log_files import CONTRACT
from pipelines.settings import Settings

FACTS = (
    *("size_in_bytes", "modified_ns", "topic_id", "first_version", "batch_count", "covered", "greatest_timestamp"),
    *("least_epoch", "greatest_epoch", "greatest_epoch_offset", "read_to"),
)


def transform(bronze: DataFrame, settings: Settings) -> DataFrame:
    """Return one candidate for each bronze row, in the contract's columns; rows of batches are skipped."""
    facts = {name: F.col(f"file.{name}") for name in FACTS}
    values = {**facts, "_content_hash": F.xxhash64("topic", "partition", "file")}
    named = (values.get(column.name, F.col(column.name)).alias(column.name) for column in CONTRACT.columns)
    return bronze.select(*named, F.col("file").isNull().alias("_skipped"))
