"""Up to when rows of tables left by age: a small file, written before the rows go.

A refresh asks it, so that groups whose input rows went keep what was counted.
"""

from __future__ import annotations

import json
from datetime import datetime

from pipelines.errors import EnvironmentLacking
from pipelines.stores.base import STATE
from pipelines.warehouse.tables import Warehouse

NAME = f"{STATE}/removed.json"


def before(warehouse: Warehouse) -> dict[str, datetime]:
    """Return the times before which rows of tables went, or may have, by table.

    Raises EnvironmentLacking: the file is damaged. Without it a refresh would count again what went in part.
    """
    try:
        noted = json.loads(warehouse.store.text(NAME) or "{}")
        return {table: datetime.fromisoformat(at) for table, at in noted.items()}
    except (ValueError, TypeError, AttributeError):
        raise EnvironmentLacking(
            f"{warehouse.shown}/{NAME}, which says up to when rows went by their age, cannot be read: restore it from "
            "a backup."
        ) from None


def note(warehouse: Warehouse, table: str, at: datetime) -> None:
    """Note that a table's rows before a time go; an earlier time changes nothing."""
    noted = before(warehouse)
    if table in noted and noted[table] >= at:
        return
    times = {**noted, table: at}
    warehouse.store.write(NAME, json.dumps({file: times[file].isoformat() for file in sorted(times)}).encode())
