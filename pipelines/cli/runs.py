"""Commands that change tables of stages: run, readmit, rebuild; and collect, which lands what a run reads."""

from __future__ import annotations

import contextlib
import json
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from expectations.rules import counted
from pipelines.catalog import CATALOG, FEEDS, LAYERS, stages, stages_of_type
from pipelines.cli import after_runs, following
from pipelines.cli.opening import settings_under
from pipelines.cli.options import (
    EVERY_SECONDS,
    ClusterOption,
    LandingOption,
    TableFormat,
    TableOrCounts,
    TableOrObject,
    VerboseOption,
    WarehouseOption,
)
from pipelines.cli.output import say, say_about
from pipelines.commands import completion, settings_checks
from pipelines.errors import AfterlogError, ClustersLeft, UsageError
from pipelines.run import sessions
from pipelines.settings import Settings
from pipelines.stage import LookUp, Stage, Summarise
from pipelines.stores import lock
from pipelines.text import first_names, hint, near
from pipelines.warehouse.tables import Warehouse

if TYPE_CHECKING:
    from pipelines.collect.landing import Collected
    from pipelines.run.traces import Trace
    from pipelines.steps.held import Acceptance

Engine = Literal["auto", "spark"]

FeedOption = Annotated[str | None, typer.Option(help=f"One feed: {', '.join(FEEDS)}.", autocompletion=completion.feeds)]
OnlyOption = Annotated[
    str | None, typer.Option(help="One table, such as silver.dlq_records.", autocompletion=completion.tables)
]
LayerOption = Annotated[
    str | None, typer.Option(help=f"One layer: {', '.join(LAYERS)}.", autocompletion=completion.layers)
]
FollowOption = Annotated[bool, typer.Option("--follow", help="Go on until SIGTERM or Ctrl-C.")]
EveryOption = Annotated[
    float | None, typer.Option(min=0.5, help="Seconds from cycle to cycle, with --follow.", show_default="10")
]
HealthOption = Annotated[
    Path | None,
    typer.Option(help="Health file, with --follow.", show_default="follow.json in the warehouse's _progress"),
]
MetricsPortOption = Annotated[
    int | None, typer.Option(min=0, max=65535, help="Show metrics to Prometheus, with --follow; 0: any.")
]
MetricsHostOption = Annotated[str | None, typer.Option(help="Address of --metrics-port.", show_default="127.0.0.1")]
AcceptOption = Annotated[
    list[str] | None,
    typer.Option(
        metavar="TABLE[:SCOPE]", help="Accept once what breaks its contract.", autocompletion=completion.judged_tables
    ),
]
EngineOption = Annotated[
    Engine | None,
    typer.Option(help="auto: DuckDB makes what is small. spark: Spark makes all.", show_default="auto, or engine"),
]
MasterOption = Annotated[
    str | None,
    typer.Option(
        metavar="URL", help="Spark's master: spark://..., k8s://..., yarn.", show_default="local[*], or [spark]"
    ),
]


def run(
    feed: FeedOption = None,
    only: OnlyOption = None,
    layer: LayerOption = None,
    format: TableOrCounts = "table",
    follow: FollowOption = False,
    every: EveryOption = None,
    health: HealthOption = None,
    metrics_port: MetricsPortOption = None,
    metrics_host: MetricsHostOption = None,
    accept: AcceptOption = None,
    engine: EngineOption = None,
    master: MasterOption = None,
    warehouse: WarehouseOption = None,
    landing: LandingOption = None,
    cluster: ClusterOption = None,
    verbose: VerboseOption = False,
) -> None:
    """Run all stages on what is new, once or, with --follow, again and again."""
    from pipelines.run import traces
    from pipelines.steps.held import Acceptance

    settings = _settings_of_run(warehouse, landing, cluster, engine, master)
    chosen = _chosen(feed, only, layer)
    accepted = Acceptance.of(accept or (), chosen)
    if metrics_host is not None and metrics_port is None:
        raise UsageError("--metrics-host needs --metrics-port.")
    if follow and accept:
        raise UsageError("--accept is for one run, not for --follow, which goes on with what another run accepted.")
    for remark in settings_checks.remarks(settings):
        say(remark)
    after_runs.begin_journals(settings)
    if follow:
        address = None if metrics_port is None else (metrics_host or "127.0.0.1", metrics_port)
        code = following.follow(settings, chosen, every or EVERY_SECONDS, health, format, address)
        raise typer.Exit(code)
    if every is not None or health is not None:
        raise UsageError("--every and --health need --follow.")
    if metrics_port is not None:
        raise UsageError("--metrics-port needs --follow; a single run writes the file of [metrics].")
    with traces.traced(traces.RUN, traces.about(settings.cluster, chosen), say) as trace:
        _run_once(settings, chosen, accepted, format, trace)


