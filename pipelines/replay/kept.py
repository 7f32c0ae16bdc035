"""The database of a journal: a file of SQLite in a directory, or on an object store one object that has its bytes.

An object is read into memory. Each change puts it anew under the condition that nobody else did, or is made again.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import sqlite3
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import Path

from pipelines import moments
from pipelines.errors import EnvironmentLacking
from pipelines.stores.base import Store
from pipelines.stores.objects import Objects
from pipelines.warehouse import databases

NAME = "journal.db"
_BUSY_SECONDS = 30.0
_FRESH_SECONDS = 1.0  # so long an object that was read is taken for the present one by what only looks
_CLOCKS = timedelta(minutes=5)  # by which the clocks of writers and of the store may differ
_WRITTEN = """
CREATE TABLE IF NOT EXISTS written (name TEXT NOT NULL, at TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS changes (number INTEGER PRIMARY KEY, name TEXT NOT NULL);
"""
_MOST_CHANGES = 100  # that are known by name


class Changed(Exception):  # no error: the change is made again
    """Another process has changed the database since it was read; nothing was changed."""


class Database(ABC):
    """A database of SQLite that several processes change, one transaction at a time.

    ``was_restored``: it was copied or restored since its last change.
    """

    name: str
    connection: sqlite3.Connection
    was_restored = False

    @abstractmethod
    @contextlib.contextmanager
    def transaction(self) -> Iterator[None]:
        """Keep all changes of the block, or none of them; they are there for all when it ends.

        Raises Changed: another process was faster, and the block must be run again. EnvironmentLacking: the database
        was removed since it was opened.
        """
        yield

    @abstractmethod
    def identity(self) -> int:
        """Return a number that another one has, as far as it can be told."""

    def look(self) -> None:  # noqa: B027 - a file shows it by itself
        """Take over what other processes changed."""

    @abstractmethod
    def is_there(self) -> bool:
        """Tell whether it is still the one that was opened."""

    def close(self) -> None:
        """Close it."""
        self.connection.close()

    @contextlib.contextmanager
    def _begun(self) -> Iterator[None]:
        self.connection.execute("BEGIN IMMEDIATE")
        try:
            yield
            self.connection.execute("COMMIT")
        except BaseException:
            with contextlib.suppress(sqlite3.Error):
                self.connection.execute("ROLLBACK")
            raise


def snapshot(store: Store) -> bytes | None:
    """Return the bytes of the database in a store as of its last transaction; None if there is none."""
    if isinstance(store, Objects) or not store.has(NAME):
        return store.read(NAME)
    with contextlib.closing(sqlite3.connect(Path(store.root) / NAME, timeout=_BUSY_SECONDS)) as connection:
        return connection.serialize()


class FileDatabase(Database):
    """A file, which SQLite locks and writes."""

    def __init__(self, directory: Path) -> None:
        """Open it, and create it if it is not there."""
        directory.mkdir(parents=True, exist_ok=True)
        self.file = directory / NAME
        self.name = os.fspath(self.file)
        self.connection = sqlite3.connect(self.file, timeout=_BUSY_SECONDS, isolation_level=None)
        self.connection.execute("PRAGMA journal_mode = WAL")
        self.connection.execute("PRAGMA synchronous = FULL")
        self._inode = self.file.stat().st_ino

    @contextlib.contextmanager
    def transaction(self) -> Iterator[None]:
        """Keep all changes of the block, or none of them."""
        with self._begun():
            yield

    def identity(self) -> int:
        """Return the file's inode."""
        return self._inode

    def is_there(self) -> bool:
        """Tell whether the file is still the one that was opened."""
        try:
            return self.file.stat().st_ino == self._inode
        except FileNotFoundError:
            return False


class ObjectDatabase(Database):
    """An object with the bytes of a database."""

    def __init__(self, store: Objects) -> None:
        """Read it; it is created by the first change if it is not there."""
        self.store = store
        self.name = f"{store.shown}/{NAME}"
        self._version: str | None = None
        self._called: str | None = None
        self._looked_at = 0.0
        self._is_known = False
        self.connection = sqlite3.connect(":memory:")
        self._read()

    @contextlib.contextmanager
    def transaction(self) -> Iterator[None]:
        """Keep all changes of the block, or none of them."""
        before = self._called
        self._read()
        if before not in (None, self._called):
            raise EnvironmentLacking(f"{self.name} was removed while it was in use: run again.")
        with self._begun():
            yield
            self.connection.execute("DELETE FROM written")
            written = (self._called or secrets.token_hex(8), moments.now().isoformat())
            self.connection.execute("INSERT INTO written VALUES (?, ?)", written)
            change = secrets.token_hex(8)
            last = self.connection.execute("INSERT INTO changes (name) VALUES (?)", (change,)).lastrowid or 0
            self.connection.execute("DELETE FROM changes WHERE number <= ?", (last - _MOST_CHANGES,))
        content, self._is_known = self.connection.serialize(), False
        version = self.store.replace(NAME, content, self._version)
        if version is None:  # the answer to an earlier attempt can be lost: then the object is ours
            self._read()
            if not self.connection.execute("SELECT 1 FROM changes WHERE name = ?", (change,)).fetchall():
                raise Changed
            return
        self._version, self._called, self._is_known = version, written[0], True

    def identity(self) -> int:
        """Return 0: a copy is known by being younger than its last change, see ``was_restored``."""
        return 0

    def look(self) -> None:
        """Read the object again if it was read a while ago."""
        if time.monotonic() - self._looked_at > _FRESH_SECONDS and not self.connection.in_transaction:
            self._read()

    def is_there(self) -> bool:
        """Tell whether the object is there; a transaction notices it, too."""
        return self._called is None or self.store.has(NAME)

    def _read(self) -> None:
        file = self.store.versioned(NAME)
        self._looked_at = time.monotonic()
        version = file.version if file else None
        if version == self._version and self._is_known:
            return
        self._version, self._called, self._is_known = version, None, True
        self.connection.close()
        self.connection = sqlite3.connect(":memory:", isolation_level=None)
        if file is None:
            self.connection.executescript(_WRITTEN)
            return
        databases.load(self.connection, file.content)
        self.connection.executescript(_WRITTEN)
        for name, at in self.connection.execute("SELECT name, at FROM written"):
            self._called = str(name)
            if file.modified_at - datetime.fromisoformat(at) > _CLOCKS:
                self.was_restored = True
