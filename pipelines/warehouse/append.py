"""Rows -> a Delta table, appended or replaced without a JVM, for tables that only commands write.

No stage writes these tables, so the writer's lock of the warehouse is not needed: their writers hold a lock of their
own. Delta's commits are atomic: a reader sees all rows of a commit or none.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Literal

from expectations.bronze.dlq_records import HEADERS
from expectations.contract import Contract
from pipelines.warehouse import few_rows
from pipelines.warehouse.tables import PROPERTIES, Warehouse

if TYPE_CHECKING:
    from deltalake import Schema


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
    _ensure(warehouse, contract)
    if not rows and mode == "append":
        return
    opened = warehouse.local_table(contract.table)
    given = [
        {
            column.name: _value(row.get(column.name) if column.later else row[column.name], column.type)
            for column in contract.stored
        }
        for row in rows
    ]
    few = few_rows.of_values(schema_of(contract), given)
    if mode == "append":
        few_rows.append(opened, few, warehouse.turn(opened))
    else:
        few_rows.replace(opened, few, None, warehouse.turn(opened))


def _value(value: Any, kind: str) -> Any:
    if value is None or kind != HEADERS:
        return value
    return [{"key": name, "value": content} for name, content in value]


def _ensure(warehouse: Warehouse, contract: Contract) -> None:
    """Create the contract's table, if it is not there; `Warehouse.ensure` needs Spark to parse types."""
    from deltalake import DeltaTable

    if warehouse.exists(contract.table):
        warehouse.take_later_columns(contract)
        return
    DeltaTable.create(
        warehouse.store.for_deltalake(warehouse.place(contract.table)),
        schema_of(contract),
        description=contract.description,
        configuration=PROPERTIES,
        storage_options=warehouse.store.options(),
    )


def schema_of(contract: Contract) -> Schema:
    """Return the schema of a contract's table."""
    from deltalake import Schema

    fields = [
        {
            "name": column.name,
            "type": _of_delta(_parsed(column.type)),
            "nullable": True,
            "metadata": {"comment": column.comment},
        }
        for column in contract.stored
    ]
    return Schema.from_json(json.dumps({"type": "struct", "fields": fields}))


Parsed = str | list[Any] | dict[str, Any]
"""A type: a scalar by name, a list with the type of an array's elements, or a struct's types by name."""


def _parsed(kind: str) -> Parsed:
    """Parse a type of Spark SQL, as contracts write it."""
    if kind.startswith("array<") and kind.endswith(">"):
        return [_parsed(kind[len("array<") : -1])]
    if kind.startswith("struct<") and kind.endswith(">"):
        fields: dict[str, Any] = {}
        inner, depth, begun = kind[len("struct<") : -1], 0, 0
        for at, character in enumerate(f"{inner},"):
            depth += (character == "<") - (character == ">")
            if character == "," and depth == 0:
                name, _, its = inner[begun:at].partition(":")
                fields[name.strip()] = _parsed(its.strip())
                begun = at + 1
        return fields
    return kind


def _of_delta(kind: Parsed) -> Any:
    if isinstance(kind, list):
        return {"type": "array", "elementType": _of_delta(kind[0]), "containsNull": True}
    if isinstance(kind, dict):
        fields = [
            {"name": name, "type": _of_delta(its), "nullable": True, "metadata": {}} for name, its in kind.items()
        ]
        return {"type": "struct", "fields": fields}
    return {"int": "integer", "bigint": "long"}.get(kind, kind)


def moment(millis: int | None) -> datetime | None:
    """Return the time of milliseconds since 1970; None also if Python's datetime cannot hold it."""
    try:
        return None if millis is None else datetime.fromtimestamp(millis / 1000, UTC)
    except (OverflowError, ValueError, OSError):
        return None
