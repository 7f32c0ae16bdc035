"""quarantine.dlq_records -> how many lines that cannot be read name a topic: their places are in no table."""

from __future__ import annotations

import base64
import json
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
    if not (said := told(warehouse, topic)):
        return ""
    return f" {said[0].upper()}{said[1:]} and cannot be read: `afterlog ask quarantine_reasons` tells why."


def told(warehouse: Warehouse, topic: str) -> str:
    """Return the same as a clause."""
    if not warehouse.exists(QUARANTINE):
        return ""
    rows = jvmless.query(warehouse, QUARANTINE, _LINES, {"cluster": warehouse.cluster})
    found = sum(_names(row["raw"], topic) for row in rows)
    many = f"{'at least ' if len(rows) == MOST_LINES else ''}{counted(found, 'line')}"
    return f"{many} in quarantine {'names' if found == 1 else 'name'} topic '{visible(topic)}'" if found else ""


def _names(raw: bytes, topic: str) -> bool:
    """Tell whether a line is a JSON object that names a topic."""
    try:
        line = json.loads(raw)
    except (ValueError, RecursionError):
        return False
    if not isinstance(line, dict):
        return False
    headers = line.get("headers")
    values = [one.get("value") for one in headers if isinstance(one, dict)] if isinstance(headers, list) else []
    return line.get("topic") == topic or any(topic in (one, _text(one)) for one in values)


def _text(value: Any) -> str | None:
    """Return the text of a value in base64; None if it has none."""
    try:
        return base64.b64decode(value, validate=True).decode()
    except (TypeError, ValueError):
        return None
