"""Arguments of a command line -> a statement and the values that are bound to its parameters."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path

from expectations.text import visible
from pipelines import moments
from pipelines.engines.duckdb import nodes, translate
from pipelines.errors import UsageError
from pipelines.moments import moment_of
from pipelines.settings import QUESTIONS
from pipelines.text import hint

Parameter = str | int | bool | Decimal | date | datetime


def text_of(statement: str | None, file: Path | None) -> str:
    """Return the statement given as an argument or as a file.

    Raises UsageError: neither or both are given, or the file cannot be read.
    """
    if (statement is None) == (file is None):
        raise no_statement()
    if file is None:
        return statement or ""
    try:
        return file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        missing = isinstance(error, FileNotFoundError)
        meant = hint(file.stem, [path.stem for path in questions()]) if missing else ""
        if missing and file.stem in {path.stem for path in questions()}:
            meant = f" That question is {QUESTIONS / file.stem}.sql."
        raise UsageError(f"The file {visible(str(file))} cannot be read: {reason}.{meant}") from None


def no_statement() -> UsageError:
    """Return the error for a command line without a statement, or with two."""
    return UsageError('Give one statement: afterlog sql "SELECT ..." or afterlog sql --file FILE.')


def questions() -> list[Path]:
    """Return the files of the on-call questions."""
    return sorted(QUESTIONS.glob("*.sql"))


def parameters_of(given: Sequence[str], text: str | None = None) -> dict[str, Parameter]:
    """Return the values of ``name=value`` arguments, typed by their form; ``now`` is the present if not given.

    ``text`` is the statement that takes them; with a parameter that it does not take the answer would be to another
    question.

    The types are whole numbers, decimals, true and false, dates, and timestamps with ``T`` (UTC unless they name a
    zone). Everything else is text, and so is a value in single quotes. ``now`` can also be relative, such as ``2h``.

    Raises UsageError: an argument is not ``name=value``, the text does not take it, or ``now`` is no time.
    """
    present = moments.now()
    values: dict[str, Parameter] = {}
    for argument in given:
        name, equals, value = argument.partition("=")
        if not equals or not name.isidentifier():
            raise UsageError(f"--param {argument!r} cannot be used: write --param NAME=VALUE.")
        values[name] = moment_of(value, "--param now", present) if name == "now" else _typed(value)
    taken = _taken(text) if text is not None and given else None
    if taken is not None and (unknown := next((name for name in values if name not in taken), None)):
        names = ", ".join(f":{name}" for name in sorted(taken)) or "none"
        known = " It tells what is known now." if unknown == "now" else hint(unknown, taken)
        raise UsageError(f"There is no parameter :{visible(unknown)} in it; it takes {names}.{known}")
    return {"now": present} | values


def _taken(text: str) -> set[str] | None:
    """Return the parameters that a statement takes; None if only Spark can parse it, which may take any."""
    try:
        return {*translate.parameters(text)}
    except nodes.Untranslatable:
        return None


def _typed(text: str) -> Parameter:
    if len(text) > 1 and text[0] == text[-1] == "'":
        return text[1:-1]
    if re.fullmatch(r"-?[0-9]{1,18}", text):
        return int(text)
    if re.fullmatch(r"-?[0-9]+(\.[0-9]+)?", text) and len(text) <= 38:
        return Decimal(text)
    if text in ("true", "false"):
        return text == "true"
    if re.match(r"\d{4}-\d\d-\d\d(T\d\d:\d\d|$)", text, re.ASCII):
        try:
            if "T" not in text:
                return date.fromisoformat(text)
            moment = datetime.fromisoformat(text)
        except ValueError:
            return text
        return moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    return text


def no_value(*names: str) -> UsageError:
    """Return the error for parameters of a statement that have no value."""
    wanted, given = ", ".join(f":{name}" for name in names), " ".join(f"--param {name}=VALUE" for name in names)
    return UsageError(f"The statement needs {'a value' if len(names) == 1 else 'values'} for {wanted}: give {given}.")
