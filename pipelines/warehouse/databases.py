"""The bytes of a database of SQLite -> the database in memory; one in a store -> the same one without values to forget.

Its file stays, as its readers know it.
"""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Iterator
from typing import Any

from pipelines.erasure import Words
from pipelines.stores.base import Store
from pipelines.stores.directory import Directory

BUSY_SECONDS = 30.0
BESIDE = ("-wal", "-shm")  # files beside a database: changes that are not in it yet, and their index
_HEADER = 100  # bytes that each database begins with
_WAL = slice(18, 20)  # of these, those that say that a file beside it has changes


@contextlib.contextmanager
def in_memory(content: bytes) -> Iterator[sqlite3.Connection]:
    """Open the bytes of a database; what is changed is in what its ``serialize`` returns."""
    with contextlib.closing(sqlite3.connect(":memory:", isolation_level=None)) as connection:
        load(connection, content)
        yield connection


def load(connection: sqlite3.Connection, content: bytes) -> None:
    """Let a connection have the bytes of a database; raises DatabaseError: they are cut off."""
    if len(content) < _HEADER:
        raise sqlite3.DatabaseError("it is cut off")
    whole = bytearray(content)
    whole[_WAL] = b"\1\1"  # one that comes from a directory says that it has a file beside it
    connection.deserialize(bytes(whole))


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
    with in_memory(store.read(name) or b"") as database:
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
