"""Text that people read: escaped, cut, sized, and names that a person may have meant."""

from __future__ import annotations

import unicodedata
from collections.abc import Callable, Iterable
from difflib import get_close_matches
from itertools import islice

from expectations.rules import counted

MOST = 3
MOST_COMPARED = 20_000  # names; each takes microseconds to compare
LIKE = 0.76  # at least, of two names; 1 is the same
WIDEST = 80
LONGEST = 300  # of a name that is compared: Kafka's topics have 249 characters at most


def escape(one: str) -> str:
    r"""Return a character as \uXXXX, one beyond the Basic Multilingual Plane as \UXXXXXXXX."""
    code = ord(one)
    return f"\\u{code:04x}" if code <= 0xFFFF else f"\\U{code:08x}"


def visible(name: str, escaped: Callable[[str], str] = escape) -> str:
    """Return a name with what a terminal would obey or hide (controls, line ends, bidirectional marks) escaped."""
    return name if name.isprintable() else "".join(one if one.isprintable() else escaped(one) for one in name)


def columns(name: str) -> int:
    """Return how many columns of a monospaced font a name takes at most."""
    return sum(2 if unicodedata.east_asian_width(one) in "WF" else 1 for one in name)


def elided(name: str, most: int) -> str:
    """Return a visible name of at most so many columns (3 or more); of a longer one the middle becomes an ellipsis."""
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
    """Return a number of bytes as people read it."""
    for unit in ("bytes", "kB", "MB"):
        if count < 1000:
            return f"{count:.0f} bytes" if unit == "bytes" else f"{count:.1f} {unit}"
        count /= 1000
    return f"{count:,.1f} GB"


def files_of(number: int, size: int) -> str:
    """Return how many files of which size."""
    return f"{counted(number, 'file')}, {size_of(size)}"


def close(name: str, known: Iterable[str]) -> list[str]:
    """Return the known names that are like a name, the likest first; neither case nor the layer of a table counts."""
    if len(name) > LONGEST:
        return []
    candidates: dict[str, list[str]] = {}
    for one in islice(known, MOST_COMPARED):
        for spelling in {one.lower(), one.lower().partition(".")[2]} - {""}:
            candidates.setdefault(spelling, []).append(one)
    likest = get_close_matches(name.lower(), candidates, n=MOST, cutoff=LIKE)
    return list(dict.fromkeys(one for spelling in likest for one in candidates[spelling] if one != name))[:MOST]


def hint(name: str, known: Iterable[str]) -> str:
    """Return `` Did you mean 'orders'?`` for the end of a message, or nothing where no known name is like the name."""
    found = [f"'{elided(one, WIDEST)}'" for one in close(name, known)]
    return f" Did you mean {' or '.join(found)}?" if found else ""
