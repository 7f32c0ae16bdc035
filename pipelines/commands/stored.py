"""The catalog -> the names of all tables that can be asked, and those of them that a warehouse has."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from expectations.contract import Contract
from expectations.quality import QUALITY
from expectations.replays import TABLES as REPLAYS
from pipelines.catalog import CATALOG
from pipelines.steps.held import contract_of_held
from pipelines.warehouse.alert_log import ALERTS, alerts
from pipelines.warehouse.tables import Warehouse

LAYERS = ("bronze", "silver", "gold", "quarantine", "held", "quality")
FRESHNESS = "quality.freshness"
PRESENT = (FRESHNESS, ALERTS.table)
"""Tables that no file holds: their rows are made when somebody asks."""
TABLES = (
    *(table for stage in CATALOG for table in (stage.table, stage.quarantine) if table),
    *(contract.table for contract in map(contract_of_held, CATALOG) if contract),
    *(contract.table for contract in QUALITY),
    *PRESENT,
)
STORED = tuple(dict.fromkeys(table for table in (*TABLES, *REPLAYS) if table not in PRESENT))
"""Tables that have files."""


def stored(warehouse: Warehouse, what: str) -> list[str]:
    """Return the tables with files that a warehouse has, for ``what`` a command does without a session.

    Raises UsageError: there is none yet, or only Spark opens the warehouse.
    """
    warehouse.refuse_spark_only(what)
    tables = [table for table in STORED if warehouse.exists(table)]
    if not tables:
        raise warehouse.absent(STORED[0])
    return tables


def present(warehouse: Warehouse, tables: Collection[str]) -> dict[str, tuple[Contract, list[list[Any]]]]:
    """Return those of the tables that no file holds, with their contracts and rows; times are text."""
    by_name: dict[str, tuple[Contract, list[list[Any]]]] = {}
    if FRESHNESS in tables:
        from pipelines.run import freshness

        names = [column.name for column in freshness.FRESHNESS.columns]
        entries = [[getattr(entry, name) for name in names] for entry in freshness.freshness(warehouse)]
        by_name[FRESHNESS] = freshness.FRESHNESS, entries
    if ALERTS.table in tables:
        rows = [row for own in warehouse.of_clusters() for row in alerts(own)]
        by_name[ALERTS.table] = ALERTS, [[row[column.name] for column in ALERTS.columns] for row in rows]
    return by_name
