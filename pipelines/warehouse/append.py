"""Rows -> a Delta table, appended or replaced without a JVM, for tables that only commands write.

No stage writes these tables, so the writer's lock of the warehouse is not needed: their writers hold a lock of their
own. Delta's commits are atomic: a reader sees all rows of a commit or none.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Literal

from expectations.bronze.dlq_records import HEADERS
from expectations.contract import Contract
from pipelines.warehouse import few_rows
from pipelines.warehouse.schemas import schema_of
from pipelines.warehouse.tables import Warehouse

REPLAYS_LOCK = "_replay/tables.lock"
"""The lock of the tables of replays, below the root of a warehouse."""


def append(
    warehouse: Warehouse,
    contract: Contract,
    rows: Sequence[Mapping[str, Any]],
    mode: Literal["append", "overwrite"] = "append",
) -> None:
    """Add rows to a contract's table in one commit, or replace all of its rows; create the table if it is not there.

    A row has a value for each column of the contract, by name: bytes for binary, aware datetimes for timestamps, pairs
    of name and value for headers, JSON-ready objects for other nested types. Columns that came later may lack.

    Raises UsageError: only Spark opens the warehouse.
    """
    warehouse.refuse_spark_only("replays are written")
    warehouse.store.forget(warehouse.log(contract.table))  # of a table that other processes write, too
    if not warehouse.ensure(contract):
        warehouse.take_later_columns(contract)
    if not rows and mode == "append":
        return
    opened = warehouse.opened_table(contract.table)
    given = [
        {
            column.name: _value(row.get(column.name) if column.later else row[column.name], column.type)
            for column in contract.stored
        }
        for row in rows
    ]
    few = few_rows.of_values(schema_of(contract), given)
    with warehouse.committing(contract.table, opened) as turn:
        if mode == "append":
            few_rows.append(opened, few, turn)
        else:
            few_rows.replace(opened, few, None, turn)


def _value(value: Any, kind: str) -> Any:
    if value is None or kind != HEADERS:
        return value
    return [{"key": name, "value": content} for name, content in value]


def moment(millis: int | None) -> datetime | None:
    """Return the time of milliseconds since 1970; None also if Python's datetime cannot hold it."""
    try:
        return None if millis is None else datetime.fromtimestamp(millis / 1000, UTC)
    except (OverflowError, ValueError, OSError):
        return None
