"""Records as frameworks write them, from ``tests/data/writers/``, by the name of their file."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

DIRECTORY = Path(__file__).parents[1] / "data" / "writers"
RECORDS: dict[str, dict[str, Any]] = {path.stem: json.loads(path.read_text()) for path in DIRECTORY.glob("*.json")}
"""``topic``, ``headers`` (names with text, or with an encoding and a number), ``value``, and what is ``expected``."""


def headers_of(record: dict[str, Any]) -> list[tuple[str, bytes | None]]:
    """Return the headers of a record as bytes."""
    return [(name, _content(value)) for name, value in record["headers"]]


def _content(value: Any) -> bytes | None:
    if value is None or isinstance(value, str):
        return None if value is None else value.encode()
    ((encoding, number),) = value.items()
    size = {"int32": 4, "int64": 8, "integer": number.bit_length() // 8 + 1}[encoding]
    return int(number).to_bytes(size, "big", signed=True)
