"""The command line: runs without Airflow exactly what the DAGs run.

Results go to standard output, logs and progress to standard error. Exit codes: 0 done, 1 a contract broke or the answer
is negative, 2 usage or settings, 3 the environment lacks something, 4 another writer is at work, 130 interrupted.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import logging
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from expectations.rules import counted
from expectations.text import visible
from pipelines import otlp
from pipelines.catalog import CATALOG, FEEDS, LAYERS, stages, stages_of_type
from pipelines.commands import clusters, completion, oversights
from pipelines.errors import AfterlogError, ClustersLeft, EnvironmentLacking, Unforeseen, UsageError, readable
from pipelines.installation import CONFIGURATIONS, IS_CHECKOUT
from pipelines.jvm import jvm_log
from pipelines.run import interrupt
from pipelines.settings import Settings, load
from pipelines.stage import Ask, Land, Stage, Summarise
from pipelines.stores import lock, restored
from pipelines.teams import Teams
from pipelines.text import first_names, hint, near
from pipelines.warehouse import alert_log
from pipelines.warehouse.quality import StageRun
from pipelines.warehouse.tables import Warehouse

if TYPE_CHECKING:
    from pipelines.catalogs.base import Catalog
    from pipelines.catalogs.statements import Names
    from pipelines.collect.landing import Collected
    from pipelines.commands.describe import Answer
    from pipelines.commands.display import Display
    from pipelines.metrics.exposition import Meter
    from pipelines.replay.candidates import Choice
    from pipelines.replay.run import Progress
    from pipelines.run.follow import Cycle
    from pipelines.run.traces import Trace
    from pipelines.steps.held import Acceptance
    from pipelines.steps.watch import Watch

app = typer.Typer(invoke_without_command=True, pretty_exceptions_enable=False)

broker = typer.Typer(no_args_is_help=True, help="A Kafka broker on this machine, for the demo, tests and trying out.")
app.add_typer(broker, name="broker", callback=interrupt.unwind)
alerts = typer.Typer(help="What was told to whom: alerts that were sent, were suppressed or wait.")
app.add_typer(alerts, name="alerts")
replay = typer.Typer(no_args_is_help=True, help="Send dead letters back to Kafka: chosen, planned, explained, once.")
app.add_typer(replay, name="replay")


def _verbose(is_wanted: bool) -> bool:
    if is_wanted:
        jvm_log.show()
    return is_wanted


EVERY_SECONDS = 10.0
TIMES = "2026-11-21T02:00Z, 14:05, yesterday, 2h: UTC"
STARTING = "Starting Spark."

WarehouseOption = Annotated[str | None, typer.Option(help="Directory or URI of the warehouse.", show_default=False)]
BrokerPlace = Annotated[
    Path | None, typer.Option("--directory", help="Where it keeps its data and logs.", show_default=".cache/broker")
]
LandingOption = Annotated[str | None, typer.Option(help="Directory that feeds land in.", show_default=False)]
ClusterOption = Annotated[
    str | None,
    typer.Option(metavar="NAME", help="Only that one of several clusters.", show_default="all"),
]
TeamOption = Annotated[
    str | None,
    typer.Option(
        "--team",
        metavar="TEAM",
        help="Only what is of one team of the settings, or of 'no team'.",
        show_default=False,
        autocompletion=completion.teams,
    ),
]
Verbose = Annotated[
    bool, typer.Option("--verbose", "-v", help="Show what Spark logs.", show_default=False, callback=_verbose)
]


RowsFormat = Literal["table", "json", "csv"]
TableFormat = Literal["table", "json"]
StoryFormat = Literal["text", "json"]
PayloadForm = Literal["auto", "text", "json", "hex"]
DrawingFormat = Literal["text", "json", "mermaid", "svg"]


def _version(is_wanted: bool) -> None:
    if is_wanted:
        print(f"afterlog {version('afterlog')}")
        raise typer.Exit


@app.callback()
def afterlog(
    context: typer.Context,
    show_version: Annotated[
        bool, typer.Option("--version", help="Show the version.", is_eager=True, callback=_version)
    ] = False,
    config: Annotated[Path | None, typer.Option(metavar="FILE", help="The settings file.", show_default=False)] = None,
    verbose: Verbose = False,
) -> None:
    """Afterlog: the lakehouse for what Kafka could not deliver."""
    if config is not None:
        os.environ["AFTERLOG_SETTINGS"] = os.fspath(config.expanduser().absolute())  # also for processes of the command
    if context.invoked_subcommand is not None:
        return
    settings = load()
    if sys.stdout.isatty() and (tables := Warehouse(settings)).opens_tables and not tables.store.is_empty():
        top()
    else:
        print(context.get_help())


@app.command()
def init(
    directory: Annotated[Path, typer.Argument(metavar="DIR", help="Where to write it.", show_default="here")] = Path(),
) -> None:
    """Write afterlog.toml, the settings with comments, unless it is there."""
    from pipelines.commands.init import init as write

    print(write(directory))
    if IS_CHECKOUT:
        _say("a checkout reads conf/afterlog.toml; name another file with --config.")


@app.command()
def setup(
    configurations: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="JARS",
            help=f"What to fetch: {', '.join(CONFIGURATIONS)}.",
            show_default="spark and broker",
        ),
    ] = None,
) -> None:
    """Fetch the JVM jars, once, and let Spark start faster."""
    from local import class_data_archive
    from pipelines.jvm import jars

    jars.set_up(configurations or jars.USUAL)
    if jars.fault_of("spark") is None and (code := class_data_archive.main()):
        raise typer.Exit(code)


@app.command()
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
    _say(NEXT)


@app.command()
def top(
    watch: Annotated[
        float | None, typer.Option(min=0.5, metavar="SECONDS", help="Show it again and again.", show_default=False)
    ] = None,
    at: Annotated[str | None, typer.Option(help=f"As of that time ({TIMES}).", show_default="now")] = None,
    team: TeamOption = None,
    format: Annotated[StoryFormat, typer.Option(help="json: one object.")] = "text",
    warehouse: WarehouseOption = None,
    landing: LandingOption = None,
    cluster: ClusterOption = None,
) -> None:
    """Tell whether anything is wrong: open incidents, findings, and how old the data is."""
    from pipelines.commands import incidents as stories

    with _readable(_settings(warehouse, landing, cluster, lands=True, team=team)) as tables:
        while True:
            with tables.store.pinned():
                answers = clusters.of_each(tables, format, lambda own: stories.top(own, format, at, team))
            if watch is not None and sys.stdout.isatty():
                print("\x1b[2J\x1b[H", end="")
            print("\n".join(answer.result for answer in answers), flush=True)
            if watch is None:
                break
            time.sleep(watch)


@app.command()
def incidents(
    open: Annotated[bool, typer.Option("--open", help="Only those that are not resolved, muted ones too.")] = False,
    since: Annotated[
        str | None, typer.Option(help=f"Only those with records since that time ({TIMES}).", show_default=False)
    ] = None,
    group: Annotated[
        str | None, typer.Option(help="Only those of a consumer group or another owner.", show_default=False)
    ] = None,
    topic: Annotated[
        str | None, typer.Option(help="Only those of a source topic or DLQ topic.", show_default=False)
    ] = None,
    team: TeamOption = None,
    at: Annotated[str | None, typer.Option(help=f"As of that time ({TIMES}).", show_default="now")] = None,
    format: Annotated[TableFormat, typer.Option(help="json: one object an incident.")] = "table",
    warehouse: WarehouseOption = None,
    landing: LandingOption = None,
    cluster: ClusterOption = None,
) -> None:
    """List incidents, the most urgent first."""
    from pipelines.commands import incidents as stories

    with _readable(_settings(warehouse, landing, cluster, team=team)) as tables:
        _show_each(
            clusters.of_each(
                tables,
                "text" if format == "table" else format,
                lambda own: stories.listed(
                    own, format, only_open=open, since=since, group=group, topic=topic, team=team, at=at
                ),
            )
        )


@app.command()
def incident(
    wanted: Annotated[
        str,
        typer.Argument(
            metavar="ID",
            help="An incident, or how its id begins.",
            show_default=False,
            autocompletion=completion.incidents,
        ),
    ],
    mute_until: Annotated[
        str | None,
        typer.Option(help="Mute it until that time (2026-11-21T02:00Z, 14:05, tomorrow, 2h).", show_default=False),
    ] = None,
    resolve: Annotated[bool, typer.Option("--resolve", help="Say that it is over.")] = False,
    note: Annotated[str | None, typer.Option(help="Keep a note on it.", show_default=False)] = None,
    team: TeamOption = None,
    at: Annotated[str | None, typer.Option(help=f"As of that time ({TIMES}).", show_default="now")] = None,
    format: Annotated[DrawingFormat, typer.Option(help="How to print it; a drawing shows what it touches.")] = "text",
    warehouse: WarehouseOption = None,
    landing: LandingOption = None,
    cluster: ClusterOption = None,
) -> None:
    """Tell all about an incident: why, where, suspects, what it touches, and what to type next."""
    from pipelines.commands import incidents as stories

    with _readable(_settings(warehouse, landing, cluster, team=team)) as every:
        tables = clusters.that_knows(
            every, f"Incident {wanted}", lambda own: stories.Incidents(own, stories.now_of(at)).of(wanted)
        )
        if mute_until is not None or resolve or note is not None:
            if at is not None or format != "text":
                raise UsageError("--mute-until, --resolve and --note act now and print text: omit --at and --format.")
            _show(stories.acted(tables, wanted, mute_until, resolve, note, team))
        else:
            from pipelines.replay import eligibility

            _show(stories.one(tables, wanted, format, at, lambda name: eligibility.of_incident(tables, name), team))


def _show(answer: Answer) -> None:
    """Print an answer, say its remarks, and end with its exit code."""
    _show_each([answer])


def _show_each(answers: Sequence[Answer]) -> None:
    """Print answers, say their remarks, and end with the greatest of their exit codes."""
    for answer in answers:
        if answer.result:
            print(answer.result.removesuffix("\n"), flush=True)
        for remark in answer.remarks:
            _say(remark)
    if code := max(answer.exit_code for answer in answers):
        raise typer.Exit(code)


@app.command()
def run(
    feed: Annotated[
        str | None,
        typer.Option(help=f"One feed: {', '.join(FEEDS)}.", show_default=False, autocompletion=completion.feeds),
    ] = None,
    only: Annotated[
        str | None,
        typer.Option(
            help="One table, such as silver.dlq_records.", show_default=False, autocompletion=completion.tables
        ),
    ] = None,
    layer: Annotated[
        str | None,
        typer.Option(help=f"One layer: {', '.join(LAYERS)}.", show_default=False, autocompletion=completion.layers),
    ] = None,
    format: Annotated[TableFormat, typer.Option(help="json: the last line is the counts.")] = "table",
    follow: Annotated[bool, typer.Option("--follow", help="Go on until SIGTERM or Ctrl-C.")] = False,
    every: Annotated[
        float | None, typer.Option(min=0.5, help="Seconds from cycle to cycle, with --follow.", show_default="10")
    ] = None,
    health: Annotated[
        Path | None,
        typer.Option(help="Health file, with --follow.", show_default="follow.json in the warehouse's _progress"),
    ] = None,
    metrics_port: Annotated[
        int | None,
        typer.Option(min=0, max=65535, help="Show metrics to Prometheus, with --follow; 0: any.", show_default=False),
    ] = None,
    metrics_host: Annotated[
        str | None, typer.Option(help="Address of --metrics-port.", show_default="127.0.0.1")
    ] = None,
    accept: Annotated[
        list[str] | None,
        typer.Option(
            metavar="TABLE[:SCOPE]",
            help="Accept once what breaks its contract.",
            show_default=False,
            autocompletion=completion.judged_tables,
        ),
    ] = None,
    engine: Annotated[
        Literal["auto", "spark"] | None,
        typer.Option(help="auto: DuckDB makes what is small. spark: Spark makes all.", show_default="auto, or engine"),
    ] = None,
    master: Annotated[
        str | None,
        typer.Option(
            metavar="URL", help="Spark's master: spark://..., k8s://..., yarn.", show_default="local[*], or [spark]"
        ),
    ] = None,
    warehouse: WarehouseOption = None,
    landing: LandingOption = None,
    cluster: ClusterOption = None,
    verbose: Verbose = False,
) -> None:
    """Run all stages on what is new, once or, with --follow, again and again."""
    from pipelines.jvm import properties
    from pipelines.run import traces
    from pipelines.steps.held import Acceptance

    settings = _settings(warehouse, landing, cluster, creates=True)
    if engine is not None:
        settings = settings.model_copy(update={"engine": engine})
    if master is not None:
        settings = settings.model_copy(update={"spark": {**settings.spark, "spark.master": master}})
    for own in settings.of_clusters():
        properties.check_places(own, "warehouse", "landing")
    if feed is not None and feed not in FEEDS:
        raise UsageError(f"There is no feed {feed!r}; feeds: {', '.join(FEEDS)}.{hint(feed, FEEDS)}")
    if only is not None and only not in {stage.table for stage in CATALOG}:
        raise UsageError(f"No stage fills {only!r}.{near(only, [stage.table for stage in CATALOG])}")
    if layer is not None and layer not in LAYERS:
        raise UsageError(f"There is no layer {layer!r}; layers: {', '.join(LAYERS)}.{hint(layer, LAYERS)}")
    chosen = stages(feed, only, layer)
    if not chosen:
        raise UsageError("No stage is of the feed, the layer and the table that are asked for together.")
    accepted = Acceptance.of(accept or (), chosen)
    if metrics_host is not None and metrics_port is None:
        raise UsageError("--metrics-host needs --metrics-port.")
    if follow and accept:
        raise UsageError("--accept is for one run, not for --follow, which goes on with what another run accepted.")
    for remark in oversights.remarks(settings):
        _say(remark)
    _remember_replays(settings)
    if follow:
        place = None if metrics_port is None else (metrics_host or "127.0.0.1", metrics_port)
        raise typer.Exit(_follow(settings, chosen, every or EVERY_SECONDS, health, format, place))
    if every is not None or health is not None:
        raise UsageError("--every and --health need --follow.")
    if metrics_port is not None:
        raise UsageError("--metrics-port needs --follow; a single run writes the file of [metrics].")
    with traces.told(traces.RUN, traces.about(settings.cluster, chosen), _say) as trace:
        _run(settings, chosen, accepted, format, trace)


def _run(settings: Settings, chosen: Sequence[Stage], accepted: Acceptance, format: TableFormat, trace: Trace) -> None:
    """Run stages once, show what each did, and tell metrics and alerts."""
    from pipelines.commands import display

    try:
        with display.Display("Looking for what is new.", quiet=True) as watch:
            done, wrong = _run_once(settings, chosen, accepted, watch)
    except Exception:
        _alert(settings)  # while runs fail, feeds fall silent
        raise
    trace.done = done
    if format == "json":
        print(json.dumps({"run_id": done[0].run_id, "tables": [stage_run.as_json() for stage_run in done]}))
        if not watch.live and (idle := [one.table for one in done if one.status == "idle"]):
            _say(display.nothing_new(idle))
    else:
        display.stage_runs(done)
    if any(stage_run.status != "idle" for stage_run in done):
        _look_at_replays(settings)
    _measure(settings)
    _alert(settings)
    if wrong is not None:
        raise wrong
    came_out = [*{stage_run.table: stage_run.status for stage_run in done}.values()]  # as a table's last batch did
    came_out += ["broken" for stage_run in done if stage_run.refused]
    if any(status in ("broken", "held", "waiting") for status in came_out):
        raise typer.Exit(1)


@app.command()
def ask(
    question: Annotated[
        str | None,
        typer.Argument(
            help="A question; all are listed without it.", show_default=False, autocompletion=completion.asked
        ),
    ] = None,
    param: Annotated[list[str] | None, typer.Option(help="name=value for :name.", show_default=False)] = None,
    team: TeamOption = None,
    format: Annotated[RowsFormat, typer.Option(help="How to print the rows.")] = "table",
    warehouse: WarehouseOption = None,
    landing: LandingOption = None,
    cluster: ClusterOption = None,
    verbose: Verbose = False,
) -> None:
    """Answer an on-call question, or list the questions."""
    from pipelines.commands import ask as asked
    from pipelines.commands import query as queries

    if question is None:
        if param:
            raise UsageError("--param needs a question: afterlog ask QUESTION --param NAME=VALUE.")
        if team is not None:
            raise UsageError("--team needs a question: afterlog ask QUESTION --team TEAM.")
        asked.write_list(format, sys.stdout)
        return
    known = asked.find(question)
    settings = _settings(warehouse, landing, cluster, lands=True, team=team)
    parameters = queries.parameters_of(param or [], known.text)
    on_store = Warehouse(settings)
    with on_store.store.pinned():
        remarks = asked.answer_without_jvm(on_store, known, parameters, format, team)
    if remarks is None:
        with _warm(settings) as tables:
            remarks = asked.answer_with_spark(tables, known, parameters, format, team)
    for remark in remarks:
        _say(remark)


@app.command()
def sql(
    query: Annotated[
        str | None, typer.Argument(help="A query in Spark SQL; a shell without it.", show_default=False)
    ] = None,
    file: Annotated[
        Path | None,
        typer.Option(help="Read the query from a file.", show_default=False, autocompletion=completion.questions),
    ] = None,
    param: Annotated[list[str] | None, typer.Option(help="name=value for :name.", show_default=False)] = None,
    format: Annotated[RowsFormat, typer.Option(help="How to print the rows.")] = "table",
    warehouse: WarehouseOption = None,
    landing: LandingOption = None,
    verbose: Verbose = False,
) -> None:
    """Query the warehouse with Spark SQL; without a query, a shell that answers one after the other."""
    from pipelines.commands import query as queries

    settings = _settings(warehouse, landing, lands=True)
    if query is None and file is None:
        code = _shell(settings, param or [], format)
        if code:
            raise typer.Exit(code)
        return
    text = queries.text_of(query, file)
    parameters = queries.parameters_of(param or [], text)
    with _warm(settings) as tables:
        for remark in queries.answer(tables, text, parameters, format):
            _say(remark)


@app.command()
def describe(
    group: Annotated[
        str | None,
        typer.Argument(help="The id of a Kafka Streams group.", show_default=False, autocompletion=completion.groups),
    ] = None,
    option: Annotated[str | None, typer.Option("--group", hidden=True)] = None,
    revision: Annotated[int | None, typer.Option(help="That revision of its topology.", show_default=False)] = None,
    epoch: Annotated[
        int | None, typer.Option(help="The last one accepted under that epoch.", show_default=False)
    ] = None,
    at: Annotated[
        str | None, typer.Option(help=f"The one accepted at that time ({TIMES}).", show_default=False)
    ] = None,
    diff: Annotated[
        tuple[int, int] | None, typer.Option(metavar="N M", help="How revision M differs from N.", show_default=False)
    ] = None,
    format: Annotated[DrawingFormat, typer.Option(help="How to print it.")] = "text",
    warehouse: WarehouseOption = None,
    landing: LandingOption = None,
    cluster: ClusterOption = None,
    verbose: Verbose = False,
) -> None:
    """Show the topology of a Kafka Streams group, as it is or as it was."""
    from pipelines.commands import describe as descriptions

    if (group is None) == (option is None):
        raise UsageError("Give one group: afterlog describe GROUP.")
    group = group if group is not None else option
    assert group is not None
    with _readable(_settings(warehouse, landing, cluster)) as tables:
        _show_each(
            clusters.answers(
                tables,
                f"Group {group}",
                lambda own: descriptions.answer(own, group, format, revision=revision, epoch=epoch, at=at, diff=diff),
            )
        )


@app.command()
def trace(
    wanted: Annotated[
        str, typer.Argument(metavar="ID|TOPIC:PARTITION:OFFSET", help="A trace, or a record.", show_default=False)
    ],
    team: TeamOption = None,
    format: Annotated[StoryFormat, typer.Option(help="json: one object a message.")] = "text",
    warehouse: WarehouseOption = None,
    landing: LandingOption = None,
    cluster: ClusterOption = None,
    verbose: Verbose = False,
) -> None:
    """Tell the story of one message: produced, acknowledged, committed, dead-lettered, lost."""
    from pipelines.commands import trace as stories

    with _readable(_settings(warehouse, landing, cluster, team=team)) as tables:
        _show_each(clusters.answers(tables, wanted, lambda own: stories.answer(own, wanted, format, team)))


@app.command()
def show(
    place: Annotated[
        str,
        typer.Argument(
            metavar="TOPIC:PARTITION:OFFSET", help="The place of a dead letter in its DLQ topic.", show_default=False
        ),
    ],
    shown_as: Annotated[PayloadForm, typer.Option("--as", help="How to print key and value.")] = "auto",
    full: Annotated[bool, typer.Option("--full", help="Cut nothing.")] = False,
    team: TeamOption = None,
    format: Annotated[StoryFormat, typer.Option(help="json: one object, with all of it.")] = "text",
    warehouse: WarehouseOption = None,
    landing: LandingOption = None,
    cluster: ClusterOption = None,
    verbose: Verbose = False,
) -> None:
    """Show one dead letter: its error, headers, key and value, masked as the settings say."""
    from pipelines.commands import show as letters

    with _readable(_settings(warehouse, landing, cluster, team=team)) as tables:
        _show_each(
            clusters.answers(
                tables, place, lambda own: letters.answer(own, place, format, shown_as=shown_as, full=full, team=team)
            )
        )


@app.command()
def readmit(
    table: Annotated[
        str,
        typer.Argument(
            help="A table with a quarantine, such as silver.dlq_records.", autocompletion=completion.judged_tables
        ),
    ],
    format: Annotated[TableFormat, typer.Option(help="json: the last line is the counts.")] = "table",
    warehouse: WarehouseOption = None,
    landing: LandingOption = None,
    verbose: Verbose = False,
) -> None:
    """Take what passes today's contract out of quarantine into its table."""
    from pipelines.commands import display
    from pipelines.run import readmit as readmissions
    from pipelines.run import traces

    settings = _settings(warehouse, landing)
    stage = readmissions.stage_with_quarantine(table)
    with traces.told("afterlog readmit", traces.about(settings.cluster, [stage]), _say) as trace:
        with (
            display.Display(STARTING) as watch,
            lock.writer(settings, f"afterlog readmit {stage.table}"),
            _session(settings, watch) as spark,
        ):
            watch.begins(stage.table, 1, 1)
            done = readmissions.readmit(Warehouse(settings, spark), stage)
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
            print("Run `afterlog run` to refresh what is made from it.", file=sys.stderr)


