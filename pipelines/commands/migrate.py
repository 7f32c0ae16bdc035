"""A warehouse of an earlier version -> one of this version; see ``pipelines.steps.migrate``."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from expectations.rules import counted
from pipelines.catalog import SCHEMA
from pipelines.commands import display
from pipelines.commands.stored import stored
from pipelines.run.contracts import contracts
from pipelines.settings import Settings
from pipelines.steps import migrate
from pipelines.steps.migrate import Migration
from pipelines.stores import lock
from pipelines.text import first_names
from pipelines.warehouse.tables import Warehouse

MOST_NAMED = 5


def migrated(settings: Settings, is_dry_run: bool) -> Iterator[Migration]:
    """Migrate the tables that need it; yield what each got, or would get. The lock is held for one table at a time.

    Raises UsageError: no warehouse yet, only Spark opens it, or a later version has changed it. WriterBusy: another
    process writes for longer than ``lock.wait_seconds``; a rerun goes on.
    """
    warehouse = Warehouse(settings)
    stored(warehouse, "migrate works")
    for contract, migration in migrate.needed(warehouse, contracts()):
        if not is_dry_run:
            with lock.writer(settings, "afterlog migrate"):
                migrate.apply(warehouse, contract, migration)
        yield migration


def show(done: Sequence[Migration], is_dry_run: bool) -> None:
    """Print which tables get columns, and which have to be computed again."""
    if columns := [[change.table, ", ".join(change.columns)] for change in done if change.columns]:
        display.table(("table", "new columns"), columns, 2, {}, 0)
    marked = counted(sum(not change.needs_rebuild for change in done), "table")
    print(f"{marked} {'would get' if is_dry_run else 'got'} schema {SCHEMA}.")
    if others := [change.table for change in done if change.needs_rebuild]:
        print(f"`afterlog rebuild` gives these their new columns: {first_names(others, MOST_NAMED)}.")
