"""Data files of a table -> fewer or others, in a commit that no reader of changes takes for news.

Delta says that a file with ``dataChange`` false holds rows that the table has already or that left it without being
news. No writer offers such a commit for rows that go, so this module writes it. It is for rows that leave by age:
what was counted from them stays counted.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import date, timedelta
from io import BytesIO
from typing import TYPE_CHECKING, Any
from urllib.parse import quote
from uuid import uuid4

from expectations.literals import EPOCH
from pipelines.errors import WriterBusy
from pipelines.warehouse import few_rows
from pipelines.warehouse.tables import Warehouse

if TYPE_CHECKING:
    from pyarrow import Table  # type: ignore[import-untyped]

LONGEST = 32  # characters of a text that statistics tell, as in Delta


@dataclass(frozen=True)
class Written:
    """A data file that no commit names yet."""

    path: str
    size: int
    statistics: str


def rewritten(warehouse: Warehouse, table: str, path: str, change: Callable[[Table], Table]) -> Written:
    """Write the rows of a data file, changed, to a new file in the same order."""
    import pyarrow as arrow
    import pyarrow.parquet as parquet  # type: ignore[import-untyped]

    store, place = warehouse.store, warehouse.place(table)
    content = store.read(f"{place}/{path}")
    if content is None:
        raise FileNotFoundError(f"{place}/{path}")
    schema = few_rows.schema_of(warehouse.opened_table(table).schema())
    stored = parquet.read_table(BytesIO(content), coerce_int96_timestamp_unit="us")
    names = [name for name in stored.column_names if name in schema.names]  # Delta's _change_type is none of them
    kept = change(stored.select(names).cast(arrow.schema([schema.field(name) for name in names])))
    out = BytesIO()
    parquet.write_table(kept, out, compression="zstd", row_group_size=few_rows.ROWS_OF_A_GROUP)
    name, content = f"part-{uuid4()}-kept.parquet", out.getvalue()
    store.checked()
    store.write(f"{place}/{name}", content)
    return Written(name, len(content), json.dumps(_statistics(kept)))


def replace_files(warehouse: Warehouse, table: str, version: int, gone: Mapping[str, int], new: list[Written]) -> int:
    """Commit that files, with their sizes, leave a table and new ones come; return the version, after the given one.

    Raises WriterBusy: another writer has committed between.
    """
    at, store = int(time.time() * 1000), warehouse.store
    said = store.checked()
    info: dict[str, Any] = {"timestamp": at, "operation": "RETENTION", "operationParameters": {}}
    actions: list[dict[str, Any]] = [{"commitInfo": {**info, **({"userMetadata": said} if said else {})}}]
    if store.is_shared:
        actions.append({"txn": {"appId": few_rows.TURN, "version": version + 1, "lastUpdated": at}})
    common = {"partitionValues": {}, "dataChange": False}
    actions += [
        {"remove": {**common, "path": quote(path), "deletionTimestamp": at, "extendedFileMetadata": True, "size": size}}
        for path, size in gone.items()
    ]
    actions += [
        {"add": {**common, "path": one.path, "size": one.size, "modificationTime": at, "stats": one.statistics}}
        for one in new
    ]
    commit = "".join(f"{json.dumps(action)}\n" for action in actions)
    log = warehouse.log(table)
    try:
        if not store.create(f"{log}/{version + 1:020}.json", commit.encode()):
            raise WriterBusy(few_rows.TURN_IS_LOST)
    finally:
        store.forget(log)
    return version + 1


def _statistics(rows: Table) -> dict[str, Any]:
    """Return what readers skip files by: the number of rows, and of plain columns nulls, the least and the greatest."""
    import pyarrow as arrow
    import pyarrow.compute as compute  # type: ignore[import-untyped]

    least: dict[str, Any] = {}
    most: dict[str, Any] = {}
    nulls: dict[str, int] = {}
    for field in rows.schema:
        kind, column = field.type, rows[field.name]
        if arrow.types.is_nested(kind):
            continue
        nulls[field.name] = column.null_count
        is_ordered = any(
            is_one(kind)
            for is_one in (
                arrow.types.is_integer,
                arrow.types.is_timestamp,
                arrow.types.is_date,
                arrow.types.is_string,
                arrow.types.is_large_string,
            )
        )
        if is_ordered and column.null_count < len(column):
            ends = compute.min_max(column.cast(arrow.int64()) if arrow.types.is_timestamp(kind) else column).as_py()
            told = [_told(ends[end], arrow.types.is_timestamp(kind)) for end in ("min", "max")]
            if None not in told:
                least[field.name], most[field.name] = told
    return {"numRecords": rows.num_rows, "minValues": least, "maxValues": most, "nullCount": nulls}


def _told(value: Any, is_time: bool) -> Any:
    """Return a value as statistics tell it; None for a long text, or a time that Python's datetime lacks."""
    if is_time:
        try:
            return f"{(EPOCH + timedelta(microseconds=value)):%Y-%m-%dT%H:%M:%S.%f}Z"
        except OverflowError:
            return None
    if isinstance(value, str):
        return value if len(value) <= LONGEST else None
    return value.isoformat() if isinstance(value, date) else value