@app.command()
def rebuild(
    table: Annotated[
        str,
        typer.Argument(
            help="A table that is computed from others, such as gold.dlq_summary.",
            autocompletion=completion.computed_tables,
        ),
    ],
    accept: Annotated[bool, typer.Option("--accept", help="Write it also where its facts do not hold.")] = False,
    format: Annotated[TableFormat, typer.Option(help="json: the last line is the counts.")] = "table",
    warehouse: WarehouseOption = None,
    landing: LandingOption = None,
    verbose: Verbose = False,
) -> None:
    """Compute a table again from the whole of its inputs: the way out where a defect broke its facts."""
    from pipelines.commands import display
    from pipelines.run import runner, traces

    settings = _settings(warehouse, landing)
    stage = _summarised(table)
    with traces.told("afterlog rebuild", traces.about(settings.cluster, [stage]), _say) as trace:
        with (
            display.Display(STARTING) as watch,
            lock.writer(settings, f"afterlog rebuild {stage.table}"),
            _session(settings, watch, gates=True) as spark,
        ):
            watch.begins(stage.table, 1, 1)
            done = runner.rebuild(Warehouse(settings, spark), stage, accept=accept, say=_say)
        trace.done = [done]
        if format == "json":
            print(json.dumps({"run_id": done.run_id, "tables": [done.as_json()]}))
        else:
            display.stage_runs([done])
        if done.status == "broken":
            raise typer.Exit(1)
        print("Run `afterlog run` to refresh what is made from it.", file=sys.stderr)


