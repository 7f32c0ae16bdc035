"""Text for people: escape and shorten names, write sizes in words, suggest names that a person may have meant."""

from __future__ import annotations

import unicodedata
from collections.abc import Callable, Iterable
from difflib import get_close_matches
from itertools import islice

from expectations.rules import counted

MOST = 3
MOST_COMPARED = 20_000  # names; each takes microseconds to compare
LIKE = 0.76  # least similarity of two names; 1 means equal
WIDEST = 80
LONGEST = 300  # characters of a name to compare: a Kafka topic's name has at most 249


def escape(one: str) -> str:
    r"""Return a character as \uXXXX, or as \UXXXXXXXX if it is beyond the Basic Multilingual Plane."""
    code = ord(one)
    return f"\\u{code:04x}" if code <= 0xFFFF else f"\\U{code:08x}"


def visible(name: str, escaped: Callable[[str], str] = escape) -> str:
    """Escape the characters of a name that a terminal obeys or hides: controls, line ends, bidirectional marks."""
    return name if name.isprintable() else "".join(one if one.isprintable() else escaped(one) for one in name)


def columns(name: str) -> int:
    """Return the most columns that a name takes in a monospaced font."""
    return sum(2 if unicodedata.east_asian_width(one) in "WF" else 1 for one in name)


def elided(name: str, most: int) -> str:
    """Return a visible name in at most ``most`` columns (3 or more); an ellipsis replaces the middle of a long name."""
    shown = visible(name[: 2 * most] + name[2 * most :][-2 * most :])
    if columns(shown) <= most:
        return shown
    return f"{_start(shown, most // 2)}…{_start(shown[::-1], most - 1 - most // 2)[::-1]}"


def _start(name: str, most: int) -> str:
    taken = 0
    for place, one in enumerate(name):
        taken += columns(one)
        if taken > most:
            return name[:place]
    return name


def size_of(count: float) -> str:
    """Return a number of bytes in a unit for people, such as 1.5 MB."""
    for unit in ("bytes", "kB", "MB"):
        if count < 1000:
            return f"{count:.0f} bytes" if unit == "bytes" else f"{count:.1f} {unit}"
        count /= 1000
    return f"{count:,.1f} GB"


def files_of(number: int, size: int) -> str:
    """Return a number of files and their size in words."""
    return f"{counted(number, 'file')}, {size_of(size)}"


def close(name: str, known: Iterable[str]) -> list[str]:
    """Return the known names most similar to a name, most similar first; ignore case and a table's layer."""
    if len(name) > LONGEST:
        return []
    candidates: dict[str, list[str]] = {}
    for one in islice(known, MOST_COMPARED):
        for spelling in {one.lower(), one.lower().partition(".")[2]} - {""}:
            candidates.setdefault(spelling, []).append(one)
    likest = get_close_matches(name.lower(), candidates, n=MOST, cutoff=LIKE)
    return list(dict.fromkeys(one for spelling in likest for one in candidates[spelling] if one != name))[:MOST]


def hint(name: str, known: Iterable[str]) -> str:
    """Return `` Did you mean 'orders'?`` for the end of a message, or an empty text if no known name is similar."""
    found = [f"'{elided(one, WIDEST)}'" for one in close(name, known)]
    return f" Did you mean {' or '.join(found)}?" if found else ""
