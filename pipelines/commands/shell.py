"""Statements as they are typed, or from standard input -> their answers, all from one session."""

from __future__ import annotations

import contextlib
import os
import re
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

from pipelines.commands import arguments, query, statements, stored
from pipelines.errors import AfterlogError, UsageError, readable
from pipelines.run import interrupt
from pipelines.warehouse.alert_log import ALERTS
from pipelines.warehouse.tables import Warehouse

if TYPE_CHECKING:
    from prompt_toolkit import PromptSession
    from prompt_toolkit.completion import Completer, Completion
    from prompt_toolkit.document import Document
    from prompt_toolkit.formatted_text import StyleAndTextTuples
    from prompt_toolkit.history import History

PROMPT = "afterlog> "
MORE = "     ...> "
ENDS = ("\\q", "quit", "exit")
KEYWORDS = re.findall(
    r"\w+",
    """
    ALL AND ANTI AS ASC BETWEEN BY CASE CAST COUNT CROSS CURRENT_TIMESTAMP DESC DESCRIBE DISTINCT ELSE END EXCEPT EXISTS
    EXPLAIN EXPLODE FALSE FILTER FROM FULL GROUP HAVING HOURS IF IN INNER INTERSECT INTERVAL IS JOIN LATERAL LEFT LIKE
    LIMIT MAX MIN NOT NULL NULLS ON OR ORDER OUTER OVER PARTITION RIGHT RLIKE ROUND SELECT SEMI SHOW SUM TABLES THEN
    TRUE UNION USING VALUES VIEW WHEN WHERE WITH
    """,
)
_BEING_TYPED = re.compile(r"[\w.`]*$")
_NAMED_TABLE = re.compile(r"\b([a-z]+\.[a-z_]+)(?:\s+(?:AS\s+)?([a-z_]\w*))?", re.IGNORECASE)

Answer = Callable[[str], int]
"""Answers a statement, or says what is wrong with it; returns the exit code."""


def answers(
    warehouse: Warehouse, given: Sequence[str], form: str, say: Callable[[str], None], shows_time: bool
) -> Answer:
    """Return what answers statements.

    ``given`` are the ``name=value`` arguments. ``now`` is the time of each statement if they do not name it.
    """

    def answered(text: str) -> int:
        begun = time.monotonic()
        try:
            for remark in query.answer(warehouse, text, arguments.parameters_of(given), form):
                say(remark)
        except Exception as error:
            known = readable(error)
            if os.environ.get("AFTERLOG_DEBUG") and not isinstance(error, AfterlogError):
                raise
            say(str(known))
            return known.exit_code
        if shows_time:
            print(f"{time.monotonic() - begun:.2f} s", file=sys.stderr)
        return 0

    return answered


def read(lines: TextIO, answer: Answer) -> int:
    """Answer each statement of a text as soon as it is complete; return the first exit code that is not 0.

    A ``;`` ends a statement. The last one needs none.

    Raises UsageError: there is no statement.
    """
    codes: list[int] = []
    rest = ""
    try:
        for line in lines:
            found, rest = statements.statements(rest + line)
            codes += map(answer, found)
    except UnicodeDecodeError:
        raise UsageError("Standard input is not UTF-8.") from None
    if not statements.is_blank(rest):
        codes.append(answer(rest))
    if not codes:
        raise arguments.no_statement()
    return next(filter(None, codes), 0)


def loop(session: PromptSession[str], answer: Answer, stopped: Callable[[], None]) -> None:
    """Answer what is typed until Ctrl-D, ``\\q``, ``quit`` or ``exit``.

    Ctrl-C clears what is typed. While a statement runs, it calls ``stopped``.
    """
    while True:
        try:
            typed = session.prompt()
        except KeyboardInterrupt:
            continue
        except EOFError:
            return
        if typed.strip().removesuffix(";").strip().lower() in ENDS:
            return
        found, rest = statements.statements(typed)
        try:
            for text in (*found, *([] if statements.is_blank(rest) else [rest])):
                answer(text)
        except KeyboardInterrupt:
            stopped()


def run(warehouse: Warehouse, given: Sequence[str], form: str, say: Callable[[str], None]) -> None:
    """Be a shell on a terminal, over the session of a warehouse."""
    from prompt_toolkit.output import create_output

    spark = warehouse.spark
    interrupt.unwind()

    def stopped() -> None:
        with contextlib.suppress(Exception):
            spark.sparkContext.cancelAllJobs()
        say("stopped.")

    output = create_output(sys.stdout if sys.stdout.isatty() else sys.stderr)
    print("Enter or ; ends a statement, Alt-Enter begins a line, Tab completes, \\q or Ctrl-D ends.", file=sys.stderr)
    loop(session(output=output), answers(warehouse, given, form, say, shows_time=True), stopped)


