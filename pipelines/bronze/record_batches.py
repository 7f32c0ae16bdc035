"""landing/segments -> bronze.record_batches: a row per batch of a log segment, or per place where none can be read."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from expectations.bronze.record_batches import CONTRACT
from pipelines import columns
from pipelines.settings import Settings

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def parse(batches: DataFrame, settings: Settings) -> DataFrame:
    """Return the contract's columns, without those that the run adds, for rows of ``sources.segments``.

    A batch is known by its coordinates and checksum, wherever in which segment it lies. One with an error is known by
    where it lies, so that it is another than the batch that stands there once the segment is mended.
    """
    cluster = F.lit(settings.cluster)
    sound = F.concat_ws("\n", cluster, "topic", "partition", "base_offset", "crc")
    place = F.concat_ws("\n", cluster, "_source", "position", "error", F.hex("header"))
    values = {
        "_bronze_id": F.sha2(F.when(F.col("error").isNull(), sound).otherwise(place).cast("binary"), 256),
        "cluster": cluster,
    }
    return batches.select(*columns.of_contract(CONTRACT, values))
