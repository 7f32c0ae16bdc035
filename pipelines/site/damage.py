"""Reads of tables that may be damaged: what they give, or that nothing is known, so that one table ends no page."""

from __future__ import annotations

from collections.abc import Callable, MutableMapping
from typing import TypeVar

from pipelines.errors import unopened

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
