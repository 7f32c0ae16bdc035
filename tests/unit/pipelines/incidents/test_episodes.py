"""Episodes of dead letters: against a model that looks at each record, in any order, also when records come late."""

from __future__ import annotations

import random
from itertools import pairwise
from statistics import median_low

import pytest

from pipelines.incidents import ids
from pipelines.incidents.episodes import LEAST_PAUSE, MOST_PAUSE, SECOND, Episode, episodes, merged
from tests.testing.episodes import MINUTE, minutes_of, random_times


def model(times: list[int]) -> list[tuple[int, int, int, int]]:
    """Return first, last, number and pause of each episode, from all times of records, by the rule in words."""
    found: list[tuple[int, int, int, int]] = []
    by_minute: dict[int, list[int]] = {}
    for at in sorted(times):
        by_minute.setdefault(at // MINUTE, []).append(at)
    minutes, own = [*by_minute.values()], list[list[int]]()
    for place, minute in enumerate(minutes):
        own.append(minute)
        gaps = [after[0] - before[-1] for before, after in pairwise(own)]
        usual, survived = median_low(gaps[-10:]) if gaps else 0, max(gaps, default=0)
        pause = min(max(10 * usual, 2 * survived, LEAST_PAUSE), MOST_PAUSE)
        after = minutes[place + 1 : place + 3]
        next_gap = after[1][0] - after[0][-1] if len(after) > 1 else 0
        if not after or after[0][0] - minute[-1] > max(pause, min(10 * next_gap, MOST_PAUSE)):
            found.append((own[0][0], minute[-1], sum(map(len, own)), pause))
            own = []
    return found


def model_1(times: list[int]) -> list[tuple[int, int, int, int]]:
    """Return the same by the rule of version 1."""
    times = sorted(times)
    gaps = [after - before for before, after in pairwise(times)]
    pause = min(max(10 * median_low(gaps), LEAST_PAUSE), MOST_PAUSE) if gaps else LEAST_PAUSE
    cuts = [index for index, gap in enumerate(gaps, 1) if gap > pause and gap == max(gaps)]
    if not cuts:
        return [(times[0], times[-1], len(times), pause)] if times else []
    return [episode for begin, end in pairwise([0, *cuts, len(times)]) for episode in model_1(times[begin:end])]


@pytest.mark.parametrize("seed", range(300))
def test_minutes_give_the_episodes_that_all_records_give(seed: int) -> None:
    chance = random.Random(seed)
    times = random_times(chance)
    chance.shuffle(times)
    minutes = merged(minutes_of(times))
    for version, expected in ((1, model_1(times)), (2, model(times))):
        found = episodes(minutes, version)
        assert [
            (episode.first_at, episode.last_at, episode.record_count, episode.pause) for episode in found
        ] == expected
        assert sum(episode.record_count for episode in found) == len(times)


@pytest.mark.parametrize(
    ("gaps", "numbers"),
    [
        pytest.param([60] * 9 + [29 * 60] + [60] * 9, [20], id="a pause below half an hour"),
        pytest.param([60] * 9 + [31 * 60] + [60] * 9, [10, 10], id="a pause above half an hour"),
        pytest.param([3600] * 5 + [9 * 3600] + [3600] * 5, [12], id="hourly records"),
        pytest.param([3600] * 5 + [11 * 3600] + [3600] * 5, [6, 6], id="a pause of eleven gaps"),
        pytest.param([20 * 3600] * 4 + [23 * 3600], [6], id="less than a day"),
        pytest.param([20 * 3600] * 4 + [25 * 3600], [5, 1], id="more than a day"),
        pytest.param(
            [1] * 9 + [2 * 3600] + [600] * 3 + [90 * 60] + [600] * 3, [10, 8], id="parts have their own pauses"
        ),
        pytest.param([3600] * 29 + [1800] + [6] * 99, [130], id="an incident escalates"),
        pytest.param([3600] * 29 + [1800] + [6] * 99 + [3600] * 9, [139], id="and calms down"),
        pytest.param([6] * 99 + [3600] * 29, [129], id="a burst, then a drip"),
        pytest.param([6] * 99 + [45 * 60] * 2, [102], id="a burst, then two records far apart"),
        pytest.param([6] * 99 + [3600] + [6] * 99, [100, 100], id="a burst, and another one"),
        pytest.param(([0.1] * 99 + [7200]) * 20 + [0.1] * 99, [2100], id="a job that fails every two hours"),
        pytest.param([0.1] * 99 + [7200] + [0.1] * 99, [100, 100], id="a job that failed twice"),
        pytest.param([3600], [1, 1], id="two records"),
        pytest.param([3600] * 2, [3], id="three records"),
        pytest.param([25 * 60] * 2 + [49 * 60] + [95 * 60] + [180 * 60], [6], id="ever longer silences"),
    ],
)
def test_a_pause_ends_an_episode(gaps: list[float], numbers: list[int]) -> None:
    times = [0]
    for gap in gaps:
        times.append(times[-1] + int(gap * SECOND))
    assert [episode.record_count for episode in episodes(merged(minutes_of(times)))] == numbers


@pytest.mark.parametrize("seed", range(200))
def test_newer_records_never_split_an_episode_and_keep_its_escalations(seed: int) -> None:
    chance = random.Random(seed)
    times = sorted(random_times(chance))
    before: list[Episode] = []
    for end in sorted({*chance.sample(range(1, len(times) + 1), min(12, len(times))), len(times)}):
        now = episodes(merged(minutes_of(times[:end])))
        for part in before:
            (whole,) = (other for other in now if other.first_at <= part.last_at and other.last_at >= part.first_at)
            assert whole.first_at <= part.first_at
            assert whole.last_at >= part.last_at
            if whole.first_at == part.first_at:
                assert len(whole.escalations) >= len(part.escalations)
        before = now


@pytest.mark.parametrize(
    ("gaps", "escalations"),
    [
        pytest.param([3600] * 29 + [1800] + [6] * 99, [(29 * 3600 + 1800, 1.0, 600.0)], id="ten minutes of a storm"),
        pytest.param([3600] * 60, [], id="a drip"),
        pytest.param([3600] * 9 + [1] * 8, [], id="fewer than ten records"),
        pytest.param([6] * 99 + [60] * 99, [], id="it begins as a storm"),
        pytest.param(
            [3600] * 29 + [1800] + [6] * 99 + [3600] * 9 + [6] * 99, [(106_200, 1.0, 600.0)], id="told once, not twice"
        ),
        pytest.param(
            [300] * 12 + [20] + [30] * 30 + [1] * 900,
            [(3600, 12.0, 126.0), (4520, 126.0, 3840.0)],
            id="a storm that grows",
        ),
    ],
)
def test_an_episode_escalates_with_ten_times_the_records_an_hour(
    gaps: list[int], escalations: list[tuple[int, float, float]]
) -> None:
    times = [0]
    for gap in gaps:
        times.append(times[-1] + gap * SECOND)
    (episode,) = episodes(merged(minutes_of(times)))
    assert [(at // SECOND, round(before, 1), after) for at, before, after in episode.escalations] == escalations


def test_ids_can_be_said_and_typed() -> None:
    names = {ids.incident_id("0123456789abcdef", at) for at in range(10_000)}
    assert len(names) == 10_000
    name = ids.incident_id("0123456789abcdef", 0)
    for typed in (name, name.lower(), name.replace("-", ""), f" {name} ", name.replace("0", "o").replace("1", "l")):
        assert ids.read(typed) == name
    assert ids.read(name[:3]) == name[:3]
    assert [ids.read(text) for text in ("", "7KQ2-MD4X1", "ÄÖ", "U")] == [None] * 4
