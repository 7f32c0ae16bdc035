"""A table -> the same table with other files, and without its past: what was in older files and in its log is gone.

The commit replaces files as compaction does (``dataChange`` is false): stages and readers of the change feed get no
news, because no row came or went. Then the log is checkpointed at this commit, and all that is older goes at once.
"""

from __future__ import annotations

import io
import json
import re
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any
from urllib.parse import quote
from uuid import uuid4

from pipelines.catalog import CATALOG
from pipelines.errors import EnvironmentLacking, UsageError, WriterBusy
from pipelines.stores.base import Store
from pipelines.stores.objects import Objects
from pipelines.warehouse import few_rows, progress
from pipelines.warehouse.change_feed import changed_files
from pipelines.warehouse.redaction import whole
from pipelines.warehouse.tables import Warehouse

if TYPE_CHECKING:
    from pyarrow import Table as ArrowTable  # type: ignore[import-untyped]

MOST_INDEXED = 32  # columns with statistics, as Delta writes them
LONGEST_TEXT = 64  # characters of a text in statistics
_VERSION = re.compile(r"\.?(\d{20})\..*")

Change = Callable[["ArrowTable"], "tuple[ArrowTable, int, int]"]
"""Rows of a file -> the rows that replace them, and how many rows and cells changed."""


def walk(store: Store, directory: str = "") -> Iterator[str]:
    """Yield the names of all files below a directory of a store, in order."""
    files = {file.name for file in store.files(directory)}
    for name in store.names(directory):
        path = f"{directory}/{name}" if directory else name
        if name in files:
            yield path
        else:
            yield from walk(store, path)


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
    schema = few_rows.schema_of(opened.schema())
    for path in opened.get_add_actions()["path"].to_pylist():
        content = warehouse.store.read(f"{warehouse.place(table)}/{path}")
        if content is None:
            raise EnvironmentLacking(f"A data file of {table} is missing: `afterlog doctor` says which.")
        yield str(path), typed(content, schema, columns)


def typed(content: bytes, schema: Any, columns: Sequence[str] | None = None) -> ArrowTable:
    """Return the rows of a Parquet file in the types of a table; columns that the file lacks are left out."""
    import pyarrow as arrow
    import pyarrow.parquet as parquet  # type: ignore[import-untyped]

    file = parquet.ParquetFile(io.BytesIO(content), coerce_int96_timestamp_unit="us")
    there = [field for field in schema if field.name in {*file.schema_arrow.names}]
    wanted = [field for field in there if columns is None or field.name in columns]
    rows = file.read([field.name for field in wanted]).select([field.name for field in wanted])
    made = [whole(rows.column(place)).cast(field.type) for place, field in enumerate(wanted)]
    return arrow.Table.from_arrays(made, schema=arrow.schema(wanted))


def rewrite(warehouse: Warehouse, table: str, change: Change, mark: str, before: Callable[[], None]) -> tuple[int, int]:
    """Replace the data files that a change changes in one commit; return how many rows and cells changed.

    If nothing changes, there is a commit of nothing, at which the log can be cut. ``before`` is called when all is
    ready to be committed.
    """
    place, actions = warehouse.place(table), []
    sizes = dict(warehouse.data_files(table).sizes)  # type: ignore[union-attr]
    rows = cells = 0
    now = int(time.time() * 1000)
    for path, old in rows_of(warehouse, table):
        new, changed_rows, changed_cells = change(old)
        if not changed_cells:
            continue
        rows, cells = rows + changed_rows, cells + changed_cells
        content, name = _parquet(new), f"part-00000-{uuid4()}-c000.zstd.parquet"
        warehouse.store.checked()
        warehouse.store.write(f"{place}/{name}", content)
        facts = {"partitionValues": {}, "dataChange": False}
        gone = {"path": quote(path), "deletionTimestamp": now, "extendedFileMetadata": True, "size": sizes[path]}
        actions.append({"remove": gone | facts})
        come = {"path": name, "size": len(content), "modificationTime": now, "stats": json.dumps(_statistics(new))}
        actions.append({"add": come | facts})
    before()
    _commit(warehouse, table, actions, mark)
    return rows, cells


