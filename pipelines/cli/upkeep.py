"""Commands that keep a warehouse: maintain, backup, restore, repair, migrate, erase, stats."""

from __future__ import annotations

import json
import sys
from dataclasses import asdict
from typing import Annotated

import typer

from pipelines.cli.opening import settings_under
from pipelines.cli.options import (
    LandingOption,
    TableFormat,
    TableOrObject,
    TableOrObjects,
    TextOrObject,
    VerboseOption,
    WarehouseOption,
)
from pipelines.cli.output import end_with, say, show_record, show_records
from pipelines.errors import UsageError
from pipelines.settings import s3
from pipelines.warehouse.tables import Warehouse


def maintain(
    older_than: Annotated[
        int, typer.Option(metavar="DAYS", help="What nobody has needed for so many days; 7 at least.")
    ] = 7,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what would go.")] = False,
    format: TableOrObject = "table",
    warehouse: WarehouseOption = None,
    verbose: VerboseOption = False,
) -> None:
    """Remove rows that are older than the settings let them be, files of old versions, leftovers of crashes.

    What is still to be read stays.
    """
    from pipelines.commands import maintain as maintenance

    maintenance.refuse_younger(older_than)
    done = list(maintenance.maintain(settings_under(warehouse, None), older_than, dry_run, say))
    if format == "json":
        print(json.dumps(maintenance.totals(done) | {"tables": [asdict(table) for table in done]}))
    else:
        maintenance.show(done, dry_run)
    end_with([table.unreadable for table in done])


def backup(
    to: Annotated[
        str | None,
        typer.Argument(metavar="TO", help="Directory or URI that keeps backups.", show_default="that of [backup]"),
    ] = None,
    keep: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            help="Remove all but the newest N of this warehouse.",
            show_default="all stay; without TO, keep of [backup]",
        ),
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what would be copied.")] = False,
    format: TextOrObject = "text",
    warehouse: WarehouseOption = None,
    verbose: VerboseOption = False,
) -> None:
    """Copy what is new in the warehouse to a place from which it can be restored, while writers go on."""
    from pipelines import backup as backing_up

    settings = settings_under(warehouse, None)
    done = backing_up.backup(settings, *backing_up.chosen(settings, to, keep), dry_run, say)
    show_record(done, format, backing_up.show)


def restore(
    source: Annotated[str, typer.Argument(metavar="FROM", help="Directory or URI with backups.")],
    wanted: Annotated[
        str | None,
        typer.Option("--backup", metavar="ID", help="A backup, or how its id begins.", show_default="the newest"),
    ] = None,
    format: TextOrObject = "text",
    warehouse: WarehouseOption = None,
    verbose: VerboseOption = False,
) -> None:
    """Bring a warehouse back from a backup, where none is; if it was stopped, it goes on."""
    from pipelines import restore as restoring

    settings = settings_under(warehouse, None, creates=True, lands=False, whole=False)
    done = restoring.restore(settings, source, wanted)
    show_record(done, format, lambda done: restoring.show(done, s3.shown(settings.warehouse)))
    say(restoring.what_is_lost(done))


def repair(
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what would be done.")] = False,
    accept_loss: Annotated[
        bool, typer.Option("--accept-loss", help="Also let rows go that no stage can make again.")
    ] = False,
    format: Annotated[TableFormat, typer.Option(help="json: one object a finding.")] = "table",
    warehouse: WarehouseOption = None,
    verbose: VerboseOption = False,
) -> None:
    """Take damaged files out of the warehouse, so that it can be read; the next run makes their rows again."""
    from pipelines.commands import repair as repairs

    findings = list(repairs.repair(settings_under(warehouse, None), dry_run, accept_loss))
    show_records(findings, format, lambda findings: repairs.show(findings, dry_run))
    if not all(finding.is_done for finding in findings):
        raise typer.Exit(1)


def migrate(
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what tables would get.")] = False,
    format: TableOrObjects = "table",
    warehouse: WarehouseOption = None,
    verbose: VerboseOption = False,
) -> None:
    """Bring a warehouse of an earlier version up to this one, as the first run would; no row is rewritten."""
    from pipelines.commands import migrate as migrations

    migrated = list(migrations.migrated(settings_under(warehouse, None), dry_run))
    show_records(migrated, format, lambda migrated: migrations.show(migrated, dry_run))


def erase(
    key: Annotated[
        str | None, typer.Option(metavar="KEY", help="Of a person's records; - reads it, @FILE too.")
    ] = None,
    header: Annotated[str | None, typer.Option(metavar="NAME=VALUE", help="A header of theirs.")] = None,
    where: Annotated[str | None, typer.Option(metavar="SQL", help="A condition on silver.dlq_records.")] = None,
    message: Annotated[str | None, typer.Option(metavar="TOPIC:PARTITION:OFFSET", help="One record.")] = None,
    in_backups: Annotated[
        list[str] | None, typer.Option(metavar="PLACE", help="Make a backup there, and remove the older ones.")
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what would be erased.")] = False,
    format: TableOrObject = "table",
    warehouse: WarehouseOption = None,
    landing: LandingOption = None,
    verbose: VerboseOption = False,
) -> None:
    """Forget a person: erase what records say of them, everywhere in the warehouse, and prove it."""
    from pipelines import backup as backing_up
    from pipelines.commands import erase as erasing
    from pipelines.commands import erasures
    from pipelines.commands.selection import selector_of

    selector = selector_of(key, header, where, message)
    settings = settings_under(warehouse, landing)
    if dry_run or not yes:
        planned = erasing.plan(settings, selector)
        if dry_run:
            print(erasures.as_json(planned)) if format == "json" else erasures.show(planned, True)
            return
        erasures.show(planned, True)
        if not sys.stdin.isatty():
            raise UsageError("Nothing is erased without an answer: give --yes.")
        if not typer.confirm("Erase it? Nothing brings it back."):
            raise typer.Exit(1)
    done = erasing.erase(
        settings,
        selector,
        copies=in_backups or (),
        back_up=lambda place: backing_up.backup(settings, place, keep=1, is_dry_run=False, say=say),
    )
    print(erasures.as_json(done)) if format == "json" else erasures.show(done, False)
    raise typer.Exit(0 if done.is_done else 1)


def stats(format: TableOrObjects = "table", warehouse: WarehouseOption = None, verbose: VerboseOption = False) -> None:
    """Say what each table costs: rows, files, bytes, growth a day, and what `afterlog maintain` would free."""
    from pipelines.commands import stats as costs

    tables = Warehouse(settings_under(warehouse, None))
    with tables.store.pinned():
        found = list(costs.stats(tables))
    show_records(found, format, costs.show)
    end_with([table.unreadable for table in found])
