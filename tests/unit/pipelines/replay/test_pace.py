from __future__ import annotations

import random

import pytest

from pipelines.replay.pace import Pace


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def seconds_for(count: int, rate: float, batch: int = 500, each: float = 0.0, hiccup: float = 0.0) -> float:
    """The seconds that so many records take, if a batch itself takes ``each`` and one of them a hiccup."""
    clock = Clock()
    pace = Pace(rate, batch, clock)
    sent = 0
    while sent < count:
        clock.now += max(0.0, pace.wait)
        size = min(pace.size, count - sent)
        clock.now += each + (hiccup if sent <= count // 2 < sent + size else 0.0)
        pace.sent(size)
        sent += size
    clock.now += max(0.0, pace.wait)
    return clock.now - 1000.0


@pytest.mark.parametrize("rate", [0.5, 1, 7, 30, 1000, 20_000])
@pytest.mark.parametrize("batch", [1, 10, 500])
def test_the_rate_is_kept_within_a_tenth(rate: float, batch: int) -> None:
    count = int(rate * 30) + 1
    assert seconds_for(count, rate, batch) == pytest.approx(count / rate, rel=0.1)
    assert seconds_for(count, rate, batch, each=0.5 / max(rate, 10) / 10) == pytest.approx(count / rate, rel=0.1)


@pytest.mark.parametrize("hiccup", [0.9, 20])
def test_a_delay_is_not_made_up_for(hiccup: float) -> None:
    assert seconds_for(3000, 100, hiccup=hiccup) == pytest.approx(30 + hiccup, rel=0.01)


@pytest.mark.parametrize("seed", range(20))
def test_no_second_has_more_records_than_the_rate_and_two_batches(seed: int) -> None:
    chance = random.Random(seed)
    clock = Clock()
    rate, batch = chance.choice([3, 10, 100, 1000]), chance.choice([1, 10, 500])
    pace = Pace(rate, batch, clock)
    went: list[tuple[float, int]] = []
    for _ in range(300):
        clock.now += max(0.0, pace.wait) + chance.choice([0, 0, 0.001, 0.02])
        _ = pace.wait
        clock.now += chance.choice([0, 0.001, 0.01, 0.3, 0.9, 5.0])  # the batch itself, and stalls of the brokers
        pace.sent(pace.size)
        went.append((clock.now, pace.size))
    for at, _ in went:
        assert sum(size for moment, size in went if at <= moment < at + 1) <= rate + 2 * pace.size


def test_batches_are_small_at_low_rates() -> None:
    sizes = {rate: Pace(rate, 500).size for rate in (0.1, 5, 40, 1000, 100_000)}
    assert sizes == {0.1: 1, 5: 1, 40: 4, 1000: 100, 100_000: 500}
    assert Pace(None, 250).size == 250


def test_without_a_rate_nothing_waits() -> None:
    pace = Pace(None, 10)
    pace.sent(10_000)
    assert pace.wait == 0.0