@app.command()
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
    verbose: Verbose = False,
) -> None:
    """Build the site that tells what is wrong, and Data Docs; print where its front, or the front of a team, is."""
    from pipelines.payloads import check_schemas
    from pipelines.replay import eligibility
    from pipelines.run.freshness import freshness
    from pipelines.site import addresses, reading
    from pipelines.site import report as reports
    from pipelines.site.publish import publish

    if not serve and (host is not None or port is not None or every is not None):
        raise UsageError("--host, --port and --every need --serve.")
    if serve and format == "json":
        raise UsageError("--serve shows pages; --format json is for one report.")
    if serve and team is not None:
        raise UsageError("--serve shows the fronts of all teams; --team is for one report.")
    settings = _settings(warehouse, landing, cluster, lands=True, team=team)
    check_schemas(settings)

    def built(tables: Warehouse, is_first: bool = True, is_due: bool = False) -> None:
        fronts = []
        restored.refuse_half(tables.store)  # it can have been lost while its pages are shown
        with tables.store.pinned():
            for own in tables.of_clusters():
                behind = freshness(own)
                feeds = reports.feeds_of(own)
                page = None if format == "json" or is_due else reports.current(own, behind, feeds)
                of_incident = eligibility.Replays(own).of_incident
                told = None if page else reading.gather(own, behind, feeds, replays=of_incident)
                page = page or reports.build(own, behind, feeds, told, reports.siblings_of(tables, own))
                if is_first:
                    for feed in feeds:
                        _says_of(settings, own.settings)(feed.in_words)
                fronts.append((page if team is None else page.with_name(addresses.team(team)), told))
        if (sent := publish(settings)) and is_first:
            _say(f"{counted(sent, 'file')} published to {settings.report.publish}.")
        if is_first and not serve and format != "json":
            print(fronts[0][0])  # it leads to the others
        for page, told in fronts if format == "json" else ():
            print(json.dumps({"page": str(page), **told.as_json(team)} if told else {"page": str(page)}))

    with _readable(settings, gates=True) as tables:
        built(tables)
        if serve:
            _serve(tables, host, port, every, lambda is_due: built(tables, is_first=False, is_due=is_due))