def _settings_of_run(
    warehouse: str | None, landing: str | None, cluster: str | None, engine: Engine | None, master: str | None
) -> Settings:
    """Return the settings under the flags of a run; raises UsageError: the run cannot use them."""
    from pipelines.jvm import properties

    settings = settings_under(warehouse, landing, cluster, creates=True)
    if engine is not None:
        settings = settings.model_copy(update={"engine": engine})
    if master is not None:
        settings = settings.model_copy(update={"spark": {**settings.spark, "spark.master": master}})
    for own in settings.of_clusters():
        properties.check_reachable(own, "warehouse", "landing")
    return settings


def _chosen(feed: str | None, only: str | None, layer: str | None) -> Sequence[Stage]:
    """Return the stages of a feed, of a table and of a layer; raises UsageError: there is none."""
    if feed is not None and feed not in FEEDS:
        raise UsageError(f"There is no feed {feed!r}; feeds: {', '.join(FEEDS)}.{hint(feed, FEEDS)}")
    if only is not None and only not in {stage.table for stage in CATALOG}:
        raise UsageError(f"No stage fills {only!r}.{near(only, [stage.table for stage in CATALOG])}")
    if layer is not None and layer not in LAYERS:
        raise UsageError(f"There is no layer {layer!r}; layers: {', '.join(LAYERS)}.{hint(layer, LAYERS)}")
    chosen = stages(feed, only, layer)
    if not chosen:
        raise UsageError("No stage is of the feed, the layer and the table that are asked for together.")
    return chosen


def _run_once(
    settings: Settings, chosen: Sequence[Stage], accepted: Acceptance, format: TableFormat, trace: Trace
) -> None:
    """Run stages once, show what each did, and tell metrics and alerts."""
    from pipelines.commands import display

    try:
        with display.Display("Looking for what is new.", quiet=True) as watch:
            from pipelines.run import once

            done, unread = once.run_once(settings, chosen, accepted, watch, say)
    except Exception:
        after_runs.send_alerts(settings)  # while runs fail, feeds fall silent
        raise
    trace.done = done
    if format == "json":
        print(json.dumps({"run_id": done[0].run_id, "tables": [stage_run.as_json() for stage_run in done]}))
        if not watch.live and (idle := [stage_run.table for stage_run in done if stage_run.status == "idle"]):
            say(display.nothing_new(idle))
    else:
        display.stage_runs(done)
    if any(stage_run.status != "idle" for stage_run in done):
        after_runs.refresh_replay_outcomes(settings)
    after_runs.refresh_metrics(settings)
    after_runs.send_alerts(settings)
    if unread is not None:
        raise unread
    came_out = [*{stage_run.table: stage_run.status for stage_run in done}.values()]  # as a table's last batch did
    came_out += ["broken" for stage_run in done if stage_run.refused]
    if any(status in ("broken", "held", "waiting") for status in came_out):
        raise typer.Exit(1)


def readmit(
    table: Annotated[
        str,
        typer.Argument(
            help="A table with a quarantine, such as silver.dlq_records.", autocompletion=completion.judged_tables
        ),
    ],
    format: TableOrCounts = "table",
    warehouse: WarehouseOption = None,
    landing: LandingOption = None,
    verbose: VerboseOption = False,
) -> None:
    """Take what passes today's contract out of quarantine into its table."""
    from pipelines.run import readmit as readmissions
    from pipelines.run import traces

    settings = settings_under(warehouse, landing)
    stage = readmissions.stage_with_quarantine(table)
    with traces.traced("afterlog readmit", traces.about(settings.cluster, [stage]), say) as trace:
        with _writing(settings, "afterlog readmit", stage) as tables:
            done = readmissions.readmit(tables, stage)
        trace.done = [done.stage_run] if done.stage_run else []
        stay = done.found - done.readmitted
        if format == "json":
            print(json.dumps({"table": stage.table, "found": done.found, "readmitted": done.readmitted, "stay": stay}))
        else:
            print(
                f"{stage.quarantine}: {counted(done.found, 'row')}, {done.readmitted:,} readmitted to {stage.table}, "
                f"{stay:,} {'stays' if stay == 1 else 'stay'}."
            )
        if done.readmitted:
            _print_next_command()


