"""Rows that several queries read: written once as Parquet files in the warehouse, and removed after their last use."""

from __future__ import annotations

import contextlib
import secrets
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from pipelines.warehouse.tables import Warehouse

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

STAGED = "_staged"


@contextlib.contextmanager
def staged(warehouse: Warehouse, table: str, rows: DataFrame) -> Iterator[DataFrame]:
    """Write a batch's rows for a table, and yield them as they are read back; remove the files when the block ends.

    A killed process leaves its files. As one process at a time writes a table, the next batch of it removes them.
    """
    spark = warehouse.spark
    beside, path = warehouse.store.for_spark([f"{STAGED}/{table}", f"{STAGED}/{table}/{secrets.token_hex(8)}"])
    _remove(spark, beside)
    try:
        rows.write.options(**{"mapreduce.fileoutputcommitter.marksuccessfuljobs": "false"}).parquet(path)
        # A warehouse's path may contain what looks like a pattern.
        yield spark.read.schema(rows.schema).option("__globPaths__", "false").parquet(path)
    finally:
        _remove(spark, path)


def _remove(spark: Any, directory: str) -> None:
    """Remove a directory and all that is in it, if it is there."""
    path = spark.sparkContext._jvm.org.apache.hadoop.fs.Path(directory)
    path.getFileSystem(spark._jsc.hadoopConfiguration()).delete(path, True)