@alerts.callback(invoke_without_command=True)
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

        settings = _settings(warehouse, landing, cluster, team=team)
        form = "text" if format == "table" else format
        _show_each(clusters.of_each(Warehouse(settings), form, lambda own: Answer(listed(own.settings, format, team))))
    elif team is not None:
        raise UsageError(f"--team is for the list of alerts, not for {context.invoked_subcommand}.")


@alerts.command("send")
def send_alerts(
    warehouse: WarehouseOption = None, landing: LandingOption = None, cluster: ClusterOption = None
) -> None:
    """Look for news and send what is due, as each run does at its end."""
    from pipelines.alerts import sender

    settings = _settings(warehouse, landing, cluster)
    if not settings.alerts.route:
        raise UsageError(alert_log.NO_ROUTE)
    done = [sender.send(own) for own in settings.of_clusters()]
    if not all(one.is_alone for one in done):
        _say("Another process is sending; it sends what is due.")
    if not any(one.is_alone for one in done):
        return
    print(f"{counted(sum(one.sent for one in done), 'alert')} sent, {sum(one.waiting for one in done):,} waiting.")
    for sentence in dict.fromkeys(sentence for one in done for sentence in (*one.problems, *one.left_open)):
        _say(sentence)
    if any(one.problems for one in done):
        raise typer.Exit(1)


@alerts.command("test")
def try_route(
    route: Annotated[str, typer.Argument(metavar="ROUTE", help="The name of a route.", show_default=False)],
    warehouse: WarehouseOption = None,
    landing: LandingOption = None,
    cluster: ClusterOption = None,
) -> None:
    """Send one test alert to a route, and tell what the receiver answered."""
    from pipelines.alerts import sender

    settings = _settings(warehouse, landing, cluster)
    routes = {one.name: one for one in settings.alerts.route}
    if route not in routes:
        known = f"routes: {', '.join(routes)}" if routes else "the settings have none"
        raise UsageError(f"There is no route {visible(route[:64])!r}; {known}.{hint(route, list(routes))}")
    outcome = sender.try_out(settings.of_clusters()[0], routes[route])
    if not outcome.is_taken:
        raise EnvironmentLacking(f"Route {route} did not take the test: {outcome.words}.")
    print(f"Route {route} took the test: {outcome.words}.")


@app.command()
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


@app.command()
def collect(
    all: Annotated[bool, typer.Option("--all", help="Land what did not change, too.")] = False,
    format: Annotated[TableFormat, typer.Option(help="json: one object.")] = "table",
    warehouse: WarehouseOption = None,
    landing: LandingOption = None,
    cluster: ClusterOption = None,
) -> None:
    """Ask the cluster for the settings that dead letters depend on, and for topologies; land what changed."""
    from pipelines.collect.landing import collect as ask_and_land
    from pipelines.collect.landing import of_several

    settings = _settings(warehouse, landing, cluster, creates=True, whole=False)  # it lands only
    told: dict[str, Collected] = {}
    left: dict[str, AfterlogError] = {}
    owns = settings.of_clusters()
    for own in [own for own in owns if own.kafka.bootstrap_servers] or owns:  # others only have files
        try:
            told[own.cluster] = done = ask_and_land(own, everything=all)
        except AfterlogError as error:
            if settings.sole_cluster:
                raise
            left[own.cluster] = error
            continue
        for remark in done.remarks:
            _says_of(settings, own)(remark)
        if format != "json":
            print(done if settings.sole_cluster else f"{own.cluster}: {done}", flush=True)
    if told and format == "json":
        print(json.dumps(done.as_json() if settings.sole_cluster else of_several(told)))
    if left:
        raise ClustersLeft(left)


@app.command()
def doctor(
    format: Annotated[TableFormat, typer.Option(help="json: one object a check.")] = "table",
    warehouse: WarehouseOption = None,
    landing: LandingOption = None,
    cluster: ClusterOption = None,
    verbose: Verbose = False,
) -> None:
    """Say what is wrong with this machine, the settings and the warehouse, and how to fix it."""
    from pipelines.alerts import listing
    from pipelines.commands import doctor as diagnosis
    from pipelines.commands import erase as erasing
    from pipelines.replay import checks as of_replays

    settings = _settings(warehouse, landing, cluster, creates=True, says=False, whole=False)
    with Warehouse(settings).store.pinned():
        others = {"alerts": listing.checks, "replay rules": of_replays.checks, "erasure": erasing.checks}
        checks = diagnosis.diagnose(settings, others)
    diagnosis.show(checks, as_json=format == "json")
    raise typer.Exit(diagnosis.exit_code(checks))


@app.command()
def maintain(
    older_than: Annotated[
        int, typer.Option(metavar="DAYS", help="What nobody has needed for so many days; 7 at least.")
    ] = 7,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what would go.")] = False,
    format: Annotated[TableFormat, typer.Option(help="json: one object.")] = "table",
    warehouse: WarehouseOption = None,
    verbose: Verbose = False,
) -> None:
    """Remove rows that are older than [retention] says, files of old versions, leftovers of crashes.

    What is still to be read stays.
    """
    from pipelines.commands import maintain as upkeep

    upkeep.refuse_younger(older_than)
    done = list(upkeep.maintain(_settings(warehouse, None), older_than, dry_run, _say))
    if format == "json":
        print(json.dumps(upkeep.totals(done) | {"tables": [asdict(one) for one in done]}))
    else:
        upkeep.show(done, dry_run)


