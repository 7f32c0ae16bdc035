"""A few rows of Spark, or any rows of DuckDB -> a table, without Delta's planning.

Delta in Spark plans each write with queries of its own on the table's log and on the files that it replaces. For a few
rows these queries take longer than the rows. The writer without a JVM commits the same: the rows, their statistics and
the change feed.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any

from expectations.contract import Contract
from pipelines.errors import EnvironmentLacking, WriterBusy
from pipelines.warehouse.data_files import PLAIN_READER

if TYPE_CHECKING:
    from deltalake import DeltaTable, Schema, WriterProperties
    from pyarrow import RecordBatchReader, Table  # type: ignore[import-untyped]
    from pyarrow import Schema as ArrowSchema
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType


MOST_ROWS = 20_000
MOST_PLAIN_BYTES = 8 << 20  # of files that are not compressed
ROWS_OF_A_BATCH = 10_000  # of many rows
ROWS_OF_A_GROUP = 100_000  # in a file
BYTES_OF_A_FILE = 8 << 20  # of many rows; Delta merges smaller files than 4 MiB
PLAIN_WRITER = 4  # the writer's version of a table as Afterlog creates it
TURN_IS_LOST = "Another writer has committed to the same table: run again when it is done."
TURN = "afterlog"  # the id of the transaction that commits of several writers take turns in
CONSTRAINT = "delta.constraints."
PREVIEW = "Preview of invalid data"
TOO_LARGE = "spark.driver.maxResultSize"


def is_plain(opened: DeltaTable) -> bool:
    """Tell whether a table is as Afterlog creates it, without features that ``deltalake`` may not know."""
    protocol, metadata = opened.protocol(), opened.metadata()
    return (
        protocol.min_reader_version == PLAIN_READER
        and protocol.min_writer_version <= PLAIN_WRITER
        and not metadata.partition_columns
        and not any(name.startswith(CONSTRAINT) for name in metadata.configuration)
    )


def have_its_columns(rows: DataFrame, opened: DeltaTable) -> bool:
    """Tell whether rows have the columns of a table, in its order and with its types."""
    return _stored(opened) == _columns(rows.schema)


def has_columns_of(opened: DeltaTable, contract: Contract) -> bool:
    """Tell whether a table has the columns of a contract, in its order and with its types."""
    return _stored(opened) == [(column.name, column.type.replace(" ", "")) for column in contract.stored]


def _stored(opened: DeltaTable) -> list[tuple[str, str]]:
    from pyspark.sql.types import StructType

    return _columns(StructType.fromJson(json.loads(opened.schema().to_json())))


def _columns(schema: StructType) -> list[tuple[str, str]]:
    return [(field.name, field.dataType.simpleString()) for field in schema]


def of_objects(opened: DeltaTable, contract: Contract, objects: Sequence[Mapping[str, Any]]) -> Table | None:
    """Return JSON-ready objects, timestamps as ISO-8601 text, as rows of a table; None if it has other columns."""
    if [field.name for field in opened.schema().fields] != [column.name for column in contract.stored]:
        return None
    times = [column.name for column in contract.stored if column.type == "timestamp"]
    given = [
        {**row, **{name: datetime.fromisoformat(row[name]) for name in times if row.get(name) is not None}}
        for row in objects
    ]
    return of_values(opened.schema(), given)


def of_values(schema: Schema, rows: Sequence[Mapping[str, Any]]) -> Table:
    """Return rows of Python's values as an Arrow table with a table's columns; a value that a row lacks is null."""
    import pyarrow as arrow

    return arrow.Table.from_pylist(list(rows), schema_of(schema))


def schema_of(schema: Schema) -> ArrowSchema:
    """Return a table's schema as one of Arrow."""
    import pyarrow as arrow

    return arrow.schema(schema.to_arrow())


