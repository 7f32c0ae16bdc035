"""A directory of this machine: files are replaced by renames, and the kernel's locks end with their process."""

from __future__ import annotations

import contextlib
import fcntl
import math
import os
import time
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from pipelines.errors import EnvironmentLacking
from pipelines.stores.base import File, Fingerprint, Store

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

_LOOK_SECONDS = 0.02


@dataclass(frozen=True)
class Directory(Store):
    """The files below a directory."""

    root: str

    def read(self, name: str) -> bytes | None:
        """Return a file's bytes; None if there is no such file."""
        try:
            return self._path(name).read_bytes()
        except (FileNotFoundError, NotADirectoryError):
            return None

    def write(self, name: str, content: bytes, durable: bool = True) -> None:
        """Replace a file in one step.

        Raises EnvironmentLacking: the disk is full or not writable.
        """
        target = self._path(name)
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
            replace(target, content, durable)
        except OSError as error:
            raise _unwritable(target.parent, error) from None

    def create(self, name: str, content: bytes, durable: bool = True) -> bool:
        """Write a file beside its target and link it there; this fails if the target exists."""
        target = self._path(name)
        scratch = target.with_name(f".{target.name}.{os.getpid()}.new")
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
            replace(scratch, content, durable)
            os.link(scratch, target)
        except FileExistsError:
            return False
        except OSError as error:
            raise _unwritable(target.parent, error) from None
        finally:
            scratch.unlink(missing_ok=True)
        return True

    def remove(self, name: str) -> None:
        """Remove a file if it is there."""
        self._path(name).unlink(missing_ok=True)

    def files(self, directory: str) -> list[File]:
        """Return the files directly in a directory, by name; none if there is no such directory."""
        found = []
        with contextlib.suppress(FileNotFoundError, NotADirectoryError), os.scandir(self._path(directory)) as entries:
            for entry in entries:
                with contextlib.suppress(FileNotFoundError):  # it is gone meanwhile
                    if entry.is_file():
                        facts = entry.stat()
                        modified_at = datetime.fromtimestamp(facts.st_mtime, UTC)
                        found.append(File(entry.name, facts.st_size, modified_at))
        return sorted(found, key=lambda file: file.name)

    def names(self, directory: str) -> list[str]:
        """Return the names of files and directories directly in a directory, in order; none if it is not there."""
        try:
            return sorted(os.listdir(self._path(directory)))
        except (FileNotFoundError, NotADirectoryError):
            return []

    def has(self, name: str) -> bool:
        """Tell whether a file is there."""
        return self._path(name).is_file()

    def is_empty(self) -> bool:
        """Tell whether nothing is in the directory, or no such directory."""
        root = Path(self.root)
        return not root.is_dir() or not any(root.iterdir())

    @contextlib.contextmanager
    def lock(self, name: str, purpose: str, wait_seconds: float = 0.0) -> Iterator[bool]:
        """Hold a lock of the kernel; yield whether it is held.

        Raises EnvironmentLacking: the directory cannot be written.
        """
        path = self._path(name)
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        except OSError as error:
            raise _unwritable(path.parent, error) from None
        deadline = time.monotonic() + wait_seconds
        try:
            if wait_seconds == math.inf:
                fcntl.flock(descriptor, fcntl.LOCK_EX)
            while not (held := _locked(descriptor, fcntl.LOCK_EX)) and time.monotonic() < deadline:
                time.sleep(_LOOK_SECONDS)
            yield held
        finally:
            os.close(descriptor)

    def is_locked(self, name: str) -> bool:
        """Tell whether a process of this machine holds a lock."""
        try:
            descriptor = os.open(self._path(name), os.O_RDWR | os.O_CLOEXEC)
        except OSError:
            return False
        try:
            return not _locked(descriptor, fcntl.LOCK_SH)
        finally:
            os.close(descriptor)

    def fingerprint(self, log: str) -> Fingerprint:
        """Return facts of the log's directory and of its newest commit; an empty one if there is no log."""
        directory = self._path(log)
        try:
            names, facts = os.listdir(directory), directory.stat()
            newest = max((name for name in names if name.endswith(".json")), default="")
            commit = (directory / newest).stat()
        except (FileNotFoundError, NotADirectoryError):
            return ()
        of_commit = (commit.st_ino, commit.st_size, commit.st_mtime_ns)
        return (facts.st_ino, facts.st_mtime_ns, len(names), newest, *of_commit)

    def for_deltalake(self, name: str) -> str:
        """Return a directory's location for ``deltalake``, as the file system reads ``..`` behind a symbolic link."""
        return os.fspath(self._path(name).absolute())

    def opened_by_duckdb(self, connection: DuckDBPyConnection) -> None:
        """Let a connection read the files of the directory, and no others."""
        connection.execute("SET allowed_directories = ?", [[self.root, os.path.abspath(self.root)]])

    def _path(self, name: str) -> Path:
        return Path(self.root) / name


def replace(target: Path, content: bytes, durable: bool = True) -> None:
    """Write a file beside its target, flush it to the disk (if ``durable``) and rename it into place."""
    scratch = target.with_name(f".{target.name}.{os.getpid()}.tmp")
    with scratch.open("wb") as file:
        file.write(content)
        if durable:
            file.flush()
            os.fsync(file.fileno())
    scratch.replace(target)


def replace_text(target: Path, text: str, durable: bool = True) -> None:
    """Replace a file by text in one step; see ``replace``."""
    replace(target, text.encode("utf-8"), durable)


def _locked(descriptor: int, kind: int) -> bool:
    try:
        fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _unwritable(directory: Path, error: OSError) -> EnvironmentLacking:
    return EnvironmentLacking(
        f"{directory} cannot be written ({error.strerror}): free some space or fix its permissions."
    )
