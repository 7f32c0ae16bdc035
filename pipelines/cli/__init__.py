"""The command line: runs without Airflow exactly what the DAGs run.

Results go to standard output, logs and progress to standard error. Exit codes: 0 done, 1 a contract broke or the answer
is negative, 2 usage or settings, 3 the environment lacks something, 4 another writer is at work, 130 interrupted.
"""

from __future__ import annotations

import contextlib
import logging
import os
import sys
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Annotated

import typer

from pipelines.cli import alerts, answers, broker, installed, register, replays, report, runs, upkeep
from pipelines.cli.options import VerboseOption
from pipelines.cli.output import say
from pipelines.errors import AfterlogError, Unforeseen, readable
from pipelines.jvm import jvm_log
from pipelines.run import interrupt
from pipelines.settings import load
from pipelines.warehouse.tables import Warehouse

COMMANDS: tuple[Callable[..., None], ...] = (  # in the order of `afterlog --help`
    installed.init,
    installed.setup,
    installed.dags,
    answers.top,
    answers.incidents,
    answers.incident,
    runs.run,
    answers.ask,
    answers.sql,
    answers.describe,
    answers.trace,
    answers.show,
    runs.readmit,
    runs.rebuild,
    report.report,
    installed.generate,
    runs.collect,
    installed.doctor,
    upkeep.maintain,
    upkeep.backup,
    upkeep.restore,
    upkeep.repair,
    upkeep.migrate,
    upkeep.erase,
    upkeep.stats,
    register.register,
)

app = typer.Typer(invoke_without_command=True, pretty_exceptions_enable=False)
for command in COMMANDS:
    app.command()(command)
app.add_typer(broker.app, name="broker", callback=interrupt.unwind)
app.add_typer(alerts.app, name="alerts")
app.add_typer(replays.app, name="replay")


def _show_version(is_wanted: bool) -> None:
    if is_wanted:
        print(f"afterlog {version('afterlog')}")
        raise typer.Exit


@app.callback()
def afterlog(
    context: typer.Context,
    show_version: Annotated[
        bool, typer.Option("--version", help="Show the version.", is_eager=True, callback=_show_version)
    ] = False,
    config: Annotated[Path | None, typer.Option(metavar="FILE", help="The settings file.")] = None,
    verbose: VerboseOption = False,
) -> None:
    """Afterlog: the lakehouse for what Kafka could not deliver."""
    if config is not None:
        os.environ["AFTERLOG_SETTINGS"] = os.fspath(config.expanduser().absolute())  # also for processes of the command
    if context.invoked_subcommand is not None:
        return
    settings = load()
    if sys.stdout.isatty() and (tables := Warehouse(settings)).opens_tables and not tables.store.is_empty():
        answers.top()
    else:
        print(context.get_help())


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
            sys.exit(_exit_code_after(ended.__context__))
        raise
    except Exception as error:
        sys.exit(_exit_code_after(error))
    except KeyboardInterrupt:
        say("stopped.")
        sys.exit(interrupt.EXIT_CODE)


class _StandardError(logging.Handler):
    """Writes to standard error as it is now: while a live line is shown, above that."""

    def emit(self, record: logging.LogRecord) -> None:
        with contextlib.suppress(OSError):
            print(self.format(record), file=sys.stderr, flush=True)


def _exit_code_after(error: Exception) -> int:
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
    say(str(known))
    if isinstance(known, Unforeseen) and (log := jvm_log.kept()):
        say(f"What Spark logged is kept in {log}; --verbose shows it as it comes.")
    return known.exit_code
