"""Times of dead letters in ms, and the silence that ends an episode by the public definition."""

from __future__ import annotations

import random
from collections.abc import Sequence
from datetime import UTC, datetime
from itertools import accumulate, groupby, pairwise
from statistics import median_low

SECOND, MINUTE, HOUR, DAY = 1_000, 60_000, 3_600_000, 86_400_000
FIRST_START = int(datetime(2026, 11, 6, tzinfo=UTC).timestamp()) * 1000
LAST_START = int(datetime(2026, 11, 15, tzinfo=UTC).timestamp()) * 1000
ORIGIN = int(datetime(2026, 10, 25, tzinfo=UTC).timestamp()) * 1000
"""When all source logs begin."""


def _gaps(times: Sequence[int]) -> list[int]:
    """Return the gaps in ms between minutes with records."""
    minutes = [[*of_minute] for _, of_minute in groupby(times, key=lambda at: at // MINUTE)]
    return [after[0] - before[-1] for before, after in pairwise(minutes)]


def _limit(gaps: Sequence[int]) -> float:
    usual = median_low(gaps[-10:]) if gaps else 0
    return min(max(10 * usual, 2 * max(gaps, default=0), 30 * MINUTE), DAY)


def pause_limit(times: Sequence[int]) -> float:
    """Return the silence in ms that ends an episode with these sorted times, whatever comes after it."""
    return _limit(_gaps(times))


def is_one_episode(times: Sequence[int]) -> bool:
    """Tell whether no silence comes near the limit."""
    safe, gaps = 0.7, _gaps(times)
    return all(
        silence <= safe * min(max(_limit(gaps[:index]), 10 * next_gap), DAY)
        for index, (silence, next_gap) in enumerate(zip(gaps, [*gaps[1:], 0], strict=False))
        if silence > safe * 30 * MINUTE
    )


def is_over(times: Sequence[int], after: Sequence[int]) -> bool:
    """Tell whether the silence between two episodes ends the first one, and does not come near the limit."""
    next_gap = (_gaps(after) or [0])[0]
    return after[0] - times[-1] > 1.4 * min(max(pause_limit(times), 10 * next_gap), DAY)


def times_of(r: random.Random, start: int, count: int, gap: float) -> list[int]:
    """Return sorted times with this mean gap in ms: regular, random or in bursts, if fast with some longer breaks."""
    shape = "regular" if gap > 3 * MINUTE else r.choice(("regular", "random", "bursts"))
    longest = max(18 * MINUTE, 1.25 * gap)
    at, times = float(start), [start]
    breaks = {r.randrange(1, count) for _ in range(r.randrange(4))} if gap < 30 * SECOND and count > 1 else set()
    left = 0
    for number in range(1, count):
        if shape == "regular":
            wait = gap * r.uniform(0.75, 1.25)
        elif shape == "random":
            wait = min(r.expovariate(1 / gap), 5 * gap)
        elif left:
            left, wait = left - 1, gap * r.uniform(0.02, 0.2)
        else:
            left = r.randrange(4, 30)
            wait = gap * left * r.uniform(0.6, 1.2)
        if number in breaks and r.random() < 0.5:
            wait = r.uniform(2, 17) * MINUTE
        limit = 18 * MINUTE if number == 1 else longest
        at += min(wait, limit)
        times.append(int(at))
    return times


def paced(r: random.Random, start: int) -> list[int]:
    """Return times of a drip by the hour and a storm of ten minutes, in any order."""
    drip, storm = ([1 * HOUR] * r.randrange(6, 24), [r.randrange(2, 12) * SECOND] * r.randrange(40, 120))
    parts = r.choice(((drip, storm), (storm, drip), (drip, storm, drip)))
    waits = [wait * r.uniform(0.8, 1.2) for part in parts for wait in part]
    return [int(at) for at in accumulate(waits, initial=start)]


def moment(at: int) -> datetime:
    """Return the time of milliseconds since the epoch."""
    return datetime.fromtimestamp(at // 1000, UTC).replace(microsecond=at % 1000 * 1000)
