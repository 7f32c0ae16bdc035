"""One writer at a time: a lock on a local file system; elsewhere a log store that arbitrates, or a refusal."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import socket
import sys
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import psutil

from pipelines.errors import EnvironmentLacking, UsageError, WriterBusy
from pipelines.jvm import properties
from pipelines.settings import Settings
from pipelines.warehouse.storage import directory_of, scheme_of, unsafe_store
from pipelines.warehouse.tables import Warehouse

NAME = ".lock"


@contextlib.contextmanager
def writer(settings: Settings, purpose: str) -> Iterator[None]:
    """Hold the warehouse's lock, waiting up to ``lock.wait_seconds`` for it; the kernel frees it if the process dies.

    A local warehouse needs the lock because Delta's local log store is safe within one JVM only. Elsewhere nothing is
    locked: the log store arbitrates between writers. If it cannot, the settings must promise a single writer.

    Raises WriterBusy: another process holds the lock. EnvironmentLacking: the warehouse cannot be created or written.
    UsageError: two writers could lose each other's commits, and the settings do not promise a single writer.
    """
    directory = directory_of(settings.warehouse)
    if directory is None:
        refuse_unsafe(settings)
        yield
        return
    path = directory / NAME
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    except OSError as error:
        raise EnvironmentLacking(
            f"The warehouse {settings.warehouse} cannot be written ({error.strerror}): "
            f"mend its permissions or name another with --warehouse."
        ) from None
    try:
        _acquire(descriptor, path, settings.lock.wait_seconds)
        _outlive(path, settings.lock.wait_seconds)
        holder = {"pid": os.getpid(), "host": socket.gethostname(), "command": purpose, "since": _now()}
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, json.dumps(holder).encode(), 0)
        yield
        os.ftruncate(descriptor, 0)
    finally:
        os.close(descriptor)


def refuse_unsafe(settings: Settings) -> None:
    """Raise UsageError if writers could lose each other's commits and the settings do not promise a single writer."""
    why = unsafe_store(settings.warehouse, {**properties.defaults(), **settings.spark})
    if why and not settings.single_writer:
        raise UsageError(
            f"Nothing is written to {scheme_of(settings.warehouse)}://, as two writers could lose each other's commits "
            f"({why}): name another warehouse, or set single_writer = true if no two processes ever write to this one."
        )


def name_jvm(warehouse: Warehouse) -> None:
    """Add the JVM's process id to the lock file if this process holds the lock.

    The JVM can outlive a killed process for a moment, and the next writer waits for it to end.
    """
    directory = directory_of(warehouse.root)
    if directory is None:
        return
    path = directory / NAME
    with contextlib.suppress(OSError, ValueError, AttributeError):
        facts = json.loads(path.read_text(encoding="utf-8"))
        if facts["pid"] == os.getpid():
            gateway: Any = warehouse.spark.sparkContext._gateway
            facts["jvm"] = gateway.proc.pid
            path.write_text(json.dumps(facts), encoding="utf-8")


def holder(warehouse: str) -> str | None:
    """Describe the process that holds the lock of a warehouse on this machine; None if no process does."""
    directory = directory_of(warehouse)
    if directory is None:
        return None
    path = directory / NAME
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return None
    except BlockingIOError:
        return _described(path)
    finally:
        os.close(descriptor)


def _acquire(descriptor: int, path: Path, wait_seconds: float) -> None:
    deadline = time.monotonic() + wait_seconds
    announced = False
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except BlockingIOError:
            left = deadline - time.monotonic()
            if left <= 0:
                raise WriterBusy(
                    f"Another writer is at work on {path.parent}: {_described(path)}; try again when it is done."
                ) from None
            if not announced:
                print(f"Waiting up to {wait_seconds:.0f} s for another writer: {_described(path)}.", file=sys.stderr)
                announced = True
            time.sleep(min(0.2, left))


def _outlive(path: Path, wait_seconds: float) -> None:
    """Wait until the JVM of a killed holder has ended: until it notices, it can still commit.

    If the earlier holder failed in this process, the JVM is this process's own and stays in use: do not wait for it.

    Raises WriterBusy: the JVM has not ended in time.
    """
    with contextlib.suppress(OSError, ValueError, KeyError, TypeError, psutil.NoSuchProcess):
        facts = json.loads(path.read_text(encoding="utf-8"))
        jvm = psutil.Process(facts["jvm"])
        if "java" in jvm.name() and (facts["pid"], jvm.ppid()) != (os.getpid(), os.getpid()):
            try:
                jvm.wait(wait_seconds)
            except psutil.TimeoutExpired:
                raise WriterBusy(
                    f"A killed writer's JVM, process {jvm.pid}, is still at work on {path.parent}: try again later."
                ) from None


def _described(path: Path) -> str:
    try:
        facts = json.loads(path.read_text(encoding="utf-8"))
        return f"process {facts['pid']} on {facts['host']} ({facts['command']}), since {facts['since']}"
    except (OSError, ValueError, KeyError, TypeError):
        return "a process that has not said its name yet"


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
