"""A warehouse -> what belongs to a backup: a version of each table, with its log, and what lies beside the tables.

What lies beside them is all of the directories that begin with ``_``, so that a new one belongs to backups at once.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from pipelines import moments
from pipelines.stage import Stage
from pipelines.stores.base import STATE, File
from pipelines.warehouse import outdated, progress
from pipelines.warehouse.at_once import OPENED_AT_ONCE, at_once
from pipelines.warehouse.delta_log import LAST_CHECKPOINT
from pipelines.warehouse.tables import Warehouse

LEFT_OUT = ("_afterlog", "_reports", "_staged")
"""Leases, pages that are made anew, and rows that a batch stages for itself."""
OF_PROCESSES = (f"{STATE}/follow.json",)
_OF_VERSION = re.compile(r"(\d{20})\.(?:json|crc|checkpoint(?:\..+)?\.(?:parquet|json))")


@dataclass(frozen=True)
class Taken:
    """What was there at one moment: versions of tables, the files of their logs by path, and state by path."""

    at: datetime
    versions: Mapping[str, int]
    logs: Mapping[str, File]
    state: Mapping[str, bytes]


class Vanished(Exception):  # no error: whoever copies begins anew
    """A file that belongs to the backup is missing, or changed since; ``path`` is below the warehouse."""

    def __init__(self, path: str) -> None:
        """Keep the path."""
        super().__init__(path)
        self.path = path


def take(warehouse: Warehouse, tables: Sequence[str], databases: Mapping[str, bytes]) -> Taken:
    """Note what is there; the caller holds the locks of all writers, and gives the bytes of ``databases``.

    It reads no data file and opens no table, as writers wait for it.
    """
    at = moments.now()
    store = warehouse.store
    versions: dict[str, int] = {}
    logs: dict[str, File] = {}
    state: dict[str, bytes] = {}

    def look(table: str) -> None:
        log = warehouse.log(table)
        files = store.files(log)
        found = {f"{log}/{file.name}": file for file in files if _OF_VERSION.fullmatch(file.name)}
        logs.update(found)
        versions[table] = max(int(file.name[:20]) for file in found.values() if not file.name.endswith(".crc"))
        if any(file.name == LAST_CHECKPOINT for file in files):
            keep(f"{log}/{LAST_CHECKPOINT}")  # alone of a log it changes

    def keep(path: str) -> None:
        if (content := store.read(path)) is not None:
            state[path] = content

    at_once(OPENED_AT_ONCE, look, tables)
    roots = [name for name in store.names("") if name.startswith("_") and name not in LEFT_OUT]
    beside = {path for name in roots for path in store.walk(name) if _is_state(path, databases)}
    at_once(OPENED_AT_ONCE, keep, beside)
    return Taken(at, dict(sorted(versions.items())), logs, {**state, **databases})


def _is_state(path: str, databases: Iterable[str]) -> bool:
    """Tell whether a file is state: neither a lock, nor half written, nor of a running process, nor of a database."""
    *directories, name = path.split("/")
    if name.startswith(".") or name.endswith(".lock") or {*directories} & {*LEFT_OUT}:
        return False
    return path not in OF_PROCESSES and not any(path.startswith(database) for database in databases)


def data_files(warehouse: Warehouse, taken: Taken, stages: Sequence[Stage]) -> dict[str, File]:
    """Return the data files that belong to what was taken: of the versions, and what stages have still to read.

    Raises Vanished: one is missing. The errors of ``Warehouse.opened_table``.
    """
    read = {stage.table: _progress(taken, stage.table) for stage in stages}
    found: dict[str, File] = {}

    def look(table: str) -> None:
        version = taken.versions[table]
        paths = {*outdated.paths_at(warehouse, table, version)} if _was_written(warehouse, table, version) else set()
        for stage in stages:
            unread = outdated.unread(warehouse, table, read[stage.table], version) if table in stage.inputs else set()
            paths |= unread if isinstance(unread, set) else set()  # else the stage reads all anew, here as there
        table_path = warehouse.table_path(table)
        for within in {path[: path.rfind("/") + 1] for path in paths}:
            for file in warehouse.store.files(f"{table_path}/{within}".rstrip("/")):
                if f"{within}{file.name}" in paths:
                    found[f"{table_path}/{within}{file.name}"] = file
        if lacking := {f"{table_path}/{path}" for path in paths} - found.keys():
            raise Vanished(min(lacking))

    at_once(OPENED_AT_ONCE, look, taken.versions)
    return dict(sorted(found.items()))


def _progress(taken: Taken, table: str) -> progress.Progress | None:
    content = taken.state.get(progress.file_of(table))
    return None if content is None else progress.parsed(content.decode("utf-8", "replace"))


def _was_written(warehouse: Warehouse, table: str, version: int) -> bool:
    """Tell whether a version can have rows, with a request instead of those that open the table."""
    return version > 0 or any("add" in action for action in warehouse.commit(table, 0))
