"""`afterlog alerts`: alerts that were sent or wait, sending what is due, and a test of a route."""

from __future__ import annotations

from typing import Annotated

import typer

from expectations.rules import counted
from expectations.text import visible
from pipelines.cli.opening import settings_under
from pipelines.cli.options import ClusterOption, LandingOption, TableFormat, TeamOption, WarehouseOption
from pipelines.cli.output import say, show_answers, text_or_json
from pipelines.commands import clusters
from pipelines.errors import EnvironmentLacking, UsageError
from pipelines.text import hint
from pipelines.warehouse import alert_log
from pipelines.warehouse.tables import Warehouse

app = typer.Typer(help="What was told to whom: alerts that were sent, were suppressed or wait.")


@app.callback(invoke_without_command=True)
def list_alerts(
    context: typer.Context,
    team: TeamOption = None,
    format: Annotated[TableFormat, typer.Option(help="json: one object an alert.")] = "table",
    warehouse: WarehouseOption = None,
    landing: LandingOption = None,
    cluster: ClusterOption = None,
) -> None:
    """Tell which alerts were sent, were suppressed, wait or were given up; of a team those of its routes."""
    if context.invoked_subcommand is None:
        from pipelines.alerts.listing import listed
        from pipelines.commands.describe import Answer

        tables = Warehouse(settings_under(warehouse, landing, cluster, team=team))
        form = text_or_json(format)
        show_answers(clusters.of_each(tables, form, lambda own: Answer(listed(own.settings, format, team))))
    elif team is not None:
        raise UsageError(f"--team is for the list of alerts, not for {context.invoked_subcommand}.")


@app.command("send")
def send_alerts(
    warehouse: WarehouseOption = None, landing: LandingOption = None, cluster: ClusterOption = None
) -> None:
    """Look for news and send what is due, as each run does at its end."""
    from pipelines.alerts import sender

    settings = settings_under(warehouse, landing, cluster)
    if not settings.alerts.route:
        raise UsageError(alert_log.NO_ROUTE)
    outcomes = [sender.send(own) for own in settings.of_clusters()]
    if not all(outcome.is_alone for outcome in outcomes):
        say("Another process is sending; it sends what is due.")
    if not any(outcome.is_alone for outcome in outcomes):
        return
    sent, waiting = sum(outcome.sent for outcome in outcomes), sum(outcome.waiting for outcome in outcomes)
    print(f"{counted(sent, 'alert')} sent, {waiting:,} waiting.")
    sentences = [sentence for outcome in outcomes for sentence in (*outcome.problems, *outcome.left_open)]
    for sentence in dict.fromkeys(sentences):
        say(sentence)
    if any(outcome.problems for outcome in outcomes):
        raise typer.Exit(1)


@app.command("test")
def try_route(
    route: Annotated[str, typer.Argument(metavar="ROUTE", help="The name of a route.")],
    warehouse: WarehouseOption = None,
    landing: LandingOption = None,
    cluster: ClusterOption = None,
) -> None:
    """Send one test alert to a route, and tell what the receiver answered."""
    from pipelines.alerts import sender

    settings = settings_under(warehouse, landing, cluster)
    routes = {known.name: known for known in settings.alerts.route}
    if route not in routes:
        names = f"routes: {', '.join(routes)}" if routes else "the settings have none"
        raise UsageError(f"There is no route {visible(route[:64])!r}; {names}.{hint(route, list(routes))}")
    outcome = sender.try_out(settings.of_clusters()[0], routes[route])
    if not outcome.is_taken:
        raise EnvironmentLacking(f"Route {route} did not take the test: {outcome.words}.")
    print(f"Route {route} took the test: {outcome.words}.")
