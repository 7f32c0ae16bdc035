"""Names of headers that no profile knows, or that a profile lacks -> a sentence that lists them.

Names can be hostile, so they are quoted and escaped as TOML requires.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from expectations.rules import counted
from expectations.text import visible
from pipelines.text import first_names

OF_NO_PROFILE = "that no profile reads"
MOST_NAMES = 10
MOST_NEAREST = 3
MOST_SHOWN = 120  # characters of a name
MOST_OF_A_PROFILE = 64  # characters of its name

Counts = Mapping[str, int]  # rows by header name; a row counts once per name


def sentence(counts: Counts, rows: int, which: str = OF_NO_PROFILE) -> str:
    """List the header names of rows, the most frequent first, at most MOST_NAMES."""
    having = f"The {rows:,} rows {which} have" if rows != 1 else f"The row {which} has"
    if not counts:
        return f"{having} no headers."
    shown = [f"{_shown(name)} ({counts[name]:,})" for name in sorted(counts, key=lambda name: (-counts[name], name))]
    return f"{having} headers named {first_names(shown, MOST_NAMES)}."


def nearest(counts: Mapping[tuple[str, tuple[str, ...]], int]) -> str:
    """Say which profiles come nearest to records, by profile and the headers that they lack, with their number."""
    ordered = sorted(counts.items(), key=lambda entry: (-entry[1], entry[0]))
    profiles = [
        f"{profile}: it lacks {_listed([*map(visible, lacking)])} ({counted(number, 'record')})"
        for (profile, lacking), number in ordered[:MOST_NEAREST]
    ]
    more = f"; and {len(ordered) - MOST_NEAREST:,} more" if len(ordered) > MOST_NEAREST else ""
    return f"The nearest profile is {'; '.join(profiles)}{more}."


def _listed(names: Sequence[str]) -> str:
    more = [f"{len(names) - MOST_NAMES:,} more"] if len(names) > MOST_NAMES else []
    return ", ".join([*names[:MOST_NAMES], *more])


def quoted(text: str) -> str:
    """Return text as a TOML string; characters that a terminal would not show are escaped."""
    return '"' + "".join(map(_escaped, text)) + '"'


def _escaped(character: str) -> str:
    if character in '"\\':
        return f"\\{character}"
    if character.isprintable():
        return character
    return f"\\u{ord(character):04X}" if ord(character) < 1 << 16 else f"\\U{ord(character):08X}"


def _shown(name: str) -> str:
    return quoted(name) if len(name) <= MOST_SHOWN else f"{quoted(name[:MOST_SHOWN])}..."
