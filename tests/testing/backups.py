"""A small warehouse of all that a backup has to keep, made without a JVM, and what is in one, to compare it."""

from __future__ import annotations

import random
import shutil
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pyarrow as pa  # type: ignore[import-untyped]
import pytest
from deltalake import DeltaTable, write_deltalake

from pipelines.replay import kept
from pipelines.replay.journal import Journal, journal_store
from pipelines.settings import Settings
from pipelines.stores.base import STATE, Store
from pipelines.stores.directory import Directory
from pipelines.warehouse import actions, databases, progress
from pipelines.warehouse.progress import Batch, Progress, Reading
from pipelines.warehouse.tables import PROPERTIES, Warehouse
from tests.testing.replays import numbered

INPUT, READER, REPLAYED = "bronze.dlq_records", "silver.dlq_records", "gold.replays"
TABLES = (INPUT, READER, "held.dlq_records", "quarantine.dlq_records", "gold.dlq_summary", REPLAYED, "quality.gaps")
OUTBOX = "_alerts/default/outbox.json"


def delta(warehouse: Warehouse, table: str) -> DeltaTable:
    return DeltaTable(
        warehouse.store.for_deltalake(warehouse.table_path(table)), storage_options=warehouse.store.options()
    )


def change(warehouse: Warehouse, table: str, what: str, numbers: list[int]) -> None:
    """Change a table in a way that runs do, too."""
    warehouse.store.forget(warehouse.log(table))
    if what == "delete":
        delta(warehouse, table).delete(f"number % 3 = {numbers[0] % 3}")
    elif what == "update":
        delta(warehouse, table).update({"number": "number + 100"}, predicate=f"number < {numbers[0]}")
    elif what == "compact":
        delta(warehouse, table).optimize.compact()
    elif what == "checkpoint":
        delta(warehouse, table).create_checkpoint()
    else:
        write_deltalake(
            warehouse.store.for_deltalake(warehouse.table_path(table)),
            pa.table({"number": numbers}),
            mode=what,  # type: ignore[arg-type]
            configuration=dict(PROPERTIES),
            storage_options=warehouse.store.options(),
        )


CHANGES = ("append", "append", "overwrite", "delete", "update", "compact", "checkpoint")


def filled(settings: Settings, seed: int = 0) -> Warehouse:
    """Return a warehouse with tables, a stage that is behind, a journal, alerts and an action that waits."""
    warehouse, drawn = Warehouse(settings), random.Random(seed)
    for table in TABLES:
        change(warehouse, table, "append", [1, 2, 3])
    read_on(warehouse)
    work(warehouse, drawn, 12)
    with Journal.of(settings) as journal:
        journal.add("planned")
        journal.begin("planned", "me")
        journal.claim("planned", numbered(4, "orders"), again=False)
        journal.add("untouched")
    warehouse.store.write(OUTBOX, b'{"known": {}, "pending": [], "log": [], "sent": {}}')
    warehouse.store.write(f"{STATE}/unreported.json", b"{}")
    actions.act(warehouse, "7KQ2-MD4X", actions.NOTE, note="a note")
    return warehouse


def work(warehouse: Warehouse, drawn: random.Random, times: int = 1) -> None:
    """Change tables and a stage's progress."""
    for _ in range(times):
        numbers = [drawn.randrange(20) for _ in range(3)]
        change(warehouse, drawn.choice((INPUT, *TABLES)), drawn.choice(CHANGES), numbers)
        if drawn.random() < 0.3:
            read_on(warehouse)


def read_on(warehouse: Warehouse) -> None:
    """Let the stage fix a batch up to the last version, or complete the one that it fixed."""
    opened = delta(warehouse, INPUT)
    known = progress.load(warehouse, READER) or Progress(inputs={INPUT: Reading(str(opened.metadata().id))})
    if known.pending:
        known = known.done(0)
    else:
        known = replace(known, pending={INPUT: Batch(known.version_of(INPUT), opened.version())})
    progress.save(warehouse, READER, known)


def readable(warehouse: Warehouse) -> dict[str, Any]:
    """Return what a warehouse holds: rows of tables, what the stage has still to read, and state by path."""
    found: dict[str, Any] = {}
    for table in TABLES:
        warehouse.store.forget(warehouse.log(table))
        opened = delta(warehouse, table)
        found[table] = (opened.version(), sorted(opened.to_pyarrow_table()["number"].to_pylist()))
    known = progress.load(warehouse, READER)
    assert known is not None
    found["progress"] = known
    start = known.version_of(INPUT)
    last = delta(warehouse, INPUT).version()
    if start is not None and start < last:
        feed = delta(warehouse, INPUT).load_cdf(starting_version=start + 1, ending_version=last)
        found["changes"] = sorted(map(str, pa.table(feed).select(["number", "_change_type"]).to_pylist()))
    if batch := known.pending.get(INPUT):
        at_end = delta(warehouse, INPUT)
        at_end.load_as_version(batch.end)
        found["at the end"] = sorted(at_end.to_pyarrow_table()["number"].to_pylist())
    for directory in ("_actions", "_alerts/default"):
        for file in warehouse.store.files(directory):
            found[f"{directory}/{file.name}"] = warehouse.store.read(f"{directory}/{file.name}")
    with databases.in_memory(kept.snapshot(journal_store(warehouse.settings)) or b"") as journal:
        found["claims"] = journal.execute("SELECT topic, record, plan_id, produced FROM claims").fetchall()
        found["plans"] = journal.execute("SELECT plan_id, state, attempted FROM plans").fetchall()
    return found


def lose(store: Store, directory: str = "") -> None:
    """Remove all that is below a directory of a store."""
    if isinstance(store, Directory):
        shutil.rmtree(store.root)
        return
    files = {file.name for file in store.files(directory)} if directory else set()
    for name in store.names(directory):
        path = f"{directory}/{name}".lstrip("/")
        if name in files or not store.names(path):
            store.remove(path)
        else:
            lose(store, path)


class Killed(BaseException):
    """Stands for a process that is killed; no handler of `Exception` catches it."""


@contextmanager
def killed_at(number: int) -> Iterator[list[str]]:
    """Let a directory be written or changed ``number`` times, and then no more; yield what was written."""
    done: list[str] = []
    counting = threading.Lock()
    with pytest.MonkeyPatch.context() as patched:
        for name in ("write", "remove"):
            method: Callable[..., Any] = getattr(Directory, name)

            def dying(store: Directory, path: str, *rest: Any, of: Any = method, **named: Any) -> Any:
                with counting:
                    if len(done) >= number:
                        raise Killed
                    done.append(path)
                return of(store, path, *rest, **named)

            patched.setattr(Directory, name, dying)
        yield done
