"""A searcher of its own: it reads every file below some directories, with pyarrow alone, and looks for a marker."""

from __future__ import annotations

import base64
import gzip
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pyarrow.parquet as parquet  # type: ignore[import-untyped]

MARKER = "canary-quillfeather"


def forms_of(marker: str) -> list[bytes]:
    """Return the marker, and its digits in base64 and hexadecimal, wherever it stands in what is encoded."""
    plain = marker.encode()
    digits = [base64.b64encode(b"x" * before + plain)[4 if before else 0 : -4] for before in range(3)]
    return [plain, plain.hex().encode(), plain.hex().upper().encode(), *digits]


def with_marker(roots: Iterable[Path], marker: str = MARKER) -> list[str]:
    """Return the files in which a marker stands, in their names, bytes or cells."""
    forms = forms_of(marker)
    return [
        str(path)
        for root in roots
        for path in sorted(root.rglob("*"))
        if path.is_file() and any(form in content for content in _contents(path) for form in forms)
    ]


def _contents(path: Path) -> Iterator[bytes]:
    content = path.read_bytes()
    yield path.name.encode()
    yield content
    if content.startswith(b"\x1f\x8b"):
        yield gzip.decompress(content)
    if content.startswith(b"PAR1"):
        for column in parquet.read_table(path, partitioning=None, coerce_int96_timestamp_unit="us").columns:
            yield from _values(column.to_pylist() if _has_text(column.type) else [])


def _has_text(kind: Any) -> bool:
    return any(name in str(kind) for name in ("string", "binary"))


def _values(value: Any) -> Iterator[bytes]:
    if isinstance(value, bytes):
        yield value
    elif isinstance(value, str):
        yield value.encode("utf-8", "surrogatepass")
    elif isinstance(value, dict):
        for item in value.values():
            yield from _values(item)
    elif isinstance(value, list | tuple):
        for item in value:
            yield from _values(item)
