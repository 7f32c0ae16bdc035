"""`afterlog replay`: plans of replays, their runs, and dead letters that are given up."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from pipelines.cli.opening import settings_under
from pipelines.cli.options import ClusterOption, TableFormat, TeamOption, TextFormat, TextOrObject, WarehouseOption
from pipelines.cli.output import say, show_answers, text_or_json
from pipelines.commands import clusters, completion
from pipelines.warehouse.tables import Warehouse

if TYPE_CHECKING:
    from pipelines.replay.choice import Choice
    from pipelines.replay.run import Progress

app = typer.Typer(no_args_is_help=True, help="Send dead letters back to Kafka: chosen, planned, explained, once.")

RecordsOption = Annotated[
    list[str] | None, typer.Option("--record", metavar="TOPIC:PARTITION:OFFSET", help="A dead letter at its place.")
]
IncidentOption = Annotated[
    str | None, typer.Option("--incident", help="All dead letters of an incident.", autocompletion=completion.incidents)
]
WhereOption = Annotated[str | None, typer.Option("--where", help="A condition on silver.dlq_records.")]
LimitOption = Annotated[int | None, typer.Option(min=1, help="At most so many records.")]
PlanArgument = Annotated[str, typer.Argument(metavar="PLAN", help="A plan, or how its id begins.")]
RateOption = Annotated[float | None, typer.Option(min=0.01, metavar="N", help="At most so many records a second.")]
BatchOption = Annotated[
    int | None, typer.Option(min=1, help="Most records in a transaction.", show_default="500, or [replay] batch")
]
DeathsOption = Annotated[
    float | None,
    typer.Option(
        min=0.0, max=1.0, help="Pause if a larger share dies again.", show_default="0.5, or [replay] most_deaths"
    ),
]


@app.command("plan")
def plan_replay(
    incident: IncidentOption = None,
    where: WhereOption = None,
    record: RecordsOption = None,
    by_rules: Annotated[bool, typer.Option("--by-rules", help="What the remediation rules replay.")] = False,
    to: Annotated[
        str, typer.Option(metavar="original|TOPIC", help="Where records go: back to their topics, or to another one.")
    ] = "original",
    limit: LimitOption = None,
    team: TeamOption = None,
    again: Annotated[bool, typer.Option("--again", help="Also what was replayed or discarded before.")] = False,
    max_replays: Annotated[
        int | None,
        typer.Option(min=0, help="Not what died after more replays.", show_default="1, or [replay] max_replays"),
    ] = None,
    ignore_rules: Annotated[bool, typer.Option("--ignore-rules", help="Also what a rule holds or discards.")] = False,
    allow: Annotated[
        list[str] | None,
        typer.Option(
            metavar="REASON",
            help="Also records of which nobody can tell: other_record_possible, commit_unknown or replay_unknown.",
        ),
    ] = None,
    transform: Annotated[Path | None, typer.Option(metavar="FILE.sql|FILE.py", help="Repair the records.")] = None,
    fetch: Annotated[
        bool, typer.Option("--fetch/--no-fetch", help="Take from the original topic what the DLQ lacks.")
    ] = True,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Ask no cluster and keep nothing.")] = False,
    format: TextOrObject = "text",
    warehouse: WarehouseOption = None,
    cluster: ClusterOption = None,
) -> None:
    """Plan a replay: say what would be replayed, what not and why, in which order; keep the plan."""
    from pipelines.replay import actions, judge
    from pipelines.replay.choice import Choice

    choice = Choice(incident, where, tuple(record or ()), by_rules, limit, team)
    tables = _of_choice(_warehouse(warehouse, cluster, team), choice)
    most = tables.settings.replay.max_replays if max_replays is None else max_replays
    target, allowed = None if to == "original" else to, tuple(sorted({*(allow or ())}))
    options = judge.Options(target, again, most, ignore_rules, allowed)
    show_answers([actions.plan(tables, choice, options, file=transform, fetches=fetch, dry_run=dry_run, form=format)])


@app.command("explain")
def explain_replay(
    record: Annotated[str, typer.Argument(metavar="TOPIC:PARTITION:OFFSET", help="A dead letter at its place.")],
    format: Annotated[TextFormat, typer.Option(help="json: one object a record.")] = "text",
    warehouse: WarehouseOption = None,
    cluster: ClusterOption = None,
) -> None:
    """Say which remediation rule decides about a dead letter, and what speaks against its replay."""
    from pipelines.replay import actions

    tables = _warehouse(warehouse, cluster)
    show_answers(clusters.answers(tables, record, lambda own: actions.explain(own, record, format)))


@app.command("run")
def run_replay(
    plan: PlanArgument,
    rate: RateOption = None,
    batch: BatchOption = None,
    most_deaths: DeathsOption = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what is left to replay; ask no cluster.")] = False,
    format: TextOrObject = "text",
    warehouse: WarehouseOption = None,
    cluster: ClusterOption = None,
) -> None:
    """Run a plan, or go on where it stopped: each record once."""
    tables = _of_plan(plan, warehouse, cluster)
    if dry_run:
        from pipelines.replay import actions

        show_answers([actions.left(tables, plan, format)])
    else:
        _run(tables, plan, rate, batch, most_deaths, format)


@app.command("resume")
def resume_replay(
    plan: PlanArgument,
    rate: RateOption = None,
    batch: BatchOption = None,
    most_deaths: DeathsOption = None,
    format: TextOrObject = "text",
    warehouse: WarehouseOption = None,
    cluster: ClusterOption = None,
) -> None:
    """Go on with a plan that was paused."""
    tables = _of_plan(plan, warehouse, cluster)
    _run(tables, plan, rate, batch, most_deaths, format, resumes=True)


def _run(
    tables: Warehouse,
    plan: str,
    rate: float | None,
    batch: int | None,
    most_deaths: float | None,
    format: TextFormat,
    *,
    resumes: bool = False,
) -> None:
    """Run a plan until its end or a signal; show how far it is, and what came of it."""
    from pipelines.replay import actions
    from pipelines.replay.display import Bar
    from pipelines.run import traces
    from pipelines.run.stop import Stop

    about = {"afterlog.cluster": tables.cluster, "afterlog.plan_id": plan, "messaging.system": "kafka"}
    with traces.traced("afterlog replay run", about, say) as trace:
        with Stop() as stop, Bar() as bar:

            def show(progress: Progress) -> None:
                trace.about |= {f"afterlog.{name}": count for name, count in asdict(progress).items()}
                bar.show(progress)

            answer = actions.run(
                tables,
                plan,
                rate=rate,
                batch=batch,
                most_deaths=most_deaths,
                stop=stop,
                progress=show,
                resumes=resumes,
                form=format,
            )
        trace.outcome = "replayed"
        show_answers([answer])


@app.command("pause")
def pause_replay(plan: PlanArgument, warehouse: WarehouseOption = None, cluster: ClusterOption = None) -> None:
    """Let the run of a plan pause after its batch."""
    from pipelines.replay import actions

    show_answers([actions.ask_pause(_of_plan(plan, warehouse, cluster), plan)])


@app.command("cancel")
def cancel_replay(plan: PlanArgument, warehouse: WarehouseOption = None, cluster: ClusterOption = None) -> None:
    """Cancel a plan; what it replayed stays, and the rest is free for other plans."""
    from pipelines.replay import actions

    show_answers([actions.ask_cancel(_of_plan(plan, warehouse, cluster), plan)])


@app.command("status")
def show_replay_status(
    plan: PlanArgument, format: TextOrObject = "text", warehouse: WarehouseOption = None, cluster: ClusterOption = None
) -> None:
    """Say how a plan stands, and what became of the records that it replayed."""
    from pipelines.replay import actions

    show_answers([actions.status(_of_plan(plan, warehouse, cluster), plan, format)])


@app.command("plans")
def list_replays(
    format: Annotated[TableFormat, typer.Option(help="json: one object a plan.")] = "table",
    warehouse: WarehouseOption = None,
    cluster: ClusterOption = None,
) -> None:
    """List all plans, the newest first."""
    from pipelines.replay import actions

    tables = _warehouse(warehouse, cluster)
    show_answers(clusters.of_each(tables, text_or_json(format), lambda own: actions.plans(own, format)))


@app.command("show")
def show_replay(
    plan: PlanArgument,
    format: Annotated[TableFormat, typer.Option(help="json: one object a record.")] = "table",
    warehouse: WarehouseOption = None,
    cluster: ClusterOption = None,
) -> None:
    """List the records of a plan, without their payloads."""
    from pipelines.replay import actions

    show_answers([actions.show(_of_plan(plan, warehouse, cluster), plan, format)])


@app.command("discard")
def discard_letters(
    incident: IncidentOption = None,
    where: WhereOption = None,
    record: RecordsOption = None,
    limit: LimitOption = None,
    note: Annotated[str | None, typer.Option(help="Why.")] = None,
    warehouse: WarehouseOption = None,
    cluster: ClusterOption = None,
) -> None:
    """Give up dead letters: write it down, delete nothing."""
    from pipelines.replay import actions
    from pipelines.replay.choice import Choice

    choice = Choice(incident, where, tuple(record or ()), limit=limit)
    tables = _of_choice(_warehouse(warehouse, cluster), choice)
    show_answers([actions.discard(tables, choice, note)])


def _warehouse(warehouse: str | None, cluster: str | None, team: str | None = None) -> Warehouse:
    """Return the warehouse of a command of replays.

    Raises UsageError: only Spark opens it, or there is no such team.
    """
    from pipelines.replay import journal

    tables = Warehouse(settings_under(warehouse, None, cluster, team=team))
    journal.journal_store(tables.settings)
    return tables


def _of_plan(plan: str, warehouse: str | None, cluster: str | None) -> Warehouse:
    """Return the warehouse of the cluster whose plan has an id."""
    from pipelines.replay import store

    tables = _warehouse(warehouse, cluster)
    return clusters.that_knows(tables, f"Plan {plan}", lambda own: store.plan_row(own, plan))


def _of_choice(tables: Warehouse, choice: Choice) -> Warehouse:
    """Return the warehouse of the cluster whose dead letters are chosen; raises UsageError: nothing tells which."""
    from pipelines.replay.candidates import Candidates
    from pipelines.replay.choice import Choice

    if (incident := choice.incident) is not None:
        return clusters.that_knows(tables, f"Incident {incident}", lambda own: Candidates(own).incident(incident))
    if choice.records:
        named = Choice(records=choice.records)
        return clusters.that_knows(
            tables, choice.records[0], lambda own: Candidates(own).chosen(named, len(named.records))
        )
    return clusters.sole(tables, "A choice by rules or by a condition")
