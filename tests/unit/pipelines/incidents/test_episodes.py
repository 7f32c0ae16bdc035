"""Episodes of dead letters: against a model that looks at each record, in any order, also when records come late."""

from __future__ import annotations

import random
from itertools import pairwise
from statistics import median_low
from typing import Any

import pytest

from pipelines.incidents import ids
from pipelines.incidents.episodes import LEAST_PAUSE, MOST_PAUSE, SECOND, VERSION, Episode, Minute, episodes, merged
from pipelines.silver.dlq_episodes import derive

MINUTE, HALF_HOUR, HOUR = 60 * SECOND, 1800 * SECOND, 3600 * SECOND
SIGNATURE = dict.fromkeys(
    (
        "consumer_group",
        "original_topic",
        "disposition",
        "exception_class",
        "exception_cause_class",
        "error_pattern",
        "error_frame",
    )
)
Letter = tuple[int, int, int]  # time, partition, offset


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
    cuts = [place for place, gap in enumerate(gaps, 1) if gap > pause and gap == max(gaps)]
    if not cuts:
        return [(times[0], times[-1], len(times), pause)] if times else []
    return [one for begin, end in pairwise([0, *cuts, len(times)]) for one in model_1(times[begin:end])]


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


def rows_of(letters: list[Letter]) -> list[dict[str, Any]]:
    """Return rows of silver.dlq_errors of one fingerprint, as the SELECT makes them."""
    rows = []
    groups: dict[tuple[int, int], list[Letter]] = {}
    for letter in letters:
        groups.setdefault((letter[1], letter[0] - letter[0] % HALF_HOUR), []).append(letter)
    for (partition, half_hour), own in groups.items():
        before = {
            offset: max(
                at - at % HALF_HOUR
                for at, other, known in letters
                if other == partition and known == offset and at < half_hour
            )
            for offset in {offset for _, _, offset in own}
            if any(other == partition and known == offset and at < half_hour for at, other, known in letters)
        }
        offsets = [offset for _, _, offset in own]
        rows.append(
            {
                "cluster": "c",
                "fingerprint": "0123456789abcdef",
                **SIGNATURE,
                "algorithm_version": VERSION,
                "half_hour": half_hour,
                "original_partition": partition,
                "record_count": len(own),
                "source_record_count": len({*offsets}),
                "first_at": min(at for at, _, _ in own),
                "last_at": max(at for at, _, _ in own),
                "minutes": [
                    {"minute": begin, **one._asdict()}
                    for at in sorted({at - at % MINUTE for at, _, _ in own})
                    for begin, one in [
                        (at, merged(minutes_of([time for time, _, _ in own if time - time % MINUTE == at]))[0])
                    ]
                ],
                "first_offset": min(offsets),
                "last_offset": max(offsets),
                "seen_before": sorted(before.values()),
                "top_offsets": [],
                "top_keys": [],
                "least_keys": [],
                "attributes": [],
                "dlq_topics": [{"dlq_topic": "dlq.a", "last_at": max(at for at, _, _ in own)}],
                "most_deliveries": None,
                **dict.fromkeys(
                    (
                        "dense_count",
                        "scattered_count",
                        "scattered_span",
                        "step_of_two_count",
                        "step_of_three_count",
                        "keyed_count",
                        "without_payload_count",
                        "inferred_count",
                        "suspected_count",
                    ),
                    0,
                ),
            }
        )
    return rows


def random_letters(chance: random.Random) -> list[Letter]:
    return [(at, chance.randrange(2), chance.choice((1, 2, chance.randrange(50)))) for at in random_times(chance)]


@pytest.mark.parametrize("seed", range(300))
def test_minutes_give_the_episodes_that_all_records_give(seed: int) -> None:
    chance = random.Random(seed)
    times = random_times(chance)
    chance.shuffle(times)
    minutes = merged(minutes_of(times))
    for version, expected in ((1, model_1(times)), (2, model(times))):
        found = episodes(minutes, version)
        assert [(one.first_at, one.last_at, one.record_count, one.pause) for one in found] == expected
        assert sum(one.record_count for one in found) == len(times)


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
    assert [one.record_count for one in episodes(merged(minutes_of(times)))] == numbers


@pytest.mark.parametrize("seed", range(200))
def test_newer_records_never_split_an_episode_and_keep_its_escalations(seed: int) -> None:
    chance = random.Random(seed)
    times = sorted(random_times(chance))
    before: list[Episode] = []
    for end in sorted({*chance.sample(range(1, len(times) + 1), min(12, len(times))), len(times)}):
        now = episodes(merged(minutes_of(times[:end])))
        for one in before:
            (whole,) = (other for other in now if other.first_at <= one.last_at and other.last_at >= one.first_at)
            assert (whole.first_at, whole.last_at) == (
                min(whole.first_at, one.first_at),
                max(whole.last_at, one.last_at),
            )
            if whole.first_at == one.first_at:
                assert len(whole.escalations) >= len(one.escalations)
        before = now


