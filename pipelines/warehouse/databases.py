"""A database of SQLite in a store -> the same one without values to forget; its file stays, as its readers know it."""

from __future__ import annotations

import contextlib
import sqlite3
from typing import Any

from pipelines.erasure import Words
from pipelines.stores.base import Store
from pipelines.stores.directory import Directory

BUSY_SECONDS = 30.0
BESIDE = ("-wal", "-shm")  # files beside a database: changes that are not in it yet, and their index
_WAL = slice(18, 20)  # bytes of a database that say that a file beside it has changes


def opened(content: bytes) -> sqlite3.Connection:
    """Return a database in memory with the bytes of a file."""
    database = sqlite3.connect(":memory:", isolation_level=None)
    given = bytearray(content)
    given[_WAL] = b"\1\1"
    database.deserialize(bytes(given))
    return database


def named(name: str) -> str:
    """Return the name of the database that a file is, or is beside."""
    for ending in BESIDE:
        name = name.removesuffix(ending)
    return name


def cells(database: sqlite3.Connection) -> list[tuple[str, str, Any]]:
    """Return the texts and bytes in a database, each once, with table and column."""
    found = []
    for (table,) in database.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall():
        for row in database.execute(f'PRAGMA table_info("{table}")').fetchall():
            values = database.execute(f'SELECT DISTINCT "{row[1]}" FROM "{table}"').fetchall()
            found += [(table, row[1], value) for (value,) in values if isinstance(value, str | bytes)]
    return found


def clean(store: Store, name: str, words: Words) -> None:
    """Take values out of a database; freed pages, which keep what was in them, go."""
    if isinstance(store, Directory):
        path = f"{store.root}/{name}"
        with contextlib.closing(sqlite3.connect(path, timeout=BUSY_SECONDS, isolation_level=None)) as database:
            _replace(database, words)
            database.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        return
    with contextlib.closing(opened(store.read(name) or b"")) as database:
        _replace(database, words)
        store.write(name, database.serialize())


def _replace(database: sqlite3.Connection, words: Words) -> None:
    database.execute("BEGIN IMMEDIATE")
    for table, column, value in cells(database):
        new = words.replaced_text(value) if isinstance(value, str) else words.replaced(value)
        if new != value:
            database.execute(f'UPDATE "{table}" SET "{column}" = ? WHERE "{column}" = ?', (new, value))
    database.execute("COMMIT")
    database.execute("VACUUM")
