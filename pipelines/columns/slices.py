"""Slices: parts of a topic's partition, ten thousand offsets each, that gold tables are computed by.

A slice is named ``<partition>:<ten-thousands of the offset>:<topic>``. The SELECTs of the tables that have slices use
the same names.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import Column

OFFSETS = 10_000


def expression(topic: str, partition: str, offset: str) -> str:
    """Return the SQL expression of an offset's slice; the named columns must not be null."""
    return f"concat({partition}, ':', {offset} div {OFFSETS}, ':', {topic})"


def of_acknowledgement() -> Column:
    """Return the slice of an acknowledgement.

    Acknowledgements without an offset share a slice with others of their hour, or without a time with others whose
    ``_bronze_id`` begins with the same two digits.
    """
    from pyspark.sql import functions as F

    hour = F.date_format(F.coalesce("acknowledged_at", "timestamp"), "yyyy-MM-dd HH")
    alone = F.concat(F.lit("-:"), F.coalesce(hour, F.substring("_bronze_id", 1, 2)), F.lit(":"))
    return F.when(F.col("offset") >= 0, F.expr(expression("topic", "partition", "offset"))).otherwise(alone)
