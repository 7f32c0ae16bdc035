"""Run a command of Afterlog and kill it with -9 at a named point: ``killed.py POINT COMMAND...``.

``killed_at`` stops work in this process at such a point, which needs no JVM of its own. This file patches the points
in; production code knows nothing of them.
"""

from __future__ import annotations

import itertools
import os
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from pipelines.stores import restored
from pipelines.stores.directory import Directory
from pipelines.warehouse import backups, progress, quality
from pipelines.warehouse.tables import Warehouse


class Killed(BaseException):
    """Stands for a process that is killed; no handler of `Exception` catches it."""


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


@contextmanager
def killed_at(point: str) -> Iterator[None]:
    """Raise Killed at a point of the work of this block, and expect it; nothing is reported as the run ends."""

    def stopped() -> None:
        raise Killed

    with pytest.MonkeyPatch.context() as patched:
        patched.setitem(globals(), "die", stopped)
        patched.setattr(quality, "report", lambda warehouse: None)
        for module, name in PATCHED:
            patched.setattr(module, name, getattr(module, name))  # so that it is restored
        POINTS[point]()
        with pytest.raises(Killed):
            yield


PATCHED: tuple[tuple[Any, str], ...] = (
    (progress, "save"),
    (quality, "record_gaps"),
    *((Warehouse, name) for name in ("insert", "remove_where", "remove_matching", "replace_groups")),
)


def die_after(module: Any, name: str, when: Callable[..., bool]) -> None:
    """Kill the process after a call of a function for which ``when`` holds."""
    function = getattr(module, name)

    def dying(*arguments: Any, **named: Any) -> Any:
        result = function(*arguments, **named)
        if when(*arguments, **named):
            die()
        return result

    setattr(module, name, dying)


def die_before(module: Any, name: str, when: Callable[..., bool]) -> None:
    """Kill the process before a call of a function for which ``when`` holds."""
    function = getattr(module, name)

    def dying(*arguments: Any, **named: Any) -> Any:
        if when(*arguments, **named):
            die()
        return function(*arguments, **named)

    setattr(module, name, dying)


def inserts_into(table: str) -> Callable[..., bool]:
    return lambda warehouse, rows, contract, *rest, **named: bool(contract.table == table)


def finishes(table: str) -> Callable[..., bool]:
    return lambda warehouse, of, saved: bool(of == table and not saved.pending)


def named(begin: str, within: str = "", times: int = 1) -> Callable[..., bool]:
    """Return what holds from the nth call on about a file whose name begins so, or has a part."""
    calls = itertools.count(1)
    return lambda store, name, *rest, **more: name.startswith(begin) and within in name and next(calls) >= times


def fixes_a_verdict(warehouse: Warehouse, of: str, saved: Any) -> bool:
    return bool(of == "silver.dlq_records" and saved.decided)


def fixes_a_batch_of_topics(warehouse: Warehouse, of: str, saved: Any) -> bool:
    return any(reach.pending for reach in saved.topics.values())


def keeps_a_gap(warehouse: Warehouse, of: str, saved: Any) -> bool:
    return any(reach.gaps for reach in saved.topics.values())


def without_a_commit(rows: Any, path: str) -> None:
    """Leave data files in a table's directory, as a writer does that dies before its commit."""
    rows.write.format("parquet").mode("append").save(path)


def die_between_data_files_and_commit() -> None:
    insert = Warehouse.insert

    def dying(warehouse: Warehouse, rows: Any, contract: Any, *rest: Any, **named: Any) -> int:
        if contract.table == "silver.dlq_records":
            names = [column.name for column in contract.stored]
            without_a_commit(rows.select(names), warehouse.location(contract.table))
            die()
        return insert(warehouse, rows, contract, *rest, **named)

    Warehouse.insert = dying  # type: ignore[method-assign]


POINTS: dict[str, Callable[[], None]] = {
    "after bronze, before its progress": lambda: die_before(progress, "save", finishes("bronze.dlq_records")),
    "after a batch of topics is fixed": lambda: die_after(progress, "save", fixes_a_batch_of_topics),
    "after records of topics, before their progress": lambda: die_after(
        Warehouse, "insert", inserts_into("bronze.dlq_records")
    ),
    "after a gap is kept, before it is recorded": lambda: die_after(progress, "save", keeps_a_gap),
    "after a gap is recorded": lambda: die_after(quality, "record_gaps", lambda *arguments: True),
    "after data files, before their commit": die_between_data_files_and_commit,
    "between quarantine and silver": lambda: die_after(Warehouse, "insert", inserts_into("quarantine.dlq_records")),
    "between silver and progress": lambda: die_after(Warehouse, "insert", inserts_into("silver.dlq_records")),
    "after a verdict is fixed": lambda: die_after(progress, "save", fixes_a_verdict),
    "after rows are held": lambda: die_after(Warehouse, "insert", inserts_into("held.dlq_records")),
    "before held rows are released": lambda: die_before(Warehouse, "remove_where", lambda *arguments: True),
    "after held rows are released": lambda: die_after(Warehouse, "remove_where", lambda *arguments: True),
    "during gold": lambda: die_before(Warehouse, "replace_groups", lambda *given, **named: True),
    "between gold and progress": lambda: die_before(progress, "save", finishes("gold.dlq_summary")),
    "readmit, before rows leave quarantine": lambda: die_before(Warehouse, "remove_matching", lambda *arguments: True),
    "readmit, before violations are refreshed": lambda: die_after(
        Warehouse, "remove_matching", lambda *arguments: True
    ),
    "backup, while files are copied": lambda: die_after(Directory, "write", named(backups.FILES, times=5)),
    "backup, before its manifest": lambda: die_before(Directory, "write", named(backups.MANIFESTS)),
    "backup, after its manifest": lambda: die_after(Directory, "write", named(backups.MANIFESTS)),
    "backup, before an older one goes": lambda: die_before(Directory, "remove", named(backups.MANIFESTS)),
    "backup, before files of an older one go": lambda: die_before(Directory, "remove", named(backups.FILES)),
    "restore, after its mark": lambda: die_after(Directory, "write", named(restored.FILE)),
    "restore, while files are written": lambda: die_after(Directory, "write", named("", times=9)),
    "restore, before commits are written": lambda: die_before(Directory, "write", named("", within="/_delta_log/")),
    "restore, before it is whole": lambda: die_after(Directory, "write", named(backups.NOTE)),
}

if __name__ == "__main__":
    POINTS[sys.argv[1]]()
    sys.argv[1:] = sys.argv[2:]
    from pipelines.cli import main

    main()
