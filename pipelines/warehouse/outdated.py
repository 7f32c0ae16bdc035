"""A table -> the files that nobody reads any more: data of old versions, leftovers of crashes, needless checkpoints.

Delta's rules for VACUUM hold (protocol, "Change Data Files" and "Remove File"): a file goes some days after a version
left it out. Files that a stage has still to read as changes stay, however old they are. No commit is removed.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from urllib.parse import unquote

from pipelines import moments
from pipelines.stage import Stage
from pipelines.stores.base import File
from pipelines.warehouse import progress
from pipelines.warehouse.change_feed import changed_files
from pipelines.warehouse.clock import Written
from pipelines.warehouse.tables import Warehouse

LEAST_DAYS = 7  # a query, or a reader of changes, may be in the middle of a version that is not the last one
KEPT_CHECKPOINTS = 2
_CHECKPOINT = re.compile(r"(\d{20})\.checkpoint\.parquet")
CHANGES = "_change_data"


@dataclass(frozen=True)
class Outdated:
    """Files of a table that can go, with their paths below its directory and their sizes in bytes.

    ``readers`` are the stages on whose account older files stay. If the log lacks a commit that one of them has still
    to read, nothing of the table can go, and ``unread`` is that version.
    """

    table: str
    files: Mapping[str, int]
    checkpoints: Mapping[str, int]
    readers: tuple[str, ...] = ()
    unread: int | None = None

    @property
    def paths(self) -> dict[str, int]:
        """All paths that can go."""
        return {**self.files, **self.checkpoints}


def outdated(warehouse: Warehouse, table: str, stages: Iterable[Stage], days: float) -> Outdated:
    """Return which files of a table nobody has needed for so many days.

    Raises the errors of ``Warehouse.opened_table``.
    """
    kept: set[str] = set()
    readers = []
    for stage in stages:
        if table not in stage.inputs:
            continue
        wanted = unread(warehouse, table, progress.load(warehouse, stage.table), warehouse.last_version(table))
        if isinstance(wanted, int):
            return Outdated(table, {}, {}, (stage.table,), wanted)
        if wanted:
            kept |= wanted
            readers.append(stage.table)
    opened, now, written = warehouse.opened_table(table), moments.now(), Written.of(warehouse)
    hours = math.ceil((now - written.surely(now - timedelta(days=days))) / timedelta(hours=1))
    listed = opened.vacuum(hours, dry_run=True, full=True, enforce_retention_duration=False)
    place = warehouse.place(table)
    there = {
        f"{within}{file.name}": file.size
        for within in ("", f"{CHANGES}/")
        for file in warehouse.store.files(f"{place}/{within}".rstrip("/"))
    }
    # A file that is named here and not listed there is in a directory that Afterlog did not make.
    files = {path: there[path] for path in sorted(listed) if path in there and path not in kept}
    checkpoints = _checkpoints(warehouse, table, written.surely(now - timedelta(days=1)))
    return Outdated(table, files, checkpoints, tuple(readers))


def unread(warehouse: Warehouse, table: str, known: progress.Progress | None, last: int | None) -> set[str] | int:
    """Return the paths of a table's files, up to a version, that a stage has still to read, by its progress.

    Return the version of a commit if that is to be read and gone.
    """
    reading = known.inputs.get(table) if known else None
    if known is None or reading is None or last is None or reading.table_id != warehouse.table_id(table):
        return set()  # it will read all rows of the last version
    paths: set[str] = set()
    batch = known.pending.get(table)
    read = batch.start if batch else reading.version
    if batch and read is None:  # it reads all rows of the version at which its batch ends
        read = batch.end
    if read is None:
        return paths
    for version in range(read + 1, last + 1):
        actions = warehouse.commit(table, version)
        if not actions:
            return version
        paths.update(unquote(path) for named in changed_files(actions).values() for path in named)
    if batch:  # a summary reads groups of the version at which its batch ends, as well
        paths.update(paths_at(warehouse, table, batch.end))
    return paths


def paths_at(warehouse: Warehouse, table: str, version: int) -> Iterator[str]:
    """Yield the paths of the data files of a version."""
    yield from map(unquote, warehouse.opened_table(table, version).get_add_actions()["path"].to_pylist())


def _checkpoints(warehouse: Warehouse, table: str, before: datetime) -> dict[str, int]:
    """Return a table's checkpoints from before a time, but the first, the newest, and the last one of each day.

    Every version can still be read, by the checkpoint before it and the commits since.
    """
    log = warehouse.log(table)
    found: list[File] = [file for file in warehouse.store.files(log) if _CHECKPOINT.fullmatch(file.name)]
    of_days = {file.modified_at.astimezone(UTC).date(): file.name for file in found}
    stay = {*of_days.values(), *(file.name for file in (*found[:1], *found[-KEPT_CHECKPOINTS:]))}
    return {
        f"_delta_log/{file.name}": file.size for file in found if file.name not in stay and file.modified_at < before
    }
