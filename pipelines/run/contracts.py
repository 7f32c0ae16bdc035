"""The catalog -> the contracts of all tables that the first run creates."""

from __future__ import annotations

from expectations.contract import Contract, contract_of
from expectations.quality import QUALITY
from pipelines.catalog import CATALOG
from pipelines.steps import held
from pipelines.warehouse.tables import quarantine_contract


def contracts() -> tuple[Contract, ...]:
    """Return the contracts of all tables that the first run creates: catalog, quarantine, held and quality."""
    tables = [contract_of(stage.table) for stage in CATALOG]
    quarantines = [quarantine_contract(contract_of(stage.table)) for stage in CATALOG if stage.quarantine]
    return (*tables, *quarantines, *filter(None, map(held.contract_of_held, CATALOG)), *QUALITY)
