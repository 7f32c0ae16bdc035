"""Spark as an engine: DataFrames under names, and the rows that queries give."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import reduce
from typing import TYPE_CHECKING, Any

from expectations import literals
from expectations.contract import contract_of
from pipelines.columns.cached import cached
from pipelines.engines.base import with_times
from pipelines.warehouse import change_feed
from pipelines.warehouse.change_feed import Changes
from pipelines.warehouse.groups import Groups
from pipelines.warehouse.progress import Batch
from pipelines.warehouse.ranges import Range
from pipelines.warehouse.tables import ROWS_OF_A_FILE, Warehouse

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

ROWS_OF_A_TEXT = 100


@contextlib.contextmanager
def opened(warehouse: Warehouse, table: str) -> Iterator[SparkEngine]:
    """Yield an engine for a table."""
    with contextlib.ExitStack() as stack:
        engine = SparkEngine(warehouse, table, stack)
        stack.callback(engine.forget)
        yield engine


class SparkEngine:
    """Rows that Spark has under names, which are temporary views of the session."""

    rows_of_a_part = None
    most_rewritten = None

    def __init__(self, warehouse: Warehouse, table: str, stack: contextlib.ExitStack) -> None:
        """Take the table whose rows are made, and what ends with the engine."""
        self._warehouse, self._table, self._stack = warehouse, table, stack
        self._frames: dict[str, DataFrame] = {}
        self._feeds: dict[str, Changes] = {}
        self._groups: dict[str, list[Any]] = {}

    def refusals(self) -> contextlib.nullcontext[None]:
        """Refuse nothing."""
        return contextlib.nullcontext()

    def read(
        self,
        called: str,
        table: str,
        version: int | None = None,
        among: Sequence[Range] | None = None,
        where: str = "",
        is_shared: bool = False,
    ) -> None:
        """Register a table's rows within the ranges that meet a condition."""
        rows = self._warehouse.read(table, version, among)
        self._register(called, rows.where(where) if where else rows)

    def changes(self, called: str, table: str, batch: Batch) -> None:
        """Register the rows of a batch."""
        feed = self._feeds[called] = change_feed.changes(self._warehouse, table, batch)
        self._register(called, feed.rows)

    def groups(self, called: str, values: Iterable[Any]) -> None:
        """Remember groups, which conditions name one by one: Spark would start a job for a table of them."""
        self._groups[called] = [*values]

    def is_one_of(self, group: str, groups: str) -> str:
        """Return a condition with all groups as literals."""
        values = [literals.spark(value) for value in self._groups[groups] if value is not None]
        among = f"{group} IN ({', '.join(values)})" if values else "1 = 0"  # `FROM x WHERE (false)` would be an alias
        return f"({among} OR {group} IS NULL)" if None in self._groups[groups] else among

    def has_one_of(self, list_: str, groups: str) -> str:
        """Return the same for the items of an array."""
        return f"exists({list_}, one -> {self.is_one_of('one', groups)})"

    def view(self, called: str, text: str) -> None:
        """Register what a query gives."""
        self._register(called, self._selected(text))

    def keep(
        self,
        called: str,
        text: str,
        values: Mapping[str, Any] | None = None,
        *,
        are_fresh: bool = False,
        are_more: bool = False,
    ) -> None:
        """Register what a query gives; its rows are cached at their first use."""
        assert not are_more, "Spark makes no parts"
        rows = self._selected(text, values)
        if are_fresh:
            rows = rows.select([column.name for column in contract_of(self._table).stored])
        self._register(called, self._stack.enter_context(cached(rows)))

    def give(self, called: str, objects: Sequence[Mapping[str, Any]]) -> None:
        """Register rows, which go to Spark as texts of JSON, because createDataFrame would start Python workers."""
        from pyspark.sql import DataFrame
        from pyspark.sql import functions as F

        spark = self._warehouse.spark
        columns = contract_of(self._table).stored
        jvm: Any = spark.sparkContext._jvm
        texts = jvm.java.util.ArrayList()
        for begin in range(0, len(objects), ROWS_OF_A_TEXT):
            texts.add(json.dumps(objects[begin : begin + ROWS_OF_A_TEXT]))
        lines = spark._jsparkSession.createDataset(texts, jvm.org.apache.spark.sql.Encoders.STRING()).toDF()
        kinds = (f"`{column.name}`: {'bigint' if column.type == 'timestamp' else column.type}" for column in columns)
        parsed = F.from_json("value", f"array<struct<{', '.join(kinds)}>>", {"mode": "FAILFAST"})
        typed = [
            (F.timestamp_micros(f"`{column.name}`") if column.type == "timestamp" else F.col(f"`{column.name}`")).alias(
                column.name
            )
            for column in columns
        ]
        self._register(called, DataFrame(lines, spark).select(F.inline(parsed)).select(typed))

    def columns(self, called: str) -> list[str]:
        """Return the columns of what is registered."""
        return self._frames[called].columns

    def rows(self, text: str, complete: Iterable[str] = ()) -> list[tuple[Any, ...]]:
        """Return the rows of a query, and check that the feeds of changes did not end too early."""
        asked, timed = _in_micros(self._selected(text))
        found = [tuple(row) for row in asked.collect()]
        for name in complete:
            self._feeds[name].check(asked)
        return with_times(found, timed)

    def objects(self, text: str) -> Iterator[dict[str, Any]]:
        """Yield the rows of a query, as JSON, which Python reads ten times as fast as Py4J gives nested rows."""
        from pyspark.sql import functions as F

        rows, _ = _in_micros(self._selected(text))
        named = F.struct(*(F.col(f"`{name}`") for name in rows.columns))
        for (row,) in rows.select(F.to_json(named, {"ignoreNullFields": "false"})).toLocalIterator():
            yield json.loads(row)

    def counts(self, texts: Sequence[str]) -> dict[str, int]:
        """Return the counts of all queries, which one query gives."""
        counted = (_by_name(self._selected(text)) for text in texts)
        return {
            row["fact"]: row["count"] or 0
            for row in reduce(lambda first, more: first.unionAll(more), counted).collect()
        }

    def for_writer(self, called: str, column: str, groups: Groups | None, count: int) -> DataFrame:
        """Return rows as a DataFrame, those of several files in order."""
        rows, files = self._frames[called], -(-count // ROWS_OF_A_FILE)
        if files > 1:
            return rows.repartitionByRange(files, column).sortWithinPartitions(column)
        return rows.coalesce(1)

    def forget(self) -> None:
        """Drop all names.

        ``spark.catalog.dropTempView`` would compare each view with everything that is cached, such as each of Delta's
        snapshots.
        """
        catalog = self._warehouse.spark._jsparkSession.sessionState().catalog()
        for called in self._frames:
            catalog.dropTempView(called)

    def _register(self, called: str, rows: DataFrame) -> None:
        self._warehouse.spark._jsparkSession.sessionState().catalog().dropTempView(called)
        rows.createTempView(called)
        self._frames[called] = rows

    def _selected(self, text: str, values: Mapping[str, Any] | None = None) -> DataFrame:
        return self._warehouse.spark.sql(text, args=dict(values or {}))


def _in_micros(rows: DataFrame) -> tuple[DataFrame, list[bool]]:
    """Return rows with times as microseconds, and which columns are times: Python has no datetime for each of them."""
    from pyspark.sql import functions as F
    from pyspark.sql.types import TimestampType

    timed = [isinstance(field.dataType, TimestampType) for field in rows.schema]
    if not any(timed):
        return rows, timed
    names = [F.col(f"`{name}`") for name in rows.columns]
    columns = [F.unix_micros(column) if is_time else column for column, is_time in zip(names, timed, strict=True)]
    return rows.select([column.alias(name) for column, name in zip(columns, rows.columns, strict=True)]), timed


def _by_name(counts: DataFrame) -> DataFrame:
    """Return one row of counts as one row per count, with the count's name."""
    from pyspark.sql import functions as F

    def fact(name: str) -> Column:
        return F.struct(F.lit(name).alias("fact"), F.col(f"`{name}`").cast("bigint").alias("count"))

    return counts.select(F.inline(F.array(*map(fact, counts.columns))))
