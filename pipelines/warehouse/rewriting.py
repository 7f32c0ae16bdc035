"""Data files of a table -> others, in a commit that no reader of changes takes for news; a table -> without its past.

The commit replaces files as compaction does (``dataChange`` is false). It is for rows that leave by their age, as what
was counted from them stays counted, and for rows whose content is erased. No writer of Delta offers such a commit.
"""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date, timedelta
from typing import TYPE_CHECKING, Any
from urllib.parse import quote
from uuid import uuid4

from expectations.literals import EPOCH
from pipelines import moments
from pipelines.catalog import CATALOG
from pipelines.errors import EnvironmentLacking, UsageError, WriterBusy
from pipelines.warehouse import delta_log, few_rows, progress
from pipelines.warehouse.change_feed import changed_files
from pipelines.warehouse.redaction import whole
from pipelines.warehouse.tables import Warehouse

if TYPE_CHECKING:
    from deltalake import DeltaTable as OpenedTable
    from pyarrow import Table as ArrowTable  # type: ignore[import-untyped]

MOST_INDEXED = 32  # columns with statistics, as Delta writes them
LONGEST_TEXT = 64  # characters of a text in statistics

Change = Callable[["ArrowTable"], "tuple[ArrowTable, int, int]"]
"""Rows of a file -> the rows that replace them, and how many rows and cells changed."""


def unread_by(warehouse: Warehouse, table: str) -> str | None:
    """Return a stage that has still to read changes of a table from its past; None if there is none."""
    last = warehouse.last_version(table)
    for stage in CATALOG:
        known = progress.load(warehouse, stage.table) if table in stage.inputs else None
        reading = known.inputs.get(table) if known else None
        if known is None or reading is None or reading.table_id != warehouse.state(table)[0]:
            continue
        if table in known.pending:
            return stage.table
        if reading.version is None or last is None:
            continue  # it will read all rows of the last version
        for version in range(reading.version + 1, last + 1):
            if any(changed_files(warehouse.commit(table, version)).values()):
                return stage.table
    return None


def refuse_unread(warehouse: Warehouse, tables: Sequence[str]) -> None:
    """Raise UsageError if a stage has still to read the past of a table, or only Spark can write it."""
    for table in tables:
        if reader := unread_by(warehouse, table):
            raise UsageError(
                f"{reader} has still to read changes of {table}, which an erasure would remove: run `afterlog run` "
                "first, until nothing is left to read."
            )
        if not few_rows.is_plain(warehouse.opened_table(table)):
            raise UsageError(f"{table} has features of Delta that only Spark can write: nothing is erased.")


def rows_of(warehouse: Warehouse, table: str, columns: Sequence[str] | None = None) -> Iterator[tuple[str, ArrowTable]]:
    """Yield the data files of a table with their rows, in the types of the table (``columns``: only these of them)."""
    opened = warehouse.opened_table(table)
    for path in opened.get_add_actions()["path"].to_pylist():
        yield str(path), rows_in(warehouse, table, opened, path, columns)


def rows_in(
    warehouse: Warehouse, table: str, opened: OpenedTable, path: str, columns: Sequence[str] | None = None
) -> ArrowTable:
    """Return the rows of a data file of an opened table, in their order and in the types of the table.

    Raises EnvironmentLacking: the file is missing.
    """
    content = warehouse.store.read(f"{warehouse.table_path(table)}/{path}")
    if content is None:
        raise EnvironmentLacking(f"A data file of {table} is missing: `afterlog doctor` says which.")
    return typed(content, few_rows.schema_of(opened.schema()), columns)


def typed(content: bytes, schema: Any, columns: Sequence[str] | None = None) -> ArrowTable:
    """Return the rows of a Parquet file in the types of a table; columns that the file lacks are left out."""
    import pyarrow as arrow
    import pyarrow.parquet as parquet  # type: ignore[import-untyped]

    file = parquet.ParquetFile(io.BytesIO(content), coerce_int96_timestamp_unit="us")
    there = [field for field in schema if field.name in {*file.schema_arrow.names}]
    wanted = [field for field in there if columns is None or field.name in columns]
    rows = file.read([field.name for field in wanted]).select([field.name for field in wanted])
    made = [whole(rows.column(index)).cast(field.type) for index, field in enumerate(wanted)]
    return arrow.Table.from_arrays(made, schema=arrow.schema(wanted))


@dataclass(frozen=True)
class Written:
    """A data file that no commit names yet."""

    path: str
    size: int
    statistics: str


def written(warehouse: Warehouse, table: str, rows: ArrowTable) -> Written:
    """Write rows to a new data file of a table."""
    content, name = _parquet(rows), f"part-00000-{uuid4()}-c000.zstd.parquet"
    warehouse.store.checked()
    warehouse.store.write(f"{warehouse.table_path(table)}/{name}", content)
    return Written(name, len(content), json.dumps(_statistics(rows)))


def rewrite(warehouse: Warehouse, table: str, change: Change, mark: str, before: Callable[[], None]) -> tuple[int, int]:
    """Replace the data files that a change changes in one commit; return how many rows and cells changed.

    If nothing changes, there is a commit of nothing, at which the log can be cut. ``before`` is called when all is
    ready to be committed. Raises as ``replace_files``.
    """
    sizes = dict(warehouse.data_files(table).sizes)  # type: ignore[union-attr]
    rows = cells = 0
    gone, new = dict[str, int](), list[Written]()
    for path, old in rows_of(warehouse, table):
        changed, changed_rows, changed_cells = change(old)
        if changed_cells:
            rows, cells = rows + changed_rows, cells + changed_cells
            new.append(written(warehouse, table, changed))
            gone[path] = sizes[path]
    before()
    replace_files(warehouse, table, warehouse.last_version(table) or 0, gone, new, "ERASE", mark)
    return rows, cells


