"""Commands that answer: top, incidents, incident, ask, sql, describe, trace, show."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Literal

import typer

from pipelines.cli.opening import readable_warehouse, settings_under, warehouse_with_session
from pipelines.cli.options import (
    TIMES,
    AtOption,
    ClusterOption,
    DrawingFormat,
    LandingOption,
    ParameterOption,
    RowsFormat,
    RowsOption,
    TableFormat,
    TeamOption,
    TextFormat,
    TextOrObject,
    VerboseOption,
    WarehouseOption,
)
from pipelines.cli.output import say, show_answers, text_or_json
from pipelines.commands import clusters, completion
from pipelines.errors import UsageError
from pipelines.settings import Settings
from pipelines.warehouse.tables import Warehouse

PayloadForm = Literal["auto", "text", "json", "hex"]


def top(
    watch: Annotated[float | None, typer.Option(min=0.5, metavar="SECONDS", help="Show it again and again.")] = None,
    at: AtOption = None,
    team: TeamOption = None,
    format: TextOrObject = "text",
    warehouse: WarehouseOption = None,
    landing: LandingOption = None,
    cluster: ClusterOption = None,
) -> None:
    """Tell whether anything is wrong: open incidents, findings, and how old the data is."""
    from pipelines.commands.incidents import front

    with readable_warehouse(settings_under(warehouse, landing, cluster, lands=True, team=team)) as tables:
        while True:
            with tables.store.pinned():
                answers = clusters.of_each(tables, format, lambda own: front.top(own, format, at, team))
            if watch is not None and sys.stdout.isatty():
                print("\x1b[2J\x1b[H", end="")
            print("\n".join(answer.result for answer in answers), flush=True)
            if watch is None:
                break
            time.sleep(watch)


def incidents(
    open: Annotated[bool, typer.Option("--open", help="Only those that are not resolved, muted ones too.")] = False,
    since: Annotated[str | None, typer.Option(help=f"Only those with records since that time ({TIMES}).")] = None,
    group: Annotated[str | None, typer.Option(help="Only those of a consumer group or another owner.")] = None,
    topic: Annotated[str | None, typer.Option(help="Only those of a source topic or DLQ topic.")] = None,
    team: TeamOption = None,
    at: AtOption = None,
    format: Annotated[TableFormat, typer.Option(help="json: one object an incident.")] = "table",
    warehouse: WarehouseOption = None,
    landing: LandingOption = None,
    cluster: ClusterOption = None,
) -> None:
    """List incidents, the most urgent first."""
    from pipelines.commands.incidents import listing

    with readable_warehouse(settings_under(warehouse, landing, cluster, team=team)) as tables:
        show_answers(
            clusters.of_each(
                tables,
                text_or_json(format),
                lambda own: listing.listed(
                    own, format, only_open=open, since=since, group=group, topic=topic, team=team, at=at
                ),
            )
        )


def incident(
    wanted: Annotated[
        str,
        typer.Argument(metavar="ID", help="An incident, or how its id begins.", autocompletion=completion.incidents),
    ],
    mute_until: Annotated[
        str | None, typer.Option(help="Mute it until that time (2026-11-21T02:00Z, 14:05, tomorrow, 2h).")
    ] = None,
    resolve: Annotated[bool, typer.Option("--resolve", help="Say that it is over.")] = False,
    note: Annotated[str | None, typer.Option(help="Keep a note on it.")] = None,
    team: TeamOption = None,
    at: AtOption = None,
    format: Annotated[DrawingFormat, typer.Option(help="How to print it; a drawing shows what it touches.")] = "text",
    warehouse: WarehouseOption = None,
    landing: LandingOption = None,
    cluster: ClusterOption = None,
) -> None:
    """Tell all about an incident: why, where, suspects, what it touches, and what to type next."""
    from pipelines.commands.incidents import acting, reading, story

    with readable_warehouse(settings_under(warehouse, landing, cluster, team=team)) as every:
        tables = clusters.that_knows(
            every, f"Incident {wanted}", lambda own: reading.Incidents(own, reading.now_of(at)).of(wanted)
        )
        if mute_until is not None or resolve or note is not None:
            if at is not None or format != "text":
                raise UsageError("--mute-until, --resolve and --note act now and print text: omit --at and --format.")
            answer = acting.acted(tables, wanted, mute_until, resolve, note, team)
        else:
            from pipelines.replay import eligibility

            answer = story.one(tables, wanted, format, at, lambda id: eligibility.of_incident(tables, id), team)
        show_answers([answer])


def ask(
    question: Annotated[
        str | None, typer.Argument(help="A question; all are listed without it.", autocompletion=completion.asked)
    ] = None,
    param: ParameterOption = None,
    team: TeamOption = None,
    format: RowsOption = "table",
    warehouse: WarehouseOption = None,
    landing: LandingOption = None,
    cluster: ClusterOption = None,
    verbose: VerboseOption = False,
) -> None:
    """Answer an on-call question, or list the questions."""
    from pipelines.commands import arguments
    from pipelines.commands import ask as questions

    if question is None:
        if param:
            raise UsageError("--param needs a question: afterlog ask QUESTION --param NAME=VALUE.")
        if team is not None:
            raise UsageError("--team needs a question: afterlog ask QUESTION --team TEAM.")
        questions.write_list(format, sys.stdout)
        return
    known = questions.find(question)
    settings = settings_under(warehouse, landing, cluster, lands=True, team=team)
    parameters = arguments.parameters_of(param or [], known.text)
    on_store = Warehouse(settings)
    with on_store.store.pinned():
        remarks = questions.answer_without_jvm(on_store, known, parameters, format, team)
    if remarks is None:
        with warehouse_with_session(settings) as tables:
            remarks = questions.answer_with_spark(tables, known, parameters, format, team)
    for remark in remarks:
        say(remark)


def sql(
    query: Annotated[str | None, typer.Argument(help="A query in Spark SQL; a shell without it.")] = None,
    file: Annotated[
        Path | None, typer.Option(help="Read the query from a file.", autocompletion=completion.questions)
    ] = None,
    param: ParameterOption = None,
    format: RowsOption = "table",
    warehouse: WarehouseOption = None,
    landing: LandingOption = None,
    verbose: VerboseOption = False,
) -> None:
    """Query the warehouse with Spark SQL; without a query, a shell that answers one after the other."""
    from pipelines.commands import arguments
    from pipelines.commands import query as queries

    settings = settings_under(warehouse, landing, lands=True)
    if query is None and file is None:
        code = _run_shell(settings, param or [], format)
        if code:
            raise typer.Exit(code)
        return
    text = arguments.text_of(query, file)
    parameters = arguments.parameters_of(param or [], text)
    with warehouse_with_session(settings) as tables:
        for remark in queries.answer(tables, text, parameters, format):
            say(remark)


def _run_shell(settings: Settings, given: Sequence[str], format: RowsFormat) -> int:
    """Answer what is typed on a terminal or comes from standard input, in one session; return the exit code."""
    from pipelines.commands import arguments, shell

    arguments.parameters_of(given)  # a mistake is said before Spark starts
    with contextlib.ExitStack() as kept:
        if sys.stdin.isatty() and (sys.stdout.isatty() or sys.stderr.isatty()):
            shell.run(kept.enter_context(warehouse_with_session(settings)), given, format, say)
            return 0
        answers: list[shell.Answer] = []  # none until there is a query, which starts Spark

        def answer(text: str) -> int:
            if not answers:
                tables = kept.enter_context(warehouse_with_session(settings))
                answers.append(shell.answers(tables, given, format, say, shows_time=False))
            return answers[0](text)

        return shell.read(sys.stdin, answer)


def describe(
    group: Annotated[
        str | None, typer.Argument(help="The id of a Kafka Streams group.", autocompletion=completion.groups)
    ] = None,
    option: Annotated[str | None, typer.Option("--group", hidden=True)] = None,
    revision: Annotated[int | None, typer.Option(help="That revision of its topology.")] = None,
    epoch: Annotated[int | None, typer.Option(help="The last one accepted under that epoch.")] = None,
    at: Annotated[str | None, typer.Option(help=f"The one accepted at that time ({TIMES}).")] = None,
    diff: Annotated[tuple[int, int] | None, typer.Option(metavar="N M", help="How revision M differs from N.")] = None,
    format: Annotated[DrawingFormat, typer.Option(help="How to print it.")] = "text",
    warehouse: WarehouseOption = None,
    landing: LandingOption = None,
    cluster: ClusterOption = None,
    verbose: VerboseOption = False,
) -> None:
    """Show the topology of a Kafka Streams group, as it is or as it was."""
    from pipelines.commands import describe as descriptions

    if (group is None) == (option is None):
        raise UsageError("Give one group: afterlog describe GROUP.")
    group = group if group is not None else option
    assert group is not None
    with readable_warehouse(settings_under(warehouse, landing, cluster)) as tables:
        show_answers(
            clusters.answers(
                tables,
                f"Group {group}",
                lambda own: descriptions.answer(own, group, format, revision=revision, epoch=epoch, at=at, diff=diff),
            )
        )


def trace(
    wanted: Annotated[str, typer.Argument(metavar="ID|TOPIC:PARTITION:OFFSET", help="A trace, or a record.")],
    team: TeamOption = None,
    format: Annotated[TextFormat, typer.Option(help="json: one object a message.")] = "text",
    warehouse: WarehouseOption = None,
    landing: LandingOption = None,
    cluster: ClusterOption = None,
    verbose: VerboseOption = False,
) -> None:
    """Tell the story of one message: produced, acknowledged, committed, dead-lettered, lost."""
    from pipelines.commands import trace as stories

    with readable_warehouse(settings_under(warehouse, landing, cluster, team=team)) as tables:
        show_answers(clusters.answers(tables, wanted, lambda own: stories.answer(own, wanted, format, team)))


def show(
    coordinate: Annotated[
        str, typer.Argument(metavar="TOPIC:PARTITION:OFFSET", help="The place of a dead letter in its DLQ topic.")
    ],
    shown_as: Annotated[PayloadForm, typer.Option("--as", help="How to print key and value.")] = "auto",
    full: Annotated[bool, typer.Option("--full", help="Cut nothing.")] = False,
    team: TeamOption = None,
    format: Annotated[TextFormat, typer.Option(help="json: one object, with all of it.")] = "text",
    warehouse: WarehouseOption = None,
    landing: LandingOption = None,
    cluster: ClusterOption = None,
    verbose: VerboseOption = False,
) -> None:
    """Show one dead letter: its error, headers, key and value, masked as the settings say."""
    from pipelines.commands import show as letters

    with readable_warehouse(settings_under(warehouse, landing, cluster, team=team)) as tables:
        show_answers(
            clusters.answers(
                tables,
                coordinate,
                lambda own: letters.answer(own, coordinate, format, shown_as=shown_as, full=full, team=team),
            )
        )