def collected(rows: DataFrame, most: int | None = None) -> Table | None:
    """Return rows as an Arrow table; None if they have more than ``most`` bytes, or more than Spark hands over."""
    from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
    from pyspark.errors import PySparkException

    try:
        few = rows.toArrow()
    except (PySparkException, Py4JJavaError) as error:
        if TOO_LARGE in str(error):
            return None
        raise
    if most is not None and few.nbytes > most:
        return None
    # Spark's empty arrays of text lack a buffer, which the format allows and ``deltalake`` does not expect.
    return few.take(list(range(few.num_rows))) if few.num_rows else few.schema.empty_table()


def in_order(rows: Table, column: str | None) -> Table:
    """Return rows in the order of a column, nulls first, as Spark sorts (None: as they are)."""
    import pyarrow.compute as compute  # type: ignore[import-untyped]

    if column is None:
        return rows
    return rows.take(compute.sort_indices(rows, [(column, "ascending", "at_start")]))


@dataclass(frozen=True)
class Turn:
    """What a commit says in its user metadata, and whether it fails if another writer commits between.

    Then it carries the version that it makes as one of a transaction of ``TURN``: two such commits never succeed both.
    """

    said: str
    is_shared: bool = False


def append(opened: DeltaTable, rows: Table | RecordBatchReader, turn: Turn) -> None:
    """Add rows in one commit. Without rows there is no commit.

    Raises WriterBusy: another writer has committed between.
    """
    import pyarrow as arrow

    if not isinstance(rows, arrow.Table) or rows.num_rows:
        _commit(opened, rows, turn, mode="append")


def replace(opened: DeltaTable, rows: Table | RecordBatchReader, predicate: str | None, turn: Turn) -> None:
    """Replace the rows that meet a predicate (None: all) by others in one commit.

    Raises RuntimeError: a row does not meet the predicate, or the commit fails. WriterBusy: another writer has
    committed between.
    """
    from deltalake.exceptions import DeltaError

    try:
        _commit(opened, rows, turn, mode="overwrite", predicate=predicate)
    except DeltaError as error:
        raise RuntimeError(str(error).partition(PREVIEW)[0].strip()) from None  # the preview shows values


def _commit(opened: DeltaTable, rows: Table | RecordBatchReader, turn: Turn, **how: Any) -> None:
    """Write rows in one commit.

    If the answer to it is lost, it is sent again and refused; so a refused commit that is there did succeed.

    Raises WriterBusy: another writer has committed between. EnvironmentLacking: the store refused it.
    """
    from deltalake import CommitProperties, Transaction, write_deltalake
    from deltalake.exceptions import CommitFailedError

    before = opened.version()
    said = f"{turn.said} {secrets.token_hex(8)}".strip() if turn.is_shared else turn.said
    transactions = [Transaction(TURN, before + 1)] if turn.is_shared else None
    try:
        write_deltalake(
            opened,
            rows,
            target_file_size=BYTES_OF_A_FILE,
            writer_properties=_compressed(),
            commit_properties=CommitProperties(custom_metadata={"userMetadata": said}, app_transactions=transactions),
            **how,
        )
    except CommitFailedError:
        if not turn.is_shared:
            raise
        try:
            opened.update_incremental()
            later = opened.history(opened.version() - before) if opened.version() > before else []
        except Exception:  # the library's errors have no common type of their own, and can quote keys
            later = []
        if any(commit.get("userMetadata") == said for commit in later):
            return
        if later:
            raise WriterBusy(TURN_IS_LOST) from None
        raise EnvironmentLacking(
            f"A commit to {opened.table_uri} was refused, and no other writer's is there: check that the store can be "
            "written, and run again."
        ) from None


def _compressed() -> WriterProperties:
    """Return how files are written: of few rows, or of groups of rows, which readers skip by their statistics."""
    from deltalake import WriterProperties

    return WriterProperties(compression="ZSTD", max_row_group_size=ROWS_OF_A_GROUP)
