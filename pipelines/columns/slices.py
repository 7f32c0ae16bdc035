"""Slices: parts of a topic's partition, a thousand offsets each, that gold tables are computed by.

A slice is named ``<thousands of the offset, 16 digits>:<partition>:<topic>``. Sorted by name,
the ends of logs of about the same length are next to each other. So new messages touch few files of a table that is
sorted by slice. The SELECTs of the tables that have slices use the same names.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import Column

OFFSETS = 1_000
DIGITS = 16  # of the greatest offset's thousands


def expression(topic: str, partition: str, offset: str) -> str:
    """Return the SQL expression of an offset's slice; the named columns must not be null."""
    return f"concat(lpad({offset} div {OFFSETS}, {DIGITS}, '0'), ':', {partition}, ':', {topic})"


def name(topic: str, partition: int, offset: int) -> str:
    """Return the name of an offset's slice."""
    return f"{offset // OFFSETS:0{DIGITS}}:{partition}:{topic}"


def offsets_of(group: str, runs: Iterable[tuple[str, str]]) -> tuple[str, list[tuple[int, int]]] | None:
    """Return the column of offsets in the expression of a slice, and the range of its values for each run of names.

    Return None if the expression is not that of an offset's slice, or a name is not the name of one.
    """
    column = re.fullmatch(rf"concat\(lpad\((\w+) div {OFFSETS}, {DIGITS}, '0'\), .*\)", group)
    ends = [(least.partition(":")[0], most.partition(":")[0]) for least, most in runs]
    if column is None or not all(number.isdecimal() for run in ends for number in run):
        return None
    last = 2**63 - 1
    # The slice of offset 0 also has the offsets above -1000, as `div` rounds towards 0.
    return column[1], [
        (OFFSETS * int(least) or 1 - OFFSETS, min(OFFSETS * int(most) + OFFSETS - 1, last)) for least, most in ends
    ]


def of_acknowledgement() -> Column:
    """Return the slice of an acknowledgement.

    Acknowledgements without an offset share a slice with others of their hour, or without a time with others whose
    ``_bronze_id`` begins with the same two digits.
    """
    from pyspark.sql import functions as F

    hour = F.date_format(F.coalesce("acknowledged_at", "timestamp"), "yyyy-MM-dd HH")
    alone = F.concat(F.lit("-:"), F.coalesce(hour, F.substring("_bronze_id", 1, 2)), F.lit(":"))
    return F.when(F.col("offset") >= 0, F.expr(expression("topic", "partition", "offset"))).otherwise(alone)
