"""Spark SQL -> rows of Delta tables by DuckDB, without a JVM.

The text is translated, so an answer is right only if a test has compared it with Spark's: see
``tests/integration/test_ask.py``. Times are UTC: DuckDB holds them without a zone.
"""

from __future__ import annotations

import atexit
import contextlib
import json
import re
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime
from decimal import Decimal
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from expectations import literals
from expectations.contract import Contract
from expectations.literals import name
from pipelines import scratch
from pipelines.engines.duckdb import functions
from pipelines.engines.duckdb.macros import MACROS
from pipelines.engines.duckdb.nodes import Untranslatable
from pipelines.engines.duckdb.translate import parameters, translated
from pipelines.stores import locations
from pipelines.warehouse.change_feed import NamedFiles
from pipelines.warehouse.data_files import DataFiles
from pipelines.warehouse.jvmless import aware
from pipelines.warehouse.schemas import delta_type
from pipelines.warehouse.tables import Warehouse

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

TYPES = {
    "string": "VARCHAR",
    "byte": "TINYINT",
    "short": "SMALLINT",
    "integer": "INTEGER",
    "long": "BIGINT",
    "float": "FLOAT",
    "double": "DOUBLE",
    "boolean": "BOOLEAN",
    "binary": "BLOB",
    "date": "DATE",
    "timestamp": "TIMESTAMP",
}
"""DuckDB's types by the names that Delta logs have for them."""

MEMORY = "768MB"
_open: set[DuckDBPyConnection] = set()  # the sessions of this process
_LIMITED = re.compile(r"decimal\(\d+,\d+\)")


@dataclass(frozen=True)
class Fetched:
    """All rows of an answer, with the names and DuckDB's types of their columns."""

    names: Sequence[str]
    types: Sequence[Any]
    rows: Sequence[Sequence[Any]]

    def objects(self) -> list[dict[str, Any]]:
        """Return the rows by names of columns, with timezone-aware timestamps, as `jvmless.rows` does."""
        return [dict(zip(self.names, map(aware, row), strict=True)) for row in self.rows]


def answer(
    warehouse: Warehouse,
    text: str,
    values: Mapping[str, Any],
    tables: Iterable[str],
    given: Mapping[str, tuple[Contract, Sequence[Any]]],
) -> Fetched:
    """Return the rows of a statement over tables, each ``:name`` bound to its value.

    ``given`` maps names of tables that no file holds to their contracts and rows.

    Raises Untranslatable: DuckDB cannot answer it. UsageError: a table does not exist.
    """
    with _opened(warehouse, text, values, tables, given) as (connection, statement, bound):
        answered = connection.sql(statement, params=bound)
        return Fetched(answered.columns, answered.types, answered.fetchall())


def batches(
    warehouse: Warehouse,
    text: str,
    values: Mapping[str, Any],
    tables: Iterable[str],
    given: Mapping[str, tuple[Contract, Sequence[Any]]],
    size: int,
) -> Generator[Fetched, None, None]:
    """Yield what ``answer`` returns, ``size`` rows at a time, all from the same versions of the tables."""
    with _opened(warehouse, text, values, tables, given) as (connection, statement, bound):
        answered = connection.execute(statement, bound)
        names = [column[0] for column in answered.description]
        types = [column[1] for column in answered.description]
        while fetched := answered.fetchmany(size):
            yield Fetched(names, types, fetched)


