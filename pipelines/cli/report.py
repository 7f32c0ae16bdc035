"""`afterlog report`: build the site, once or as data comes, and show it over HTTP."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from expectations.rules import counted
from pipelines.cli.opening import readable_warehouse, settings_under
from pipelines.cli.options import (
    EVERY_SECONDS,
    ClusterOption,
    LandingOption,
    TableFormat,
    TeamOption,
    VerboseOption,
    WarehouseOption,
)
from pipelines.cli.output import say, say_about
from pipelines.errors import UsageError
from pipelines.stores import restored
from pipelines.warehouse.tables import Warehouse

if TYPE_CHECKING:
    from pipelines.site.content import Content

Front = tuple[Path, "Content | None"]


def report(
    format: Annotated[TableFormat, typer.Option(help="json: all that the pages say, as one object.")] = "table",
    serve: Annotated[
        bool, typer.Option("--serve", help="Show it over HTTP until Ctrl-C, and build it again as data comes.")
    ] = False,
    host: Annotated[
        str | None, typer.Option(help="Address to show it at, with --serve.", show_default="127.0.0.1")
    ] = None,
    port: Annotated[
        int | None, typer.Option(min=0, max=65535, help="Port, with --serve; 0: any.", show_default="8765")
    ] = None,
    every: Annotated[
        float | None, typer.Option(min=0.5, help="Seconds between looks at the data, with --serve.", show_default="10")
    ] = None,
    team: TeamOption = None,
    warehouse: WarehouseOption = None,
    landing: LandingOption = None,
    cluster: ClusterOption = None,
    verbose: VerboseOption = False,
) -> None:
    """Build the site that tells what is wrong, and Data Docs; print where its front, or the front of a team, is."""
    from pipelines.payloads import check_schemas
    from pipelines.site import addresses

    if not serve and (host is not None or port is not None or every is not None):
        raise UsageError("--host, --port and --every need --serve.")
    if serve and format == "json":
        raise UsageError("--serve shows pages; --format json is for one report.")
    if serve and team is not None:
        raise UsageError("--serve shows the fronts of all teams; --team is for one report.")
    settings = settings_under(warehouse, landing, cluster, lands=True, team=team)
    check_schemas(settings)
    with readable_warehouse(settings, gates=True) as tables:
        fronts = _build(tables, reads_content=format == "json")
        if team is not None:
            fronts = [(page.with_name(addresses.team(team)), content) for page, content in fronts]
        if serve:
            _serve(tables, host, port, every)
        elif format == "json":
            for page, content in fronts:
                print(json.dumps({"page": str(page)} | (content.as_json(team) if content else {})))
        else:
            print(fronts[0][0])  # it leads to the others


def _build(tables: Warehouse, *, reads_content: bool, is_due: bool = False, is_again: bool = False) -> list[Front]:
    """Build the site of each cluster and publish what changed; return where its front is, and its content.

    The content is None if the site shows the present state already, unless the caller ``reads_content``. It ``is_due``
    if time alone has changed what the pages say. What feeds do, and what was published, is said unless it ``is_again``.
    """
    from pipelines.replay import eligibility
    from pipelines.run.freshness import freshness
    from pipelines.site import reading
    from pipelines.site import report as reports
    from pipelines.site.publish import publish

    settings, fronts = tables.settings, []
    restored.refuse_half(tables.store)  # it can have been lost while its pages are shown
    with tables.store.pinned():
        for own in tables.of_clusters():
            behind = freshness(own)
            feeds = reports.feeds_of(own)
            page = None if reads_content or is_due else reports.current(own, behind, feeds)
            of_incident = eligibility.Replays(own).of_incident
            content = None if page else reading.gather(own, behind, feeds, replays=of_incident)
            page = page or reports.build(own, behind, feeds, content, reports.siblings_of(tables, own))
            if not is_again:
                for feed in feeds:
                    say_about(settings, own.cluster)(feed.in_words)
            fronts.append((page, content))
    if (sent := publish(settings)) and not is_again:
        say(f"{counted(sent, 'file')} published to {settings.report.publish}.")
    return fronts


def _serve(tables: Warehouse, host: str | None, port: int | None, every_seconds: float | None) -> None:
    """Show the site over HTTP until a signal asks to end; what only Spark opens is read at most once a minute."""
    from pipelines.run.stop import Stop
    from pipelines.site import serve as site

    def build_again(is_due: bool) -> None:
        _build(tables, reads_content=False, is_due=is_due, is_again=True)

    every_seconds = every_seconds or (EVERY_SECONDS if tables.opens_tables else 60.0)
    address = site.HOST if host is None else host
    with Stop() as stop, site.served(tables.settings.reports(), address, site.PORT if port is None else port) as front:
        print(front, flush=True)
        site.refresh(build_again, every_seconds, stop, say)
