"""Tables of a warehouse -> their rows, each table read once; one that cannot be read is noted and gives none."""

from __future__ import annotations

from collections.abc import Callable, MutableMapping
from typing import Any, TypeVar

from pipelines.errors import unopened
from pipelines.warehouse import jvmless
from pipelines.warehouse.tables import Warehouse

T = TypeVar("T")


def guarded(unreadable: MutableMapping[str, str], table: str, read: Callable[[], T], otherwise: T) -> T:
    """Return what is read of a table; if that fails, note in ``unreadable`` which table is damaged.

    The damaged table is the table itself, or one that is read with it.
    """
    try:
        return read()
    except Exception as error:  # the reader's libraries raise any kind; `afterlog doctor` says what is wrong
        unreadable[table] = unopened(error) or table
        return otherwise


class Tables:
    """The rows of small tables, each read once."""

    def __init__(self, warehouse: Warehouse) -> None:
        """Read nothing yet."""
        self.warehouse = warehouse
        self.read: dict[str, list[dict[str, Any]]] = {}
        self.unreadable: dict[str, str] = {}

    def __getitem__(self, table: str) -> list[dict[str, Any]]:
        """Return the cluster's rows of a table, none if it does not exist or cannot be read."""
        if table not in self.read:
            equal = {"cluster": self.warehouse.cluster}
            none: list[dict[str, Any]] = []
            self.read[table] = self.guarded(table, lambda: jvmless.rows(self.warehouse, table, equal), none)
        return self.read[table]

    def distinct(self, table: str, column: str) -> list[dict[str, Any]]:
        """Return the different values of a column, which are not null, as rows."""
        text = f"SELECT DISTINCT {column} FROM rows WHERE {column} IS NOT NULL"
        equal = {"cluster": self.warehouse.cluster}
        none: list[dict[str, Any]] = []
        return self.guarded(table, lambda: jvmless.query(self.warehouse, table, text, equal), none)

    def guarded(self, table: str, read: Callable[[], T], otherwise: T, must_exist: bool = True) -> T:
        """Return what is read of a table, or something else if that fails: a damaged table must not end the page."""
        is_absent = must_exist and not self.warehouse.exists(table)
        return otherwise if is_absent else guarded(self.unreadable, table, read, otherwise)
