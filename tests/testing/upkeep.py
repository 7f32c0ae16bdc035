"""Commits and maintenance of weeks, without waiting."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from pipelines.commands.maintain import maintain
from pipelines.settings import Settings
from pipelines.warehouse import rewriting
from pipelines.warehouse.tables import Warehouse

TEN_DAYS = 10 * 86_400


def commits(settings: Settings, table: str) -> list[int]:
    """The versions whose commits are in the log of a table."""
    warehouse = Warehouse(settings)
    names = warehouse.store.names(warehouse.log(table))
    return sorted(int(name[:20]) for name in names if name.endswith(".json"))


def maintained(settings: Settings, tables: Sequence[str], times: int) -> None:
    """Maintain a warehouse every ten days; between, tables have commits enough for a checkpoint."""
    for _ in range(times):
        for table in tables:
            warehouse = Warehouse(settings)
            for _ in range(12):
                rewriting.replace_files(warehouse, table, warehouse.last_version(table) or 0, {}, [], "TEST")
        list(maintain(settings, 7, False, lambda sentence: None))
        for path in Path(settings.warehouse).rglob("*"):
            at = path.stat().st_mtime - TEN_DAYS
            os.utime(path, (at, at))
    list(maintain(settings, 7, False, lambda sentence: None))
