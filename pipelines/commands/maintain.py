"""Remove what nobody reads any more from a warehouse, and rows that are older than the settings want.

See ``pipelines.warehouse.outdated`` and ``pipelines.steps.retention`` for what that is.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from expectations.rules import counted
from pipelines import moments
from pipelines.catalog import CATALOG
from pipelines.commands import display
from pipelines.commands.stored import stored
from pipelines.errors import UsageError, WriterBusy, of_unopened
from pipelines.settings import Settings
from pipelines.steps import retention
from pipelines.stores import lock
from pipelines.text import first_names, iso, size_of
from pipelines.warehouse import backups, rewriting
from pipelines.warehouse.clock import Written
from pipelines.warehouse.outdated import LEAST_DAYS, Outdated, outdated
from pipelines.warehouse.tables import Warehouse

MOST_NAMED = 3
NAMES = ("table", "rows", "their bytes", "files", "their bytes", "files of logs", "their bytes")


@dataclass(frozen=True)
class Maintained:
    """What went, or would go, of a table: files of old versions, files of its log, with their sizes in bytes.

    ``kept_for`` names the stages that have still to read older files. ``rows`` went by their age, from ``row_files``;
    roughly ``row_bytes`` of them become free when their files are those of an old version. They wait for ``unread_by``.
    Of a table whose log cannot be read nothing went; ``unreadable`` says so in a sentence.
    """

    table: str
    files: int
    file_bytes: int
    log_files: int
    log_bytes: int
    kept_for: tuple[str, ...] = ()
    rows: int = 0
    row_files: int = 0
    row_bytes: int = 0
    unread_by: str | None = None
    unreadable: str | None = None

    @classmethod
    def of(cls, found: Outdated) -> Maintained:
        """Count what can go of a table."""
        return cls(
            found.table,
            len(found.files),
            sum(found.files.values()),
            len(found.log_files),
            sum(found.log_files.values()),
            found.readers,
        )


def refuse_younger(days: int) -> None:
    """Raise UsageError if files could go that a reader is in the middle of."""
    if days < LEAST_DAYS:
        raise UsageError(
            f"--older-than {days} is refused: a reader may be in the middle of a version for {LEAST_DAYS} days, so "
            f"nothing younger goes; take {LEAST_DAYS} or more."
        )


def maintain(
    settings: Settings, days: int, is_dry_run: bool, say: Callable[[str], None], now: datetime | None = None
) -> Iterator[Maintained]:
    """Remove from each table rows by their age, and what nobody has needed for so many days; yield what went.

    The writer's lock is held for one table at a time, and only where something goes, so that a follower goes on. A
    table whose log cannot be read keeps no other from its turn.

    Raises UsageError: no warehouse yet, only Spark opens it, or the settings name a table whose rows stay. WriterBusy:
    a backup is being made, or another process writes for longer than ``lock.wait_seconds``; what went before stays
    gone, and a rerun goes on.
    """
    warehouse, now = Warehouse(settings), now or moments.now()
    retention.check(settings)
    written = Written.of(warehouse)
    if (kept := written.surely(before := now - timedelta(days=days))) < before:
        say(
            f"A writer's clock was behind since {iso(kept)}: what is stamped later stays for now, as it may be "
            "younger than it looks."
        )
    for table in stored(warehouse, "maintain works"):
        try:
            aged = _aged(warehouse, table, now, written, is_dry_run, say)
            found = _without_outdated(warehouse, table, days, is_dry_run)
        except Exception as error:
            yield Maintained(table, 0, 0, 0, 0, unreadable=of_unopened(error))
            continue
        if found.unread is not None:
            say(
                f"Nothing of {table} goes: {found.readers[0]} has still to read version {found.unread}, which is no "
                "longer in its log; `afterlog run` says what to do."
            )
        elif found.readers:
            say(f"{table} keeps files that these have still to read: {first_names(found.readers, MOST_NAMED)}.")
        yield replace(
            Maintained.of(found),
            rows=sum(rewritten.rows for rewritten in aged),
            row_files=sum(len(rewritten.files) for rewritten in aged),
            row_bytes=sum(rewritten.freed for rewritten in aged),
            unread_by=aged[-1].unread_by if aged else None,
        )


def _without_outdated(warehouse: Warehouse, table: str, days: int, is_dry_run: bool) -> Outdated:
    """Remove what nobody has needed of a table for so many days; return what went, or would go."""
    found = outdated(warehouse, table, CATALOG, days)
    if not (found.paths or found.lacks_checkpoint) or is_dry_run:
        return found
    with unless_backed_up(warehouse, "afterlog maintain"), lock.writer(warehouse.settings, "afterlog maintain"):
        found = outdated(warehouse, table, CATALOG, days)  # a run may have begun a batch meanwhile
        for path in found.paths:
            warehouse.store.checked()
            warehouse.store.remove(f"{warehouse.table_path(table)}/{path}")
        if found.lacks_checkpoint:
            rewriting.checkpoint(warehouse, table)
        warehouse.store.forget(warehouse.log(table))
    return found


def _aged(
    warehouse: Warehouse, table: str, now: datetime, written: Written, is_dry_run: bool, say: Callable[[str], None]
) -> list[retention.Found]:
    """Remove the rows of a table that are too old; return what went, or would go, step by step."""
    rule = retention.aged(warehouse.settings, table, now, written)
    if rule is None:
        return []
    done = [retention.found(warehouse, rule)] if is_dry_run else [*retention.remove(warehouse, rule)]
    if unread := done[-1].unread_by:
        say(f"No row of {table} goes by its age now: {unread} has still to read some.")
    return done


@contextlib.contextmanager
def unless_backed_up(warehouse: Warehouse, purpose: str) -> Iterator[None]:
    """Keep backups from beginning.

    Raises WriterBusy: one is being made, which has still to copy what would go.
    """
    with warehouse.store.lock(backups.LOCK, purpose) as is_held:
        if not is_held:
            raise WriterBusy(
                f"A backup of {warehouse.shown} is being made: nothing goes until it is done; try again then."
            )
        yield


def totals(done: Sequence[Maintained]) -> dict[str, int]:
    """Return how many files, files of logs, bytes and rows went of all tables."""
    return {
        "files": sum(tended.files for tended in done),
        "log_files": sum(tended.log_files for tended in done),
        "bytes": sum(tended.file_bytes + tended.log_bytes for tended in done),
        "rows": sum(tended.rows for tended in done),
        "row_bytes": sum(tended.row_bytes for tended in done),
    }


def show(done: Sequence[Maintained], is_dry_run: bool) -> None:
    """Print what went of each table of which something went, and of all tables together."""
    rows = [
        [
            tended.table,
            *(f"{tended.rows:,}", size_of(tended.row_bytes)),
            *(f"{tended.files:,}", size_of(tended.file_bytes)),
            *(f"{tended.log_files:,}", size_of(tended.log_bytes)),
        ]
        for tended in done
        if tended.rows or tended.files or tended.log_files
    ]
    if rows:
        display.table(NAMES, rows, 1, {}, 0)
    went, verb = totals(done), "would go" if is_dry_run else "went"
    files, log_files = counted(went["files"], "file"), counted(went["log_files"], "file")
    print(f"{files} of old versions and {log_files} of logs {verb}, {size_of(went['bytes'])} in all.")
    if went["rows"]:
        rows_, freed = counted(went["rows"], "row"), size_of(went["row_bytes"])
        print(f"{rows_} {verb} by their age; their files, roughly {freed}, go {LEAST_DAYS} days later.")
