"""A Delta table -> a few of its rows, read without a JVM, for commands whose answer a person waits for.

Where only Spark opens tables, a session reads the rows, because Hadoop's settings say how to reach them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from expectations import literals
from expectations.literals import EPOCH
from pipelines.warehouse.tables import Warehouse

if TYPE_CHECKING:
    from deltalake import DeltaTable
    from pyspark.sql import DataFrame

MICROSECOND = timedelta(microseconds=1)


def rows(
    warehouse: Warehouse, table: str, equal: Mapping[str, str | int], columns: list[str] | None = None
) -> list[dict[str, Any]]:
    """Return the rows whose columns equal the given values, in no particular order, with timezone-aware timestamps.

    Statistics skip the files and row groups that cannot contain such rows. If only Spark opens the warehouse and there
    is no session, this starts a session.

    Raises UsageError: the table does not exist.
    """
    if not warehouse.opens_tables:
        if warehouse.session is not None:
            return rows_by_spark(warehouse, table, equal, columns)
        from pipelines.jvm.session import spark_session

        with spark_session(warehouse.settings, short_lived=True) as spark:
            return rows_by_spark(Warehouse(warehouse.settings, spark), table, equal, columns)
    if warehouse.last_version(table) is None:
        raise warehouse.absent(table)
    predicate = _predicate(equal)
    if predicate is None or warehouse.was_never_written(table):
        return []
    stored = warehouse.opened_table(table)
    there = [field.name for field in stored.schema().fields]
    lacking = {column.name: None for column in warehouse.lacking(table, there)}
    if columns is not None:
        lacking = {name: None for name in columns if name in lacking}
        columns = [name for name in columns if name not in lacking]
    return [row | lacking for row in _listed(stored.scan(columns, predicate))]


def values(warehouse: Warehouse, table: str, column: str, most: int) -> set[Any] | None:
    """Return the values of a column; None if only Spark opens the table, or it may have more than ``most`` rows."""
    if not warehouse.opens_tables:
        return None
    stored = warehouse.opened_table(table)
    counts = stored.get_add_actions(flatten=True)["num_records"].to_pylist()
    if None in counts or sum(counts) > most:
        return None
    return {row[column] for row in _listed(stored.scan([column]))}


def rows_by_spark(
    warehouse: Warehouse, table: str, equal: Mapping[str, str | int], columns: list[str] | None = None
) -> list[dict[str, Any]]:
    """Return the same rows as ``rows``, but always read them with the Spark session."""
    if not warehouse.exists(table):
        raise warehouse.absent(table)
    return _collected(_of_spark(warehouse, table, equal).select(*(columns or ["*"])))


@dataclass(frozen=True)
class Span:
    """Rows whose timestamp column has a value from ``begin``, if there is one, to ``until``, both included."""

    column: str
    until: datetime
    begin: datetime | None = None


def query(
    warehouse: Warehouse,
    table: str,
    text: str,
    equal: Mapping[str, str | int],
    span: Span | None = None,
    or_null: bool = False,
) -> list[dict[str, Any]]:
    """Return the result of a SELECT on the rows of a table whose columns equal the given values, within a span of time.

    With ``or_null`` the columns can also be null.
    The text calls these rows ``rows`` and must use only SQL that Spark and ``deltalake`` both support.
    """
    if warehouse.opens_tables:
        from deltalake import QueryBuilder

        predicate = _predicate(equal, or_null)
        if predicate is None:
            return []
        if span is not None:
            named = literals.name(span.column)
            predicate += f" AND {named} <= {literals.datafusion(span.until)}"
            predicate += f" AND {named} >= {literals.datafusion(span.begin)}" if span.begin is not None else ""
        opened = warehouse.opened_table(table)
        lacking = warehouse.lacking(table, (field.name for field in opened.schema().fields))
        names = "".join(f", CAST(NULL AS VARCHAR) AS {column.name}" for column in lacking)
        stored = QueryBuilder().register("stored", opened)
        return _listed(stored.execute(f"WITH rows AS (SELECT *{names} FROM stored WHERE {predicate}) {text}"))
    spark = warehouse.spark
    rows = _of_spark(warehouse, table, equal, or_null)
    if span is not None:
        from pyspark.sql import functions as F

        micros = F.unix_micros(span.column)
        rows = rows.where(micros <= _micros(span.until))
        rows = rows.where(micros >= _micros(span.begin)) if span.begin is not None else rows
    rows.createOrReplaceTempView("rows")
    try:
        return _collected(spark.sql(text))
    finally:
        spark.catalog.dropTempView("rows")


def greatest(warehouse: Warehouse, table: str, column: str, until: datetime) -> datetime | None:
    """Return the greatest value, not after ``until``, of a timestamp column in the rows of the settings' cluster.

    The result is None if there is no such value or no table. It comes from the statistics of the table's files. If
    these are missing, or if a file holds later times or rows of another cluster, the column is read.
    """
    if not warehouse.exists(table):
        return None
    if not warehouse.opens_tables:
        from pyspark.sql import functions as F

        rows = _of_spark(warehouse, table, {"cluster": warehouse.cluster})
        if column not in rows.columns:
            return None
        micros = F.max(F.unix_micros(column)).alias("micros")
        return _moment(rows.where(F.unix_micros(column) <= _micros(until)).select(micros).collect()[0][0])
    if warehouse.was_never_written(table):
        return None
    stored = warehouse.opened_table(table)
    if column not in {field.name for field in stored.schema().fields}:  # an older table
        return None
    statistics, known = _of_statistics(stored, column, warehouse.cluster, _micros(until))
    if known:
        return _moment(statistics)
    named = literals.name(column)
    in_time = f"{named} <= {literals.datafusion(until)}"
    answered = _times(stored, warehouse.cluster, in_time, f"max({named})")
    return _moment(answered[0])


def minutes(warehouse: Warehouse, table: str, column: str, after: datetime, until: datetime) -> list[datetime]:
    """Return, in order, the minutes between two times in which a timestamp column has a value."""
    if not warehouse.exists(table):
        return []
    if not warehouse.opens_tables:
        from pyspark.sql import functions as F

        rows = _of_spark(warehouse, table, {"cluster": warehouse.cluster})
        rows = rows.where(F.unix_micros(column).between(_micros(after), _micros(until)))
        times = [row[0] for row in rows.select(F.unix_micros(F.date_trunc("MINUTE", column))).distinct().collect()]
    else:
        named = literals.name(column)
        span = f"{named} BETWEEN {literals.datafusion(after)} AND {literals.datafusion(until)}"
        stored = warehouse.opened_table(table)
        times = _times(stored, warehouse.cluster, span, f"DISTINCT date_trunc('minute', {named})")
    return [EPOCH + micros * MICROSECOND for micros in sorted(micros for micros in times if micros is not None)]


def _of_statistics(table: DeltaTable, column: str, cluster: str, until: int) -> tuple[int | None, bool]:
    """Return the greatest value according to the file statistics, and whether they suffice to know it."""
    from arro3.core import DataType

    files = table.get_add_actions(flatten=True)
    needed = ("num_records", f"null_count.{column}", f"max.{column}", "min.cluster", "max.cluster")
    if not files.num_rows:
        return None, True
    if not set(needed) <= set(files.schema.names):
        return None, False
    listed = [files[name] for name in needed]
    listed[2] = listed[2].cast(DataType.timestamp("us", tz="UTC")).cast(DataType.int64())
    found: int | None = None
    for records, nulls, most, first, last in zip(*(values.to_pylist() for values in listed), strict=True):
        if records is not None and nulls is not None and (not records or nulls == records):
            continue
        if most is None or most > until or not first == last == cluster:
            return None, False
        found = most if found is None else max(found, most)
    return found, True


def _times(table: DeltaTable, cluster: str, where: str, selected: str) -> list[int | None]:
    """Return a query's single timestamp column in microseconds, because Python's datetime has no year 10000."""
    from deltalake import QueryBuilder

    of_cluster = _predicate({"cluster": cluster})
    if of_cluster is None:
        return [None]
    times = f"SELECT {selected} AS time FROM stored WHERE {of_cluster} AND {where}"
    text = f"SELECT arrow_cast(time, 'Int64') AS time FROM ({times})"
    return [row["time"] for row in _listed(QueryBuilder().register("stored", table).execute(text))]


def _micros(at: datetime) -> int:
    return (at - EPOCH) // MICROSECOND


def _moment(micros: int | None) -> datetime | None:
    """Return the time of microseconds since the epoch; None also if Python's datetime cannot hold it."""
    try:
        return None if micros is None else EPOCH + micros * MICROSECOND
    except OverflowError:
        return None


