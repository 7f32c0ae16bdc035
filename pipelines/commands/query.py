"""Spark SQL over the warehouse, read-only: one statement in, its rows out as a table, as JSON or as CSV."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import reduce
from typing import TYPE_CHECKING, Any, TextIO

from expectations import literals
from expectations.contract import Contract
from expectations.replays import TABLES as REPLAYS
from expectations.text import visible
from pipelines.commands import rows as printed
from pipelines.commands import tabular
from pipelines.commands.arguments import Parameter, no_value
from pipelines.commands.remarks import remarks_after
from pipelines.commands.statements import statement_tables
from pipelines.commands.stored import LAYERS, PRESENT, TABLES, present
from pipelines.errors import EnvironmentLacking, UsageError, readable
from pipelines.incidents.signature import with_fingerprints
from pipelines.text import near
from pipelines.warehouse.tables import Warehouse

if TYPE_CHECKING:
    from pyspark.errors import PySparkException
    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.types import DataType


SHOWN_FIELDS, FIELDS = "spark.sql.debug.maxToStringFields", "25"  # in plans of EXPLAIN; conf/ sets none
READING_COMMANDS = ("Show", "Describe", "Explain")
TIME_FORMATS = {"timestamp": "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX", "timestamp_ntz": "yyyy-MM-dd'T'HH:mm:ss.SSSSSS"}
JSON_OPTIONS = {
    "ignoreNullFields": "false",
    "timeZone": "UTC",
    "timestampFormat": TIME_FORMATS["timestamp"],
    "timestampNTZFormat": TIME_FORMATS["timestamp_ntz"],
}

# Nodes of a plan that change something, but are not a Command in Spark's classes.
ACTING_NODES = re.compile(r"Call|InsertIntoDir|\w*ExecuteImmediate|\w+Statement")
NUMBERS = ("byte", "short", "integer", "long", "float", "double", "decimal")

_HERE = "CurrentNamespace$"  # the node in a plan that names no namespace
_TABLE = re.compile(r"[a-z]+\.[a-z_]+")


def answer(
    warehouse: Warehouse,
    text: str,
    values: Mapping[str, Parameter],
    form: str = "table",
    seen: Callable[[printed.Rows], printed.Rows] = lambda rows: rows,
) -> list[str]:
    """Write the rows of one reading statement to standard output; as a table, write their number to standard error.

    ``seen`` makes what is shown of the rows. Return remarks: a sentence for each feed that explains why the answer is
    empty, or why it tells nothing of now.
    """
    width = tabular.terminal_width(sys.stdout)
    written = write(rows_of(warehouse, text, values), form, sys.stdout, width=width, seen=seen)
    return remarks_after(warehouse, text, values, form, written)


def rows_of(warehouse: Warehouse, text: str, values: Mapping[str, Parameter]) -> DataFrame:
    """Return the rows of one reading statement over the warehouse's tables, each ``:name`` bound to its value.

    ``{fingerprint}`` in it is that of a row of silver.dlq_records, of which incidents are made.

    Raises UsageError: the statement writes, cannot be understood, or names something that does not exist.
    """
    from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
    from pyspark.errors import PySparkException

    text = with_fingerprints(text)
    try:
        plan = _read_only(warehouse.spark, text)
        if str(plan.getClass().getSimpleName()).startswith("Show"):
            present = {table for table in (*TABLES, *REPLAYS) if table in PRESENT or warehouse.exists(table)}
            _register(warehouse, present)
            if pattern := _shows_all_tables(plan):
                return _all_tables(warehouse.spark, pattern)
        else:
            _register(warehouse, statement_tables(text))
        if SHOWN_FIELDS not in warehouse.settings.spark:
            warehouse.spark.conf.set(SHOWN_FIELDS, FIELDS)
        return warehouse.spark.sql(text, args=dict(values))
    except PySparkException as error:
        raise UsageError(_sentence(error)) from None
    except Py4JJavaError as error:  # Delta's own errors
        text = str(error.java_exception.getMessage())
        raise UsageError(f"The statement cannot be answered: {visible(_plain(text))}") from None


def _shows_all_tables(plan: Any) -> str | None:
    """Return the pattern of a SHOW TABLES that names no layer, ``*`` by default; None for any other statement."""
    if plan.getClass().getSimpleName() != "ShowTables" or plan.namespace().getClass().getSimpleName() != _HERE:
        return None
    return str(plan.pattern().get()) if plan.pattern().isDefined() else "*"


def _all_tables(spark: SparkSession, pattern: str) -> DataFrame:
    """Return the tables of all layers, in the form in which SHOW TABLES lists those of one layer."""
    like = literals.spark(pattern)
    listed = [
        spark.sql(f"SHOW TABLES IN {layer} LIKE {like}") for layer in LAYERS if spark.catalog.databaseExists(layer)
    ]
    return reduce(lambda above, below: above.union(below), listed)


def _read_only(spark: SparkSession, text: str) -> Any:
    """Return the plan of a statement.

    Raises UsageError: the statement is more than a query for Spark's own parser.
    """
    jvm: Any = spark.sparkContext._jvm
    plan = spark._jsparkSession.sessionState().sqlParser().parsePlan(text)
    command = jvm.java.lang.Class.forName("org.apache.spark.sql.catalyst.plans.logical.Command")
    nodes = [plan]
    for node in nodes:
        name = str(node.getClass().getSimpleName())
        if ACTING_NODES.fullmatch(name) or (command.isInstance(node) and not name.startswith(READING_COMMANDS)):
            raise UsageError(
                "afterlog sql only reads (SELECT, WITH, VALUES, SHOW, DESCRIBE, EXPLAIN): tables are written by "
                "`afterlog run` and `afterlog readmit`."
            )
        children = node.children()
        nodes.extend(children.apply(number) for number in range(children.length()))
    return plan


def _register(warehouse: Warehouse, names: set[str]) -> None:
    """Register the tables that exist.

    Raises UsageError: a table of the pipeline does not exist; the message of ``register`` says what to do.
    """
    tables = {table for table in names if _TABLE.fullmatch(table)}
    for contract, entries in present(warehouse, tables).values():
        _register_present(warehouse, contract, entries)
    there = {table for table in tables.difference(PRESENT) if table in TABLES or warehouse.exists(table)}
    warehouse.register(there)


def _register_present(warehouse: Warehouse, contract: Contract, entries: Sequence[Sequence[Any]]) -> None:
    """Write the rows of a table that no file holds to a table of the session's own catalog."""
    from pyspark.sql import functions as F

    schema = ", ".join(f"`{c.name}` {'string' if c.type == 'timestamp' else c.type}" for c in contract.columns)
    rows = warehouse.spark.createDataFrame([tuple(entry) for entry in entries], schema).coalesce(1)
    typed = [F.col(column.name).cast(column.type) for column in contract.columns]
    warehouse.spark.sql("CREATE DATABASE IF NOT EXISTS quality")
    rows.select(typed).write.format("parquet").mode("overwrite").saveAsTable(contract.table)


