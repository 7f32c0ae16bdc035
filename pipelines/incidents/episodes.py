"""Times of dead letters -> episodes: stretches of time in which dead letters of one error keep coming.

A pause ends an episode if it is longer than ten times the median gap between the episode's records, at least half an
hour and at most a day. The episodes are found from the whole down: if the longest pause of a stretch is too long for
it, it is cut there, and the parts are looked at again with their own medians. The result does not depend on the order
in which records land.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

VERSION = 2
"""Of the algorithm. A record keeps the version at which it was accepted, and its fingerprint depends on it.

So a later version begins incidents of its own and never regroups old ones.
"""
SECOND = 1_000_000
LEAST_PAUSE = 30 * 60 * SECOND
MOST_PAUSE = 24 * 3600 * SECOND
GAPS_OF_A_PAUSE = 10


class Minute(NamedTuple):
    """The records of one minute: the first and the last one's time in microseconds, and their number."""

    first_at: int
    last_at: int
    record_count: int


@dataclass(frozen=True)
class Episode:
    """A stretch of time with records, in microseconds; ``pause`` is the pause that would end it."""

    first_at: int
    last_at: int
    record_count: int
    pause: int


def merged(minutes: Iterable[tuple[int, Minute]]) -> list[Minute]:
    """Return the minutes in order; parts of one minute, named by its beginning, become one."""
    known: dict[int, Minute] = {}
    for begin, minute in minutes:
        other = known.get(begin)
        known[begin] = (
            minute
            if other is None
            else Minute(
                min(minute.first_at, other.first_at),
                max(minute.last_at, other.last_at),
                minute.record_count + other.record_count,
            )
        )
    return [known[begin] for begin in sorted(known)]


def pause_of(minutes: Sequence[Minute]) -> int:
    """Return the pause that ends an episode with these minutes, in microseconds.

    The gaps within a minute are shorter than a minute. Their exact lengths do not matter: a median below three minutes
    gives the least pause.
    """
    within = sum(minute.record_count - 1 for minute in minutes)
    between = sorted(after.first_at - before.last_at for before, after in pairwise(minutes))
    place = (within + len(between) - 1) // 2 - within  # of the lower median among the gaps between minutes
    if not between:
        return LEAST_PAUSE
    short = sum(gap < 60 * SECOND for gap in between)
    if place < short:  # the median is among gaps below a minute, in whichever order these are
        return LEAST_PAUSE
    return min(max(GAPS_OF_A_PAUSE * between[place], LEAST_PAUSE), MOST_PAUSE)


def episodes(minutes: Sequence[Minute]) -> list[Episode]:
    """Return the episodes of minutes that are in order."""
    found: list[Episode] = []
    parts = [(0, len(minutes))]
    while parts:
        begin, end = parts.pop()
        part = minutes[begin:end]
        gaps = [after.first_at - before.last_at for before, after in pairwise(part)]
        pause = pause_of(part)
        longest = max(gaps, default=0)
        if longest > pause:
            least = min(longest, MOST_PAUSE + 1)  # pauses of more than a day are cuts in any case
            cuts = [begin + place for place, gap in enumerate(gaps, 1) if gap >= least]
            parts += reversed(list(zip([begin, *cuts], [*cuts, end], strict=True)))
        elif part:
            found.append(Episode(part[0].first_at, part[-1].last_at, sum(one.record_count for one in part), pause))
    return found
