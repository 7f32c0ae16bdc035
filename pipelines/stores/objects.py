"""An object store: S3, Google Cloud Storage or Azure, through ``obstore`` and ``deltalake``, without a JVM."""

from __future__ import annotations

import contextlib
import io
import threading
import time
from collections.abc import Iterator, Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from pipelines.stores import connection, lease
from pipelines.stores.base import File, Store
from pipelines.stores.connection import asked

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection
    from obstore import ListResult, ObjectMeta

SCHEMES = ("s3", "s3a", "gs", "abfs", "abfss")
LEASE_SECONDS = 30.0  # of a lock: who dies holds it so long
LOOK_SECONDS = 0.5
PROTOCOL = "afterlog"
SMALL = 8 << 20  # bytes of a file that is read as a whole
MOST_KEPT_BYTES = 256 << 20  # of small files, which never change once they are written
BLOCK = 1 << 20  # bytes that are read at a time of a larger file


@dataclass(frozen=True)
class Versioned:
    """An object's bytes, what tells it from later ones of its path, and when the store took it."""

    content: bytes
    version: str
    modified_at: datetime


@dataclass(frozen=True)
class Objects(Store):
    """The objects below a URI."""

    root: str
    is_shared = True

    def read(self, name: str) -> bytes | None:
        """Return an object's bytes; None if there is no such object.

        Raises EnvironmentLacking: the store does not answer, or refuses; so do all methods.
        """
        contents, key = _contents.get(), (self.root, name)
        if contents is not None and key in contents:
            return contents[key]
        found = self.versioned(name)
        content = None if found is None else found.content
        if contents is not None and (content is None or len(content) <= SMALL):
            contents[key] = content
        return content

    def write(self, name: str, content: bytes, durable: bool = True) -> None:
        """Put an object; readers see the old or the new one.

        Raises WriterBusy: a lock that this thread holds, or the writer's lease, was taken over.
        """
        import obstore

        self.checked()
        asked(self.root, lambda: obstore.put(connection.opened(self.root), name, content))
        self._forget_content(name)

    def versioned(self, name: str) -> Versioned | None:
        """Return an object with what tells it from later ones of its path; None if there is no such object."""
        import obstore

        def get() -> Versioned | None:
            with contextlib.suppress(FileNotFoundError):
                found = obstore.get(connection.opened(self.root), name)
                return Versioned(bytes(found.bytes()), connection.version_of(found.meta), found.meta["last_modified"])
            return None

        return asked(self.root, get)

    def replace(self, name: str, content: bytes, over: str | None) -> str | None:
        """Put an object over a version (None: if there is none); return the new one, None if the store refuses it."""
        import obstore
        from obstore.exceptions import AlreadyExistsError, PreconditionError

        def put() -> str | None:
            with contextlib.suppress(AlreadyExistsError, PreconditionError):
                opened, mode = connection.opened(self.root), connection.mode_over(over)
                return connection.version_of(obstore.put(opened, name, content, mode=mode, use_multipart=False))
            return None

        self._forget_content(name)
        return asked(self.root, put)

    def create(self, name: str, content: bytes, durable: bool = True) -> bool:
        """Put an object if there is none. If the answer to an earlier attempt was lost, it is there already.

        Raises WriterBusy: the writer's lease was taken over.
        """
        self.checked()
        return self.replace(name, content, None) is not None or self.read(name) == content

    def remove(self, name: str) -> None:
        """Remove an object if it is there."""
        import obstore

        def delete() -> None:
            with contextlib.suppress(FileNotFoundError):
                obstore.delete(connection.opened(self.root), name)

        asked(self.root, delete)
        self._forget_content(name)

    def files(self, directory: str) -> list[File]:
        """Return the objects directly below a prefix, by name."""
        objects = self._listed(directory)["objects"]
        found = (
            File(found_object["path"].rpartition("/")[2], found_object["size"], found_object["last_modified"])
            for found_object in objects
        )
        return sorted(found, key=lambda file: file.name)

    def names(self, directory: str) -> list[str]:
        """Return the last parts of the names of objects and prefixes directly below a prefix, in order."""
        listed = self._listed(directory)
        paths = [*(found_object["path"] for found_object in listed["objects"]), *listed["common_prefixes"]]
        return sorted(path.rstrip("/").rpartition("/")[2] for path in paths)

    @contextlib.contextmanager
    def pinned(self) -> Iterator[None]:
        """Ask for each list and file once, and nothing more of a silent store: a request takes its time."""
        lists, contents, silent = _lists.set({}), _contents.set({}), connection.silent.set({})
        try:
            yield
        finally:
            _lists.reset(lists)
            _contents.reset(contents)
            connection.silent.reset(silent)

    @contextlib.contextmanager
    def remembering(self) -> Iterator[None]:
        """Ask for the files of a Delta log once in the block, until ``forget``; other lists are asked for each time."""
        lists = _logs.set({})
        try:
            yield
        finally:
            _logs.reset(lists)

    def forget(self, log: str) -> None:
        """Ask for the files of a Delta log again."""
        for lists in (_logs.get(), _lists.get()):
            if lists is not None:
                lists.pop((self.root, log), None)

    def _forget_content(self, name: str) -> None:
        """Read a file again, as this process writes or removes it."""
        if (contents := _contents.get()) is not None:
            contents.pop((self.root, name), None)

    def _listed(self, directory: str) -> ListResult[Sequence[ObjectMeta]]:
        import obstore

        lists, key = _lists.get(), (self.root, directory)
        if lists is None and directory.endswith("/_delta_log"):
            lists = _logs.get()
        if lists is not None and key in lists:
            return lists[key]
        found = asked(
            self.root, lambda: obstore.list_with_delimiter(connection.opened(self.root), prefix=f"{directory}/")
        )
        if lists is not None:
            lists[key] = found
        return found

    def has(self, name: str) -> bool:
        """Tell whether an object is there."""
        import obstore

        def head() -> bool:
            with contextlib.suppress(FileNotFoundError):
                obstore.head(connection.opened(self.root), name)
                return True
            return False

        return asked(self.root, head)

    def is_empty(self) -> bool:
        """Tell whether nothing is below the root."""
        import obstore

        return asked(self.root, lambda: not next(iter(obstore.list(connection.opened(self.root), chunk_size=1)), ()))

    @contextlib.contextmanager
    def lock(self, name: str, purpose: str, wait_seconds: float = 0.0) -> Iterator[bool]:
        """Hold a lease; yield whether it is held. If its process dies, it ends after ``LEASE_SECONDS``."""
        deadline = time.monotonic() + wait_seconds
        held: lease.Lease | None = None
        while held is None:
            try:
                held = lease.take(self.root, lease.facts(purpose), LEASE_SECONDS, name)
            except lease.Taken:
                if time.monotonic() >= deadline:
                    break
                time.sleep(LOOK_SECONDS)
        if held is None:
            yield False
            return
        token = _locks.set((*_locks.get(), held))
        try:
            yield True
        finally:
            _locks.reset(token)
            lease.give_back(held)

    def is_locked(self, name: str) -> bool:
        """Tell whether a process holds a lease."""
        return lease.is_live(self.root, name)

    def checked(self) -> str:
        """Return what commits say of the writer's lease, after a look at what is held; "" without one.

        Raises WriterBusy: the lease, or a lock that this thread holds, was taken over.
        """
        for lock in _locks.get():
            if lock.target.root == self.root and (lost := lock.taken_over()):
                raise lost
        held = lease.checked(self.root)
        return f"afterlog-lease-{held.epoch}" if held else ""

    def options(self) -> dict[str, str]:
        """Return how ``deltalake`` reaches the store."""
        return connection.options(self.root)

    def opened_by_duckdb(self, connection: DuckDBPyConnection) -> None:
        """Let a connection read the objects below the root, and no other files."""
        connection.register_filesystem(_filesystem(self))
        connection.execute("SET allowed_directories = ?", [[f"{PROTOCOL}://"]])

    def for_duckdb(self, name: str) -> str:
        """Return an object's name for DuckDB."""
        return f"{PROTOCOL}://{name}"


