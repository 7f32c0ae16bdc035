"""Rows of a SELECT -> rows of a ``Derive`` table: its module makes them, group by group, in the driver."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import reduce
from itertools import groupby
from typing import TYPE_CHECKING, Any

from expectations.contract import contract_of
from pipelines.stage import Derive, Summarise
from pipelines.steps.modules import Rows, derive_module

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

_GROUP, _IS_OWN = "_group", "_is_own"
ROWS_OF_A_TEXT = 100


def derived(
    spark: SparkSession, stage: Derive, column: str, selected: DataFrame, existing_rows: DataFrame
) -> DataFrame:
    """Return the rows that the table's module makes from the selected rows and the table's own rows of each group.

    ``column`` names the group in both. If the module has a ``deriver``, selected rows without a group are for all
    groups. The driver holds the given rows of one partition and all made rows, so that the
    SELECT must give few rows per group, not one per record.
    """
    from pyspark.sql import functions as F

    common: Rows = []
    if shares(stage):
        is_common = F.col(column).isNull()
        common = [json.loads(text) for (text,) in selected.where(is_common).select(_text(selected)).toLocalIterator()]
        selected = selected.where(~is_common)
    columns = contract_of(stage.table).stored
    kinds = {one.name: "bigint" if one.type == "timestamp" else one.type for one in columns}
    found = made(stage, _by_group(_in_order(selected, existing_rows, column)), common)
    typed = [
        (F.timestamp_micros(f"`{one.name}`") if one.type == "timestamp" else F.col(f"`{one.name}`")).alias(one.name)
        for one in columns
    ]
    return _frame(spark, found, kinds).select(typed)


def made(stage: Derive, groups: Iterable[tuple[Rows, Rows]], common: Rows) -> list[Mapping[str, Any]]:
    """Return the rows that the table's module makes: of each group, its selected rows and the table's own rows.

    ``common`` are the selected rows without a group, if the module has a ``deriver``.

    Raises ValueError: a row has a column that the table does not have.
    """
    module = derive_module(stage)
    derive: Callable[..., Iterable[Mapping[str, Any]]] = module.deriver(common) if module.deriver else module.derive
    names = {column.name for column in contract_of(stage.table).stored}
    rows = [row for selected, existing_rows in groups for row in derive(selected, existing_rows)]
    if unknown := {name for row in rows for name in row} - names:
        raise ValueError(f"{stage.table} has no column {', '.join(sorted(unknown))}")
    return rows


def _by_group(rows: Iterable[tuple[Any, bool, Mapping[str, Any]]]) -> Iterator[tuple[Rows, Rows]]:
    """Yield the selected rows and the table's own rows of each group, of rows in the order of groups."""
    for _, members in groupby(rows, key=lambda row: row[0]):
        given: tuple[list[Mapping[str, Any]], list[Mapping[str, Any]]] = ([], [])
        for _, is_own, row in members:
            given[is_own].append(row)
        yield given


def shares(stage: Summarise) -> bool:
    """Tell whether rows of the stage's SELECT without a group are for all groups."""
    return isinstance(stage, Derive) and derive_module(stage).deriver is not None


def _frame(spark: SparkSession, rows: Sequence[Mapping[str, Any]], kinds: Mapping[str, str]) -> DataFrame:
    """Return rows as a DataFrame of the given types.

    The rows go to Spark as texts of JSON, because createDataFrame would start Python workers.
    """
    from pyspark.sql import DataFrame
    from pyspark.sql import functions as F

    jvm: Any = spark.sparkContext._jvm
    texts = jvm.java.util.ArrayList()
    for begin in range(0, len(rows), ROWS_OF_A_TEXT):
        texts.add(json.dumps(rows[begin : begin + ROWS_OF_A_TEXT]))
    told = spark._jsparkSession.createDataset(texts, jvm.org.apache.spark.sql.Encoders.STRING()).toDF()
    schema = f"array<struct<{', '.join(f'`{name}`: {kind}' for name, kind in kinds.items())}>>"
    return DataFrame(told, spark).select(F.inline(F.from_json("value", schema, {"mode": "FAILFAST"})))


def _in_order(
    selected: DataFrame, existing_rows: DataFrame, column: str
) -> Iterator[tuple[Any, bool, Mapping[str, Any]]]:
    """Yield the rows of both frames, the rows of a group one after the other, timestamps as microseconds.

    They come as texts of JSON: Python reads nested rows ten times as fast as Py4J gives them.
    """
    from pyspark.sql import functions as F

    both = reduce(
        lambda some, more: some.unionAll(more),
        (
            rows.select(F.col(column).alias(_GROUP), F.lit(is_own).alias(_IS_OWN), _text(rows).alias("text"))
            for rows, is_own in ((selected, False), (existing_rows, True))
        ),
    )
    for group, is_own, text in both.repartition(_GROUP).sortWithinPartitions(_GROUP).toLocalIterator():
        yield group, is_own, json.loads(text)


def _text(rows: DataFrame) -> Column:
    """Return all columns as one text of JSON; Python has no datetime for every timestamp."""
    from pyspark.sql import functions as F
    from pyspark.sql.types import TimestampType

    named = [
        (
            F.unix_micros(F.col(f"`{one.name}`")) if isinstance(one.dataType, TimestampType) else F.col(f"`{one.name}`")
        ).alias(one.name)
        for one in rows.schema
    ]
    return F.to_json(F.struct(*named), {"ignoreNullFields": "false"})
