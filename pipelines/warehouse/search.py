"""The files of a store -> those in which values to forget stand: each is read to its end, and unpacked."""

from __future__ import annotations

import gzip
import io
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from pipelines.erasure import Words
from pipelines.stores.base import Store
from pipelines.warehouse import databases

PARQUET, GZIP, ZSTD, SQLITE = b"PAR1", b"\x1f\x8b", b"\x28\xb5\x2f\xfd", b"SQLite format 3\0"
SNAPPY = b"\xff\x06\0\0sNaPpY"


@dataclass
class Searched:
    """How many files were read to their end, in which something was found, and which could not be read."""

    files: int = 0
    found: list[str] = field(default_factory=list)
    unread: list[str] = field(default_factory=list)


def search(store: Store, words: Words, directory: str = "") -> Searched:
    """Read all files below a directory of a store, and look for values in their names and contents."""
    done = Searched()
    for name in store.walk(directory):
        content = store.read(name)
        if content is None:  # it is gone meanwhile
            continue
        try:
            is_found = words.are_in(name.encode("utf-8", "surrogateescape")) or holds(content, words)
        except Exception:  # the libraries' errors have no common type, and can quote what they read
            done.unread.append(name)
            is_found = words.are_in(content)
        done.files += 1
        if is_found:
            done.found.append(name)
    return done


def holds(content: bytes, words: Words) -> bool:
    """Tell whether a file's content holds a value, packed or not."""
    if content.startswith(PARQUET):
        return any(needle in content for needle in words.plain_needles) or any(_of_parquet(content, words))
    if content.startswith(GZIP):
        return holds(gzip.decompress(content), words)
    if content.startswith((ZSTD, SNAPPY)):
        return holds(_unpacked(content), words)
    if content.startswith(SQLITE):
        return words.are_in(content) or any(_of_sqlite(content, words))
    return words.are_in(content)


def _unpacked(content: bytes) -> bytes:
    import pyarrow as arrow  # type: ignore[import-untyped]

    codec = "zstd" if content.startswith(ZSTD) else "snappy"
    unpacked: bytes = arrow.CompressedInputStream(io.BytesIO(content), codec).read()
    return unpacked


def _of_parquet(content: bytes, words: Words) -> Iterator[bool]:
    import pyarrow.parquet as parquet  # type: ignore[import-untyped]

    file = parquet.ParquetFile(io.BytesIO(content), coerce_int96_timestamp_unit="us")
    for key, value in (file.metadata.metadata or {}).items():
        yield words.are_in(key) or words.are_in(value)
    for group in range(file.num_row_groups):
        for index in range(file.metadata.num_columns):
            statistics = file.metadata.row_group(group).column(index).statistics
            if statistics is not None and statistics.has_min_max:
                yield any(_is_in(end, words) for end in (statistics.min, statistics.max))
        for column in file.read_row_group(group).columns:
            for chunk in column.chunks:
                yield from _of_cells(chunk, words)


def _of_cells(cells: Any, words: Words) -> Iterator[bool]:
    import pyarrow as arrow

    kind = cells.type
    if arrow.types.is_struct(kind):
        for child in cells.flatten():
            yield from _of_cells(child, words)
    elif arrow.types.is_list(kind) or arrow.types.is_map(kind):
        yield from _of_cells(cells.flatten() if arrow.types.is_list(kind) else cells.items, words)
        if arrow.types.is_map(kind):
            yield from _of_cells(cells.keys, words)
    elif arrow.types.is_string(kind) or arrow.types.is_binary(kind):
        content = cells.buffers()[2]
        if content is not None and words.may_be_in(content.to_pybytes()):
            yield any(_is_in(value, words) for value in cells.to_pylist())


def _of_sqlite(content: bytes, words: Words) -> Iterator[bool]:
    with databases.in_memory(content) as database:
        for _, _, value in databases.cells(database):
            yield _is_in(value, words)


def _is_in(value: Any, words: Words) -> bool:
    if isinstance(value, str):
        return words.are_in(value.encode("utf-8", "surrogatepass"))
    return isinstance(value, bytes) and words.are_in(value)


def without(content: bytes, words: Words) -> bytes | None:
    """Return a file of state, which is text, without the values; None if it is of another kind."""
    if content.startswith((PARQUET, GZIP, ZSTD, SNAPPY, SQLITE)):
        return None
    return words.replaced(content)
