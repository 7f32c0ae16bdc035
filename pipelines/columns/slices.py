"""Slices: the parts of a topic's partition that gold tables are computed in, ten thousand offsets each.

A slice is named ``<partition>:<ten-thousands of the offset>:<topic>``; the SELECTs of the tables that have slices name
them alike.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import Column

OFFSETS = 10_000


def expression(topic: str, partition: str, offset: str) -> str:
    """Return the SQL expression of an offset's slice, from the names of columns that are not null."""
    return f"concat({partition}, ':', {offset} div {OFFSETS}, ':', {topic})"


def of_acknowledgement() -> Column:
    """Return the slice of an acknowledgement; without an offset it stands alone, with others of its hour."""
    from pyspark.sql import functions as F

    hour = F.date_format(F.coalesce("acknowledged_at", "timestamp"), "yyyy-MM-dd HH")
    alone = F.concat(F.lit("-:"), F.coalesce(hour, F.substring("_bronze_id", 1, 2)), F.lit(":"))
    return F.when(F.col("offset") >= 0, F.expr(expression("topic", "partition", "offset"))).otherwise(alone)