def _sentence(error: PySparkException) -> str:
    """Return one line on what is wrong with a statement, without Spark's plans and its advice on settings."""
    condition = error.getCondition() or ""
    parameters = error.getMessageParameters() or {}
    if condition == "TABLE_OR_VIEW_NOT_FOUND":
        table = str(parameters.get("relationName", "")).replace("`", "")
        return f'There is no table {visible(table)}.{near(table, TABLES)} `afterlog sql "SHOW TABLES"` lists all.'
    if condition == "UNBOUND_SQL_PARAMETER":
        return str(no_value(str(parameters.get("name"))))
    return f"The statement cannot be answered: {visible(_plain(str(error)))}"


def _plain(text: str) -> str:
    """Return the first line of Spark's message without its codes."""
    text = re.sub(r"^\[[A-Z0-9_.]+\] ", "", text.strip()).partition("\n")[0]
    return re.sub(r"\s*SQLSTATE: \w+(?:; ?)?", " ", text).strip(" ;")


def write(
    rows: DataFrame,
    form: str,
    out: TextIO,
    *,
    width: int | None = None,
    seen: Callable[[printed.Rows], printed.Rows] = lambda rows: rows,
) -> int:
    """Write rows as they arrive, never all at once in memory; return how many.

    ``width`` is that of a terminal, None without one. ``seen`` makes what is shown of the rows.

    - ``table``: for people. Control and bidirectional characters are shown as escapes; ``tabular`` says how a table
      fits a narrow terminal.
    - ``json``: one object per line; numbers that JSON cannot write (NaN, Infinity) are text.
    - ``csv``: RFC 4180 with a header line; null is an empty field, an empty string is ``""``. Values stay unchanged: a
      spreadsheet takes a cell that begins with ``=`` for a formula.

    If the reader goes away (``| head``), writing ends without an error.

    Raises UsageError: the statement fails on a row, or, as JSON, two columns have the same name. EnvironmentLacking: a
    file of a table cannot be read.
    """
    from py4j.protocol import Py4JJavaError
    from pyspark.errors import PySparkException

    try:
        return printed.write(seen(_SparkRows(rows)), form, out, width)
    except (PySparkException, Py4JJavaError) as error:  # their texts can quote a value of a row
        if isinstance(unread := readable(error), EnvironmentLacking):
            raise unread from None
        match = re.search(r"\[([A-Z][A-Z0-9_.]+)\]", str(error))
        condition = match[1] if match else "an error of Spark's"
        raise UsageError(f"The statement fails on some row with {condition}: guard it, as try_cast does.") from None


class _SparkRows:
    """Rows of a DataFrame, fetched one partition after the other."""

    def __init__(self, rows: DataFrame) -> None:
        self._rows = rows
        self.names = rows.columns

    @property
    def are_numbers(self) -> list[bool]:
        return [field.dataType.typeName() in NUMBERS for field in self._rows.schema.fields]

    def texts(self) -> Iterator[Sequence[str | None]]:
        columns = [_text(f"_{index}", field.dataType) for index, field in enumerate(self._rows.schema.fields)]
        return self._numbered().select(columns).toLocalIterator()

    def objects(self) -> Iterator[str]:
        from pyspark.sql import functions as F

        columns = [F.col(f"_{index}").alias(name) for index, name in enumerate(self.names)]
        for (line,) in self._numbered().select(F.to_json(F.struct(*columns), JSON_OPTIONS)).toLocalIterator():
            yield line

    def _numbered(self) -> DataFrame:
        """Name the columns by their position, as two can have the same name."""
        return self._rows.toDF(*(f"_{index}" for index in range(len(self.names))))


def _text(name: str, kind: DataType) -> Column:
    from pyspark.sql import functions as F

    column = F.col(name)
    if kind.typeName() == "binary":
        return F.base64(column)
    if kind.typeName() in ("array", "map", "struct", "variant"):
        return F.to_json(column, JSON_OPTIONS)
    if kind.typeName() in TIME_FORMATS:
        return F.date_format(column, TIME_FORMATS[kind.typeName()])
    return column.cast("string")
