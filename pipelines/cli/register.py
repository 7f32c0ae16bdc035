"""`afterlog register`: make the tables known to a catalog, or print the statements that do."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from pipelines.cli.opening import display_of_start, readable_warehouse, settings_under
from pipelines.cli.options import TableOrObjects, VerboseOption, WarehouseOption
from pipelines.cli.output import say, show_records
from pipelines.commands import completion
from pipelines.errors import UsageError
from pipelines.run import sessions
from pipelines.settings import Settings
from pipelines.warehouse.tables import Warehouse

if TYPE_CHECKING:
    from pipelines.catalogs.base import Catalog
    from pipelines.catalogs.statements import Names

CatalogName = Literal["hive", "unity", "glue"]
Tool = Literal["spark", "trino", "databricks", "duckdb", "snowflake", "fabric"]

CatalogArgument = Annotated[CatalogName | None, typer.Argument(help="A catalog that is written to.")]
ToolOption = Annotated[Tool | None, typer.Option("--print", help="Print the statements for a tool.")]
LayersOption = Annotated[
    list[str] | None, typer.Option(help="Only that layer, such as gold.", autocompletion=completion.layers_of_tables)
]
NameOption = Annotated[
    str | None, typer.Option("--catalog", metavar="NAME", help="Catalog or database for the schemas.")
]
PrefixOption = Annotated[str, typer.Option(metavar="NAME", help="Begin the names of schemas with it.")]
ServerOption = Annotated[str | None, typer.Option(metavar="URL", help="Where Unity Catalog answers.")]
ConnectionOption = Annotated[str | None, typer.Option(metavar="ID", help="Fabric's connection to the warehouse.")]
MovedFromOption = Annotated[str | None, typer.Option(metavar="WAREHOUSE", help="Where the warehouse was.")]
RecreateOption = Annotated[
    bool, typer.Option("--recreate", help="Drop and create again what Unity Catalog cannot change.")
]


def register(
    catalog: CatalogArgument = None,
    tool: ToolOption = None,
    layer: LayersOption = None,
    named: NameOption = None,
    prefix: PrefixOption = "",
    server: ServerOption = None,
    connection: ConnectionOption = None,
    moved_from: MovedFromOption = None,
    recreate: RecreateOption = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what would be done.")] = False,
    format: TableOrObjects = "table",
    warehouse: WarehouseOption = None,
    verbose: VerboseOption = False,
) -> None:
    """Make the tables known to a catalog by their names, or print the statements that do."""
    from pipelines.catalogs import statements
    from pipelines.commands import register as registration

    if (catalog is None) == (tool is None):
        raise UsageError("Name a catalog, such as afterlog register hive, or a tool, such as --print trino.")
    registration.refuse_unused(
        catalog or tool or "",
        {
            "--server": (server is not None, ("unity",)),
            "--recreate": (recreate, ("unity",)),
            "--connection": (connection is not None, ("fabric",)),
            "--catalog": (named is not None, ("unity", *(name for name in statements.TOOLS if name != "fabric"))),
            "--moved-from": (moved_from is not None, registration.CATALOGS),
            "--dry-run": (dry_run, registration.CATALOGS),
            "--format json": (format == "json", registration.CATALOGS),
        },
    )
    names = registration.names_of(named, prefix)
    settings = settings_under(warehouse, None)
    if tool is not None:
        _print_statements(tool, settings, layer or (), names, connection)
        return
    with contextlib.ExitStack() as kept:
        tables, target = _catalog(catalog or "", settings, names, server, kept)
        chosen = registration.chosen(tables, layer or ())
        done = registration.register(
            target, settings.warehouse, chosen, moved_from=moved_from, dry_run=dry_run, recreate=recreate
        )
    show_records(done, format, lambda done: print(registration.in_words(done, dry_run)))


def _print_statements(
    tool: Tool, settings: Settings, layers: Sequence[str], names: Names, connection: str | None
) -> None:
    from pipelines.catalogs import statements
    from pipelines.commands import register as registration

    with readable_warehouse(settings) as tables:
        chosen = registration.chosen(tables, layers)
    print(statements.statements(tool, settings.warehouse, chosen, names, connection), end="")
    if remark := statements.after(tool, settings.warehouse):
        say(remark)


def _catalog(
    catalog: str, settings: Settings, names: Names, server: str | None, kept: contextlib.ExitStack
) -> tuple[Warehouse, Catalog]:
    """Return a warehouse whose tables can be read, and a catalog; sessions end with ``kept``."""
    if catalog == "hive":
        from pipelines.catalogs import hive

        with display_of_start() as watch:
            spark = kept.enter_context(sessions.session(hive.settings_of(settings), watch))
        return Warehouse(settings, spark), hive.Hive(spark, settings, names)
    if catalog == "unity":
        from pipelines.catalogs.unity import Unity

        if server is None:
            raise UsageError("afterlog register unity needs --server, such as --server http://127.0.0.1:8080.")
        target: Catalog = Unity(server, settings.warehouse, names)
    else:
        from pipelines.catalogs.glue import Glue

        target = Glue(settings.warehouse, names)
    return kept.enter_context(readable_warehouse(settings)), target
