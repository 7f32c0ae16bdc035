"""Commands about this installation: init, setup, dags, doctor, and generate, which makes data to try it with."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from expectations.text import visible
from pipelines.cli.opening import settings_under
from pipelines.cli.options import ClusterOption, LandingOption, TableFormat, VerboseOption, WarehouseOption
from pipelines.cli.output import say
from pipelines.installation import CONFIGURATIONS, IS_CHECKOUT
from pipelines.warehouse.tables import Warehouse


def init(
    directory: Annotated[Path, typer.Argument(metavar="DIR", help="Where to write it.", show_default="here")] = Path(),
) -> None:
    """Write afterlog.toml, the settings with comments, unless it is there."""
    from pipelines.commands.init import init as write

    print(write(directory))
    if IS_CHECKOUT:
        say("a checkout reads conf/afterlog.toml; name another file with --config.")


def setup(
    configurations: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="JARS", help=f"What to fetch: {', '.join(CONFIGURATIONS)}.", show_default="spark and broker"
        ),
    ] = None,
) -> None:
    """Fetch the JVM jars, once, and let Spark start faster."""
    from pipelines.commands import spark_archive
    from pipelines.jvm import jars

    jars.set_up(configurations or jars.USUAL)
    if jars.fault_of("spark") is None and (code := spark_archive.main()):
        raise typer.Exit(code)


def dags(
    directory: Annotated[Path, typer.Argument(metavar="DIR", help="A directory that an Airflow reads.")],
    command: Annotated[
        str | None, typer.Option(help="What tasks run, with arguments if it has any.", show_default="this command")
    ] = None,
) -> None:
    """Write a file for each DAG into the directory of an Airflow that has its own environment."""
    from pipelines.commands.dag_files import NEXT, write

    for file in write(directory, command):
        print(visible(str(file)))
    say(NEXT)


def generate(
    records: Annotated[int, typer.Option(help="How many records.")],
    out: Annotated[Path, typer.Option(help="A landing directory to write to.")],
    seed: Annotated[int, typer.Option(help="The same seed gives the same files.")] = 1,
    batch: Annotated[int, typer.Option(help="Continue after this many earlier batches.")] = 0,
    format: Annotated[
        TableFormat, typer.Option(help="json: one object, the counts and where the ledger is.")
    ] = "table",
) -> None:
    """Write realistic dead-letter traffic, with a ledger of truth."""
    from pipelines.commands import generate as generator

    truth = generator.generate(records, seed, out, batch=batch)
    print(json.dumps(truth.as_json()) if format == "json" else truth)


def doctor(
    format: Annotated[TableFormat, typer.Option(help="json: one object a check.")] = "table",
    warehouse: WarehouseOption = None,
    landing: LandingOption = None,
    cluster: ClusterOption = None,
    verbose: VerboseOption = False,
) -> None:
    """Say what is wrong with this machine, the settings and the warehouse, and how to fix it."""
    from pipelines.alerts import listing
    from pipelines.commands import doctor as diagnosis
    from pipelines.commands import erasures
    from pipelines.replay import checks as of_replays

    settings = settings_under(warehouse, landing, cluster, creates=True, says=False, whole=False)
    with Warehouse(settings).store.pinned():
        others = {"alerts": listing.checks, "replay rules": of_replays.checks, "erasure": erasures.checks}
        checks = diagnosis.diagnose(settings, others)
    diagnosis.show(checks, as_json=format == "json")
    raise typer.Exit(diagnosis.exit_code(checks))
