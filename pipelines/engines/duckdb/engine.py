"""DuckDB as an engine: views and tables of a session, without Spark's planning and without a JVM.

Spark takes half a second or more to describe, plan and start the queries of a refresh, however few rows it reads, and
several times as long as DuckDB for many. What DuckDB refuses, and what is very large, is left to Spark.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from expectations.contract import contract_of
from expectations.literals import name
from pipelines.engines import choose
from pipelines.engines.base import with_times
from pipelines.engines.choose import UnsupportedByDuckDB
from pipelines.engines.duckdb import sessions
from pipelines.engines.duckdb.translate import parameters, translated
from pipelines.warehouse import change_feed, few_rows
from pipelines.warehouse.groups import Groups
from pipelines.warehouse.progress import Batch
from pipelines.warehouse.ranges import Range
from pipelines.warehouse.tables import Warehouse

if TYPE_CHECKING:
    from deltalake import DeltaTable
    from duckdb import DuckDBPyConnection
    from pyarrow import DataType, RecordBatchReader, Table  # type: ignore[import-untyped]

ROWS_OF_A_PART = 750_000  # of an input; of many more DuckDB would spill rows, which takes twice the time
MOST_KEPT = 4 << 20  # bytes of an input's files, whose rows are then kept in memory
MOST_REWRITTEN = 500  # rows; more are compared with those that the groups have, so that a commit has the new ones only
ROWS_OF_A_BATCH = 2_000  # that become Python's objects at a time
ONLY_DELTA = "only Delta can read or write one of its tables"
OF_ANOTHER_VERSION = "an earlier version of Afterlog made the table"
SMALL_FRACTIONS = "its groups are times with fractions of a millisecond"


@contextlib.contextmanager
def opened(warehouse: Warehouse, table: str) -> Iterator[DuckEngine]:
    """Yield an engine for a table.

    Raises UnsupportedByDuckDB: only Spark can write the table, or DuckDB opens no session.
    """
    there = warehouse.opened_table(table)
    if not few_rows.is_plain(there):
        raise UnsupportedByDuckDB(ONLY_DELTA)
    if not few_rows.has_columns_of(there, contract_of(table)):
        raise UnsupportedByDuckDB(OF_ANOTHER_VERSION)
    with contextlib.ExitStack() as stack:
        with sessions.refusals():
            connection = stack.enter_context(sessions.session(warehouse.root))
        yield DuckEngine(warehouse, there, connection)


class DuckEngine:
    """Rows that a session of DuckDB has under names, which are its temporary views and tables."""

    def __init__(self, warehouse: Warehouse, there: DeltaTable, connection: DuckDBPyConnection) -> None:
        """Take the table whose rows are made, as it is ``there``."""
        self._warehouse, self._there, self._connection = warehouse, there, connection
        self._with_null: set[str] = set()

    @property
    def rows_of_a_part(self) -> int:
        """How many rows of an input fit into the memory at a time."""
        return ROWS_OF_A_PART

    @property
    def most_rewritten(self) -> int:
        """How many rows are rather written again than compared."""
        return MOST_REWRITTEN

    def refusals(self) -> contextlib.AbstractContextManager[None]:
        """Raise UnsupportedByDuckDB for what DuckDB cannot do."""
        return sessions.refusals()

    def read(
        self,
        called: str,
        table: str,
        version: int | None = None,
        among: Sequence[Range] | None = None,
        where: str = "",
        is_shared: bool = False,
    ) -> None:
        """Register rows of the files that may hold rows in the ranges, as a table if these are for many uses and small.

        A large input is a view: its columns are many, and each use reads only those that it needs.
        """
        files = self._warehouse.files_of(table, self._warehouse.opened_table(table, version))
        if files is None:
            raise UnsupportedByDuckDB(ONLY_DELTA)
        paths = files.paths(among)
        size = files.size(paths)
        choose.check_size(self._warehouse.settings, size)
        stored = f"_stored{called}"
        self._create("VIEW", stored, sessions.rows(self._connection, files, paths))
        kind = "TABLE" if is_shared and size <= MOST_KEPT else "VIEW"
        self._create(kind, called, translated(f"SELECT * FROM {stored} WHERE {where}") if where else f"FROM {stored}")

    def changes(self, called: str, table: str, batch: Batch) -> None:
        """Register the rows of the files that a batch's commits name."""
        feed = change_feed.batch_files(self._warehouse, table, batch)
        if feed is None:
            raise UnsupportedByDuckDB(ONLY_DELTA)
        choose.check_size(self._warehouse.settings, feed.size())
        self._create("VIEW", called, sessions.changes(self._connection, feed))

    def groups(self, called: str, values: Iterable[Any]) -> None:
        """Register groups as a table, without null."""
        import pyarrow as arrow

        given = {_naive(value) for value in values}
        self._with_null = self._with_null | {called} if None in given else self._with_null - {called}
        self._connection.register("_given", arrow.table({"_group": [*(given - {None})]}))
        self._create("TABLE", called, "FROM _given")
        self._connection.unregister("_given")

    def is_one_of(self, group: str, groups: str) -> str:
        """Return a condition with the table of groups."""
        among = f"{group} IN (SELECT _group FROM {groups})"
        return f"({among} OR {group} IS NULL)" if groups in self._with_null else among

    def has_one_of(self, list_: str, groups: str) -> str:
        """Return the same for the items of an array; DuckDB takes no subquery for each of them."""
        among = f"list_has_any({list_}, (SELECT collect_list(_group) FROM {groups}))"
        return f"({among} OR exists({list_}, one -> one IS NULL))" if groups in self._with_null else among

    def view(self, called: str, text: str) -> None:
        """Register what a query gives."""
        self._create("VIEW", called, translated(text))

    def keep(
        self,
        called: str,
        text: str,
        values: Mapping[str, Any] | None = None,
        *,
        are_fresh: bool = False,
        are_more: bool = False,
    ) -> None:
        """Put what a query gives into a table."""
        query, bound = (
            translated(text),
            {parameter: value for parameter, value in (values or {}).items() if parameter in parameters(text)},
        )
        if are_fresh:
            kinds = sessions.types(self._there.schema().to_json())
            columns = ", ".join(f"CAST({name(column)} AS {kind}) AS {name(column)}" for column, kind in kinds)
            query = f"SELECT {columns} FROM ({query})"
        into = f"INSERT INTO {called}" if are_more else f"CREATE OR REPLACE TEMP TABLE {called} AS"
        self._connection.execute(f"{into} {query}", bound)

    def give(self, called: str, objects: Sequence[Mapping[str, Any]]) -> None:
        """Register rows as a table of Arrow."""
        self._connection.register(called, few_rows.of_values(self._there.schema(), objects))

    def columns(self, called: str) -> list[str]:
        """Return the columns of what is registered."""
        return list(self._connection.sql(f"FROM {called}").columns)

    def rows(self, text: str, complete: Iterable[str] = ()) -> list[tuple[Any, ...]]:
        """Return the rows of a query; changes are always complete, as commits name their files."""
        query = translated(text)
        answered = self._connection.sql(query)
        timed = [str(kind).startswith("TIMESTAMP") for kind in answered.types]
        if not any(timed):
            return answered.fetchall()
        micros = (
            f"epoch_us({name(column)})" if is_time else name(column)
            for column, is_time in zip(answered.columns, timed, strict=True)
        )
        found = self._connection.sql(f"SELECT {', '.join(micros)} FROM ({query})").fetchall()
        return with_times(found, timed)

    def objects(self, text: str) -> Iterator[dict[str, Any]]:
        """Yield the rows of a query; only some of them are Python's objects at a time."""
        import pyarrow as arrow

        found = self._connection.sql(translated(text)).to_arrow_table()
        kinds = [
            field.with_type(arrow.int64() if arrow.types.is_timestamp(field.type) else _whole(field.type))
            for field in found.schema
        ]
        for batch in found.cast(arrow.schema(kinds)).to_batches(ROWS_OF_A_BATCH):
            yield from batch.to_pylist()

    def counts(self, texts: Sequence[str]) -> dict[str, int]:
        """Return the counts of one query after the other."""
        found: dict[str, int] = {}
        for text in texts:
            answered = self._connection.sql(translated(text))
            (row,) = answered.fetchall()
            found |= {fact: count or 0 for fact, count in zip(answered.columns, row, strict=True)}
        return found

    def for_writer(self, called: str, column: str, groups: Groups | None, count: int) -> Table | RecordBatchReader:
        """Return few rows as a table of Arrow; many are read from DuckDB while they are written, in order.

        Raises UnsupportedByDuckDB: the writer cannot tell these groups from others.
        """
        import pyarrow as arrow

        if groups is not None and groups.deltalake_predicate() is None:
            raise UnsupportedByDuckDB(SMALL_FRACTIONS)
        schema = few_rows.schema_of(self._there.schema())
        ((number,),) = self.rows(f"SELECT count(*) FROM {called}")
        if number <= few_rows.MOST_ROWS:
            return self._connection.sql(f"FROM {called}").to_arrow_table().cast(schema)
        self._create("TABLE", f"_sorted{called}", f"FROM {called} ORDER BY {name(column)}")
        batches = self._connection.sql(f"FROM _sorted{called}").to_arrow_reader(few_rows.ROWS_OF_A_BATCH)
        return arrow.RecordBatchReader.from_batches(schema, (batch.cast(schema) for batch in batches))

    def _create(self, kind: str, called: str, query: str) -> None:
        self._connection.execute(f"CREATE OR REPLACE TEMP {kind} {called} AS {query}")


def _whole(kind: DataType) -> DataType:
    """Return a type of Arrow with whole numbers instead of decimals without a fraction, which are DuckDB's sums."""
    import pyarrow as arrow

    if arrow.types.is_struct(kind):
        return arrow.struct([kind.field(index).with_type(_whole(kind.field(index).type)) for index in range(len(kind))])
    if arrow.types.is_list(kind):
        return arrow.list_(kind.value_field.with_type(_whole(kind.value_type)))
    return arrow.int64() if arrow.types.is_decimal(kind) and not kind.scale else kind


def _naive(group: Any) -> Any:
    """Return a time as DuckDB has it: in UTC, without a zone."""
    return group.astimezone(UTC).replace(tzinfo=None) if isinstance(group, datetime) else group
