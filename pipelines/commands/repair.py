"""A damaged warehouse -> one that can be read again: what is broken is taken out, and stages make its rows again.

Writes are idempotent on the grain: a stage without progress reads all of its input again and inserts what is missing.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from expectations.rules import counted
from pipelines.catalog import CATALOG
from pipelines.commands.stored import stored
from pipelines.errors import AfterlogError
from pipelines.settings import Settings
from pipelines.stage import Land, Stage
from pipelines.stores import lock
from pipelines.warehouse import damage, delta_log, progress, rewriting
from pipelines.warehouse.tables import Warehouse

AWAY = "_damaged"
"""Where files go that keep a log from being read."""


@dataclass(frozen=True)
class Repaired:
    """What was wrong with a table, or with progress, and what was or would be done about it.

    ``rows`` are those of data files that are missing, cut off or changed; null where nobody knows. ``is_done`` is false
    where nothing can be done, or only with ``--accept-loss``.
    """

    table: str
    finding: str
    action: str
    rows: int | None = None
    is_done: bool = True


def repair(settings: Settings, is_dry_run: bool, accepts_loss: bool) -> Iterator[Repaired]:
    """Repair each table that is damaged, then forget the progress of stages that have rows to make again.

    All files are read while others write; the lock is for tables in which something was found: they are read again.
    A kill between two steps leaves what a rerun goes on with.

    Raises UsageError: no warehouse yet, or only Spark opens it. WriterBusy: another process writes.
    """
    warehouse = Warehouse(settings)
    tables = stored(warehouse, "repair works")
    if is_dry_run:
        yield from _repaired(warehouse, tables, True, accepts_loss)
        return
    damaged = [table for table in tables if _is_damaged(warehouse, table)]
    with lock.writer(settings, "afterlog repair"):
        yield from _repaired(warehouse, damaged, False, accepts_loss)


def _is_damaged(warehouse: Warehouse, table: str) -> bool:
    """Tell whether something of a table seems damaged; what another process removes meanwhile seems to be."""
    try:
        if any(_log(warehouse, table, is_dry_run=True)) or warehouse.missing_commit(table) is not None:
            return True
        return bool(warehouse.damaged_files(table) or damage.unreadable_files(warehouse, table))
    except AfterlogError:
        return True


def _repaired(warehouse: Warehouse, tables: Sequence[str], is_dry_run: bool, accepts_loss: bool) -> Iterator[Repaired]:
    for table in tables:
        yield from _log(warehouse, table, is_dry_run)
        if (gap := warehouse.missing_commit(table)) is not None:
            action = "Restore it from a backup, or move the table away: `afterlog run` fills it again from its input."
            yield Repaired(table, f"Commit {gap} of its log is missing.", action, is_done=False)
            continue
        try:
            damaged = sorted({*warehouse.damaged_files(table), *damage.unreadable_files(warehouse, table)})
        except AfterlogError as error:  # the log is damaged, of which the dry run has told, or it is no table of ours
            if not is_dry_run:
                yield Repaired(table, str(error), "Nothing was done.", is_done=False)
            continue
        if damaged:
            yield _files(warehouse, table, damaged, is_dry_run, accepts_loss)
    for stage in CATALOG:
        name = progress.file_of(stage.table)
        text = warehouse.store.text(name)
        if text is not None and progress.parsed(text) is None:
            if not is_dry_run:
                warehouse.store.remove(name)
            yield Repaired(stage.table, "Its progress cannot be read.", _again([stage]))


def _log(warehouse: Warehouse, table: str, is_dry_run: bool) -> Iterator[Repaired]:
    """Move a damaged checkpoint, or what names one, out of a log that can do without it."""
    store, table_path, log = warehouse.store, warehouse.table_path(table), warehouse.log(table)
    fault = delta_log.fault(store, table_path)
    if fault is None:
        try:
            warehouse.opened_table(table)
            return
        except Exception:  # a reader's error of any kind
            fault = delta_log.fault(store, table_path, refused=True)
    if fault is None:
        return
    if not fault.away:
        if warehouse.missing_commit(table) is None:
            yield Repaired(table, fault.finding, fault.remedy, is_done=False)
        return
    if not is_dry_run:
        for name in fault.away:
            store.checked()
            store.write(f"{AWAY}/{table}/{name}", store.read(f"{log}/{name}") or b"")
            store.remove(f"{log}/{name}")
        store.forget(log)
    yield Repaired(table, fault.finding, f"{' and '.join(fault.away)} moved to {AWAY}/{table}; commits say the same.")


def _files(warehouse: Warehouse, table: str, damaged: Sequence[str], is_dry_run: bool, accepts_loss: bool) -> Repaired:
    """Take data files that are missing, cut off or changed out of a table, in a commit that is no news."""
    opened = warehouse.opened_table(table)
    added = opened.get_add_actions()
    sizes = dict(zip(added["path"].to_pylist(), added["size_bytes"].to_pylist(), strict=True))
    counts = dict(zip(added["path"].to_pylist(), added["num_records"].to_pylist(), strict=True))
    known = [counts[path] for path in damaged]
    rows = None if None in known else sum(known)
    finding = f"{counted(len(damaged), 'data file')} missing, cut off or changed, with {_counted(rows)}."
    makers = [stage for stage in CATALOG if table in _filled_by(stage)]
    if not makers and not accepts_loss:
        action = "No stage makes them again: restore a backup, or let them go with --accept-loss."
        return Repaired(table, finding, action, rows, is_done=False)
    if not is_dry_run:
        for stage in makers:  # first: a kill after the commit would leave nothing that says what is to be made again
            warehouse.store.remove(progress.file_of(stage.table))
        version = opened.version()
        after = rewriting.replace_files(
            warehouse, table, version, {path: sizes[path] for path in damaged}, [], "REPAIR"
        )
        rewriting.follow(warehouse, table, version, after)
    return Repaired(table, finding, _again(makers) if makers else "They are gone.", rows)


def _filled_by(stage: Stage) -> tuple[str, ...]:
    """Return the tables that a stage fills: its own, and those for rows that it refuses or holds."""
    layer, _, name = stage.table.partition(".")
    return (stage.table, *((f"held.{name}", f"quarantine.{name}") if layer == "silver" else ()))


def _again(stages: Iterable[Stage]) -> str:
    inputs = [
        f"what landed in {stage.directory}/, and its topics" if isinstance(stage, Land) else " and ".join(stage.inputs)
        for stage in stages
    ]
    return f"`afterlog run` makes them again from {' and '.join(inputs)}, as far as these still have them."


def _counted(rows: int | None) -> str:
    return "an unknown number of rows" if rows is None else counted(rows, "row")


def show(done: Sequence[Repaired], is_dry_run: bool) -> None:
    """Print what was found and done."""
    for mended in done:
        verb = "" if mended.is_done else "Not repaired. "
        planned = "Would do: " if is_dry_run and mended.is_done else ""
        print(f"{mended.table}: {mended.finding} {verb}{planned}{mended.action}")
    if not done:
        print("Nothing to repair.")
