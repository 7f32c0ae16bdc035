"""What is true of incidents, by docs/incidents.md and the silver tables; it shares no code with the verdicts."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from fractions import Fraction
from functools import cached_property
from itertools import pairwise
from typing import Any

from pipelines.settings import Settings
from pipelines.warehouse import jvmless
from pipelines.warehouse.tables import Warehouse

Place = tuple[int, int]
"""Partition and offset of a source record."""
GREATEST = 2**63 - 1
SECOND = 1_000_000


@dataclass(frozen=True)
class Letter:
    """A dead letter, as an incident counts it; ``at`` is in microseconds."""

    at: int
    place: Place | None
    key: bytes | None
    attributes: frozenset[tuple[str, str, Any]]
    has_payload: bool
    has_time: bool


class Silver:
    """All that the silver tables tell."""

    def __init__(self, settings: Settings) -> None:
        """Read them."""
        warehouse = Warehouse(settings)

        def rows(table: str) -> list[dict[str, Any]]:
            return jvmless.rows(warehouse, table, {"cluster": settings.cluster})

        self.letters: dict[tuple[Any, ...], list[Letter]] = defaultdict(list)
        for row in rows("silver.dlq_records"):
            owner = row["consumer_group"] if row["consumer_group"] is not None else row["owner"]
            names = ("original_topic", "disposition", "exception_class", "exception_cause_class", "error_message")
            self.letters[row["consumer_group"], owner, *(row[name] for name in names)].append(_letter(row))
        self.dead: dict[str, dict[Place, set[tuple[Any, ...]]]] = defaultdict(lambda: defaultdict(set))
        for row in rows("silver.dead_letters"):
            if row["is_counted"] and None not in (place := (row["original_partition"], row["original_offset"])):
                at = micros(row["routed_at"] or row["dlq_timestamp"])
                whom = row["consumer_group"] or row["owner"], row["disposition"], at - at % (30 * 60 * SECOND)
                self.dead[row["original_topic"]][place].add(whom)
        self.acknowledged: dict[str, dict[Place, dict[str, Any]]] = defaultdict(dict)
        for row in rows("silver.acknowledgements"):
            if row["outcome"] == "ACKNOWLEDGED":
                self.acknowledged[row["topic"]][row["partition"], row["offset"]] = row
        self.landed: dict[str, set[Place]] = defaultdict(set)
        self.without: dict[str, set[Place]] = defaultdict(set)
        for row in rows("silver.log_ranges"):
            assert row["is_present"] is not None  # no batch is thinned here
            offsets = range(row["first_offset"], row["last_offset"] + 1)
            self.landed[row["topic"]] |= {(row["partition"], offset) for offset in offsets}
            if not row["is_present"]:
                self.without[row["topic"]] |= {(row["partition"], offset) for offset in offsets}
        for row in rows("silver.log_batches"):
            if row["is_control"] and row["superseded_by"] is None:
                offsets = range(row["base_offset"], row["last_offset"] + 1)
                self.without[row["topic"]] |= {(row["partition"], offset) for offset in offsets}

    @cached_property
    def partitions(self) -> Counter[str]:
        """How many partitions each topic has at least: Kafka numbers them from 0."""
        found: Counter[str] = Counter()
        for key, letters in self.letters.items():
            known = [letter.place[0] + 1 for letter in letters if letter.place]
            found[key[2]] = max([found[key[2]], *known])
        return found

    @cached_property
    def truths(self) -> list[Truth]:
        """What is true of each incident."""
        return [
            Truth(self, key, part, escalations)
            for key, letters in self.letters.items()
            for part, escalations in _incidents(sorted(letters, key=lambda item: item.at))
        ]


def micros(at: datetime | None) -> int:
    return (at - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1) if at else 0


def _letter(row: Mapping[str, Any]) -> Letter:
    place = (row["original_partition"], row["original_offset"])
    is_placed = None not in (*place, row["original_topic"])
    attributes = {("header", values["key"], values["value"]) for values in row["user_headers"] or ()}
    for name in ("key", "value"):
        content = row[name]
        if content and len(content) >= 5 and content[0] == 0:
            attributes.add(("schema_id", name, int.from_bytes(content[1:5], "big")))
    if prefix := re.match(rb"([A-Za-z]+)[-_:/.|#]", row["key"] or b""):
        attributes.add(("key_prefix", "", prefix[1]))
    return Letter(
        micros(row["routed_at"] or row["dlq_timestamp"] or row["_ingested_at"]),
        place if is_placed else None,
        row["key"],
        frozenset(attributes),
        row["payload_copied"] is not False,
        (row["routed_at"] or row["dlq_timestamp"]) is not None,
    )


def _incidents(letters: Sequence[Letter]) -> Iterator[tuple[list[Letter], list[tuple[int, Fraction, int]]]]:
    """Yield the letters of each incident of one error, and its escalations: when, the rates before and after."""
    minutes: list[list[Letter]] = []
    for letter in letters:
        if not minutes or minutes[-1][0].at // (60 * SECOND) != letter.at // (60 * SECOND):
            minutes.append([])
        minutes[-1].append(letter)
    silences = [after[0].at - before[-1].at for before, after in pairwise(minutes)]
    begin = 0
    for place, silence in enumerate([*silences, None]):
        if silence is not None:
            before = silences[begin:place]
            usual = sorted(before[-10:])[(len(before[-10:]) - 1) // 2] if before else 0
            after = silences[place + 1] if place + 1 < len(silences) else 0
            least = max(30 * 60, 10 * max(usual, after) / SECOND, 2 * max(before, default=0) / SECOND)
            if silence <= min(least, 24 * 3600) * SECOND:
                continue
        part = minutes[begin : place + 1]
        yield [item for minute in part for item in minute], _escalations(part)
        begin = place + 1


def _escalations(minutes: Sequence[Sequence[Letter]]) -> list[tuple[int, Fraction, int]]:
    first, found, before, told = minutes[0][0].at, [], 0, 0
    for minute in minutes:
        at = minute[0].at
        ahead = sum(len(other) for other in minutes if at <= other[0].at < at + 600 * SECOND)
        if at - first >= 1800 * SECOND and ahead >= 10:
            rate = max(Fraction(before * 3600 * SECOND, at - first), Fraction(told))
            if min(ahead * 6, len(minute) * 60) >= 10 * rate:
                found.append((at, rate, ahead * 6))
                told = ahead * 6
        before += len(minute)
    return found


@dataclass(frozen=True)
class Truth:
    """What is true of an incident, by docs/incidents.md."""

    silver: Silver
    key: tuple[Any, ...]
    letters: Sequence[Letter]
    escalations: Sequence[tuple[int, Fraction, int]]

    @property
    def topic(self) -> str:
        return self.key[2]

    @cached_property
    def placed(self) -> Counter[Place]:
        """The source records that are known, and how often each was dead-lettered."""
        return Counter(letter.place for letter in self.letters if letter.place)

    @property
    def unknown(self) -> int:
        """How many dead letters name no source record."""
        return len(self.letters) - self.placed.total()

    @property
    def sources(self) -> int:
        """How many source records there are at most."""
        return len(self.placed) + self.unknown

    @property
    def is_few(self) -> bool:
        return self.are_few(self.sources)

    def are_few(self, sources: int) -> bool:
        return sources <= 5 or (sources <= 12 and len(self.letters) >= 3 * sources)

    @cached_property
    def of_partitions(self) -> dict[int, list[int]]:
        """The offsets of the source records in each partition."""
        found: dict[int, list[int]] = defaultdict(list)
        for partition, offset in sorted(self.placed):
            found[partition].append(offset)
        return found

    @property
    def partition_share(self) -> tuple[Fraction | None, int | None]:
        most = max(self.of_partitions, key=lambda item: (len(self.of_partitions[item]), -item), default=None)
        if most is None or 10 * len(self.placed) < 9 * self.sources:
            return None, most
        return Fraction(len(self.of_partitions[most]), self.sources), most

    @cached_property
    def keys(self) -> Counter[bytes]:
        return Counter(letter.key for letter in self.letters if letter.key is not None)

    @property
    def key_share(self) -> Fraction | None:
        if 10 * self.keys.total() < 9 * len(self.letters):
            return None
        return Fraction(sum(count for _, count in self.keys.most_common(3)), len(self.letters))

    @cached_property
    def around(self) -> tuple[Fraction | None, str | None, int | None, int | None]:
        """The share that died of what is around them, what that is, its offsets, and how many records these hold."""
        silver, topic = self.silver, self.topic
        acknowledged, landed, without = silver.acknowledged[topic], silver.landed[topic], silver.without[topic]
        if self.is_few:
            thousands = {(partition, offset // 1000) for partition, offset in self.placed}

            def near(places: Iterable[Place]) -> int:
                return sum((partition, offset // 1000) in thousands for partition, offset in places)

            told = []
            if self.placed and self.placed.keys() <= landed - without:
                told.append((near(landed - without), "records in landed segments"))
            if self.placed and self.placed.keys() <= acknowledged.keys():
                told.append((near(acknowledged), "acknowledged records"))
            count, of = max(told, key=lambda item: item[0], default=(0, ""))
            if count < max(len(self.placed), 2):
                return None, None, None, None
            return Fraction(len(self.placed), count), of, None, count
        windows = [(p, min(of), max(of)) for p, of in self.of_partitions.items() if len(of) > 1]
        offsets = min(sum(last - first + 1 for _, first, last in windows), GREATEST)
        held, of = self._held(windows, offsets)
        steps, scattered = self._steps()
        if held is None and steps is not None:
            return steps, "offsets that do not look like markers", offsets or None, None
        within = sum(len(of) for of in self.of_partitions.values() if len(of) > 1)
        share = max(Fraction(within, offsets) if offsets else Fraction(0), scattered)
        share = min(share * (Fraction(offsets, held) if held else 1), Fraction(1))
        return (share, of or "offsets", offsets or None, held) if share else (None, None, offsets or None, held)

    def _held(self, windows: Sequence[tuple[int, int, int]], offsets: int) -> tuple[int | None, str | None]:
        silver, topic = self.silver, self.topic
        thousands: dict[int, set[int]] = defaultdict(set)
        for partition, offset in silver.dead[topic]:
            thousands[partition].add(offset // 1000)

        def within(places: Iterable[Place]) -> set[Place]:
            return {
                (p, o)
                for p, o in places
                if o // 1000 in thousands[p] and any(p == q and first <= o <= last for q, first, last in windows)
            }

        told = []
        landed = within(silver.landed[topic])
        if offsets and len(landed) == offsets:
            told.append((len(landed - silver.without[topic]), "records in landed segments"))
        sent = within(silver.acknowledged[topic])
        slices = {(p, t) for p, first, last in windows for t in thousands[p] if first // 1000 <= t <= last // 1000}
        dead = {(p, o) for p, o in silver.dead[topic] if (p, o // 1000) in slices}
        ranges = sum(1 for p, o in sent if (p, o - 1) not in sent or o % 1000 == 0)
        if (
            10 * len(dead & silver.acknowledged[topic].keys()) >= 9 * len(dead)
            and 4 * (offsets - len(sent)) <= 5 * ranges
        ):
            told.append((len(sent), "acknowledged records"))
        count, of = max(told, key=lambda item: item[0], default=(0, ""))
        return (count, of) if count else (None, None)

    def _steps(self) -> tuple[Fraction | None, Fraction]:
        """Return which share is 2 offsets behind another one, if nearly all are, and how near neighbours are."""
        groups: dict[tuple[int, int, int], set[int]] = defaultdict(set)
        for letter in self.letters:
            if letter.place:
                partition, offset = letter.place
                groups[partition, offset // 1000, letter.at // (1800 * SECOND)].add(offset)
        number = sum(map(len, groups.values()))
        steps: Counter[int] = Counter()
        spans = []
        for group in map(sorted, groups.values()):
            steps.update(after - before for before, after in pairwise(group))
            for place in range(len(group)):
                nine = [group[begin : begin + 9] for begin in (place, place - 8, place - 4) if begin >= 0]
                span = min((of[-1] - of[0] for of in nine if len(of) == 9), default=81)
                spans += [span] if span <= 80 else []
        is_regular = number >= 5 and 5 * steps[2] >= 4 * number
        scattered = Fraction(8 * len(spans), sum(spans)) if spans and 2 * len(spans) >= number else Fraction(0)
        return (Fraction(steps[2], number) if is_regular else None), scattered

    # --- attributes

    @cached_property
    def attributes(self) -> dict[tuple[str, str, Any], tuple[Fraction, Fraction | None, str | None]]:
        """The attributes that nearly all share and at most half of the others have: the shares, and of which others."""
        found: dict[tuple[str, str, Any], tuple[Fraction, Fraction | None, str | None]] = {}
        if self.sources <= 5:
            return found
        shown: Counter[tuple[str, str, Any]] = Counter()
        for letter in self.letters:
            shown.update(letter.attributes)
        told: Counter[tuple[str, str, Any]] = Counter()
        for place in self.placed:
            told.update(_of_message(self.silver.acknowledged[self.topic].get(place)))
        shares = {item: Fraction(count, len(self.placed)) for item, count in told.items()}
        for letter, count in shown.items():
            if (len(self.keys) <= 3 and letter[1] == "key") or (letter[0] == "key_prefix" and len(self.keys) < 2):
                continue
            shares[letter] = Fraction(count, len(self.letters))
        for letter, share in shares.items():
            if share < Fraction(9, 10):
                continue
            elsewhere, of = self._elsewhere(letter)
            is_told = letter in shown or (
                elsewhere is not None and (letter[0] != "client" or of == "delivered messages")
            )
            if (elsewhere is None or 2 * elsewhere <= 1) and is_told:
                found[letter] = share, elsewhere, of
        return found

    def _elsewhere(self, item: tuple[str, str, Any]) -> tuple[Fraction | None, str | None]:
        silver, (kind, name, _) = self.silver, item
        delivered = [
            [other for other in _of_message(row) if other[0] == kind]
            for place, row in silver.acknowledged[self.topic].items()
            if place not in silver.dead[self.topic]
        ]
        telling = [of for of in delivered if of]
        is_named = kind != "header" or any(other[1] == name for of in telling for other in of)
        if kind in ("client", "header") and is_named and len(telling) >= 20:
            return Fraction(sum(item in of for of in telling), len(telling)), "delivered messages"
        comparable = "" if kind == "header" else name
        errors = [
            part.letters
            for part in silver.truths
            if part.topic == self.topic
            and part.key != self.key
            and any(
                (other[0], "" if kind == "header" else other[1]) == (kind, comparable)
                for letter in part.letters
                for other in letter.attributes
            )
        ]
        number = sum(map(len, errors))
        if number < 5:
            return None, None
        return Fraction(sum(item in letter.attributes for of in errors for letter in of), number), "other dead letters"

    def verdict(self, *, attribute: Any = None, **changed: Any) -> str:
        """Return the verdict; ``attribute`` is one of the best, of which there can be several."""
        key_share = changed.get("key_share", self.key_share)
        share = changed.get("share", self.around[0])
        of_one = changed.get("partition_share", self.partition_share[0])
        if changed.get("disposition", self.key[3]) in ("CIRCUIT_BREAKER_ARCHIVED", "COORDINATOR_INITIATED"):
            return "FLOOD"
        sources = self.sources
        if key_share is not None and 4 * key_share >= 3 and sources > 2 and sources >= 2 * min(len(self.keys), 3):
            return "KEY_LOCAL"
        if self.is_few:
            return "POISON_PILL"
        if attribute is not None and attribute[0] in ("header", "schema_id", "client"):
            elsewhere = self.attributes[attribute][1]
            if elsewhere is not None and (share or 0) < Fraction(6, 10):
                return "PRODUCER_LOCAL"
        if of_one is not None and 10 * of_one >= 9 and self.silver.partitions[self.topic] > 1:
            return "PARTITION_LOCAL"
        if share is not None and 10 * share >= 3:
            return "SYSTEMIC"
        return "REJECTION" if self.key[3] == "CLIENT_REJECTED" else "UNDETERMINED"


def _of_message(row: Mapping[str, Any] | None) -> set[tuple[str, str, Any]]:
    if row is None:
        return set()
    client = {("client", row["client_id"], None)} if row["client_id"] is not None else set()
    return client | {("header", values["key"], values["value"]) for values in row["headers"] or ()}