def replace_files(
    warehouse: Warehouse,
    table: str,
    version: int,
    gone: Mapping[str, int],
    new: Sequence[Written],
    operation: str,
    mark: str = "",
) -> int:
    """Commit that files, with their sizes, leave a table and new ones come; return the version, after the given one.

    Raises WriterBusy: another writer has committed between.
    """
    at, store = moments.millis(), warehouse.store
    said, log = f"{mark} {store.checked()}".strip(), warehouse.log(table)
    turn = {"txn": {"appId": few_rows.TURN, "version": version + 1, "lastUpdated": at}}
    common = {"partitionValues": {}, "dataChange": False}
    removed = [
        {"remove": {**common, "path": quote(path), "deletionTimestamp": at, "extendedFileMetadata": True, "size": size}}
        for path, size in gone.items()
    ]
    added = [
        {"add": {**common, "path": file.path, "size": file.size, "modificationTime": at, "stats": file.statistics}}
        for file in new
    ]
    actions = [*([turn] if store.is_shared else []), *removed, *added]
    try:
        if not delta_log.write(store, log, version + 1, operation, actions, said):
            raise WriterBusy(few_rows.TURN_IS_LOST)
    finally:
        store.forget(log)
    return version + 1


def checkpoint(warehouse: Warehouse, table: str) -> OpenedTable:
    """Write a checkpoint of the last version of a table if it has none; return the table."""
    from deltalake import DeltaTable

    store, table_path = warehouse.store, warehouse.table_path(table)
    opened = DeltaTable(store.for_deltalake(table_path), storage_options=store.options())
    if not store.has(f"{warehouse.log(table)}/{opened.version():020}.checkpoint.parquet"):
        store.checked()
        opened.create_checkpoint()
    store.forget(warehouse.log(table))
    return opened


def cut(warehouse: Warehouse, table: str) -> int:
    """Remove all that is older than the last version of a table; return how many files went.

    The log is checkpointed first, so that a table without its past is whole at every moment.
    """
    store, table_path, log = warehouse.store, warehouse.table_path(table), warehouse.log(table)
    opened = checkpoint(warehouse, table)
    version = f"{log}/{opened.version():020}"
    kept = {f"{version}.checkpoint.parquet", f"{version}.json", f"{log}/_last_checkpoint"}
    kept |= {f"{table_path}/{path}" for path in opened.get_add_actions()["path"].to_pylist()}
    gone = 0
    for name in [*store.walk(table_path)]:
        if name not in kept:
            store.checked()
            store.remove(name)
            gone += 1
    store.forget(log)
    return gone


def follow(warehouse: Warehouse, table: str, version: int, after: int) -> None:
    """Let all progress that stands at a version of a table stand at a later one, if that is the last."""
    table_id, last = warehouse.state(table)
    if last != after:
        return
    for stage in CATALOG:
        known = progress.load(warehouse, stage.table)
        if known is None:
            continue
        moved = known
        reading = known.inputs.get(table)
        if reading is not None and (reading.table_id, reading.version) == (table_id, version):
            moved = replace(moved, inputs={**moved.inputs, table: replace(reading, version=last)})
        name = stage.table.partition(".")[2]
        if table == stage.table and (known.target_id, known.target_version) == (table_id, version):
            moved = replace(moved, target_version=last)
        if table == f"held.{name}" and (known.held_id, known.held_version) == (table_id, version):
            moved = replace(moved, held_version=last)
        if table == f"quarantine.{name}" and (known.quarantine_id, known.quarantine_version) == (table_id, version):
            moved = replace(moved, quarantine_version=last)
        if moved is not known:
            progress.save(warehouse, stage.table, moved)


def _parquet(rows: ArrowTable) -> bytes:
    import pyarrow.parquet as parquet

    content = io.BytesIO()
    parquet.write_table(
        rows,
        content,
        compression="zstd",
        row_group_size=few_rows.ROWS_OF_A_GROUP,
        store_schema=False,
        write_page_checksum=True,
    )
    return content.getvalue()


def _statistics(rows: ArrowTable) -> dict[str, Any]:
    """Return the statistics of a file as Delta has them; a value that they cannot hold exactly is left out."""
    import pyarrow as arrow
    import pyarrow.compute as compute  # type: ignore[import-untyped]

    least, greatest, nulls = {}, {}, {}
    for name in rows.column_names[:MOST_INDEXED]:
        cells = rows.column(name)
        kind = cells.type
        if arrow.types.is_nested(kind) or arrow.types.is_binary(kind):
            continue
        nulls[name] = cells.null_count
        is_time = arrow.types.is_timestamp(kind)
        is_ordered = arrow.types.is_string(kind) or arrow.types.is_integer(kind) or arrow.types.is_date(kind)
        if not (is_time or is_ordered):
            continue
        if is_time:
            cells = cells.cast(arrow.int64())
        ends = [_stated(value, is_time) for value in compute.min_max(cells).as_py().values()]
        if None not in ends:
            least[name], greatest[name] = ends
    return {"numRecords": rows.num_rows, "minValues": least, "maxValues": greatest, "nullCount": nulls}


def _stated(value: Any, is_time: bool) -> Any:
    """Return a value as statistics tell it; None for none, a long text, or a time that Python's datetime lacks."""
    if is_time and value is not None:
        try:
            at = EPOCH + timedelta(microseconds=value)
        except OverflowError:
            return None
        return f"{at:%Y-%m-%dT%H:%M:%S.%f}Z" if at.year >= 1000 else None
    if isinstance(value, date):
        return value.isoformat() if value.year >= 1000 else None
    return None if isinstance(value, str) and len(value) > LONGEST_TEXT else value
