"""The log of a table -> the data files of a version, and their rows in Spark without Delta's planning.

Delta plans each read with queries of its own on the table's log. For small tables they take longer than to read the
rows. The reader without a JVM knows the files and their statistics in milliseconds.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from expectations.contract import Column as Contracted
from pipelines.stores.base import Store
from pipelines.warehouse.ranges import Range, may_hold, within
from pipelines.warehouse.schemas import delta_type

if TYPE_CHECKING:
    from deltalake import DeltaTable
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType


PATTERN = re.compile(r"[][{}*?\\]")
PLAIN_READER = 1  # the reader's version of a table whose rows are those of its files, without deletion vectors


@dataclass(frozen=True)
class DataFiles:
    """Data files of a version of a table, with their statistics."""

    store: Store
    table_path: str
    schema: str
    files: Any  # a record batch, one row per file

    @classmethod
    def of(cls, opened: DeltaTable, store: Store, table_path: str, more: Iterable[Contracted] = ()) -> DataFiles | None:
        """Return the files of an opened table, whose rows have ``more`` columns; None if only Delta can read it.

        That is so if its rows are not simply those of its files, or if its path looks like a pattern: Spark would take
        the path of a file for all files that match.
        """
        if opened.protocol().min_reader_version != PLAIN_READER or opened.metadata().partition_columns:
            return None
        if PATTERN.search(store.root):
            return None
        files = opened.get_add_actions(flatten=True)
        schema = json.loads(opened.schema().to_json())
        schema["fields"] += [
            {"name": column.name, "type": delta_type(column.type), "nullable": True, "metadata": {}} for column in more
        ]
        return cls(store, table_path, json.dumps(schema), files)

    def paths(self, among: Sequence[Range] | None = None) -> list[str]:
        """Return the paths of the files that may hold rows in one of the ranges, by their statistics (None: all)."""
        paths = [str(path) for path in self.files["path"].to_pylist()]
        names = set(self.files.schema.names)
        columns = sorted({name for range_ in among or () for name in range_ if {f"min.{name}", f"max.{name}"} <= names})
        if not columns or among is None:
            return paths
        values = [
            zip(self.files[f"min.{name}"].to_pylist(), self.files[f"max.{name}"].to_pylist(), strict=True)
            for name in columns
        ]
        statistics = zip(*values, strict=True)
        return [path for path, file in zip(paths, statistics, strict=True) if may_hold(among, columns, file)]

    @cached_property
    def sizes(self) -> dict[str, int]:
        """The sizes of the files in bytes, by path."""
        return dict(zip(self.files["path"].to_pylist(), self.files["size_bytes"].to_pylist(), strict=True))

    def size(self, paths: Iterable[str]) -> int:
        """Return the size of some of the files in bytes."""
        return sum(self.sizes[path] for path in paths)

    def for_duckdb(self, path: str) -> str:
        """Return a data file's name for DuckDB."""
        return self.store.for_duckdb(f"{self.table_path}/{path}")

    def rows(self, spark: SparkSession, among: Sequence[Range] | None = None) -> DataFrame:
        """Return the rows within the ranges (None: all)."""
        rows = self.read(spark, self.paths(among))
        return rows if among is None else rows.where(within(among))

    def read(self, spark: SparkSession, paths: Iterable[str], *more: str) -> DataFrame:
        """Return the rows of data files, with ``more`` columns of text; a column that a file lacks is null."""
        from pyspark.sql.types import StringType, StructType

        schema = StructType.fromJson(json.loads(self.schema))
        for name in more:
            schema.add(name, StringType())
        files = self.store.for_spark([f"{self.table_path}/{path}" for path in paths])
        if files:
            return spark.read.schema(schema).parquet(*files)
        return _no_rows(spark, schema)


def _no_rows(spark: SparkSession, schema: StructType) -> DataFrame:
    """Return a DataFrame that Spark knows to be empty, so that it plans nothing for what is joined to it."""
    from pyspark.sql import DataFrame

    jvm: Any = spark.sparkContext._jvm
    kind = jvm.org.apache.spark.sql.types.DataType.fromJson(schema.json())
    return DataFrame(spark._jsparkSession.createDataFrame(jvm.java.util.ArrayList(), kind), spark)