@app.command()
def backup(
    to: Annotated[str, typer.Argument(metavar="TO", help="Directory or URI that keeps backups.", show_default=False)],
    keep: Annotated[
        int | None,
        typer.Option(metavar="N", help="Remove all but the newest N of this warehouse.", show_default="all stay"),
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what would be copied.")] = False,
    format: Annotated[StoryFormat, typer.Option(help="json: one object.")] = "text",
    warehouse: WarehouseOption = None,
    verbose: Verbose = False,
) -> None:
    """Copy what is new in the warehouse to a place from which it can be restored, while writers go on."""
    from pipelines import backup as backing_up

    backing_up.refuse_none(keep)
    done = backing_up.backup(_settings(warehouse, None), to, keep, dry_run, _say)
    if format == "json":
        print(json.dumps(asdict(done)))
    else:
        backing_up.show(done)


@app.command()
def restore(
    source: Annotated[str, typer.Argument(metavar="FROM", help="Directory or URI with backups.", show_default=False)],
    wanted: Annotated[
        str | None,
        typer.Option("--backup", metavar="ID", help="A backup, or how its id begins.", show_default="the newest"),
    ] = None,
    format: Annotated[StoryFormat, typer.Option(help="json: one object.")] = "text",
    warehouse: WarehouseOption = None,
    verbose: Verbose = False,
) -> None:
    """Bring a warehouse back from a backup, where none is; if it was stopped, it goes on."""
    from pipelines import restore as restoring

    settings = _settings(warehouse, None, creates=True, lands=False, whole=False)
    done = restoring.restore(settings, source, wanted)
    if format == "json":
        print(json.dumps(asdict(done)))
    else:
        restoring.show(done, settings.warehouse)
    _say(restoring.what_is_lost(done))


@app.command()
def repair(
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what would be done.")] = False,
    accept_loss: Annotated[
        bool, typer.Option("--accept-loss", help="Also let rows go that no stage can make again.")
    ] = False,
    format: Annotated[TableFormat, typer.Option(help="json: one object a finding.")] = "table",
    warehouse: WarehouseOption = None,
    verbose: Verbose = False,
) -> None:
    """Take damaged files out of the warehouse, so that it can be read; the next run makes their rows again."""
    from pipelines.commands import repair as repairs

    done = list(repairs.repair(_settings(warehouse, None), dry_run, accept_loss))
    if format == "json":
        for one in done:
            print(json.dumps(asdict(one)))
    else:
        repairs.show(done, dry_run)
    if not all(one.is_done for one in done):
        raise typer.Exit(1)


@app.command()
def migrate(
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what tables would get.")] = False,
    format: Annotated[TableFormat, typer.Option(help="json: one object a table.")] = "table",
    warehouse: WarehouseOption = None,
    verbose: Verbose = False,
) -> None:
    """Bring a warehouse of an earlier version up to this one, as the first run would; no row is rewritten."""
    from pipelines.commands import migrate as upgrades

    done = list(upgrades.migrated(_settings(warehouse, None), dry_run))
    if format == "json":
        for one in done:
            print(json.dumps(asdict(one)))
    else:
        upgrades.show(done, dry_run)


@app.command()
def erase(
    key: Annotated[
        str | None,
        typer.Option(metavar="KEY", help="Of a person's records; - reads it, @FILE too.", show_default=False),
    ] = None,
    header: Annotated[
        str | None, typer.Option(metavar="NAME=VALUE", help="A header of theirs.", show_default=False)
    ] = None,
    where: Annotated[
        str | None, typer.Option(metavar="SQL", help="A condition on silver.dlq_records.", show_default=False)
    ] = None,
    message: Annotated[
        str | None, typer.Option(metavar="TOPIC:PARTITION:OFFSET", help="One record.", show_default=False)
    ] = None,
    in_backups: Annotated[
        list[str] | None,
        typer.Option(metavar="PLACE", help="Make a backup there, and remove the older ones.", show_default=False),
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what would be erased.")] = False,
    format: Annotated[TableFormat, typer.Option(help="json: one object.")] = "table",
    warehouse: WarehouseOption = None,
    landing: LandingOption = None,
    verbose: Verbose = False,
) -> None:
    """Forget a person: erase what records say of them, everywhere in the warehouse, and prove it."""
    from pipelines import backup as backing_up
    from pipelines.commands import erase as erasing
    from pipelines.commands.selection import selector_of

    selector = selector_of(key, header, where, message)
    settings = _settings(warehouse, landing)
    if dry_run or not yes:
        planned = erasing.plan(settings, selector)
        if dry_run:
            print(erasing.as_json(planned)) if format == "json" else erasing.show(planned, True)
            return
        erasing.show(planned, True)
        if not sys.stdin.isatty():
            raise UsageError("Nothing is erased without an answer: give --yes.")
        if not typer.confirm("Erase it? Nothing brings it back."):
            raise typer.Exit(1)
    done = erasing.erase(
        settings,
        selector,
        copies=in_backups or (),
        back_up=lambda place: backing_up.backup(settings, place, keep=1, is_dry_run=False, say=_say),
    )
    print(erasing.as_json(done)) if format == "json" else erasing.show(done, False)
    raise typer.Exit(0 if done.is_done else 1)


@app.command()
def stats(
    format: Annotated[TableFormat, typer.Option(help="json: one object a table.")] = "table",
    warehouse: WarehouseOption = None,
    verbose: Verbose = False,
) -> None:
    """Say what each table costs: rows, files, bytes, growth a day, and what `afterlog maintain` would free."""
    from pipelines.commands import stats as costs

    tables = Warehouse(_settings(warehouse, None))
    with tables.store.pinned():
        found = list(costs.stats(tables))
    if format == "json":
        for one in found:
            print(json.dumps(asdict(one)))
    else:
        costs.show(found)


@app.command()
def register(
    catalog: Annotated[
        Literal["hive", "unity", "glue"] | None,
        typer.Argument(help="A catalog that is written to.", show_default=False),
    ] = None,
    tool: Annotated[
        Literal["spark", "trino", "databricks", "duckdb", "snowflake", "fabric"] | None,
        typer.Option("--print", help="Print the statements for a tool.", show_default=False),
    ] = None,
    layer: Annotated[
        list[str] | None,
        typer.Option(
            help="Only that layer, such as gold.", show_default=False, autocompletion=completion.layers_of_tables
        ),
    ] = None,
    named: Annotated[
        str | None,
        typer.Option("--catalog", metavar="NAME", help="Catalog or database for the schemas.", show_default=False),
    ] = None,
    prefix: Annotated[
        str, typer.Option(metavar="NAME", help="Begin the names of schemas with it.", show_default=False)
    ] = "",
    server: Annotated[
        str | None, typer.Option(metavar="URL", help="Where Unity Catalog answers.", show_default=False)
    ] = None,
    connection: Annotated[
        str | None, typer.Option(metavar="ID", help="Fabric's connection to the warehouse.", show_default=False)
    ] = None,
    moved_from: Annotated[
        str | None, typer.Option(metavar="WAREHOUSE", help="Where the warehouse was.", show_default=False)
    ] = None,
    recreate: Annotated[
        bool, typer.Option("--recreate", help="Drop and create again what Unity Catalog cannot change.")
    ] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what would be done.")] = False,
    format: Annotated[TableFormat, typer.Option(help="json: one object a table.")] = "table",
    warehouse: WarehouseOption = None,
    verbose: Verbose = False,
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
            "--catalog": (named is not None, ("unity", *(one for one in statements.TOOLS if one != "fabric"))),
            "--moved-from": (moved_from is not None, registration.CATALOGS),
            "--dry-run": (dry_run, registration.CATALOGS),
            "--format json": (format == "json", registration.CATALOGS),
        },
    )
    names = registration.names_of(named, prefix)
    settings = _settings(warehouse, None)
    if tool is not None:
        with _readable(settings) as tables:
            chosen = registration.chosen(tables, layer or ())
        print(statements.statements(tool, settings.warehouse, chosen, names, connection), end="")
        if remark := statements.after(tool, settings.warehouse):
            _say(remark)
        return
    with contextlib.ExitStack() as kept:
        tables, into = _catalog(catalog or "", settings, names, server, kept)
        done = registration.register(
            into,
            settings.warehouse,
            registration.chosen(tables, layer or ()),
            moved_from=moved_from,
            dry_run=dry_run,
            recreate=recreate,
        )
    if format == "json":
        for one in done:
            print(json.dumps(asdict(one)))
    else:
        print(registration.in_words(done, dry_run))


def _catalog(
    catalog: str, settings: Settings, names: Names, server: str | None, kept: contextlib.ExitStack
) -> tuple[Warehouse, Catalog]:
    """Return a warehouse whose tables can be read, and a catalog; sessions end with ``kept``."""
    if catalog == "hive":
        from pipelines.catalogs import hive

        with _starting() as watch:
            spark = kept.enter_context(_session(hive.settings_of(settings), watch))
        return Warehouse(settings, spark), hive.Hive(spark, settings, names)
    if catalog == "unity":
        from pipelines.catalogs.unity import Unity

        if server is None:
            raise UsageError("afterlog register unity needs --server, such as --server http://127.0.0.1:8080.")
        into: Catalog = Unity(server, settings.warehouse, names)
    else:
        from pipelines.catalogs.glue import Glue

        into = Glue(settings.warehouse, names)
    return kept.enter_context(_readable(settings)), into


RecordsOption = Annotated[
    list[str] | None,
    typer.Option("--record", metavar="TOPIC:PARTITION:OFFSET", help="A dead letter at its place.", show_default=False),
]
IncidentOption = Annotated[
    str | None,
    typer.Option(
        "--incident", help="All dead letters of an incident.", show_default=False, autocompletion=completion.incidents
    ),
]
WhereOption = Annotated[
    str | None, typer.Option("--where", help="A condition on silver.dlq_records.", show_default=False)
]
PlanArgument = Annotated[str, typer.Argument(metavar="PLAN", help="A plan, or how its id begins.", show_default=False)]


@replay.command("plan")
def plan_replay(
    incident: IncidentOption = None,
    where: WhereOption = None,
    record: RecordsOption = None,
    by_rules: Annotated[bool, typer.Option("--by-rules", help="What the remediation rules replay.")] = False,
    to: Annotated[
        str, typer.Option(metavar="original|TOPIC", help="Where records go: back to their topics, or to another one.")
    ] = "original",
    limit: Annotated[int | None, typer.Option(min=1, help="At most so many records.", show_default=False)] = None,
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
            show_default=False,
        ),
    ] = None,
    transform: Annotated[
        Path | None, typer.Option(metavar="FILE.sql|FILE.py", help="Repair the records.", show_default=False)
    ] = None,
    fetch: Annotated[
        bool, typer.Option("--fetch/--no-fetch", help="Take from the original topic what the DLQ lacks.")
    ] = True,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Ask no cluster and keep nothing.")] = False,
    format: Annotated[StoryFormat, typer.Option(help="json: one object.")] = "text",
    warehouse: WarehouseOption = None,
    cluster: ClusterOption = None,
) -> None:
    """Plan a replay: say what would be replayed, what not and why, in which order; keep the plan."""
    from pipelines.replay import actions, candidates, judge

    choice = candidates.Choice(incident, where, tuple(record or ()), by_rules, limit, team)
    tables = _of_choice(_replays(warehouse, cluster, team), choice)
    most = tables.settings.replay.max_replays if max_replays is None else max_replays
    target, allowed = None if to == "original" else to, tuple(sorted({*(allow or ())}))
    options = judge.Options(target, again, most, ignore_rules, allowed)
    _show(actions.plan(tables, choice, options, file=transform, fetches=fetch, dry_run=dry_run, form=format))


