"""landing/segments -> bronze.record_batches: a row per batch, per unreadable position and per version of a segment."""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from expectations.bronze.record_batches import CONTRACT
from pipelines.columns import contract as columns
from pipelines.settings import Settings


def parse(batches: DataFrame, settings: Settings) -> DataFrame:
    """Return the contract's columns, without those that the run adds, for rows of ``sources.segments``.

    The ``_bronze_id`` of a batch comes from the file version that it was first read from and its position there. If a
    file continues its last version, the batches of that version are not kept again. The ``_bronze_id`` of a row with
    an error comes from its position, whatever the version.
    """
    cluster, error = F.lit(settings.cluster), F.col("error")
    ends = batches.where("kept_bytes IS NOT NULL").select(
        F.col("_source").alias("_file"), F.col("kept_bytes").alias("_kept")
    )
    is_new = (
        error.isNotNull()
        | F.col("file").isNotNull()
        | (F.col("base_offset").isNotNull() & (F.col("position") >= F.col("_kept")))
    )
    news = batches.join(F.broadcast(ends), F.col("_source") == F.col("_file"), how="left").where(is_new)
    sound = F.concat_ws("\n", cluster, "_source", "version", "position", "crc")
    unreadable = F.concat_ws("\n", cluster, "_source", "position", "error", F.hex("header"))
    values = {
        "_bronze_id": F.sha2(F.when(error.isNull(), sound).otherwise(unreadable).cast("binary"), 256),
        "cluster": cluster,
    }
    return news.select(*columns.of_contract(CONTRACT, values))