@pytest.mark.parametrize(
    ("gaps", "told"),
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
    gaps: list[int], told: list[tuple[int, float, float]]
) -> None:
    times = [0]
    for gap in gaps:
        times.append(times[-1] + gap * SECOND)
    (one,) = episodes(merged(minutes_of(times)))
    assert [(at // SECOND, round(before, 1), after) for at, before, after in one.escalations] == told


@pytest.mark.parametrize("seed", range(60))
def test_episodes_do_not_depend_on_the_batches_but_for_ids(seed: int) -> None:
    chance = random.Random(seed)
    letters = random_letters(chance)
    at_once = [*derive(rows_of(letters), [])]
    chance.shuffle(letters)
    cuts = sorted(chance.sample(range(len(letters) + 1), min(3, len(letters))))
    existing: list[dict[str, Any]] = []
    for end in [*cuts, len(letters)]:
        if not end:
            continue
        before = {one["incident_id"]: one["anchor_at"] for one in existing}
        existing = [*derive(rows_of(letters[:end]), existing)]
        assert before.items() <= {one["incident_id"]: one["anchor_at"] for one in existing}.items()
        assert len({one["incident_id"] for one in existing}) == len(existing)
    identity = ("incident_id", "anchor_at", "predecessor_id", "merged_into")

    def plain(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
        return [
            {name: value for name, value in row.items() if name not in identity} for row in rows if row["record_count"]
        ]

    assert plain(existing) == plain(at_once)
    known = {one["incident_id"]: one for one in existing}
    for one in existing:
        if one["record_count"]:
            assert one["first_at"] <= one["anchor_at"] <= one["last_at"]
        else:
            assert known[one["merged_into"]]["record_count"]


@pytest.mark.parametrize("seed", range(60))
def test_source_records_of_an_episode_count_once(seed: int) -> None:
    letters = random_letters(random.Random(seed))
    for one in derive(rows_of(letters), []):
        own = [letter for letter in letters if one["first_at"] <= letter[0] <= one["last_at"]]
        assert (one["record_count"], one["source_record_count"]) == (len(own), len({letter[1:] for letter in own}))


@pytest.mark.parametrize("seed", range(20))
def test_keys_of_many_rows_are_counted_by_the_least_hashes_of_all(seed: int) -> None:
    chance = random.Random(seed)
    number, most = chance.choice((0, 5, 63, 64, 65, 900)), chance.choice((1, 3, 40))
    keys = [chance.randrange(-(2**63), 2**63) for _ in range(number)]
    rows = rows_of([(at * SECOND, 0, at) for at in range(most)]) * most
    lists = [sorted(chance.sample(keys, chance.randint(0, number)))[:64] or chance.choice((None, [])) for _ in rows]
    told = [{**row, "least_keys": own, "keyed_count": number} for row, own in zip(rows, lists, strict=True)]
    (one,) = derive(told, [])
    known = sorted({key for own in lists for key in own or ()})
    assert one["is_key_count_exact"] == (len(known) < 64)
    estimate = len(known) if len(known) < 64 else max(64, 63 * 2**64 // (known[63] + 2**63))
    assert one["key_count"] == min(estimate, one["keyed_count"])


def test_incidents_of_an_earlier_version_are_not_regrouped() -> None:
    letters = [(at * 5 * HOUR, 0, at) for at in range(2)]
    counts = {}
    for version in (1, VERSION):
        rows = [row | {"algorithm_version": version} for row in rows_of(letters)]
        counts[version] = [one["record_count"] for one in derive(rows, [])]
    assert counts == {1: [2], VERSION: [1, 1]}


def test_a_late_record_that_bridges_two_merges_them_into_the_earlier() -> None:
    early = [(at * MINUTE, 0, at) for at in range(5)]
    late = [(at * MINUTE, 0, at) for at in range(60, 65)]
    first, second = derive(rows_of(early + late), [])
    assert second["predecessor_id"] == first["incident_id"]
    whole, pointer = derive(rows_of([*early, (30 * MINUTE, 0, 30), *late]), [first, second])
    assert (whole["incident_id"], whole["record_count"]) == (first["incident_id"], 11)
    assert (pointer["incident_id"], pointer["merged_into"]) == (second["incident_id"], first["incident_id"])


def test_the_cost_of_many_episodes_follows_their_number() -> None:
    class Counted(dict[str, Any]):
        reads = 0

        def __getitem__(self, name: str) -> Any:
            Counted.reads += 1
            return super().__getitem__(name)

    def reads(number: int) -> int:
        rows = [Counted(row) for row in rows_of([(25 * HOUR * day, 0, day) for day in range(number)])]
        known = [Counted(row) for row in derive(rows, [])]
        Counted.reads = 0
        assert len([*derive(rows, known)]) == number
        return Counted.reads

    assert reads(200) <= 2.2 * reads(100)


def test_an_id_whose_records_are_gone_stays_without_records() -> None:
    gone, kept = ([(begin + at * MINUTE, 0, at) for at in range(3)] for begin in (0, 5 * HOUR))
    first, second = derive(rows_of(gone + kept), [])
    left = [*derive(rows_of(kept), [first, second])]
    assert [(one["incident_id"], one["record_count"]) for one in left] == [
        (second["incident_id"], 3),
        (first["incident_id"], 0),
    ]


def test_ids_can_be_said_and_typed() -> None:
    names = {ids.incident_id("0123456789abcdef", at) for at in range(10_000)}
    assert len(names) == 10_000
    name = ids.incident_id("0123456789abcdef", 0)
    for typed in (name, name.lower(), name.replace("-", ""), f" {name} ", name.replace("0", "o").replace("1", "l")):
        assert ids.read(typed) == name
    assert ids.read(name[:3]) == name[:3]
    assert [ids.read(text) for text in ("", "7KQ2-MD4X1", "ÄÖ", "U")] == [None] * 4
