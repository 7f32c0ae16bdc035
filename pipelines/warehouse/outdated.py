"""A table -> the files that nobody reads any more: data and commits of old versions, leftovers of crashes, checkpoints.

Delta's rules for VACUUM hold (protocol, "Change Data Files" and "Remove File"): a file goes some days after a version
left it out. Those for its log hold, too ("Metadata Cleanup"): what goes is before a checkpoint that stays. What a stage
has still to read as changes stays, however old it is.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import takewhile
from urllib.parse import unquote

from pipelines import moments
from pipelines.stage import Stage
from pipelines.stores.base import File
from pipelines.warehouse import few_rows, progress
from pipelines.warehouse.change_feed import changed_files
from pipelines.warehouse.clock import Written
from pipelines.warehouse.tables import Warehouse

LEAST_DAYS = 7  # a query, or a reader of changes, may be in the middle of a version that is not the last one
KEPT_CHECKPOINTS = 2
CHECKPOINTED_EVERY = 10  # commits, as Spark does; ``deltalake`` does it every 100
_CHECKPOINT = re.compile(r"\d{20}\.checkpoint\.parquet")
_OF_VERSION = re.compile(r"\d{20}\.(?:json|crc|checkpoint\.parquet)")
CHANGES = "_change_data"


@dataclass(frozen=True)
class Outdated:
    """Files of a table that can go, with their paths below its directory and their sizes in bytes.

    ``readers`` are the stages on whose account older files stay. If the log lacks a commit that one of them has still
    to read, nothing of the table can go, and ``unread`` is that version. If the table ``lacks_checkpoint``, its log has
    so many commits behind the newest one that another is due, before which they can go in time.
    """

    table: str
    files: Mapping[str, int]
    log_files: Mapping[str, int]
    readers: tuple[str, ...] = ()
    unread: int | None = None
    lacks_checkpoint: bool = False

    @property
    def paths(self) -> dict[str, int]:
        """All paths that can go."""
        return {**self.files, **self.log_files}


def outdated(warehouse: Warehouse, table: str, stages: Iterable[Stage], days: float) -> Outdated:
    """Return which files of a table nobody has needed for so many days.

    Raises the errors of ``Warehouse.opened_table``.
    """
    kept: set[str] = set()
    readers, needed = [], []
    for stage in stages:
        if table not in (stage.table, *stage.inputs):
            continue
        known = progress.load(warehouse, stage.table)
        if table == stage.table:  # its next run looks for its own commit behind this version
            needed += [known.target_version or 0] if known else []
            continue
        if (read := _read(warehouse, table, known)) is not None:
            needed.append(read)
        wanted = unread(warehouse, table, known, warehouse.last_version(table))
        if isinstance(wanted, int):
            return Outdated(table, {}, {}, (stage.table,), wanted)
        if wanted:
            kept |= wanted
            readers.append(stage.table)
    opened, now, written = warehouse.opened_table(table), moments.now(), Written.of(warehouse)
    before = written.surely(now - timedelta(days=days))
    hours = math.ceil((now - before) / timedelta(hours=1))
    listed = opened.vacuum(hours, dry_run=True, full=True, enforce_retention_duration=False)
    table_path = warehouse.table_path(table)
    there = {
        f"{within}{file.name}": file.size
        for within in ("", f"{CHANGES}/")
        for file in warehouse.store.files(f"{table_path}/{within}".rstrip("/"))
    }
    # A file that is named here and not listed there is in a directory that Afterlog did not make.
    files = {path: there[path] for path in sorted(listed) if path in there and path not in kept}
    log = [file for file in warehouse.store.files(warehouse.log(table)) if _OF_VERSION.fullmatch(file.name)]
    past = _past(log, before, min(needed, default=None))
    needless = _checkpoints(log[len(past) :], written.surely(now - timedelta(days=1)))
    log_files = {f"_delta_log/{file.name}": file.size for file in (*past, *needless)}
    commits = [file.name for file in log if file.name.endswith(".json")]
    newest = max((file.name[:20] for file in log if _CHECKPOINT.fullmatch(file.name)), default="")
    is_due = sum(name[:20] > newest for name in commits) >= CHECKPOINTED_EVERY and few_rows.is_plain(opened)
    return Outdated(table, files, log_files, tuple(readers), lacks_checkpoint=is_due)


def unread(warehouse: Warehouse, table: str, known: progress.Progress | None, last: int | None) -> set[str] | int:
    """Return the paths of a table's files, up to a version, that a stage has still to read, by its progress.

    Return the version of a commit if that is to be read and gone.
    """
    read = _read(warehouse, table, known)
    if known is None or read is None or last is None:
        return set()  # it will read all rows of the last version
    paths: set[str] = set()
    for version in range(read + 1, last + 1):
        actions = warehouse.commit(table, version)
        if not actions:
            return version
        paths.update(unquote(path) for named in changed_files(actions).values() for path in named)
    if batch := known.pending.get(table):  # a summary reads groups of the version at which its batch ends, as well
        paths.update(paths_at(warehouse, table, batch.end))
    return paths


def _read(warehouse: Warehouse, table: str, known: progress.Progress | None) -> int | None:
    """Return the version behind which a stage reads a table on, by its progress; None if it reads all rows anew."""
    reading = known.inputs.get(table) if known else None
    if known is None or reading is None or reading.table_id != warehouse.table_id(table):
        return None
    batch = known.pending.get(table)
    if batch is None:
        return reading.version
    return batch.end if batch.start is None else batch.start  # of a batch from the beginning it reads that version


def paths_at(warehouse: Warehouse, table: str, version: int) -> Iterator[str]:
    """Yield the paths of the data files of a version."""
    yield from map(unquote, warehouse.opened_table(table, version).get_add_actions()["path"].to_pylist())


def _past(log: Sequence[File], before: datetime, needed: int | None) -> list[File]:
    """Return the first files of a sorted log, all from before a time, that only versions from before it need.

    They are of versions before a checkpoint that is not the newest one, as that could be damaged. The commits behind
    the ``needed`` version stay.
    """
    old = list(takewhile(lambda file: file.modified_at < before, log))
    checkpoints = [file for file in log if _CHECKPOINT.fullmatch(file.name)][: 1 - KEPT_CHECKPOINTS]
    newest = old[-1].name if old else ""
    begins = [
        file.name[:20]
        for file in checkpoints
        if file.name <= newest and (needed is None or int(file.name[:20]) <= needed)
    ]
    return [file for file in old if begins and file.name[:20] < begins[-1]]


def _checkpoints(log: Sequence[File], before: datetime) -> list[File]:
    """Return the checkpoints of a log from before a time, but the first, the newest, and the last one of each day.

    Every version can still be read, by the checkpoint before it and the commits since.
    """
    found = [file for file in log if _CHECKPOINT.fullmatch(file.name)]
    of_days = {file.modified_at.astimezone(UTC).date(): file for file in found}
    stay = [*of_days.values(), *found[:1], *found[-KEPT_CHECKPOINTS:]]
    return [file for file in found if file not in stay and file.modified_at < before]