@contextlib.contextmanager
def _opened(
    warehouse: Warehouse,
    text: str,
    values: Mapping[str, Any],
    tables: Iterable[str],
    given: Mapping[str, tuple[Contract, Sequence[Any]]],
) -> Iterator[tuple[DuckDBPyConnection, str, dict[str, Any]]]:
    """Yield a connection that knows the tables, the translated statement and its values; see ``answer``."""
    import duckdb

    bound = {name: _bound(values[name]) for name in parameters(text)}
    statement = translated(text)
    tables = sorted(set(tables))
    for table in tables:
        if table not in given and not warehouse.exists(table):
            raise warehouse.absent(table)
    with connected(warehouse.root) as connection:
        try:
            for table in tables:
                if table in given:
                    _insert(connection, *given[table])
                else:
                    files = warehouse.data_files(table)
                    if files is None:
                        raise Untranslatable(f"only Delta can read {table}")
                    connection.execute(f"CREATE SCHEMA IF NOT EXISTS {table.partition('.')[0]}")
                    connection.execute(f"CREATE VIEW {table} AS {rows(connection, files, files.paths())}")
            yield connection, statement, bound
        except duckdb.Error as error:
            raise Untranslatable(type(error).__name__) from None  # its message can quote a value


def connected(root: str, spill: str = "") -> DuckDBPyConnection:
    """Return a connection that reads the files of a warehouse, and no others.

    What does not fit into memory goes into the directory ``spill``; without one a query ends with an error.
    """
    import duckdb

    nothing_more = {"autoinstall_known_extensions": "false", "autoload_known_extensions": "false"}
    connection = duckdb.connect(config={**nothing_more, "temp_directory": spill})
    connection.execute("SET TimeZone = 'UTC'")
    locations.of(root).opened_by_duckdb(connection)
    connection.execute("SET enable_external_access = false")
    functions.register(connection)
    for macro in MACROS:
        connection.execute(f"CREATE MACRO {macro}")
    return connection


@contextlib.contextmanager
def session(root: str) -> Iterator[DuckDBPyConnection]:
    """Yield a connection that reads the files of a warehouse; its temporary tables and views end with it."""
    try:
        with _shared(root).cursor() as connection:
            _open.add(connection)
            try:
                connection.execute("SET TimeZone = 'UTC'")
                yield connection
            finally:
                _open.discard(connection)
    except Exception as error:
        _forget_if_lost(error)
        raise


class Mistaken(Untranslatable):
    """DuckDB cannot read a statement of Afterlog, whatever the rows are."""

    is_defect = True


@contextlib.contextmanager
def refusals() -> Iterator[None]:
    """Raise Untranslatable for whatever DuckDB or Arrow cannot do, so that Spark does it; an interruption stays one.

    Their messages can quote values, so they are not told. Statements that DuckDB cannot read are ``Mistaken``.
    """
    import duckdb
    from pyarrow import ArrowException  # type: ignore[import-untyped]

    try:
        yield
    except duckdb.InterruptException:  # the run is to stop
        raise
    except (duckdb.BinderException, duckdb.CatalogException, duckdb.ParserException, duckdb.SyntaxException) as error:
        raise Mistaken(type(error).__name__) from error
    except (duckdb.Error, ArrowException, OverflowError, UnicodeError) as error:
        _forget_if_lost(error)
        raise Untranslatable(type(error).__name__) from None


def _forget_if_lost(error: Exception) -> None:
    """Forget the shared connection after an error with which, or with whose cause, the database ends."""
    import duckdb

    fatal = (duckdb.FatalException, duckdb.InternalException)
    if isinstance(error, fatal) or isinstance(error.__cause__, fatal):
        _shared.cache_clear()


def unpacked(connection: DuckDBPyConnection, feed: NamedFiles) -> int:
    """Return how many bytes of text, of bytes and of nested values the rows of files have, roughly.

    The size of the files does not tell it: Parquet stores a repeated value once.
    """
    widths = {"VARCHAR": "strlen({})", "BLOB": "octet_length({})"}
    columns = [(name(column), kind) for column, kind in types(feed.files.schema)]
    lengths = [
        f"sum({widths.get(kind, 'strlen(CAST({} AS VARCHAR))').format(column)})"
        for column, kind in columns
        if kind in widths or not kind.isalpha()
    ]
    total = " + ".join(f"coalesce({length}, 0)" for length in lengths) or "0"
    ((found,),) = connection.sql(f"SELECT {total} FROM ({changes(connection, feed)})").fetchall()
    return int(found)


