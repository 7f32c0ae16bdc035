"""Tables of an earlier version -> the columns and the version of the schema that this one knows; no row is rewritten.

A run does this before its stages, so that `afterlog migrate` is for who wants to know before, or to wait once. What a
table lacks is null in its rows. A summarised table with other columns is what `afterlog rebuild` is for. Each table is
committed by itself, and the one by which a run knows that it is done comes last: after a kill the next one goes on.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from expectations.contract import Contract
from expectations.quality import STAGE_RUNS
from pipelines.catalog import CATALOG, SCHEMA
from pipelines.stage import Summarise
from pipelines.warehouse import opened_tables, rewriting, schema_mark
from pipelines.warehouse.schemas import schema_of
from pipelines.warehouse.tables import Warehouse

SUMMARISED = frozenset(stage.table for stage in CATALOG if isinstance(stage, Summarise))


@dataclass(frozen=True)
class Migration:
    """What a table needs: from which version of the schema it comes, which columns, whether it has to be rebuilt."""

    table: str
    schema: int
    columns: tuple[str, ...]
    needs_rebuild: bool


def lags(warehouse: Warehouse) -> bool:
    """Tell whether tables of a warehouse may have an earlier schema; an empty warehouse has none.

    Raises UsageError: a later version of Afterlog has changed the warehouse.
    """
    table = STAGE_RUNS.table
    return warehouse.opens_tables and warehouse.exists(table) and _schema(warehouse, table) < SCHEMA


def needed(warehouse: Warehouse, contracts: Iterable[Contract]) -> Iterator[tuple[Contract, Migration]]:
    """Yield what each table needs that is there and needs something, in the order to give it.

    Raises UsageError: a later version of Afterlog has changed one of them.
    """
    for contract in sorted(contracts, key=lambda contract_: contract_.table == STAGE_RUNS.table):
        if warehouse.exists(contract.table) and (found := _needed(warehouse, contract)):
            yield contract, found


def _needed(warehouse: Warehouse, contract: Contract) -> Migration | None:
    table = contract.table
    opened = warehouse.opened_table(table)
    there, schema = {field.name: field for field in opened.schema().fields}, _schema(warehouse, table)
    wanted = {field.name: field for field in schema_of(contract).fields}
    lacking = [column for column in contract.stored if column.name not in there]
    has_others = any(str(there[name].type) != str(field.type) for name, field in wanted.items() if name in there)
    if table in SUMMARISED:
        has_others |= any(not column.later for column in lacking)
        lacking = [] if has_others else lacking
    else:
        has_others = False  # a run takes fields of structs itself
    if schema == SCHEMA and not lacking and not has_others:
        return None
    return Migration(table, schema, tuple(column.name for column in lacking), has_others)


def apply(warehouse: Warehouse, contract: Contract, migration: Migration) -> None:
    """Give a table what it needs. The stages that read it take it for no news. The caller holds the writer's lock."""
    table = contract.table
    opened = warehouse.opened_table(table)
    version = opened.version()
    warehouse.store.checked()
    if migration.columns:
        opened.alter.add_columns([field for field in schema_of(contract).fields if field.name in migration.columns])
    if migration.schema < SCHEMA and not migration.needs_rebuild:
        opened.alter.set_table_properties(schema_mark.PRESENT, raise_if_not_exists=False)
    opened_tables.committed(warehouse.store, warehouse.table_path(table), opened)
    after = warehouse.opened_table(table).version()
    rewriting.follow(warehouse, table, version, after)


def _schema(warehouse: Warehouse, table: str) -> int:
    return schema_mark.of(warehouse.opened_table(table).metadata().configuration)