def _commit(warehouse: Warehouse, table: str, actions: Sequence[dict[str, Any]], mark: str) -> None:
    """Commit actions as the next version.

    Raises WriterBusy: another writer has committed this version.
    """
    store, version = warehouse.store, (warehouse.last_version(table) or 0) + 1
    said = f"{mark} {store.checked()}".strip()
    info = {"timestamp": int(time.time() * 1000), "operation": "ERASE", "operationParameters": {}, "userMetadata": said}
    taken = [{"txn": {"appId": few_rows.TURN, "version": version}}] if store.is_shared else []
    text = "".join(f"{json.dumps(action)}\n" for action in ({"commitInfo": info}, *taken, *actions))
    name = f"{warehouse.log(table)}/{version:020}.json"
    if isinstance(store, Objects):
        if store.replace(name, text.encode(), over=None) is None and said not in (store.text(name) or ""):
            raise WriterBusy(few_rows.TURN_IS_LOST)
    else:
        store.write(name, text.encode())
    store.forget(warehouse.log(table))


def cut(warehouse: Warehouse, table: str) -> int:
    """Remove all that is older than the last version of a table; return how many files went.

    The log is checkpointed first, so that a table without its past is whole at every moment.
    """
    from deltalake import DeltaTable

    store, place, log = warehouse.store, warehouse.place(table), warehouse.log(table)
    opened = DeltaTable(store.for_deltalake(place), storage_options=store.options())
    version = opened.version()
    checkpoint = f"{version:020}.checkpoint.parquet"
    if not store.has(f"{log}/{checkpoint}"):
        opened.create_checkpoint()
    store.forget(log)
    kept = {f"{log}/{checkpoint}", f"{log}/{version:020}.json", f"{log}/_last_checkpoint"}
    kept |= {f"{place}/{path}" for path in opened.get_add_actions()["path"].to_pylist()}
    gone = 0
    for name in [*walk(store, place)]:
        if name not in kept:
            store.checked()
            store.remove(name)
            gone += 1
    store.forget(log)
    return gone


def follow(warehouse: Warehouse, table: str, version: int) -> None:
    """Let all progress that stands at a version of a table stand at the next one, which changed no rows."""
    table_id, last = warehouse.state(table)
    if last != version + 1:
        return
    for stage in CATALOG:
        known = progress.load(warehouse, stage.table)
        if known is None:
            continue
        after = known
        reading = known.inputs.get(table)
        if reading is not None and (reading.table_id, reading.version) == (table_id, version):
            after = replace(after, inputs={**after.inputs, table: replace(reading, version=last)})
        name = stage.table.partition(".")[2]
        if table == stage.table and (known.target_id, known.target_version) == (table_id, version):
            after = replace(after, target_version=last)
        if table == f"held.{name}" and (known.held_id, known.held_version) == (table_id, version):
            after = replace(after, held_version=last)
        if table == f"quarantine.{name}" and (known.quarantine_id, known.quarantine_version) == (table_id, version):
            after = replace(after, quarantine_version=last)
        if after is not known:
            progress.save(warehouse, stage.table, after)


def _parquet(rows: ArrowTable) -> bytes:
    import pyarrow.parquet as parquet

    content = io.BytesIO()
    parquet.write_table(rows, content, compression="zstd", row_group_size=few_rows.ROWS_OF_A_GROUP, store_schema=False)
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
        if not (is_time or arrow.types.is_string(kind) or arrow.types.is_integer(kind)):
            continue
        if is_time:
            cells = cells.cast(arrow.int64())
        ends = [_stated(value, is_time) for value in compute.min_max(cells).as_py().values()]
        if None not in ends:
            least[name], greatest[name] = ends
    return {"numRecords": rows.num_rows, "minValues": least, "maxValues": greatest, "nullCount": nulls}


def _stated(value: Any, is_time: bool) -> Any:
    from datetime import UTC, datetime, timedelta

    if is_time and value is not None:
        try:
            at = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=value)
        except OverflowError:
            return None
        return f"{at:%Y-%m-%dT%H:%M:%S.%f}Z" if at.year >= 1000 else None
    return None if isinstance(value, str) and len(value) > LONGEST_TEXT else value
