"""quarantine.dlq_records -> how many lines that cannot be read name a topic: their coordinates are in no table."""

from __future__ import annotations

import base64
import json
from collections import Counter
from collections.abc import Collection
from typing import Any

from expectations.rules import counted
from expectations.text import visible
from pipelines.warehouse import jvmless
from pipelines.warehouse.tables import Warehouse

QUARANTINE = "quarantine.dlq_records"
MOST_LINES = 10_000

_LINES = f"SELECT raw FROM rows WHERE dlq_topic IS NULL AND raw IS NOT NULL LIMIT {MOST_LINES}"


def hint(warehouse: Warehouse, topic: str) -> str:
    """Return a sentence that lines name a topic, as their own or in a header; empty if there are none."""
    if not (said := reasons(warehouse, [topic]).get(topic)):
        return ""
    return f" {said[0].upper()}{said[1:]} and cannot be read: `afterlog ask quarantine_reasons` tells why."


def reasons(warehouse: Warehouse, topics: Collection[str]) -> dict[str, str]:
    """Return the same as clauses, by topic; none for topics that no line names."""
    if not topics or not warehouse.exists(QUARANTINE):
        return {}
    rows = jvmless.query(warehouse, QUARANTINE, _LINES, {"cluster": warehouse.cluster})
    least = "at least " if len(rows) == MOST_LINES else ""
    counts = Counter(topic for row in rows for topic in _names(row["raw"]).intersection(topics))
    return {
        topic: f"{least}{counted(count, 'line')} in quarantine {'names' if count == 1 else 'name'} topic "
        f"'{visible(topic)}'"
        for topic, count in counts.items()
    }


def _names(raw: bytes) -> set[str]:
    """Return what a line names, if it is a JSON object: its topic, and the values of its headers."""
    try:
        line = json.loads(raw)
    except (ValueError, RecursionError):
        return set()
    if not isinstance(line, dict):
        return set()
    headers = line.get("headers")
    values = (
        [header.get("value") for header in headers if isinstance(header, dict)] if isinstance(headers, list) else []
    )
    named = (line.get("topic"), *values, *map(_text, values))
    return {name for name in named if isinstance(name, str)}


def _text(value: Any) -> str | None:
    """Return the text of a value in base64; None if it has none."""
    try:
        return base64.b64decode(value, validate=True).decode()
    except (TypeError, ValueError):
        return None