_locks: ContextVar[tuple[lease.Lease, ...]] = ContextVar("locks", default=())
_Lists = dict[tuple[str, str], "ListResult[Sequence[ObjectMeta]]"]
_lists: ContextVar[_Lists | None] = ContextVar("lists", default=None)  # all of a block that only reads
_contents: ContextVar[dict[tuple[str, str], bytes | None] | None] = ContextVar("contents", default=None)  # and files
_logs: ContextVar[_Lists | None] = ContextVar("logs", default=None)  # those of Delta logs in a block of the only writer


def _filesystem(store: Objects) -> Any:
    """Return a store as a file system of fsspec, which DuckDB reads data files from; they never change."""
    import fsspec  # type: ignore[import-untyped]
    import obstore

    class DataFiles(fsspec.AbstractFileSystem):  # type: ignore[misc]
        protocol = PROTOCOL
        cachable = False

        def __init__(self) -> None:
            super().__init__()
            self.kept: dict[str, bytes] = {}
            self.lock = threading.Lock()
            self.size_of: dict[str, int] = {}

        def _open(self, path: str, mode: str = "rb", **_: Any) -> Any:
            name, opened = self._name(path), connection.opened(store.root)
            with self.lock:
                content = self.kept.pop(name, None)
            if content is None:
                found = obstore.get(opened, name)
                self.size_of[name] = int(found.meta["size"])
                if self.size_of[name] > SMALL:
                    return obstore.open_reader(opened, name, buffer_size=BLOCK)
                content = bytes(found.bytes())
            with self.lock:
                self.kept[name] = content
                while sum(map(len, self.kept.values())) > MOST_KEPT_BYTES and len(self.kept) > 1:
                    del self.kept[next(iter(self.kept))]
            return io.BytesIO(content)

        def info(self, path: str, **_: Any) -> dict[str, Any]:
            name = self._name(path)
            if name not in self.size_of:
                self.size_of[name] = int(obstore.head(connection.opened(store.root), name)["size"])
            return {"name": path, "size": self.size_of[name], "type": "file"}

        def glob(self, path: str, **_: Any) -> list[str]:
            return [path]

        def exists(self, path: str, **_: Any) -> bool:
            return True

        def modified(self, path: str) -> datetime:
            return datetime(1970, 1, 1, tzinfo=UTC)

        created = modified

        def _name(self, path: str) -> str:
            return path.removeprefix(f"{PROTOCOL}://")

    return DataFiles()
