"""Random times of dead letters, and the minutes that silver.dlq_errors keeps of them."""

from __future__ import annotations

import random

from pipelines.incidents.episodes import SECOND, Minute

MINUTE, HALF_HOUR, HOUR = 60 * SECOND, 1800 * SECOND, 3600 * SECOND


def minutes_of(times: list[int]) -> list[tuple[int, Minute]]:
    return [(at - at % MINUTE, Minute(at, at, 1)) for at in times]


def random_times(chance: random.Random) -> list[int]:
    times, at = [], chance.randrange(10**9) * 1000
    for _ in range(chance.randint(1, 5)):
        step = chance.choice((0.01, 1, 50, 170, 200, 900, 3600, 7000)) * SECOND
        for _ in range(chance.randint(1, 40)):
            times.append(at)
            at += int(step * chance.choice((0.5, 1, 1, 1, 2, 9, 11)))
        at += chance.choice((0, 29 * MINUTE, 31 * MINUTE, 3 * HOUR, 25 * HOUR))
    return times