@replay.command("explain")
def explain_replay(
    record: Annotated[
        str, typer.Argument(metavar="TOPIC:PARTITION:OFFSET", help="A dead letter at its place.", show_default=False)
    ],
    format: Annotated[StoryFormat, typer.Option(help="json: one object a record.")] = "text",
    warehouse: WarehouseOption = None,
    cluster: ClusterOption = None,
) -> None:
    """Say which remediation rule decides about a dead letter, and what speaks against its replay."""
    from pipelines.replay import actions

    _show_each(clusters.answers(_replays(warehouse, cluster), record, lambda own: actions.explain(own, record, format)))


RateOption = Annotated[
    float | None, typer.Option(min=0.01, metavar="N", help="At most so many records a second.", show_default=False)
]
BatchOption = Annotated[
    int | None, typer.Option(min=1, help="Most records in a transaction.", show_default="500, or [replay] batch")
]
DeathsOption = Annotated[
    float | None,
    typer.Option(
        min=0.0, max=1.0, help="Pause if a larger share dies again.", show_default="0.5, or [replay] most_deaths"
    ),
]


@replay.command("run")
def run_replay(
    plan: PlanArgument,
    rate: RateOption = None,
    batch: BatchOption = None,
    most_deaths: DeathsOption = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what is left to replay; ask no cluster.")] = False,
    format: Annotated[StoryFormat, typer.Option(help="json: one object.")] = "text",
    warehouse: WarehouseOption = None,
    cluster: ClusterOption = None,
) -> None:
    """Run a plan, or go on where it stopped: each record once."""
    _run_replay(plan, rate, batch, most_deaths, format, _replays(warehouse, cluster), dry_run=dry_run)


@replay.command("resume")
def resume_replay(
    plan: PlanArgument,
    rate: RateOption = None,
    batch: BatchOption = None,
    most_deaths: DeathsOption = None,
    format: Annotated[StoryFormat, typer.Option(help="json: one object.")] = "text",
    warehouse: WarehouseOption = None,
    cluster: ClusterOption = None,
) -> None:
    """Go on with a plan that was paused."""
    _run_replay(plan, rate, batch, most_deaths, format, _replays(warehouse, cluster), resumes=True)


@replay.command("pause")
def pause_replay(plan: PlanArgument, warehouse: WarehouseOption = None, cluster: ClusterOption = None) -> None:
    """Let the run of a plan pause after its batch."""
    from pipelines.replay import actions

    _show(actions.ask_pause(_of_plan(_replays(warehouse, cluster), plan), plan))


@replay.command("cancel")
def cancel_replay(plan: PlanArgument, warehouse: WarehouseOption = None, cluster: ClusterOption = None) -> None:
    """Cancel a plan; what it replayed stays, and the rest is free for other plans."""
    from pipelines.replay import actions

    _show(actions.ask_cancel(_of_plan(_replays(warehouse, cluster), plan), plan))


@replay.command("status")
def show_replay_status(
    plan: PlanArgument,
    format: Annotated[StoryFormat, typer.Option(help="json: one object.")] = "text",
    warehouse: WarehouseOption = None,
    cluster: ClusterOption = None,
) -> None:
    """Say how a plan stands, and what became of the records that it replayed."""
    from pipelines.replay import actions

    _show(actions.status(_of_plan(_replays(warehouse, cluster), plan), plan, format))


@replay.command("plans")
def list_replays(
    format: Annotated[TableFormat, typer.Option(help="json: one object a plan.")] = "table",
    warehouse: WarehouseOption = None,
    cluster: ClusterOption = None,
) -> None:
    """List all plans, the newest first."""
    from pipelines.replay import actions

    form = "text" if format == "table" else format
    _show_each(clusters.of_each(_replays(warehouse, cluster), form, lambda own: actions.plans(own, format)))


@replay.command("show")
def show_replay(
    plan: PlanArgument,
    format: Annotated[TableFormat, typer.Option(help="json: one object a record.")] = "table",
    warehouse: WarehouseOption = None,
    cluster: ClusterOption = None,
) -> None:
    """List the records of a plan, without their payloads."""
    from pipelines.replay import actions

    _show(actions.show(_of_plan(_replays(warehouse, cluster), plan), plan, format))


@replay.command("discard")
def discard_letters(
    incident: IncidentOption = None,
    where: WhereOption = None,
    record: RecordsOption = None,
    limit: Annotated[int | None, typer.Option(min=1, help="At most so many records.", show_default=False)] = None,
    note: Annotated[str | None, typer.Option(help="Why.", show_default=False)] = None,
    warehouse: WarehouseOption = None,
    cluster: ClusterOption = None,
) -> None:
    """Give up dead letters: write it down, delete nothing."""
    from pipelines.replay import actions, candidates

    choice = candidates.Choice(incident, where, tuple(record or ()), limit=limit)
    _show(actions.discard(_of_choice(_replays(warehouse, cluster), choice), choice, note))


def _replays(warehouse: str | None, cluster: str | None, team: str | None = None) -> Warehouse:
    """Return the warehouse of a command of replays.

    Raises UsageError: only Spark opens it, or there is no such team.
    """
    from pipelines.replay import journal

    tables = Warehouse(_settings(warehouse, None, cluster, team=team))
    journal.place_of(tables.settings)
    return tables


def _of_plan(tables: Warehouse, plan: str) -> Warehouse:
    """Return the warehouse of the cluster whose plan has an id."""
    from pipelines.replay import store

    return clusters.that_knows(tables, f"Plan {plan}", lambda own: store.plan_row(own, plan))


def _of_choice(tables: Warehouse, choice: Choice) -> Warehouse:
    """Return the warehouse of the cluster whose dead letters are chosen; raises UsageError: nothing tells which."""
    from pipelines.replay.candidates import Candidates, Choice

    if (incident := choice.incident) is not None:
        return clusters.that_knows(tables, f"Incident {incident}", lambda own: Candidates(own).incident(incident))
    if choice.records:
        named = Choice(records=choice.records)
        return clusters.that_knows(
            tables, choice.records[0], lambda own: Candidates(own).chosen(named, len(named.records))
        )
    return clusters.sole(tables, "A choice by rules or by a condition")


def _run_replay(
    plan: str,
    rate: float | None,
    batch: int | None,
    most_deaths: float | None,
    format: StoryFormat,
    every: Warehouse,
    *,
    resumes: bool = False,
    dry_run: bool = False,
) -> None:
    from pipelines.replay import actions
    from pipelines.replay.display import Bar
    from pipelines.run import traces
    from pipelines.run.stop import Stop

    tables = _of_plan(every, plan)
    if dry_run:
        _show(actions.left(tables, plan, format))
        return
    about = {"afterlog.cluster": tables.cluster, "afterlog.plan_id": plan, "messaging.system": "kafka"}
    with traces.told("afterlog replay run", about, _say) as trace:
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
        _show(answer)


