"""Rows of a batch, and the answers to statements of Spark SQL about them: from Spark, or from DuckDB if they are few.

Spark takes a tenth of a second or more to describe, plan and start a query, however few rows it reads. In a statement
``{rows}`` stands for the rows, and other names in braces for other rows that are given with it.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from pipelines.engines import choose
from pipelines.engines.choose import UnsupportedByDuckDB
from pipelines.engines.duckdb import sessions
from pipelines.engines.duckdb.translate import translated

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection
    from pyarrow import Table  # type: ignore[import-untyped]
    from pyspark.sql import DataFrame, SparkSession


@dataclass(frozen=True)
class SparkRows:
    """Rows that Spark has."""

    frame: DataFrame

    def fetched(self, text: str) -> list[tuple[Any, ...]]:
        """Return the rows of an answer; times are in UTC, without a zone."""
        return [tuple(row) for row in self.frame.sparkSession.sql(text, rows=self.frame).collect()]


@dataclass(frozen=True)
class ArrowRows:
    """Few rows, which DuckDB knows under a name while its connection is open."""

    table: Table
    spark: SparkSession
    connection: DuckDBPyConnection
    name: str

    @cached_property
    def frame(self) -> DataFrame:
        """The rows in Spark."""
        return self.spark.createDataFrame(self.table)

    def fetched(self, text: str) -> list[tuple[Any, ...]]:
        """Return the rows of an answer, as ``SparkRows`` does; what DuckDB cannot answer is left to Spark."""
        try:
            with sessions.refusals():
                return self.connection.sql(translated(text.format(rows=self.name))).fetchall()
        except UnsupportedByDuckDB as left:
            if left.is_defect:
                choose.left_to_spark("a question about a batch", left)
            return SparkRows(self.frame).fetched(text)


def without_zones(table: Table) -> Table:
    """Return rows with times as DuckDB has them: in UTC, without a zone."""
    import pyarrow as arrow

    fields = [
        field.with_type(arrow.timestamp(field.type.unit)) if arrow.types.is_timestamp(field.type) else field
        for field in table.schema
    ]
    return table.cast(arrow.schema(fields))