def session(past: History | None = None, **streams: object) -> PromptSession[str]:
    """Return what reads statements from a terminal: with history, completion and lines that go on."""
    from prompt_toolkit import PromptSession
    from prompt_toolkit.completion import Completer
    from prompt_toolkit.filters import Condition
    from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent

    class Names(Completer):
        def get_completions(self, document: Document, complete_event: object) -> Iterator[Completion]:
            return completions(document)

    keys = KeyBindings()
    made: PromptSession[str]

    @keys.add("enter", filter=Condition(lambda: not is_complete(made.default_buffer.text)))
    def _(event: KeyPressEvent) -> None:
        event.current_buffer.insert_text("\n")

    @keys.add("enter", filter=Condition(lambda: is_complete(made.default_buffer.text)))
    def _(event: KeyPressEvent) -> None:
        event.current_buffer.validate_and_handle()

    @keys.add("escape", "enter")
    def _(event: KeyPressEvent) -> None:
        event.current_buffer.insert_text("\n")

    def continued(width: int, line: int, wrapped: int) -> StyleAndTextTuples:
        return [("", " " * width if wrapped else MORE)]

    names: Completer = Names()
    made = PromptSession(
        PROMPT,
        multiline=True,
        prompt_continuation=continued,
        history=past or history(),
        completer=names,
        complete_while_typing=False,
        key_bindings=keys,
        enable_history_search=True,
        **streams,  # type: ignore[arg-type]
    )
    return made


def is_complete(text: str) -> bool:
    """Tell whether Enter ends what is typed: a line without an open literal or bracket, or all up to a ``;``."""
    if text.strip().lower() in ("", *ENDS):
        return True
    _, rest = statements.statements(text)
    if statements.is_blank(rest):
        return True
    return "\n" not in text.strip() and not statements.is_open(rest)


def history() -> History:
    """Return the statements of earlier shells, in a file that only the user can read; without one, those of this shell.

    The file is in the user's directory for state (``XDG_STATE_HOME``).
    """
    from prompt_toolkit.history import FileHistory, InMemoryHistory

    file = state_directory() / "sql_history"
    try:
        file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        opened = os.open(file, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW, 0o600)
        try:
            os.fchmod(opened, 0o600)
        finally:
            os.close(opened)
    except OSError:
        return InMemoryHistory()
    return FileHistory(str(file))


def state_directory() -> Path:
    """Return the user's directory for Afterlog's state."""
    given = os.environ.get("XDG_STATE_HOME", "")
    return (Path(given) if os.path.isabs(given) else Path.home() / ".local" / "state") / "afterlog"


def completions(document: Document) -> Iterator[Completion]:
    """Yield keywords, tables and the columns of the tables in the statement, for the word before the cursor."""
    from prompt_toolkit.completion import Completion

    before = document.text_before_cursor
    typed = before[_start_of_word(before) :]
    if statements.is_in_text(before):
        return
    for name, what in _names(document.text, typed):
        yield Completion(name, start_position=-len(typed), display_meta=what)


def _start_of_word(text: str) -> int:
    found = _BEING_TYPED.search(text)
    return found.start() if found else len(text)


def _names(text: str, typed: str) -> Iterator[tuple[str, str]]:
    """Yield what a typed word can become, and what that is."""
    known = columns()
    aliases = _aliases(text)
    begun = typed.replace("`", "").lower()
    head, dot, _ = begun.rpartition(".")
    if dot:
        for table in known:
            if table.startswith(begun):
                yield table, "table"
        for column in known.get(aliases.get(head, head), ()):
            if f"{head}.{column}".startswith(begun):
                yield f"{typed[: len(typed) - len(typed.rpartition('.')[2])]}{column}", "column"
        return
    if not begun:
        return
    found: dict[str, str] = {}
    for table in dict.fromkeys(aliases.values()):
        found |= dict.fromkeys(known.get(table, ()), "column")
    found |= {alias: "alias" for alias in aliases if "." not in alias}
    yield from ((name, what) for name, what in found.items() if name.startswith(begun))
    yield from ((table, "table") for table in known if table.startswith(begun))
    for word in KEYWORDS:
        if word.lower().startswith(begun):
            yield word if typed[:1].isupper() else word.lower(), "keyword"


def _aliases(text: str) -> dict[str, str]:
    """Return the tables that a statement names, by their aliases and names."""
    known, words = columns(), {word.lower() for word in KEYWORDS}
    found: dict[str, str] = {}
    for table, alias in _NAMED_TABLE.findall(text):
        if table.lower() in known:
            found[table.lower()] = table.lower()
            found[table.lower().partition(".")[2]] = table.lower()
            if alias and alias.lower() not in words:
                found[alias.lower()] = table.lower()
    return found


@cache
def columns() -> Mapping[str, tuple[str, ...]]:
    """Return the columns of each table, as its contract names them."""
    from pipelines.run import freshness
    from pipelines.run.contracts import contracts

    known = (*contracts(), freshness.FRESHNESS, ALERTS)
    named = {contract.table: tuple(column.name for column in contract.stored) for contract in known}
    return {table: named[table] for table in stored.TABLES if table in named}
