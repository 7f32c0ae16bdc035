"""Keep rows that several queries read, so that none of these queries plans again what made them."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


@contextlib.contextmanager
def cached(frame: DataFrame) -> Iterator[DataFrame]:
    """Yield the rows of a DataFrame, kept from their first use until the block ends.

    Their plan is a single leaf. A DataFrame that is persisted keeps its whole plan instead: Spark analyses all of it
    again for each query on it, before it finds that the rows are cached. In small runs this took longer than the rows.
    """
    from pyspark.sql import DataFrame

    kept = frame.persist()
    try:
        spark = kept.sparkSession
        jvm: Any = spark.sparkContext._jvm
        leaf = kept._jdf.queryExecution().withCachedData()
        yield DataFrame(jvm.org.apache.spark.sql.classic.Dataset.ofRows(spark._jsparkSession, leaf), spark)
    finally:
        kept.unpersist()
