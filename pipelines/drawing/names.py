"""hostile names -> what can be shown."""

from __future__ import annotations

import unicodedata
from collections.abc import Callable


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
