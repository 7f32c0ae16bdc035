"""Topics that replays go to -> which dead letters stand there as replays of any plan, whoever remembers it.

The journal knows all replays from a moment on: since it was created, copied or restored. For older dead letters only
the targets tell. Each replayed record carries the coordinate of its dead letter, the first coordinate of the record and
the number of the attempt. Its timestamp is the time of the replay, so it does not stand before the first offset of the
time at which the dead letter was written.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from confluent_kafka import Message

from pipelines.replay import targets
from pipelines.replay.client import Admin, Topic, describe, offsets_at
from pipelines.replay.died_again import CLOCKS
from pipelines.replay.fetch import headers_of
from pipelines.replay.model import (
    PLAN,
    RECORD,
    Letter,
    Plan,
    PlannedRecord,
    Source,
    attempt_of,
    bytes_of,
    millis_of,
    text_of,
)
from pipelines.replay.sender import TRANSACTION_SECONDS
from pipelines.settings import Settings

Spans = dict[tuple[str, int], tuple[int, int]]
"""The first offset and the one behind the last, by topic and partition."""
Elsewhere = Mapping[tuple[str, str], Iterable[Letter]]
"""Dead letters by the topic, with its id, to which another plan replays them."""
Take = Callable[[Message, tuple[str, int], int], None]
_PATIENCE = TRANSACTION_SECONDS + 15.0  # after so long the brokers have aborted the transaction of a killed run
_PLAN_ID = re.compile(r"[A-Za-z0-9._-]{1,100}")


@dataclass
class EarlierReplays:
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
    elsewhere: Elsewhere,
    *,
    behind: Planned | None = None,
    stopped: Callable[[], bool] = lambda: False,
) -> EarlierReplays:
    """Return what the targets of records, and other topics, tell about replays of these records by other plans.

    ``elsewhere`` has the targets of other plans that take some of the dead letters. ``behind`` is up to where the
    records' own plan has looked; None: look from the time on at which the first of them died. ``stopped`` tells whether
    to stop while open transactions are waited for.

    Raises AfterlogError: the cluster does not answer, or a transaction does not end.
    """
    replays = EarlierReplays()
    by_topic: dict[str, list[PlannedRecord]] = defaultdict(list)
    for record in records:
        by_topic[record.topic].append(record)
    topics = describe(admin, {*by_topic, *(name for name, _ in elsewhere)})
    for (name, topic_id), letters in elsewhere.items():
        wanted = set(letters)
        taken = [record for record in records if record.letter in wanted]
        if name in topics and topic_id and topics[name].topic_id != topic_id:
            _unknown(replays, taken, f"topic {name} was deleted and created again since another plan took them")
        by_topic[name] += [record for record in taken if record.topic != name]
    for name, of_topic in sorted(by_topic.items()):
        if not of_topic:
            continue
        topic = topics.get(name)
        if topic is None or topic.ends is None or topic.starts is None or topic.may_read is False:
            _unknown(replays, of_topic, f"topic {name} is gone, or cannot be read")
            continue
        looked = _Look(admin, topic, of_topic, behind, replays)
        spans = looked.spans()
        if not spans:
            looked.judge()
        elif topic.is_compacted:
            _unknown(replays, of_topic, f"topic {name} is compacted")
        elif targets.settled(
            admin, {topic_partition: end for topic_partition, (_, end) in spans.items()}, stopped, _PATIENCE
        ):
            match = _Match(of_topic, behind.plan_id if behind else "", replays)
            targets.read(settings, spans, looked.timed(match.take))
            looked.judge()
    return replays


@dataclass
class _Look:
    """A look at one topic: which offsets are read, and of which records these do not tell."""

    admin: Admin
    topic: Topic
    records: Sequence[PlannedRecord]
    behind: Planned | None
    replays: EarlierReplays
    _cut: dict[int, int | None] = field(default_factory=dict)

    def spans(self) -> Spans:
        """Return the offsets where replays of the records can stand."""
        topic, behind = self.topic, self.behind
        assert topic.starts is not None
        assert topic.ends is not None
        known = behind.ends.get(topic.name) if behind is not None else None
        times = [millis_of(behind.at - CLOCKS)] if behind is not None else [_millis(record) for record in self.records]
        at = None if None in times else min(time for time in times if time is not None)
        partitions = [(topic.name, partition) for partition in range(topic.partitions)]
        timed = {} if known is not None or at is None else offsets_at(self.admin, partitions, at)
        spans = {}
        for topic_partition in partitions:
            partition = topic_partition[1]
            start, end = topic.starts[partition], topic.ends[partition]
            if known is not None:
                begin = known[partition] if partition < len(known) else 0
            else:
                begin = 0 if at is None else timed.get(topic_partition, 0)
                begin = min([end if begin < 0 else begin, *self._behind_sources(partition)])
            if begin < start or (known is None and begin == start > 0):
                self._cut[partition] = None  # until the first record tells its time
            if max(begin, start) < end:
                spans[topic_partition] = (max(begin, start), end)
        return spans

    def _behind_sources(self, partition: int) -> list[int]:
        """Return the offsets behind the records that failed, if their replays go back to this partition."""
        return [
            record.source.offset + 1
            for record in self.records
            if record.source.topic == self.topic.name
            and record.source.partition == partition == record.partition
            and record.source.offset is not None
        ]

    def timed(self, take: Take) -> Take:
        """Return a function that notes the time of the first record of each partition, and gives records on."""

        def taking(message: Message, topic_partition: tuple[str, int], offset: int) -> None:
            if self._cut.get(topic_partition[1], 0) is None:
                self._cut[topic_partition[1]] = message.timestamp()[1]
            take(message, topic_partition, offset)

        return taking

    def judge(self) -> None:
        """Note the records of which nobody can tell, as the log of a partition does not go back far enough."""
        assert self.topic.starts is not None
        for record in self.records:
            partitions = self._cut if record.partition is None else {record.partition} & self._cut.keys()
            for partition in partitions:
                first, died, source = self._cut[partition], _millis(record), record.source
                is_here = (source.topic, source.partition) == (self.topic.name, partition) and self.behind is None
                is_behind = is_here and source.offset is not None and source.offset >= self.topic.starts[partition]
                is_younger = self.behind is None and None not in (first, died) and (first or 0) < (died or 0)
                if not is_behind and not is_younger:
                    _unknown(self.replays, [record], f"topic {self.topic.name} does not go back so far")


class _Match:
    """Compares records of a topic with the dead letters that are looked for."""

    def __init__(self, records: Sequence[PlannedRecord], own: str, replays: EarlierReplays) -> None:
        self._own = own
        self._replays = replays
        self._by_letter: dict[str, list[PlannedRecord]] = defaultdict(list)
        self._by_origin: dict[str, list[PlannedRecord]] = defaultdict(list)
        for record in records:
            self._by_letter[_as_in_headers(record.letter.coordinate)].append(record)
            if record.origin.coordinate is not None:
                self._by_origin[_as_in_headers(record.origin.coordinate)].append(record)

    def take(self, message: Message, topic_partition: tuple[str, int], offset: int) -> None:
        """Note the records of which a message is a replay by another plan."""
        headers = dict(headers_of(message))
        plan, letter = text_of(headers.get(PLAN)), text_of(headers.get(RECORD))
        if not _PLAN_ID.fullmatch(plan) or plan == self._own:
            return
        source = Source.told_by(headers.items())
        origin = source.coordinate if source is not None else None
        at = message.timestamp()[1]
        attempt = attempt_of(headers.items()) or 1
        same = [*self._by_letter.get(letter, ())]
        same += [record for record in self._by_origin.get(origin or "", ()) if attempt >= record.attempt]
        for record in same:
            died = _millis(record)
            is_what_died = (*topic_partition, offset) == record.source[:3]
            if (died is None or at >= died) and not is_what_died:
                self._replays.replayed.setdefault(plan, {})[record.letter] = record


def _as_in_headers(coordinate: str) -> str:
    return text_of(bytes_of(coordinate))


def _unknown(replays: EarlierReplays, records: Iterable[PlannedRecord], why: str) -> None:
    replays.unknown.update(record.letter for record in records)
    replays.why = replays.why or why


def is_older(died: datetime | None, since: datetime) -> bool:
    """Tell whether a dead letter may have been replayed before a time."""
    return died is None or died - CLOCKS <= since


def _millis(record: PlannedRecord) -> int | None:
    """Return from when on a replay of a record can stand on a target, in milliseconds since 1970; None: not known."""
    at = record.dead_lettered_at
    return None if at is None else millis_of(at - CLOCKS)
