"""Which run brought a row, and when."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def stamped(rows: DataFrame, started_at: datetime, run_id: str) -> DataFrame:
    """Add ``_ingested_at`` and ``_run_id`` to rows.

    Spark writes a literal time into the code that it generates, so each run would compile this code again. It refers to
    a literal array, and does not replace an item of it by its value if the index is only known while a task runs.
    """
    from pyspark.sql import functions as F

    at = F.get(F.array(F.lit(started_at)), F.least(F.spark_partition_id(), F.lit(0)))
    return rows.withColumns({"_ingested_at": at, "_run_id": F.lit(run_id)})
