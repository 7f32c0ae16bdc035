"""Tables of earlier versions lack columns that came later, of whatever type: readers without a JVM find null there."""

from __future__ import annotations

import pyarrow as pa  # type: ignore[import-untyped]
import pytest
from deltalake import Schema, write_deltalake

from expectations.contract import later_columns
from pipelines.commands import ask
from pipelines.run import contracts
from pipelines.settings import Settings
from pipelines.warehouse import few_rows, jvmless
from pipelines.warehouse.schemas import schema_of
from pipelines.warehouse.tables import Warehouse

CONTRACTS = {contract.table: contract for contract in contracts.contracts() if later_columns(contract.table)}


@pytest.mark.parametrize("table", sorted(CONTRACTS))
def test_a_table_without_them_is_read(settings: Settings, table: str) -> None:
    warehouse, contract = Warehouse(settings), CONTRACTS[table]
    later = {column.name for column in contract.stored if column.later}
    assert later or table.startswith(("held.", "quarantine."))
    fields = [field for field in schema_of(contract).fields if field.name not in later]
    row = {field.name: [settings.cluster if field.name == "cluster" else None] for field in fields}
    rows = pa.table(row, few_rows.schema_of(Schema(fields)))
    write_deltalake(warehouse.store.for_deltalake(warehouse.table_path(table)), rows)
    (found,) = jvmless.rows(warehouse, table, {"cluster": settings.cluster})
    assert found == dict.fromkeys(column.name for column in contract.stored) | {"cluster": settings.cluster}
    conditions = " AND ".join(f"{column.name} IS NULL" for column in contract.stored if column.name in later)
    text = f"SELECT count(*) AS n FROM {table} WHERE {conditions or 'true'}"
    assert [*ask.rows_without_jvm(warehouse, text, {}).objects()] == ['{"n":1}']
