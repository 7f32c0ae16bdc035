"""The tables of a warehouse -> what a catalog has to know of each: its location, its columns and their comments."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from expectations.text import visible
from pipelines.errors import UsageError
from pipelines.stores.locations import directory_of, scheme_of
from pipelines.warehouse.tables import Warehouse

_NAMES = {"integer": "int", "long": "bigint", "short": "smallint", "byte": "tinyint"}
"""SQL's names of types, by those of Delta logs; all others are the same."""


@dataclass(frozen=True)
class Field:
    """A column: its name, its type and itself as the Delta log has them, and its comment ("" without one)."""

    name: str
    type: Any
    logged: dict[str, Any]
    comment: str

    @property
    def sql_type(self) -> str:
        """The type as Spark and Hive write it, such as ``array<struct<key:string>>``."""
        return sql_type(self.type)


@dataclass(frozen=True)
class Described:
    """A table as its Delta log describes it."""

    name: str
    comment: str
    fields: tuple[Field, ...]

    @property
    def layer(self) -> str:
        """The first part of its name."""
        return self.name.partition(".")[0]

    @property
    def short(self) -> str:
        """The last part of its name."""
        return self.name.partition(".")[2]


def described(tables: Warehouse, names: Iterable[str]) -> list[Described]:
    """Return those of the tables that exist.

    Raises UsageError: Afterlog cannot follow a table's commits. EnvironmentLacking: a log cannot be read.
    """
    there = [name for name in names if tables.exists(name)]
    tables.open_ahead(there)
    return [_described(tables, name) for name in there]


def _described(tables: Warehouse, name: str) -> Described:
    if tables.opens_tables:
        opened = tables.opened_table(name)
        schema, comment = opened.schema().to_json(), opened.metadata().description
    else:
        from delta.tables import DeltaTable

        tables.state(name)  # raises UsageError if Afterlog cannot follow the table's commits
        schema = tables.spark.read.format("delta").load(tables.location(name)).schema.json()
        comment = DeltaTable.forPath(tables.spark, tables.location(name)).detail().collect()[0]["description"]
    fields = (
        Field(field["name"], field["type"], field, _line((field.get("metadata") or {}).get("comment")))
        for field in json.loads(schema)["fields"]
    )
    return Described(name, _line(comment), tuple(fields))


def _line(comment: str | None) -> str:
    """Return a comment as one line that a terminal can show."""
    return visible(" ".join((comment or "").split()))


def sql_type(kind: Any) -> str:
    """Return a type of a Delta log as Spark and Hive write it."""
    if isinstance(kind, str):
        return _NAMES.get(kind, kind)
    match kind["type"]:
        case "array":
            return f"array<{sql_type(kind['elementType'])}>"
        case "map":
            return f"map<{sql_type(kind['keyType'])},{sql_type(kind['valueType'])}>"
        case _:
            fields = (f"{field['name']}:{sql_type(field['type'])}" for field in kind["fields"])
            return f"struct<{','.join(fields)}>"


def on_hadoop(root: str, table: str) -> str:
    """Return a table's location for Spark and Hive: a URI, without escapes, as Hadoop reads it."""
    directory = _directory(root)
    return f"{_printable(root) if directory is None else f'file://{directory}'}/{Warehouse.table_path(table)}"


def on_stores(root: str, table: str) -> str:
    """Return a table's location for tools without Hadoop, below that of its warehouse."""
    return f"{root_on_stores(root)}/{Warehouse.table_path(table)}"


def root_on_stores(root: str) -> str:
    """Return a warehouse's location for tools without Hadoop: a path, or a URI with the scheme of the store's owner."""
    directory = _directory(root)
    if directory is not None:
        return directory
    scheme, _, rest = _printable(root).partition("://")
    return f"{_of_owner(scheme)}://{rest}"


def as_uri(root: str, table: str) -> str:
    """Return a table's location as a URI whose special characters are escaped."""
    location = on_stores(root, table)
    return location if scheme_of(location) else Path(location).as_uri()


def refuse_other_stores(root: str, schemes: Iterable[str], tool: str) -> None:
    """Raise UsageError if a tool reads no store like that of a warehouse."""
    if (scheme_of(root_on_stores(root)) or "file") not in schemes:
        known = {"s3": "S3", "gs": "Google Cloud Storage", "abfss": "Azure", "hdfs": "HDFS", "file": "a directory"}
        raise UsageError(
            f"{tool} does not read {_printable(root)}: name a warehouse on "
            f"{' or '.join(known[scheme] for scheme in schemes)} with --warehouse."
        )


def is_same_location(first: str | None, second: str) -> bool:
    """Tell whether two locations are the same one, whichever form of a URI they have."""
    return first is not None and _canonical(first) == _canonical(second)


def _canonical(location: str) -> str:
    scheme, colon, rest = location.rstrip("/").partition(":")
    if not colon or "/" in scheme:
        return location.rstrip("/")
    if scheme.lower() == "file":
        return "/" + rest.lstrip("/")
    return f"{_of_owner(scheme)}:{rest}"


def _of_owner(scheme: str) -> str:
    """Return the scheme that a store's owner uses: s3a and s3n are Hadoop's names, abfs is abfss without encryption."""
    return {"s3a": "s3", "s3n": "s3", "abfs": "abfss"}.get(scheme.lower(), scheme.lower())


def _directory(root: str) -> str | None:
    directory = directory_of(root)
    return None if directory is None else _printable(str(directory.absolute())).rstrip("/")


def _printable(root: str) -> str:
    if not root.isprintable():
        raise UsageError(f"The warehouse {visible(root)} has a character that cannot be printed: give it another name.")
    return root