@broker.command("start")
def start_broker(
    directory: BrokerPlace = None,
    port: Annotated[
        int | None, typer.Option(min=1, max=65535, help="Of its listener.", show_default="the last one, or a free one")
    ] = None,
) -> None:
    """Start it and print its bootstrap servers once it answers."""
    from local.broker import DIRECTORY, Broker

    started = Broker(directory or DIRECTORY, port=port)
    if not started.start():
        _say(f"A broker runs already in {started.directory}.")
    print(started.bootstrap_servers)


@broker.command("stop")
def stop_broker(directory: BrokerPlace = None) -> None:
    """Stop it; its data stays."""
    from local.broker import DIRECTORY, Broker

    stopped = Broker(directory or DIRECTORY)
    if not stopped.stop():
        _say(f"No broker runs in {stopped.directory}.")


@broker.command("status")
def show_broker(
    directory: BrokerPlace = None,
    format: Annotated[TableFormat, typer.Option(help="json: one object.")] = "table",
) -> None:
    """Say whether it runs, and where; ends with 1 where it does not."""
    from local.broker import DIRECTORY, Broker

    asked = Broker(directory or DIRECTORY)
    running = asked.running
    if running is None:
        _say(f"No broker runs in {asked.directory}; `afterlog broker start` starts one.")
        raise typer.Exit(1)
    if format == "json":
        print(json.dumps(asdict(running)))
    else:
        for name, value in asdict(running).items():
            if value is not None:
                print(f"{name.replace('_', ' ')}: {value}")


@contextlib.contextmanager
def _warm(settings: Settings) -> Iterator[Warehouse]:
    """Yield a warehouse with a session; a terminal shows that Spark starts."""
    with contextlib.ExitStack() as kept:
        with _starting() as watch:
            spark = kept.enter_context(_session(settings, watch))
        yield Warehouse(settings, spark)


def _shell(settings: Settings, given: Sequence[str], format: RowsFormat) -> int:
    """Answer what is typed on a terminal or comes from standard input, in one session; return the exit code."""
    from pipelines.commands import query as queries
    from pipelines.commands import shell

    queries.parameters_of(given)  # a mistake is said before Spark starts
    with contextlib.ExitStack() as kept:
        if sys.stdin.isatty() and (sys.stdout.isatty() or sys.stderr.isatty()):
            shell.run(kept.enter_context(_warm(settings)), given, format, _say)
            return 0
        answers: list[shell.Answer] = []

        def answer(text: str) -> int:
            if not answers:
                tables = kept.enter_context(_warm(settings))
                answers.append(shell.answers(tables, given, format, _say, shows_time=False))
            return answers[0](text)

        return shell.read(sys.stdin, answer)


def _starting() -> contextlib.AbstractContextManager[Watch]:
    """Return what shows on a terminal that Spark starts; elsewhere it says nothing."""
    from pipelines.commands import display
    from pipelines.steps.watch import NOBODY

    return display.Display(STARTING) if display.on_terminal() else contextlib.nullcontext(NOBODY)


def _summarised(table: str) -> Summarise:
    """Return the stage of a table that can be computed again; raises UsageError, which says why there is none."""
    known = {stage.table: stage for stage in CATALOG}
    tables = [stage.table for stage in stages_of_type(Summarise)]
    if table not in known:
        raise UsageError(f"No stage fills {table!r}.{near(table, tables)}")
    stage = known[table]
    if isinstance(stage, Ask):
        raise UsageError(f"{table} needs no rebuild: each run brings it up to date.")
    if not isinstance(stage, Summarise):
        raise UsageError(
            f"{table} is not computed from other tables: its rows are what landed, each as it was judged when it came, "
            f"and there is no other copy of that judgement; tables that can be computed again: {first_names(tables)}."
        )
    return stage


def _settings(
    warehouse: str | None,
    landing: str | None,
    cluster: str | None = None,
    *,
    creates: bool = False,
    lands: bool | None = None,
    says: bool = True,
    whole: bool = True,
    team: str | None = None,
) -> Settings:
    """Return the settings under these flags; say which variables have no effect, unless the command does.

    Only a command that ``creates`` one, or looks before, can name a warehouse that is not there; the landing directory
    must be there for it, and for a command of which ``lands`` says that it looks into it. A ``team`` must be one. The
    warehouse must be ``whole``: not restored in part.
    """
    if says:
        for _, remark in oversights.unknown_variables():
            _say(remark)
    settings = load(cluster, warehouse=warehouse, landing=landing)
    Teams.of_settings(settings).check(team)
    places: dict[oversights.Place, str | None] = {"warehouse": warehouse, "landing": landing}
    oversights.require_places(settings, places, creates=creates, lands=lands)
    if whole:
        restored.refuse_half(Warehouse(settings).store)
    return settings


def _meter(settings: Settings, place: tuple[str, int] | None, kept: contextlib.ExitStack) -> Meter | None:
    """Return what reads metrics, shown at a host and port if asked; None if nobody wants metrics."""
    is_asked = place is not None or settings.metrics.file is not None
    if not is_asked and not otlp.wanted("metrics"):
        return None
    from pipelines.metrics.exposition import Meter

    try:
        meter = Meter(settings)
    except UsageError as error:
        if is_asked:
            raise
        _say(f"Metrics are not sent to OpenTelemetry. {error}")
        return None
    if place is not None:
        port = kept.enter_context(meter.served(*place))
        _say(f"Metrics are at http://{place[0]}:{port}/metrics.")
    return meter


def _follow(
    settings: Settings,
    chosen: Sequence[Stage],
    every_seconds: float,
    health: Path | None,
    format: TableFormat,
    metrics: tuple[str, int] | None,
) -> int:
    """Follow what is new; with ``--format json`` each cycle that read something is a line of standard output."""
    from pipelines.commands import display
    from pipelines.run.follow import Follower, health_file
    from pipelines.run.stop import Stop

    def show(done: Sequence[StageRun]) -> None:
        if format == "json":
            entries = [stage_run.as_json() for stage_run in done if stage_run.status != "idle"]
            print(json.dumps({"run_id": done[0].run_id, "tables": entries}), flush=True)

    # JSON on the terminal would be written amid the line.
    live = False if format == "json" and sys.stdout.isatty() else None
    gates = any(not isinstance(stage, Land) for stage in chosen)
    with contextlib.ExitStack() as kept:
        meter = _meter(settings, metrics, kept)
        stop = kept.enter_context(Stop())
        watch = kept.enter_context(display.Display("Looking for what is new.", quiet=True, log=True, live=live))
        return Follower(
            settings,
            chosen,
            every_seconds=every_seconds,
            health=health.expanduser().absolute() if health else health_file(Warehouse(settings)),
            sessions=lambda given: _session(given, watch, gates=gates, short_lived=False),
            stop=stop,
            say=_say,
            report=watch.ended,
            show=show,
            watch=watch,
            afterwards=_beside(settings, chosen, meter, kept),
        ).follow()


def _beside(
    settings: Settings, chosen: Sequence[Stage], meter: Meter | None, kept: contextlib.ExitStack
) -> Callable[[Cycle, Sequence[StageRun]], None]:
    """Return what is done after each cycle of following: metrics, traces and alerts, if settings or environment ask.

    It ends with ``kept``.
    """
    from pipelines.run.beside import Beside

    after: list[Callable[[Cycle, Sequence[StageRun]], None]] = []
    if meter is not None:
        metering = Beside(meter.refresh, _say)
        kept.callback(metering.close)
        after += [meter.count, metering]
    if otlp.wanted("traces"):
        from pipelines.run import traces

        told = traces.Traces(traces.about(settings.cluster, chosen))
        kept.enter_context(told.heard())
        telling = Beside(told.tell, _say)
        kept.callback(telling.close)
        after += [told.cycle, telling]
    for own in settings.of_clusters():  # each by itself: one that is away keeps no other waiting
        if settings.collect.every_seconds is not None and own.kafka.bootstrap_servers:
            from pipelines.collect.landing import Collector

            collecting = Beside(Collector(own, settings.collect.every_seconds).ask_if_due, _says_of(settings, own))
            kept.callback(collecting.close)
            after.append(collecting)
    if settings.alerts.route:
        from pipelines.alerts import sender

        def send() -> Sequence[str]:
            done = [sender.send(own, stopping=sending.left.is_set) for own in settings.of_clusters()]
            return [*dict.fromkeys(problem for one in done for problem in one.problems)]

        sending = Beside(send, _say)
        kept.callback(sending.close)
        after.append(sending)

    def call(cycle: Cycle, done: Sequence[StageRun]) -> None:
        for one in after:
            one(cycle, done)

    return call


