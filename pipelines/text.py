"""Text for people: shorten names, write sizes in words, suggest names that a person may have meant."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from difflib import get_close_matches
from itertools import islice

from expectations.rules import counted
from expectations.text import visible

MOST = 3
MOST_COMPARED = 20_000  # names; each takes microseconds to compare
LIKE = 0.76  # least similarity of two names; 1 means equal
WIDEST = 80
LEAST = 4  # characters of a name that may be the begin of another
MOST_LISTED = 5
LONGEST = 300  # characters of a name to compare: a Kafka topic's name has at most 249


def iso(at: datetime) -> str:
    """Return a time as JSON has it everywhere: of UTC, in milliseconds, or in microseconds if it has any.

    >>> iso(datetime(2026, 11, 21, 2, 41, 7, tzinfo=UTC))
    '2026-11-21T02:41:07.000Z'
    """
    timespec = "microseconds" if at.microsecond % 1000 else "milliseconds"
    return at.astimezone(UTC).isoformat(timespec=timespec).replace("+00:00", "Z")


def utf8(text: str) -> str:
    """Return a text that UTF-8 can hold; a lone surrogate becomes a question mark."""
    return text.encode("utf-8", "replace").decode()


def columns(name: str) -> int:
    """Return the most columns that a name takes in a monospaced font."""
    return sum(2 if unicodedata.east_asian_width(character) in "WF" else 1 for character in name)


def elided(name: str, most: int) -> str:
    """Return a visible name in at most ``most`` columns (3 or more); an ellipsis replaces the middle of a long name.

    >>> elided('dlq.orders.of.the.shop', 12)
    'dlq.or….shop'
    """
    shown = visible(name[: 2 * most] + name[2 * most :][-2 * most :])
    if columns(shown) <= most:
        return shown
    return f"{_start(shown, most // 2)}…{_start(shown[::-1], most - 1 - most // 2)[::-1]}"


def _start(name: str, most: int) -> str:
    taken = 0
    for end, character in enumerate(name):
        taken += columns(character)
        if taken > most:
            return name[:end]
    return name


def cut(text: str, most: int) -> str:
    """Return a text in at most so many characters.

    >>> cut('a long sentence', 8)
    'a long …'
    """
    return text if len(text) <= most else f"{text[: most - 1]}…"


def size_of(count: float) -> str:
    """Return a number of bytes in a unit for people, such as 1.5 MB.

    >>> size_of(1_500_000)
    '1.5 MB'
    """
    if count < 1000:
        return counted(round(count), "byte")
    for unit in ("kB", "MB", "GB"):
        count /= 1000
        if count < 1000:
            return f"{count:.1f} {unit}"
    return f"{count / 1000:,.1f} TB"


def amount(number: float) -> str:
    """Return a number of things, such as 0.2 or 1,600; 0 only if it is exactly that."""
    if 0 < number < 0.05:
        return "less than 0.1"
    return f"{number:,.1f}".removesuffix(".0") if number < 10 else f"{number:,.0f}"


def files_of(number: int, size: int) -> str:
    """Return a number of files and their size in words."""
    return f"{counted(number, 'file')}, {size_of(size)}"


def close(name: str, known: Iterable[str]) -> list[str]:
    """Return the known names most similar to a name, most similar first; ignore case and a table's layer."""
    if len(name) > LONGEST:
        return []
    candidates: dict[str, list[str]] = {}
    for candidate in islice(known, MOST_COMPARED):
        whole, within = candidate.lower(), candidate.lower().partition(".")[2]
        is_begin = len(name) >= LEAST and any(text.startswith(name.lower()) for text in (whole, within))
        for spelling in {whole, within, name.lower() if is_begin else ""} - {""}:
            candidates.setdefault(spelling, []).append(candidate)
    likest = get_close_matches(name.lower(), candidates, n=MOST, cutoff=LIKE)
    return list(
        dict.fromkeys(candidate for spelling in likest for candidate in candidates[spelling] if candidate != name)
    )[:MOST]


def near(name: str, known: Sequence[str]) -> str:
    """Return the end of a message on a table that there is not: the tables that may be meant, or else some of all."""
    return hint(name, known) or f" There are {first_names(known)}."


def first_names(names: Sequence[str], most: int = MOST_LISTED) -> str:
    """Return the first names, ``most`` of them, and how many more there are.

    >>> first_names(['a', 'b', 'c'], 2)
    'a, b and 1 more'
    """
    more = f" and {len(names) - most:,} more" if len(names) > most else ""
    return f"{', '.join(names[:most])}{more}"


def hint(name: str, known: Iterable[str]) -> str:
    """Return `` Did you mean 'orders'?`` for the end of a message, or an empty text if no known name is similar.

    >>> hint('ordrs', ['orders', 'payments'])
    " Did you mean 'orders'?"
    """
    meant = [f"'{elided(candidate, WIDEST)}'" for candidate in close(name, known)]
    return f" Did you mean {' or '.join(meant)}?" if meant else ""
