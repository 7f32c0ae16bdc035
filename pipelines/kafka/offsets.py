"""What a cluster holds of topics, and what was read of them -> the offsets to read next, and those that are gone."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import astuple, dataclass, field, replace

ALL = 2**63 - 1  # an offset that no log reaches


@dataclass(frozen=True)
class Log:
    """A partition as the cluster has it: offsets from ``start`` to before ``end``.

    It is ``truncated`` where it ends before what was read of it: a replica that lacked the rest became the leader.
    """

    topic: str
    topic_id: str
    partition: int
    start: int
    end: int
    truncated: bool = False


@dataclass(frozen=True)
class OffsetRange:
    """Offsets of a partition from ``start`` to before ``end``; a topic of the same name and another id is another."""

    topic: str
    topic_id: str
    partition: int
    start: int
    end: int

    @property
    def source(self) -> str:
        """The ``_source`` of the rows that are made of it."""
        return f"kafka:{self.topic}/{self.topic_id}/{self.partition}"

    @property
    def in_words(self) -> str:
        """What it is, for people."""
        return f"Offsets {self.start:,} to {self.end - 1:,} of topic {self.topic}, partition {self.partition},"

    @property
    def length(self) -> int:
        """How many offsets there are: at least as many as records, since transactions and compaction leave holes."""
        return self.end - self.start


@dataclass(frozen=True)
class Gap:
    """Offsets that were gone before they were read, and which run found that, when (ISO-8601)."""

    span: OffsetRange
    run_id: str
    found_at: str


@dataclass(frozen=True)
class TopicPosition:
    """How far a topic is read: the next offset of each partition.

    Rows of offsets below ``doubtful`` may be in the table, though they are to be read: the table is asked first. Below
    ``written`` they are, although the run that wrote them did not live to say so: no offset there can be a gap.
    """

    name: str
    next: dict[int, int] = field(default_factory=dict)
    doubtful: dict[int, int] = field(default_factory=dict)
    written: dict[int, int] = field(default_factory=dict)

    def reached(self, partition: int) -> int:
        """Return the offset behind all that is dealt with."""
        return max(self.next[partition], self.written.get(partition, 0))


@dataclass(frozen=True)
class TopicProgress:
    """How far the topics of a cluster are read, by topic id.

    ``pending`` is the batch that is fixed before anything of it is written; ``gaps`` are found, but not yet recorded.
    ``cluster_id`` is what Kafka calls the cluster, empty where that is not known.
    """

    followed: dict[str, TopicPosition] = field(default_factory=dict)
    pending: tuple[OffsetRange, ...] = ()
    gaps: tuple[Gap, ...] = ()
    cluster_id: str = ""


@dataclass(frozen=True)
class ReadPlan:
    """What is followed, what is left of the pending batch, and what is gone for good."""

    followed: dict[str, TopicPosition]
    pending: tuple[OffsetRange, ...]
    gaps: tuple[OffsetRange, ...]


def follow(progress: TopicProgress, logs: Sequence[Log], present: Mapping[str, str]) -> ReadPlan:
    """Return what is followed from now on, of what the cluster has: ``present`` are the ids of topics that it shows.

    A topic that is met for the first time is read from where it begins now. Of one that is known, and of a successor of
    its name, all is to be read: what retention removed of it is a gap. A topic that the cluster does not show may be
    hidden from us for a while: what was to be read of it still is, until another one of its name is shown.
    """
    followed = progress.followed
    now = dict(followed)
    names = {topic.name for topic in followed.values()}
    gaps = []
    for log in logs:
        known = followed.get(log.topic_id)
        if known and log.partition in known.next:
            begun, expected = known.next[log.partition], known.reached(log.partition)
            doubtful = known.doubtful.get(log.partition, 0)
        else:
            begun = expected = 0 if known or log.topic in names else log.start
            doubtful = log.end  # the table may know more than progress, which may have been lost
        if log.truncated:
            start, doubtful = log.start, expected
        else:
            if log.start > expected:
                gaps.append(OffsetRange(log.topic, log.topic_id, log.partition, expected, log.start))
            start = max(begun, log.start)
        topic = now.get(log.topic_id, TopicPosition(log.topic))
        at = log.partition
        now[log.topic_id] = _settled(
            replace(
                topic,
                next=topic.next | {at: start},
                doubtful=topic.doubtful | {at: min(doubtful, max(log.end, expected))},
                written={p: end for p, end in topic.written.items() if p != at or not log.truncated},
            )
        )
    there = {(log.topic_id, log.partition): log for log in logs if not log.truncated}
    left = []
    for span in progress.pending:
        found = there.get((span.topic_id, span.partition))
        if found and found.start < span.end:
            left.append(replace(span, start=max(span.start, found.start)))
    gone = [span for span in progress.pending if present.get(span.topic, span.topic_id) != span.topic_id]
    gaps += [span for span in gone if followed[span.topic_id].reached(span.partition) < span.end]
    return ReadPlan(passed(now, gone), tuple(left), tuple(gaps))


def doubted(progress: TopicProgress, written: bool) -> TopicProgress:
    """Return what progress tells of a table that has changed since: rows of all offsets may be in it.

    ``written`` says that those of the pending batch are, which one commit inserts.
    """
    ends: dict[str, dict[int, int]] = {}
    for span in progress.pending if written else ():
        ends.setdefault(span.topic_id, {})[span.partition] = span.end
    followed = {
        id_: replace(topic, doubtful=dict.fromkeys(topic.next, ALL), written=topic.written | ends.get(id_, {}))
        for id_, topic in progress.followed.items()
    }
    return replace(progress, followed=followed)


def mark_of(cluster: str, batch: Iterable[OffsetRange]) -> str:
    """Return what the commit says that inserts a batch of a cluster."""
    told = json.dumps([cluster, *(astuple(span) for span in batch)])
    return f"topics-{hashlib.sha256(told.encode()).hexdigest()[:32]}"


def is_doubtful(followed: Mapping[str, TopicPosition], spans: Iterable[OffsetRange]) -> bool:
    """Tell whether rows of any of the spans may be in the table already."""
    return any(span.start < followed[span.topic_id].doubtful.get(span.partition, 0) for span in spans)


def unread(followed: Mapping[str, TopicPosition], logs: Iterable[Log]) -> tuple[OffsetRange, ...]:
    """Return all that the logs hold and that is not read yet."""
    starts = ((log, followed[log.topic_id].next[log.partition]) for log in logs)
    return tuple(
        OffsetRange(log.topic, log.topic_id, log.partition, start, log.end) for log, start in starts if start < log.end
    )


def batch(waiting: Sequence[OffsetRange], most: int) -> tuple[OffsetRange, ...]:
    """Return at most so many offsets of what waits, of each partition its share, so that none starves."""
    total = sum(span.length for span in waiting)
    if total <= most:
        return tuple(waiting)
    chosen = []
    left = most
    for span in waiting:
        share = min(left, max(1, span.length * most // total))
        if share:
            chosen.append(replace(span, end=span.start + share))
            left -= share
    return tuple(chosen)


def passed(followed: Mapping[str, TopicPosition], spans: Iterable[OffsetRange]) -> dict[str, TopicPosition]:
    """Return what is followed, with the spans behind it."""
    now = dict(followed)
    for span in spans:
        topic = now.get(span.topic_id, TopicPosition(span.topic))
        after = max(span.end, topic.next.get(span.partition, 0))
        now[span.topic_id] = _settled(replace(topic, next=topic.next | {span.partition: after}))
    return now


def _settled(topic: TopicPosition) -> TopicPosition:
    """Return a topic without what lies behind the offsets that are to be read next."""

    def ahead(offsets: dict[int, int]) -> dict[int, int]:
        return {at: until for at, until in offsets.items() if until > topic.next.get(at, 0)}

    return replace(topic, doubtful=ahead(topic.doubtful), written=ahead(topic.written))
