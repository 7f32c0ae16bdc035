"""What keeps Spark's optimizer from computing a costly column more than once a row."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import Column


def computed_once(column: Column) -> Column:
    """Return the column in a projection that filters stay above.

    Spark moves a filter below a projection by copying the projection's expressions into it, once for each use, through
    every projection below: a filter on a column of many steps then grows to megabytes. It leaves a projection alone
    that is not deterministic, which it takes any with a partition's number not to be.
    """
    from pyspark.sql import functions as F

    return F.when(F.spark_partition_id() >= 0, column)
