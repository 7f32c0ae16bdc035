"""The types of contracts, which are Spark SQL's -> types and schemas as Delta logs have them, without a JVM."""

from __future__ import annotations

import contextlib
import json
from functools import cache
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from deltalake import Schema
    from sqlglot import exp

    from expectations.contract import Contract

_SCALARS = {
    "TEXT": "string",
    "INT": "integer",
    "BIGINT": "long",
    "DOUBLE": "double",
    "BOOLEAN": "boolean",
    "BINARY": "binary",
    "DATE": "date",
    "TIMESTAMPTZ": "timestamp",
}
"""Delta's names of types, by those of sqlglot."""


def schema_of(contract: Contract) -> Schema:
    """Return the schema of a contract's table, with the comments of its columns."""
    from deltalake import Schema

    fields = [_field(column.name, delta_type(column.type), {"comment": column.comment}) for column in contract.stored]
    return Schema.from_json(json.dumps({"type": "struct", "fields": fields}))


@cache
def delta_type(kind: str) -> Any:
    """Return a type as a Delta log has it: text, or an object for a nested type.

    Raises ValueError: no contract has such a type yet.
    """
    from sqlglot import ParseError, exp

    with contextlib.suppress(ParseError, KeyError):
        return _of(exp.DataType.build(kind, dialect="spark"))
    raise ValueError(f"{kind} is no type that contracts have.")


def _of(kind: exp.DataType) -> Any:
    match kind.this.name, kind.expressions:
        case "ARRAY", [element]:
            return {"type": "array", "elementType": _of(element), "containsNull": True}
        case "STRUCT", [_, *_] as fields:
            return {"type": "struct", "fields": [_field(field.name, _of(field.args["kind"]), {}) for field in fields]}
        case name, []:
            return _SCALARS[name]
    raise KeyError(kind.this.name)


def _field(name: str, kind: Any, metadata: dict[str, str]) -> dict[str, Any]:
    return {"name": name, "type": kind, "nullable": True, "metadata": metadata}