def _is_possible(value: str | int) -> bool:
    """Tell whether a column can have a value: none has more than 64 bits, or a lone surrogate.

    A byte on the command line that is not UTF-8 comes as a lone surrogate.
    """
    if isinstance(value, int):
        return -(2**63) <= value < 2**63
    return not any("\ud800" <= character <= "\udfff" for character in value)


def _predicate(equal: Mapping[str, str | int], or_null: bool = False) -> str | None:
    """Return the condition as SQL for ``deltalake``; None if no row can meet it."""
    if not all(map(_is_possible, equal.values())):
        return None
    parts = []
    for column, value in equal.items():
        name = literals.name(column)
        part = f"{name} = {literals.datafusion(value)}"
        parts.append(f"({part} OR {name} IS NULL)" if or_null else part)
    return " AND ".join(parts)


def _listed(batches: Iterable[Any]) -> list[dict[str, Any]]:
    return [row for batch in batches for row in batch.to_struct_array().to_pylist()]


def _of_spark(warehouse: Warehouse, table: str, equal: Mapping[str, str | int], or_null: bool = False) -> DataFrame:
    from pyspark.sql import functions as F

    rows = warehouse.read(table)
    for name, value in equal.items():
        is_equal = F.col(name) == F.lit(value) if _is_possible(value) else F.lit(False)
        rows = rows.where(is_equal | F.col(name).isNull() if or_null else is_equal)
    return rows


def _collected(rows: DataFrame) -> list[dict[str, Any]]:
    return [{name: aware(value) for name, value in row.asDict(recursive=True).items()} for row in rows.collect()]


def aware(value: Any) -> Any:
    """Return a time as one of UTC, in which sessions and DuckDB run; any other value as it is."""
    return value.replace(tzinfo=UTC) if isinstance(value, datetime) else value
