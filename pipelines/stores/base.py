"""What a store of a warehouse can do: named bytes below one root, locks, and the ways of readers to Delta tables."""

from __future__ import annotations

import contextlib
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING

from pipelines.settings import s3

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

STATE = "_progress"
Fingerprint = tuple[int | str | float, ...]
"""What changes with each change of a Delta log; the name of its newest commit is a part of it."""


@dataclass(frozen=True)
class File:
    """A file directly in a directory: its name, its size in bytes, and when it was written."""

    name: str
    size: int
    modified_at: datetime


class Store(ABC):
    """The files below a warehouse's root; a name is a path relative to it, with slashes.

    ``opens_tables``: ``deltalake`` and DuckDB read and write its tables, without a JVM. Elsewhere only Spark does, and
    all methods need an active session. ``is_shared``: what holds a lock can lose it while it writes.
    """

    root: str
    opens_tables = True
    is_shared = False

    @property
    def shown(self) -> str:
        """The root as messages say it."""
        return s3.shown(self.root)

    @abstractmethod
    def read(self, name: str) -> bytes | None:
        """Return a file's bytes; None if there is no such file."""

    @abstractmethod
    def write(self, name: str, content: bytes, durable: bool = True) -> None:
        """Replace a file in one step: readers see the old or the new bytes, also after a crash.

        Raises EnvironmentLacking: the store cannot be written.
        """

    def create(self, name: str, content: bytes, durable: bool = True) -> bool:
        """Write a file if there is none; tell whether what is there is this content.

        Raises EnvironmentLacking: the store cannot be written.
        """
        raise NotImplementedError

    @abstractmethod
    def remove(self, name: str) -> None:
        """Remove a file if it is there."""

    @abstractmethod
    def files(self, directory: str) -> list[File]:
        """Return the files directly in a directory, by name; none if there is no such directory."""

    def walk(self, directory: str = "") -> Iterator[str]:
        """Yield the names of all files below a directory, in order."""
        files = {file.name for file in self.files(directory)}
        for name in self.names(directory):
            path = f"{directory}/{name}" if directory else name
            if name in files:
                yield path
            else:
                yield from self.walk(path)

    def pinned(self) -> contextlib.AbstractContextManager[None]:
        """Show directories and files as they were when they were first asked for in the block, which only reads."""
        return contextlib.nullcontext()

    def remembering(self) -> contextlib.AbstractContextManager[None]:
        """Ask for the files of a Delta log once in the block of the only writer, until ``forget``."""
        return contextlib.nullcontext()

    def forget(self, log: str) -> None:  # noqa: B027  # a store that remembers nothing has nothing to forget
        """Ask for the files of a Delta log again, as this process has written to it, or another writer may have."""

    @abstractmethod
    def is_empty(self) -> bool:
        """Tell whether nothing is below the root, or no such root."""

    @abstractmethod
    @contextlib.contextmanager
    def lock(self, name: str, purpose: str, wait_seconds: float = 0.0) -> Iterator[bool]:
        """Hold a lock if nobody else does or ends within a wait; yield whether it is held. It ends with its process."""
        yield True

    @abstractmethod
    def is_locked(self, name: str) -> bool:
        """Tell whether a process holds a lock."""

    def text(self, name: str) -> str | None:
        """Return a file's text; None if there is no such file."""
        content = self.read(name)
        return None if content is None else content.decode("utf-8")

    def has(self, name: str) -> bool:
        """Tell whether a file is there."""
        return self.read(name) is not None

    @abstractmethod
    def names(self, directory: str) -> list[str]:
        """Return the names of files and directories directly in a directory, in order; none if it is not there."""

    def checked(self) -> str:
        """Return what commits say of the writer's lease ("" without one), after a look at the lease.

        Raises WriterBusy: the lease was taken over.
        """
        return ""

    def fingerprint(self, log: str) -> Fingerprint:
        """Return what changes with each change of a Delta log's directory; an empty one if it has no files."""
        files = self.files(log)
        newest = max((file for file in files if file.name.endswith(".json")), key=lambda file: file.name, default=None)
        if newest is None:
            return ()
        return (newest.name, newest.size, newest.modified_at.timestamp(), len(files))

    def for_deltalake(self, name: str) -> str:
        """Return a directory's location for ``deltalake``."""
        return f"{self.root}/{name}"

    def options(self) -> dict[str, str]:
        """Return how ``deltalake`` reaches the store."""
        return {}

    def opened_by_duckdb(self, connection: DuckDBPyConnection) -> None:
        """Let a connection read the files of the store, and no others."""
        raise NotImplementedError

    def for_duckdb(self, name: str) -> str:
        """Return a file's name for DuckDB."""
        return f"{self.root}/{name}"

    def for_spark(self, names: Sequence[str]) -> list[str]:
        """Return files' names for Spark."""
        return [f"{self.root}/{name}" for name in names]