def rebuild(
    table: Annotated[
        str,
        typer.Argument(
            help="A table that is computed from others, such as gold.dlq_summary.",
            autocompletion=completion.computed_tables,
        ),
    ],
    accept: Annotated[bool, typer.Option("--accept", help="Write it also where its facts do not hold.")] = False,
    format: TableOrCounts = "table",
    warehouse: WarehouseOption = None,
    landing: LandingOption = None,
    verbose: VerboseOption = False,
) -> None:
    """Compute a table again from the whole of its inputs: the way out where a defect broke its facts."""
    from pipelines.commands import display
    from pipelines.run import summaries, traces

    settings = settings_under(warehouse, landing)
    stage = _computed(table)
    with traces.traced("afterlog rebuild", traces.about(settings.cluster, [stage]), say) as trace:
        with _writing(settings, "afterlog rebuild", stage, gates=True) as tables:
            done = summaries.rebuild(tables, stage, accept=accept, say=say)
        trace.done = [done]
        if format == "json":
            print(json.dumps({"run_id": done.run_id, "tables": [done.as_json()]}))
        else:
            display.stage_runs([done])
        if done.status == "broken":
            raise typer.Exit(1)
        _print_next_command()


@contextlib.contextmanager
def _writing(settings: Settings, command: str, stage: Stage, gates: bool = False) -> Iterator[Warehouse]:
    """Yield the warehouse with a session, under the writer's lock; a display shows the stage."""
    from pipelines.commands import display

    with (
        display.Display(sessions.STARTING) as watch,
        lock.writer(settings, f"{command} {stage.table}"),
        sessions.session(settings, watch, gates) as spark,
    ):
        watch.begins(stage.table, 1, 1)
        yield Warehouse(settings, spark)


def _computed(table: str) -> Summarise:
    """Return the stage of a table that can be computed again; raises UsageError, which says why there is none."""
    known = {stage.table: stage for stage in CATALOG}
    tables = [stage.table for stage in stages_of_type(Summarise)]
    if table not in known:
        raise UsageError(f"No stage fills {table!r}.{near(table, tables)}")
    stage = known[table]
    if isinstance(stage, LookUp):
        raise UsageError(f"{table} needs no rebuild: each run brings it up to date.")
    if not isinstance(stage, Summarise):
        raise UsageError(
            f"{table} is not computed from other tables: its rows are what landed, each as it was judged when it came, "
            f"and there is no other copy of that judgement; tables that can be computed again: {first_names(tables)}."
        )
    return stage


def _print_next_command() -> None:
    print("Run `afterlog run` to refresh what is made from it.", file=sys.stderr)


def collect(
    all: Annotated[bool, typer.Option("--all", help="Land what did not change, too.")] = False,
    format: TableOrObject = "table",
    warehouse: WarehouseOption = None,
    landing: LandingOption = None,
    cluster: ClusterOption = None,
) -> None:
    """Ask the cluster for the settings that dead letters depend on, and for topologies; land what changed."""
    from pipelines.collect.landing import collect as ask_and_land
    from pipelines.collect.landing import of_several

    settings = settings_under(warehouse, landing, cluster, creates=True, whole=False)  # it lands only
    collected: dict[str, Collected] = {}
    failed: dict[str, AfterlogError] = {}
    owns = settings.of_clusters()
    for own in [own for own in owns if own.kafka.bootstrap_servers] or owns:  # others only have files
        try:
            collected[own.cluster] = done = ask_and_land(own, everything=all)
        except AfterlogError as error:
            if settings.sole_cluster:
                raise
            failed[own.cluster] = error
            continue
        for remark in done.remarks:
            say_about(settings, own.cluster)(remark)
        if format != "json":
            print(done if settings.sole_cluster else f"{own.cluster}: {done}", flush=True)
    if collected and format == "json":
        print(json.dumps(done.as_json() if settings.sole_cluster else of_several(collected)))
    if failed:
        raise ClustersLeft(failed)
