"""A Delta table -> a few of its rows, read without a JVM: for answers that a person waits for."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from pipelines import lakehouse
from pipelines.settings import Settings
from pipelines.storage import is_local

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def rows(
    settings: Settings, table: str, equal: Mapping[str, str | int], columns: list[str] | None = None
) -> list[dict[str, Any]]:
    """Return the rows whose columns equal the given values, in no order; timestamps are aware of their zone.

    Files and row groups that can hold none of them are left out by their statistics. Only a warehouse on a URI takes a
    JVM, as Hadoop's settings say how to reach it.

    Raises UsageError: the table is not there.
    """
    if not is_local(settings.warehouse):
        from pipelines.session import spark_session

        with spark_session(settings, brisk=True) as spark:
            return rows_by_spark(spark, settings, table, equal, columns)
    if lakehouse.local_version(settings, table) is None:
        raise lakehouse.absent(settings, table)
    predicate = _predicate(equal)
    if predicate is None:
        return []
    return _listed(lakehouse.local_table(settings, table).scan(columns, predicate))


def rows_by_spark(
    spark: SparkSession,
    settings: Settings,
    table: str,
    equal: Mapping[str, str | int],
    columns: list[str] | None = None,
) -> list[dict[str, Any]]:
    """Return the same rows through a session, wherever the warehouse is."""
    if not lakehouse.exists(spark, settings, table):
        raise lakehouse.absent(settings, table)
    return _collected(_of_spark(spark, settings, table, equal).select(*(columns or ["*"])))


def query(
    settings: Settings, table: str, text: str, equal: Mapping[str, str | int], spark: SparkSession | None = None
) -> list[dict[str, Any]]:
    """Return what a SELECT answers on the rows of a table whose columns equal the given values.

    The text calls the table ``rows`` and keeps to what Spark and the reader without a JVM both understand. A session is
    needed only for a warehouse that is not local.
    """
    if is_local(settings.warehouse):
        from deltalake import QueryBuilder

        predicate = _predicate(equal)
        if predicate is None:
            return []
        stored = QueryBuilder().register("stored", lakehouse.local_table(settings, table))
        return _listed(stored.execute(f"WITH rows AS (SELECT * FROM stored WHERE {predicate}) {text}"))
    assert spark is not None
    _of_spark(spark, settings, table, equal).createOrReplaceTempView("rows")
    try:
        return _collected(spark.sql(text))
    finally:
        spark.catalog.dropTempView("rows")


def _predicate(equal: Mapping[str, str | int]) -> str | None:
    """Return the condition as the reader's engine writes it; None where no row can meet it."""
    try:
        return " AND ".join(f'"{name}" = {_literal(value)}' for name, value in equal.items())
    except UnicodeEncodeError:  # half a surrogate pair, from a byte on the command line that is not UTF-8
        return None


def _literal(value: str | int) -> str:
    """Write a value for the reader's engine, which binds no parameters: of text nothing but hexadecimal digits."""
    return str(int(value)) if isinstance(value, int) else f"CAST(X'{value.encode().hex()}' AS VARCHAR)"


def _listed(batches: Iterable[Any]) -> list[dict[str, Any]]:
    return [row for batch in batches for row in batch.to_struct_array().to_pylist()]


def _of_spark(spark: SparkSession, settings: Settings, table: str, equal: Mapping[str, str | int]) -> DataFrame:
    from pyspark.sql import functions as F

    found = lakehouse.read(spark, settings, table)
    for name, value in equal.items():
        found = found.where(F.col(name) == F.lit(value))
    return found


def _collected(found: DataFrame) -> list[dict[str, Any]]:
    return [{name: _aware(value) for name, value in row.asDict(recursive=True).items()} for row in found.collect()]


def _aware(value: Any) -> Any:
    return value.replace(tzinfo=UTC) if isinstance(value, datetime) else value  # sessions run in UTC
