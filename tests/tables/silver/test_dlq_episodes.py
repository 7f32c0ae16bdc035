"""silver.dlq_episodes: episodes of the rows of an error, with ids that stay, whatever batches they came in."""

from __future__ import annotations

import random
from typing import Any

import pytest

from pipelines.incidents.episodes import SECOND, VERSION, merged
from pipelines.silver.dlq_episodes import SUMS, derive
from tests.testing.episodes import HALF_HOUR, HOUR, MINUTE, minutes_of, random_times

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
                    {"minute": begin, **minute._asdict()}
                    for at in sorted({at - at % MINUTE for at, _, _ in own})
                    for begin, minute in [
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
                **dict.fromkeys((name for name in SUMS if name != "record_count"), 0),
            }
        )
    return rows


def random_letters(chance: random.Random) -> list[Letter]:
    return [(at, chance.randrange(2), chance.choice((1, 2, chance.randrange(50)))) for at in random_times(chance)]


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
        before = {episode["incident_id"]: episode["anchor_at"] for episode in existing}
        existing = [*derive(rows_of(letters[:end]), existing)]
        assert before.items() <= {episode["incident_id"]: episode["anchor_at"] for episode in existing}.items()
        assert len({episode["incident_id"] for episode in existing}) == len(existing)
    identity = ("incident_id", "anchor_at", "predecessor_id", "merged_into")

    def plain(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
        return [
            {name: value for name, value in row.items() if name not in identity} for row in rows if row["record_count"]
        ]

    assert plain(existing) == plain(at_once)
    known = {episode["incident_id"]: episode for episode in existing}
    for episode in existing:
        if episode["record_count"]:
            assert episode["first_at"] <= episode["anchor_at"] <= episode["last_at"]
        else:
            assert known[episode["merged_into"]]["record_count"]


@pytest.mark.parametrize("seed", range(60))
def test_source_records_of_an_episode_count_once(seed: int) -> None:
    letters = random_letters(random.Random(seed))
    for episode in derive(rows_of(letters), []):
        own = [letter for letter in letters if episode["first_at"] <= letter[0] <= episode["last_at"]]
        counts = (episode["record_count"], episode["source_record_count"])
        assert counts == (len(own), len({letter[1:] for letter in own}))


@pytest.mark.parametrize("seed", range(20))
def test_keys_of_many_rows_are_counted_by_the_least_hashes_of_all(seed: int) -> None:
    chance = random.Random(seed)
    number, most = chance.choice((0, 5, 63, 64, 65, 900)), chance.choice((1, 3, 40))
    keys = [chance.randrange(-(2**63), 2**63) for _ in range(number)]
    rows = rows_of([(at * SECOND, 0, at) for at in range(most)]) * most
    lists = [sorted(chance.sample(keys, chance.randint(0, number)))[:64] or chance.choice((None, [])) for _ in rows]
    keyed = [{**row, "least_keys": own, "keyed_count": number} for row, own in zip(rows, lists, strict=True)]
    (episode,) = derive(keyed, [])
    known = sorted({key for own in lists for key in own or ()})
    assert episode["is_key_count_exact"] == (len(known) < 64)
    estimate = len(known) if len(known) < 64 else max(64, 63 * 2**64 // (known[63] + 2**63))
    assert episode["key_count"] == min(estimate, episode["keyed_count"])


def test_incidents_of_an_earlier_version_are_not_regrouped() -> None:
    letters = [(at * 5 * HOUR, 0, at) for at in range(2)]
    counts = {}
    for version in (1, VERSION):
        rows = [row | {"algorithm_version": version} for row in rows_of(letters)]
        counts[version] = [episode["record_count"] for episode in derive(rows, [])]
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
    assert [(episode["incident_id"], episode["record_count"]) for episode in left] == [
        (second["incident_id"], 3),
        (first["incident_id"], 0),
    ]
