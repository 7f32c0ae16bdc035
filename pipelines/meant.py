"""A name that is not there -> those that may be meant."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches
from itertools import islice

from pipelines.drawing.names import elided

MOST = 3
MOST_COMPARED = 20_000  # names; each takes microseconds to compare
LIKE = 0.76  # at least, of two names; 1 is the same
WIDEST = 80
LONGEST = 300  # of a name that is compared: Kafka's topics have 249 characters at most


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
