"""Snapshot of topics, progress so far -> the offsets to read next, and the offsets that are gone (gaps)."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import astuple, dataclass, field, replace

ALL = 2**63 - 1  # an offset that no log reaches


@dataclass(frozen=True)
class Log:
    """A partition in the cluster: it holds offsets from ``start`` to before ``end``.

    It is ``truncated`` if it ends before the offset that was read: a replica without the last records became leader.
    """

    topic: str
    topic_id: str
    partition: int
    start: int
    end: int
    truncated: bool = False


@dataclass(frozen=True)
class OffsetRange:
    """Offsets of a partition from ``start`` to before ``end``.

    The topic id tells a topic from a later one of the same name.
    """

    topic: str
    topic_id: str
    partition: int
    start: int
    end: int

    @property
    def source(self) -> str:
        """The ``_source`` of the rows that are read from it."""
        return f"kafka:{self.topic}/{self.topic_id}/{self.partition}"

    @property
    def in_words(self) -> str:
        """The beginning of a sentence about these offsets."""
        return f"Offsets {self.start:,} to {self.end - 1:,} of topic {self.topic}, partition {self.partition},"

    @property
    def length(self) -> int:
        """The number of offsets. There can be fewer records: transaction markers and compaction leave holes."""
        return self.end - self.start


@dataclass(frozen=True)
class Gap:
    """Offsets that were gone before they were read; which run found that, and when (ISO-8601)."""

    span: OffsetRange
    run_id: str
    found_at: str


@dataclass(frozen=True)
class TopicPosition:
    """How far a topic is read: the ``next`` offset of each partition.

    Rows of offsets below ``doubtful`` can be in the table already: look there before inserting them again. Offsets
    below ``written`` are in the table, although the run that wrote them ended before it saved progress: they are never
    a gap. The log had offsets below ``seen`` when a run looked last.
    """

    name: str
    next: dict[int, int] = field(default_factory=dict)
    doubtful: dict[int, int] = field(default_factory=dict)
    written: dict[int, int] = field(default_factory=dict)
    seen: dict[int, int] = field(default_factory=dict)

    def reached(self, partition: int) -> int:
        """Return the first offset that is neither read nor written."""
        return max(self.next[partition], self.written.get(partition, 0))


@dataclass(frozen=True)
class TopicProgress:
    """How far the topics of a cluster are read; ``followed`` is by topic id.

    ``pending`` is the batch that is saved before its first row is written. ``gaps`` were found, but are not yet in
    quality.gaps. ``cluster_id`` is Kafka's id of the cluster, empty if it is not known.

    Progress files hold the names of these fields.
    """

    followed: dict[str, TopicPosition] = field(default_factory=dict)
    pending: tuple[OffsetRange, ...] = ()
    gaps: tuple[Gap, ...] = ()
    cluster_id: str = ""


@dataclass(frozen=True)
class ReadPlan:
    """Positions to read on from, what is left of the pending batch, and the offsets that are gone."""

    followed: dict[str, TopicPosition]
    pending: tuple[OffsetRange, ...]
    gaps: tuple[OffsetRange, ...]


def follow(progress: TopicProgress, logs: Sequence[Log], present: Mapping[str, str]) -> ReadPlan:
    """Return the plan for logs of a cluster; ``present`` maps the topics that it lists to their ids.

    - Read a new topic from its first offset of now: earlier ones are no gap.
    - Read a known topic, a new partition of it, and a new topic with the name of a known one completely: offsets that
      retention removed before they were read are a gap.
    - A topic missing from the listing may only be hidden by ACLs, so do not record a gap, until a topic with the same
      name and another id appears: what was seen of the first one and not read is a gap then.
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
            doubtful = log.end  # progress may have been lost: the table can hold any of these offsets
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
                seen=topic.seen | {at: log.end},
            )
        )
    complete_logs = {(log.topic_id, log.partition): log for log in logs if not log.truncated}
    left = []
    for span in progress.pending:
        found = complete_logs.get((span.topic_id, span.partition))
        if found and found.start < span.end:
            left.append(replace(span, start=max(span.start, found.start)))
    gone = _of_replaced_topics(progress, present)
    reached = (followed[span.topic_id].reached(span.partition) for span in gone)
    gaps += [replace(span, start=start) for span, start in zip(gone, reached, strict=True) if start < span.end]
    return ReadPlan(passed(now, gone), tuple(left), tuple(gaps))


def _of_replaced_topics(progress: TopicProgress, present: Mapping[str, str]) -> list[OffsetRange]:
    """Return the unread offsets that were seen of topics whose names now belong to other topics."""
    ends: dict[tuple[str, int], int] = {}
    for id_, topic in progress.followed.items():
        if present.get(topic.name, id_) != id_:
            ends |= {(id_, at): end for at, end in topic.seen.items()}
    for span in progress.pending:
        if present.get(span.topic, span.topic_id) != span.topic_id:
            partition = (span.topic_id, span.partition)
            ends[partition] = max(span.end, ends.get(partition, 0))
    topics = progress.followed
    return [OffsetRange(topics[id_].name, id_, at, topics[id_].next[at], end) for (id_, at), end in ends.items()]


def doubted(progress: TopicProgress, written: bool) -> TopicProgress:
    """Return progress for a table that changed after progress was saved: rows of any offset can be in it.

    ``written`` says that the pending batch is in the table: one commit inserts a batch.
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
    """Return the mark by which a commit names the batch that it inserted."""
    named = json.dumps([cluster, *(astuple(span) for span in batch)])
    return f"topics-{hashlib.sha256(named.encode()).hexdigest()[:32]}"


def is_doubtful(followed: Mapping[str, TopicPosition], spans: Iterable[OffsetRange]) -> bool:
    """Tell whether rows of any of the spans can be in the table already."""
    return any(span.start < followed[span.topic_id].doubtful.get(span.partition, 0) for span in spans)


def unread(followed: Mapping[str, TopicPosition], logs: Iterable[Log]) -> tuple[OffsetRange, ...]:
    """Return the offsets of the logs that are not read yet."""
    starts = ((log, followed[log.topic_id].next[log.partition]) for log in logs)
    return tuple(
        OffsetRange(log.topic, log.topic_id, log.partition, start, log.end) for log, start in starts if start < log.end
    )


def batch(waiting: Sequence[OffsetRange], most: int) -> tuple[OffsetRange, ...]:
    """Return at most ``most`` of the waiting offsets, a proportional share of each partition, so that none starves."""
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
    """Return the positions after the spans are read."""
    now = dict(followed)
    for span in spans:
        topic = now.get(span.topic_id, TopicPosition(span.topic))
        after = max(span.end, topic.next.get(span.partition, 0))
        now[span.topic_id] = _settled(replace(topic, next=topic.next | {span.partition: after}))
    return now


def _settled(topic: TopicPosition) -> TopicPosition:
    """Return a position without the doubtful, written and seen offsets that ``next`` has passed."""

    def ahead(offsets: dict[int, int]) -> dict[int, int]:
        return {at: until for at, until in offsets.items() if until > topic.next.get(at, 0)}

    return replace(topic, doubtful=ahead(topic.doubtful), written=ahead(topic.written), seen=ahead(topic.seen))
