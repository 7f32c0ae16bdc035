"""Data files whose bytes changed while their size did not -> their paths: every column of every row is read.

Pages of Spark, and those of files that were written again, have checksums, which are verified. Of other pages, which
``deltalake`` wrote, a damage is found if they cannot be decompressed or decoded.
"""

from __future__ import annotations

from pipelines.warehouse.at_once import at_once
from pipelines.warehouse.tables import Warehouse

READ_AT_ONCE = 4  # files that are in memory


def unreadable_files(warehouse: Warehouse, table: str) -> list[str]:
    """Return the data files of a table that are there, and cannot be read or have other rows than the log counts.

    Raises the same errors as ``opened_table``.
    """
    added = warehouse.opened_table(table).get_add_actions()
    counts = dict(zip(map(str, added["path"].to_pylist()), added["num_records"].to_pylist(), strict=True))
    found: list[str] = []

    def look(path: str) -> None:
        content = warehouse.store.read(f"{warehouse.table_path(table)}/{path}")
        if content is not None and not _is_whole(content, counts[path]):
            found.append(path)

    at_once(READ_AT_ONCE, look, counts)
    return sorted(found)


def _is_whole(content: bytes, rows: int | None) -> bool:
    """Tell whether all of a Parquet file can be read, and has so many rows (None: nobody knows)."""
    import pyarrow as arrow  # type: ignore[import-untyped]
    import pyarrow.parquet as parquet  # type: ignore[import-untyped]

    try:
        file = parquet.ParquetFile(arrow.BufferReader(content), page_checksum_verification=True)
        read = sum(batch.num_rows for batch in file.iter_batches())
    except arrow.ArrowNotImplementedError:  # it has a type that this reader does not know
        return True
    except (OSError, ValueError, arrow.ArrowException):  # damaged sizes can also ask for too much memory
        return False
    return rows is None or read == rows
