"""Keep Spark's optimizer from computing an expensive column more than once per row."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import Column


def computed_once(column: Column) -> Column:
    """Return the column in a form that keeps Spark from pushing filters below its projection.

    Spark pushes a filter below a projection by copying the projection's expressions into the filter, once for each use,
    through every projection below. A filter on a column of many steps then grows to megabytes. Spark pushes nothing
    below a projection that is not deterministic, and it considers every projection with the partition id as such.
    """
    from pyspark.sql import functions as F

    return F.when(F.spark_partition_id() >= 0, column)