def cancel() -> None:
    """End what the sessions of this process compute, from another thread: they raise InterruptException."""
    for connection in tuple(_open):
        connection.interrupt()


@lru_cache(maxsize=1)
def _shared(root: str) -> DuckDBPyConnection:
    """Return the connection of a warehouse; to make one takes longer than a small query."""
    connection = connected(root, scratch.directory("duckdb"))
    connection.execute(f"SET memory_limit = '{MEMORY}'")
    return connection


atexit.register(_shared.cache_clear)  # or Python's functions in the last connection would count as leaked


def changes(connection: DuckDBPyConnection, feed: NamedFiles) -> str:
    """Return a query for a change feed's rows, with their ``_change_type``."""
    texts = [
        rows(connection, feed.files, paths, f"{literals.text(change)} AS _change_type" if change else "_change_type")
        for change, paths in feed.paths().items()
        if paths
    ]
    return " UNION ALL ".join(texts) or rows(connection, feed.files, (), more="'' AS _change_type")


def rows(connection: DuckDBPyConnection, files: DataFiles, paths: Sequence[str], more: str = "") -> str:
    """Return a query for the rows of data files, with one more column; a column that a file lacks is null."""
    listed = ", ".join(literals.text(files.for_duckdb(path)) for path in paths)
    read = f"FROM read_parquet([{listed}], union_by_name = true, hive_partitioning = false)"
    stored = {column for column, *_ in connection.execute(f"DESCRIBE {read}").fetchall()} if paths else set()
    columns = [
        f"CAST({name(column) if column in stored else 'NULL'} AS {kind}) AS {name(column)}"
        for column, kind in types(files.schema)
    ]
    selected = ", ".join([*columns, more] if more else columns)
    return f"SELECT {selected} {read}" if paths else f"SELECT {selected} WHERE false"


def types(schema: str) -> list[tuple[str, str]]:
    """Return the columns of a Delta schema, given as JSON, with DuckDB's types.

    Raises Untranslatable: a type has none with the same values.
    """
    return [(field["name"], _type(field["type"])) for field in json.loads(schema)["fields"]]


def _insert(connection: DuckDBPyConnection, contract: Contract, given: Sequence[Any]) -> None:
    columns = [(name(column.name), _type(delta_type(column.type))) for column in contract.columns]
    connection.execute(f"CREATE SCHEMA IF NOT EXISTS {contract.table.partition('.')[0]}")
    connection.execute(f"CREATE TABLE {contract.table} ({', '.join(map(' '.join, columns))})")
    # A time with a zone, as text, becomes UTC by way of TIMESTAMPTZ.
    marks = ("CAST(? AS TIMESTAMPTZ)" if kind == "TIMESTAMP" else "?" for _, kind in columns)
    if given:
        connection.executemany(f"INSERT INTO {contract.table} VALUES ({', '.join(marks)})", given)


def _type(kind: Any) -> str:
    """Return DuckDB's type for a type of a Delta log: text, or an object for a nested type.

    Raises Untranslatable: there is none with the same values.
    """
    if isinstance(kind, dict) and kind["type"] == "array":
        return f"{_type(kind['elementType'])}[]"
    if isinstance(kind, dict) and kind["type"] == "struct":
        return f"STRUCT({', '.join(name(field['name']) + ' ' + _type(field['type']) for field in kind['fields'])})"
    if isinstance(kind, str) and (known := TYPES.get(kind) or (_LIMITED.fullmatch(kind) and kind)):
        return str(known)
    raise Untranslatable(f"a column has the type {kind}")


def _bound(value: str | int | bool | Decimal | date | datetime) -> Any:
    if isinstance(value, datetime):
        return value.astimezone(UTC).replace(tzinfo=None)
    return value
