"""On-call questions -> their answers, without a JVM where a test proves that DuckDB's answer is Spark's."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TextIO

from expectations.text import visible
from pipelines.commands import arguments, query, remarks, statements, stored, tabular
from pipelines.commands import rows as printed
from pipelines.commands.masked import masked
from pipelines.commands.of_team import narrowed, unlimited
from pipelines.engines.duckdb import nodes, sessions, translate
from pipelines.errors import UsageError
from pipelines.text import elided, hint
from pipelines.warehouse.tables import Warehouse

PARAMETERS = {"topic": str, "partition": int, "offset": int}
"""The types for which the equality of answers is tested; ``now`` is always a time."""

WIDEST = 40  # columns of a value in an error message
_LINE = r"^-- {}: ((?:.*\n)(?:--   .*\n)*)"


@dataclass(frozen=True)
class Question:
    """A question by name, with its Spark SQL."""

    name: str
    text: str

    @cached_property
    def purpose(self) -> str:
        """What it asks, in words."""
        said = self._head("Purpose")
        return said[:1].upper() + said[1:]

    @property
    def asked(self) -> str:
        """The first sentence of its purpose: the question."""
        return re.split(r"(?<=\?) |(?<=\.) ", self.purpose)[0]

    @property
    def parameters(self) -> str:
        """Its parameters, in words."""
        return self._head("Parameters")

    @property
    def by_duckdb(self) -> bool:
        """True if a test proves that DuckDB's answer is Spark's."""
        return self._head("Engine") == "duckdb"

    def _head(self, entry: str) -> str:
        """Return an entry of the comment that opens the file, as one line; empty if there is none."""
        found = re.search(_LINE.format(entry), self.text, re.MULTILINE)
        return " ".join(line.removeprefix("--").strip() for line in found[1].splitlines()) if found else ""


def questions() -> dict[str, Question]:
    """Return the questions by name."""
    return {path.stem: Question(path.stem, path.read_text(encoding="utf-8")) for path in arguments.questions()}


def find(name: str) -> Question:
    """Return a question by its name.

    Raises UsageError: there is none of that name.
    """
    known = questions()
    if name not in known:
        raise UsageError(f"There is no question {name!r}; `afterlog ask` lists all.{hint(name, known)}")
    return known[name]


def write_list(form: str, out: TextIO) -> None:
    """Write the questions: as a table what each asks and takes, else its whole purpose and parameters."""
    listed = list(questions().values())
    rows: list[tuple[str, ...]]
    if form == "table":
        names: tuple[str, ...] = ("question", "asks", "takes")
        rows = [
            (question.name, question.asked, ", ".join(re.findall(r":([a-z]\w*)", question.parameters)))
            for question in listed
        ]
    else:
        names = ("question", "asks", "purpose", "parameters")
        rows = [(question.name, question.asked, question.purpose, question.parameters) for question in listed]
    printed.write(printed.TextRows(names, rows), form, out, tabular.terminal_width(out))


def answer_without_jvm(
    warehouse: Warehouse,
    question: Question,
    values: Mapping[str, arguments.Parameter],
    form: str,
    team: str | None = None,
) -> list[str] | None:
    """Write the answer as ``query.answer`` does, and return its remarks; None if only Spark can answer.

    Raises UsageError: a parameter has no value, or a table does not exist, or no row can be a ``team``'s or
    of the cluster that the settings choose.
    """
    if not (question.by_duckdb and warehouse.opens_tables):
        return None
    text, seen_by = _narrowed(warehouse, question, team)
    try:
        seen = seen_by(rows_without_jvm(warehouse, text, values))
        written = printed.write(seen, form, sys.stdout, tabular.terminal_width(sys.stdout))
    except (nodes.Untranslatable, printed.Unprintable):
        return None
    return remarks.remarks_after(warehouse, question.text, values, form, written)


def answer_with_spark(
    warehouse: Warehouse,
    question: Question,
    values: Mapping[str, arguments.Parameter],
    form: str,
    team: str | None = None,
) -> list[str]:
    """Write the answer as ``query.answer`` does, and return its remarks."""
    text, seen = _narrowed(warehouse, question, team)
    return query.answer(warehouse, text, values, form, seen)


def _narrowed(
    warehouse: Warehouse, question: Question, team: str | None
) -> tuple[str, Callable[[printed.Rows], printed.Rows]]:
    """Return the statement of a question, and what makes of its rows those that are shown: of a team, of a cluster."""
    settings = warehouse.settings
    if team is None and settings.chosen_cluster is None:
        return question.text, lambda rows: masked(rows, settings)
    text, most = unlimited(question.text)
    return text, lambda rows: masked(narrowed(rows, settings, team, question.name, most), settings)


def rows_without_jvm(warehouse: Warehouse, text: str, values: Mapping[str, arguments.Parameter]) -> printed.Rows:
    """Return the rows of DuckDB's answer to a statement of Spark SQL.

    Raises Untranslatable: only Spark can answer. UsageError: a parameter has no value, or one of another type, or a
    table does not exist.
    """
    named = sorted(translate.parameters(text))
    if absent := [name for name in named if name not in values]:
        raise arguments.no_value(*absent)
    for name in named:
        if PARAMETERS.get(name) is int and isinstance(values[name], str | bool):
            raise UsageError(f":{name} takes a whole number, not '{elided(visible(str(values[name])), WIDEST)}'.")
        if name != "now" and type(values[name]) is not PARAMETERS.get(name):
            raise nodes.Untranslatable(f"the type of :{name}")
    tables = statements.statement_tables(text).intersection(stored.TABLES)
    fetched = sessions.answer(warehouse, text, values, tables, stored.present(warehouse, tables))
    return printed.FetchedRows(fetched.names, fetched.types, fetched.rows)
