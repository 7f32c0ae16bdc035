"""What commands print: results to standard output, sentences to standard error."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, TypeVar

import typer

from pipelines.cli.options import TableFormat, TextFormat
from pipelines.errors import EnvironmentLacking
from pipelines.settings import Settings

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

    from pipelines.commands.describe import Answer

    Record = TypeVar("Record", bound=DataclassInstance)


def say(sentence: str) -> None:
    """Print a sentence to standard error; what cannot be printed is escaped."""
    print(f"afterlog: {''.join(c if c.isprintable() else repr(c)[1:-1] for c in sentence)}", file=sys.stderr)


def end_with(problems: Sequence[str | None]) -> None:
    """Say what could not be read, and end with the exit code of a machine that lacks something; None: all was."""
    told = [problem for problem in problems if problem is not None]
    for problem in dict.fromkeys(told):
        say(problem)
    if told:
        raise typer.Exit(EnvironmentLacking.exit_code)


def say_about(settings: Settings, cluster: str) -> Callable[[str], None]:
    """Return what says a sentence about a cluster, and names the cluster if the settings have several."""
    return say if settings.sole_cluster else lambda sentence: say(f"Cluster {cluster}: {sentence}")


def text_or_json(format: TableFormat) -> TextFormat:
    """Return the form of an answer whose text is a table."""
    return "text" if format == "table" else format


def show_answers(answers: Sequence[Answer]) -> None:
    """Print answers, say their remarks, and end with the greatest of their exit codes."""
    for answer in answers:
        if answer.result:
            print(answer.result.removesuffix("\n"), flush=True)
        for remark in answer.remarks:
            say(remark)
    if code := max(answer.exit_code for answer in answers):
        raise typer.Exit(code)


def show_records(
    records: Sequence[Record], format: TableFormat, show_table: Callable[[Sequence[Record]], None]
) -> None:
    """Print each record as a JSON object, or all of them as a table."""
    if format == "json":
        for record in records:
            print(json.dumps(asdict(record)))
    else:
        show_table(records)


def show_record(record: Record, format: TextFormat, show_text: Callable[[Record], None]) -> None:
    """Print a record as a JSON object, or as text."""
    if format == "json":
        print(json.dumps(asdict(record)))
    else:
        show_text(record)
