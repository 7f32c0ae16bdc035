"""One writer at a time: a kernel lock on a directory, a lease on an object store; elsewhere Delta arbitrates."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import sys
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil

from pipelines.errors import EnvironmentLacking, UsageError, WriterBusy
from pipelines.jvm import properties
from pipelines.settings import Settings, s3
from pipelines.stores import lease, locations, restored
from pipelines.stores.lease import described
from pipelines.stores.locations import directory_of, scheme_of, unsafe_store

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NAME = ".lock"


@contextlib.contextmanager
def writer(settings: Settings, purpose: str, restores: bool = False) -> Iterator[None]:
    """Hold the warehouse's lock, waiting up to ``lock.wait_seconds`` for it; the kernel frees it if the process dies.

    A directory needs the lock because Delta's local log store is safe within one JVM only. On an object store it is a
    lease, which ends if the process stops to renew it. Elsewhere nothing is locked: the log store arbitrates. Who
    ``restores`` a warehouse may work on a part of it.

    Raises WriterBusy: another process holds the lock, or took the lease over. EnvironmentLacking: the warehouse cannot
    be created or written, or only a part of it is restored. UsageError: two writers could lose each other's commits.
    """
    directory = directory_of(settings.warehouse)
    if directory is None:
        refuse_unsafe(settings)
        store = locations.of(settings.warehouse)
        with _leased(settings, purpose) if store.is_shared else contextlib.nullcontext():
            if not restores:
                restored.refuse_half(store)
            yield
        return
    path = directory / NAME
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    except OSError as error:
        raise EnvironmentLacking(
            f"The warehouse {settings.warehouse} cannot be written ({error.strerror}): "
            f"fix its permissions or name another with --warehouse."
        ) from None
    try:
        _acquire(lambda: _locked(descriptor, path), os.fspath(path.parent), settings)
        _outlive(path, settings.lock.wait_seconds)
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, json.dumps(lease.facts(purpose)).encode(), 0)
        if not restores:
            restored.refuse_half(locations.of(os.fspath(directory)))
        yield
        os.ftruncate(descriptor, 0)
    finally:
        os.close(descriptor)


def refuse_unsafe(settings: Settings) -> None:
    """Raise UsageError if writers could lose each other's commits."""
    if why := unsafe_store(settings.warehouse, {**properties.defaults(settings.spark), **settings.spark}):
        scheme = scheme_of(settings.warehouse)
        raise UsageError(
            f"Nothing is written to {scheme}://, as two writers could lose each other's commits ({why}): name another "
            f"warehouse, or, under [spark], a log store that keeps them apart as spark.delta.logStore.{scheme}.impl."
        )


@contextlib.contextmanager
def _leased(settings: Settings, purpose: str) -> Iterator[None]:
    """Hold the lease; an error after it was taken over is due to that, and says so."""
    taken: list[lease.Lease] = []

    def attempt() -> str | None:
        try:
            taken.append(lease.take(settings.warehouse, lease.facts(purpose), settings.lock.lease_seconds))
        except lease.Taken as busy:
            return described(busy.state.holder if busy.state else None)
        return None

    _acquire(attempt, settings.warehouse, settings)
    try:
        yield
    except WriterBusy:
        raise
    except Exception as error:
        with contextlib.suppress(EnvironmentLacking):
            if lost := taken[0].taken_over():
                raise lost from error
        raise
    finally:
        lease.give_back(taken[0])


def pause(warehouse: str) -> float:
    """Return how many seconds pass between two attempts to get the lock; for a lease an attempt is three requests."""
    return 1.0 if locations.of(warehouse).is_shared else 0.2


def name_jvm(warehouse: str, spark: SparkSession) -> None:
    """Add the JVM's process id to the lock file if this process holds the lock.

    The JVM can outlive a killed process for a moment, and the next writer waits for it to end.
    """
    directory = directory_of(warehouse)
    if directory is None:
        return
    path = directory / NAME
    with contextlib.suppress(OSError, ValueError, AttributeError):
        facts = json.loads(path.read_text(encoding="utf-8"))
        if facts["pid"] == os.getpid():
            gateway: Any = spark.sparkContext._gateway
            facts["jvm"] = gateway.proc.pid
            path.write_text(json.dumps(facts), encoding="utf-8")


def holder(warehouse: str) -> str | None:
    """Describe the process that holds the lock of a warehouse on this machine, or its lease; None if no process does.

    Raises EnvironmentLacking: the store of the lease cannot be used.
    """
    if locations.of(warehouse).is_shared:
        seen = lease.seen(warehouse)
        if seen is None or seen.state.holder is None:
            return None
        renewed = datetime.fromtimestamp(seen.at, UTC)
        return (
            f"{described(seen.state.holder)}; its lease was renewed at {renewed:%Y-%m-%d %H:%M:%S} UTC "
            f"and ends {seen.state.seconds:.0f} s after the last renewal"
        )
    directory = directory_of(warehouse)
    if directory is None:
        return None
    is_held = locations.of(os.fspath(directory)).is_locked(NAME)
    return described(_said(directory / NAME)) if is_held else None


def _acquire(attempt: Callable[[], str | None], location: str, settings: Settings) -> None:
    """Attempt until nobody holds the lock any more; an attempt describes who does.

    Raises WriterBusy: somebody held it until the wait ended.
    """
    wait_seconds = settings.lock.wait_seconds
    deadline = time.monotonic() + wait_seconds
    announced = False
    while holder := attempt():
        left = deadline - time.monotonic()
        if left <= 0:
            raise WriterBusy(f"Another writer is at work on {s3.shown(location)}: {holder}; try again when it is done.")
        if not announced:
            print(f"Waiting up to {wait_seconds:.0f} s for another writer: {holder}.", file=sys.stderr)
            announced = True
        time.sleep(min(pause(settings.warehouse), left))


def _locked(descriptor: int, path: Path) -> str | None:
    """Lock a file, or describe who holds it."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return described(_said(path))
    return None


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


def _said(path: Path) -> lease.Facts | None:
    """Return what the holder of a lock wrote into its file; None if it has not yet."""
    try:
        said: lease.Facts = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return said