def _says_of(settings: Settings, own: Settings) -> Callable[[str], None]:
    """Return what says a sentence about a cluster, which it names if there are several."""
    return _say if settings.sole_cluster else lambda sentence: _say(f"Cluster {own.cluster}: {sentence}")


def _remember_replays(settings: Settings) -> None:
    """Let the journal of replays begin before dead letters land, so that it knows all that becomes of them."""
    for own in settings.of_clusters():
        if not Warehouse(own).opens_tables or not own.kafka.bootstrap_servers:
            continue
        from pipelines.replay import journal

        with contextlib.suppress(AfterlogError), journal.Journal.of(own):
            pass


def _look_at_replays(settings: Settings) -> None:
    """Bring gold.replay_outcomes up to date with the dead letters that came; what fails is said."""
    for tables in Warehouse(settings).of_clusters():
        try:
            if tables.opens_tables and tables.last_version("gold.replayed_records") is not None:
                from pipelines.replay import outcomes

                outcomes.refresh(tables, asks=False)
        except Exception as error:
            _says_of(settings, tables.settings)(f"The outcomes of replays are not up to date. {readable(error)}")


def _measure(settings: Settings) -> None:
    """Write and send the metrics, if the settings or the environment ask for it; what fails is said."""
    if settings.metrics.file is None and not otlp.wanted("metrics"):
        return
    from pipelines.metrics.exposition import Meter

    try:
        problems = Meter(settings).refresh()
    except Exception as error:
        problems = (f"Metrics were not read. {readable(error)}",)
    for sentence in problems:
        _say(sentence)


def _alert(settings: Settings) -> None:
    """Send alerts about what is new, if the settings have or had routes; what fails is said, and waits for later."""
    store, has_routes = Warehouse(settings).store, bool(settings.alerts.route)
    if not store.opens_tables and not has_routes:
        return
    for own in settings.of_clusters():
        say = _says_of(settings, own)
        try:
            if store.opens_tables and (store.is_empty() if has_routes else not store.names(alert_log.DIRECTORY)):
                return
            from pipelines.alerts import sender

            done = sender.send(own)
        except Exception as error:
            say(f"Alerts were not sent. {readable(error)}")
            continue
        for sentence in done.problems:
            say(f"{sentence} The next run tries it again.")
        for sentence in done.left_open:
            say(sentence)


def _serve(
    tables: Warehouse, host: str | None, port: int | None, every_seconds: float | None, build: Callable[[bool], None]
) -> None:
    """Show the site over HTTP until a signal asks to end; what only Spark opens is read at most once a minute."""
    from pipelines.run.stop import Stop
    from pipelines.site import serve as site

    every_seconds = every_seconds or (EVERY_SECONDS if tables.opens_tables else 60.0)
    address = site.HOST if host is None else host
    with Stop() as stop, site.served(tables.settings.reports(), address, site.PORT if port is None else port) as front:
        print(front, flush=True)
        site.refresh(build, every_seconds, stop, _say)


def main() -> None:
    """Run the command line; every error a user can cause is one sentence on standard error."""
    if "_AFTERLOG_COMPLETE" in os.environ:  # whatever fails: nothing is said amid the line that is being typed
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stderr.fileno())
    logging.basicConfig(level=logging.WARNING, format="%(message)s", handlers=[_StandardError()])
    try:
        code = app(standalone_mode=False, prog_name="afterlog")  # returns the code of typer.Exit
        sys.stdout.flush()
        sys.exit(code)
    except SystemExit as ended:
        if isinstance(ended.__context__, BrokenPipeError):  # Typer ends with 1, as if the answer were negative
            sys.exit(_told(ended.__context__))
        raise
    except Exception as error:
        sys.exit(_told(error))
    except KeyboardInterrupt:
        _say("stopped.")
        sys.exit(interrupt.EXIT_CODE)


class _StandardError(logging.Handler):
    """Writes to standard error as it is now: while a live line is shown, above that."""

    def emit(self, record: logging.LogRecord) -> None:
        with contextlib.suppress(OSError):
            print(self.format(record), file=sys.stderr, flush=True)


def _told(error: Exception) -> int:
    """Say an error on standard error; return the exit code."""
    if callable(show := getattr(error, "show", None)):  # a mistake in the command line; Typer has its own copy of Click
        show(sys.stderr)
        return 2
    if isinstance(error, BrokenPipeError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    if os.environ.get("AFTERLOG_DEBUG") and not isinstance(error, AfterlogError):
        raise error
    known = readable(error)
    _say(str(known))
    if isinstance(known, Unforeseen) and (log := jvm_log.kept()):
        _say(f"What Spark logged is kept in {log}; --verbose shows it as it comes.")
    return known.exit_code


def _say(sentence: str) -> None:
    print(f"afterlog: {''.join(c if c.isprintable() else repr(c)[1:-1] for c in sentence)}", file=sys.stderr)


def _run_once(
    settings: Settings, chosen: Sequence[Stage], accepted: Acceptance, watch: Display
) -> tuple[list[StageRun], AfterlogError | None]:
    """Run stages on what is new; return what each did, and why topics are left unread where all stages were run."""
    from pipelines.jvm import small
    from pipelines.jvm.session import SHORT_WORK
    from pipelines.run import freshness, runner
    from pipelines.text import size_of

    done: list[StageRun] = []

    def take(stage_run: StageRun) -> None:
        done.append(stage_run)
        watch.ended(stage_run)

    warehouse = Warehouse(settings)
    with lock.writer(settings, "afterlog run"):
        if warehouse.opens_tables:
            for remark in accepted.remarks(warehouse):
                _say(remark)
        if runner.idle(warehouse, chosen, accepted):
            done = runner.at_rest(warehouse, chosen, runner.new_run_id())
            for stage_run in done:
                watch.ended(stage_run)
            return done, None
        waiting = freshness.unread_bytes(warehouse, chosen)
        short_lived = waiting is not None and waiting < SHORT_WORK
        watch.says(f"Starting Spark: {size_of(waiting)} wait." if waiting else STARTING)
        small.hang_up()  # the session's own JVM will ask from here on
        gates = any(not isinstance(stage, Land) for stage in chosen)
        with _session(settings, watch, gates, short_lived) as spark:
            if not warehouse.opens_tables:
                for remark in accepted.remarks(Warehouse(settings, spark)):
                    _say(remark)
            try:
                runner.run(Warehouse(settings, spark), chosen, take, accepted=accepted, watch=watch)
            except AfterlogError as error:
                if {stage.table for stage in chosen} != {stage_run.table for stage_run in done}:
                    raise
                return done, error  # what all stages did is told first
    return done, None


@contextlib.contextmanager
def _readable(settings: Settings, gates: bool = False) -> Iterator[Warehouse]:
    """Yield a warehouse whose tables can be read: one session for all reads of what only Spark opens, else none."""
    tables = Warehouse(settings)
    if tables.opens_tables:
        with tables.store.pinned():
            yield tables
    else:
        with _starting() as watch, _session(settings, watch, gates) as spark:
            yield Warehouse(settings, spark)


@contextlib.contextmanager
def _session(settings: Settings, watch: Watch, gates: bool = False, short_lived: bool = True) -> Iterator[Any]:
    """Yield a session; Great Expectations, which takes seconds to import, is imported while the JVM starts."""
    from pipelines.jvm.session import spark_session
    from pipelines.steps import migrate

    migrate.lags(Warehouse(settings))  # refuses what a later version has changed before Spark starts
    if gates:
        import pyspark.sql  # noqa: F401  # both threads need it: whole before the second one starts

        threading.Thread(target=importlib.import_module, args=("expectations.suite",), daemon=True).start()
    with spark_session(settings, short_lived) as spark:
        lock.name_jvm(settings.warehouse, spark)
        watch.asks(spark)
        try:
            yield spark
        finally:
            watch.asks(None)
