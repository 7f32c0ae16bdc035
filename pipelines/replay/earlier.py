"""Topics that replays go to -> which dead letters stand there as replays of any plan, whoever remembers it.

The journal knows all replays from a moment on: since it was created, copied or restored. For older dead letters only
the targets tell. Each replayed record carries the place of its dead letter, the first place of the record and the
number of the attempt. Its timestamp is the time of the replay, so it does not stand before the first offset of the time
at which the dead letter was written.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from confluent_kafka import Message

from pipelines.replay import targets
from pipelines.replay.client import Admin, Topic, describe, offsets_at
from pipelines.replay.fetch import headers_of
from pipelines.replay.model import PLAN, RECORD, Letter, Plan, PlannedRecord, Source, attempt_of, millis_of
from pipelines.replay.standing import CLOCKS
from pipelines.settings import Settings

Spans = dict[tuple[str, int], tuple[int, int]]
"""The first offset and the one behind the last, by topic and partition."""


@dataclass
class Found:
    """What topics tell about dead letters.

    ``replayed`` has the records of a plan that stand there as another plan's replays, by that plan's id. ``unknown``
    are dead letters of which nobody can tell, and ``why`` is a clause about the first topic that does not tell.
    """

    replayed: dict[str, dict[Letter, PlannedRecord]] = field(default_factory=dict)
    unknown: set[Letter] = field(default_factory=set)
    why: str = ""

    @property
    def letters(self) -> dict[Letter, str]:
        """The plan that replayed each dead letter."""
        return {letter: plan_id for plan_id, records in self.replayed.items() for letter in records}


@dataclass(frozen=True)
class Planned:
    """Up to where a plan has looked: the end offsets of its targets, and the time, when it was made."""

    ends: Mapping[str, Sequence[int]]
    at: datetime
    plan_id: str

    @classmethod
    def of(cls, plan: Plan) -> Planned:
        """Return it for a plan."""
        return cls({target.topic: target.ends for target in plan.targets}, plan.created_at, plan.plan_id)


def look(
    settings: Settings,
    admin: Admin,
    records: Sequence[PlannedRecord],
    elsewhere: Mapping[str, Iterable[Letter]],
    *,
    behind: Planned | None = None,
    stopped: Callable[[], bool] = lambda: False,
) -> Found:
    """Return what the targets of records, and other topics, tell about replays of these records by other plans.

    ``elsewhere`` has the topics to which other plans replay some of the dead letters. ``behind`` is up to where the
    records' own plan has looked; None: look from the time on at which the first of them died. ``stopped`` tells whether
    to stop while open transactions are waited for.

    Raises AfterlogError: the cluster does not answer, or a transaction does not end.
    """
    found = Found()
    by_topic: dict[str, list[PlannedRecord]] = defaultdict(list)
    for record in records:
        by_topic[record.topic].append(record)
    for other, letters in elsewhere.items():
        wanted = set(letters)
        by_topic[other] += [record for record in records if record.topic != other and record.letter in wanted]
    topics = describe(admin, by_topic)
    for name, of_topic in sorted(by_topic.items()):
        if not of_topic:
            continue
        topic = topics.get(name)
        if topic is None or topic.ends is None or topic.starts is None or topic.may_read is False:
            _unknown(found, of_topic, f"topic {name} is gone, or cannot be read")
            continue
        spans = _spans(admin, topic, of_topic, behind)
        if isinstance(spans, str):
            _unknown(found, of_topic, spans)
        elif targets.settled(admin, {place: end for place, (_, end) in spans.items()}, stopped):
            targets.read(settings, spans, _Match(of_topic, behind.plan_id if behind else "", found).take)
    return found


def _spans(admin: Admin, topic: Topic, records: Sequence[PlannedRecord], behind: Planned | None) -> Spans | str:
    """Return the offsets of a topic where replays of records can stand, or why nobody can tell, as a clause."""
    assert topic.starts is not None
    assert topic.ends is not None
    places = [(topic.name, partition) for partition in range(topic.partitions)]
    known = behind.ends.get(topic.name) if behind is not None else None
    if known is not None:
        begins = {place: known[place[1]] if place[1] < len(known) else 0 for place in places}
    else:
        times = [millis_of(behind.at - CLOCKS)] if behind is not None else [_millis(record) for record in records]
        at = None if None in times else min(time for time in times if time is not None)
        begins = dict.fromkeys(places, 0) if at is None else offsets_at(admin, places, at)
    spans = {}
    for place in places:
        start, end = topic.starts[place[1]], topic.ends[place[1]]
        begin = begins.get(place, end)
        if begin < start or (known is None and begin == start > 0):  # records before the first may be as young
            return f"topic {topic.name} does not go back so far"
        if begin < end:
            spans[place] = (begin, end)
    return f"topic {topic.name} is compacted" if spans and topic.is_compacted else spans


class _Match:
    """Compares records of a topic with the dead letters that are looked for."""

    def __init__(self, records: Sequence[PlannedRecord], own: str, found: Found) -> None:
        self._own = own
        self._found = found
        self._by_letter: dict[str, list[PlannedRecord]] = defaultdict(list)
        self._by_origin: dict[str, list[PlannedRecord]] = defaultdict(list)
        for record in records:
            self._by_letter[_ascii(record.letter.place)].append(record)
            if record.origin.place is not None:
                self._by_origin[_ascii(record.origin.place)].append(record)

    def take(self, message: Message, place: tuple[str, int], offset: int) -> None:
        """Note the records of which a message is a replay by another plan."""
        headers = dict(headers_of(message))
        plan, letter = _text(headers.get(PLAN)), _text(headers.get(RECORD))
        if not plan or plan == self._own:
            return
        told = Source.told_by(headers.items())
        origin = _ascii(told.place) if told is not None and told.place is not None else None
        at = message.timestamp()[1]
        attempt = attempt_of(headers.items()) or 1
        same = [
            record
            for record in self._by_letter.get(letter, ())
            if origin is None or record.origin.place is None or origin == _ascii(record.origin.place)
        ]
        same += [record for record in self._by_origin.get(origin or "", ()) if attempt >= record.attempt]
        for record in same:
            died = _millis(record)
            is_what_died = (*place, offset) == record.source[:3]
            if (died is None or at >= died) and not is_what_died:
                self._found.replayed.setdefault(plan, {})[record.letter] = record


def _unknown(found: Found, records: Iterable[PlannedRecord], why: str) -> None:
    found.unknown.update(record.letter for record in records)
    found.why = found.why or why


def is_older(died: datetime | None, since: datetime) -> bool:
    """Tell whether a dead letter may have been replayed before a time."""
    return died is None or died - CLOCKS <= since


def _millis(record: PlannedRecord) -> int | None:
    """Return from when on a replay of a record can stand on a target, in milliseconds since 1970; None: not known."""
    at = record.dead_lettered_at
    return None if at is None else millis_of(at - CLOCKS)


def _text(value: str | bytes | None) -> str:
    return value if isinstance(value, str) else (value or b"").decode("ascii", "replace")


def _ascii(text: str) -> str:
    return text.encode("ascii", "backslashreplace").decode("ascii")
