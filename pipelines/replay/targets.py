"""Targets of a plan -> whether the plan can run, and which of its records stand there committed."""

from __future__ import annotations

import time
from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Mapping, Sequence

from confluent_kafka import Message, TopicPartition

from pipelines.errors import EnvironmentLacking, UsageError
from pipelines.kafka.errors import named
from pipelines.replay.client import Admin, Answers, Topic, cluster_id, consumer, describe, offsets
from pipelines.replay.fetch import stream
from pipelines.replay.model import PLAN, RECORD, Plan, PlannedRecord, Replayed, bytes_of
from pipelines.replay.states import Status
from pipelines.settings import Settings

Ends = dict[tuple[str, int], int]
"""An offset of each partition, by topic and partition."""


class Gone(UsageError):
    """It cannot be learned any more what stands on a target."""


def checked(admin: Admin, plan: Plan) -> dict[str, Topic]:
    """Return the targets as they are now.

    Raises UsageError: it is another cluster, a target is gone or was created anew, or Afterlog lacks a right.
    """
    found_id = cluster_id(admin)
    if found_id and plan.kafka_cluster_id and found_id != plan.kafka_cluster_id:
        raise UsageError(
            f"The cluster at {admin.answers.kafka.bootstrap_servers} is {found_id}, but plan {plan.plan_id} is for "
            f"{plan.kafka_cluster_id}: fix bootstrap_servers."
        )
    topics = describe(admin, [target.topic for target in plan.targets])
    for target in plan.targets:
        topic = topics.get(target.topic)
        if topic is None:
            raise Gone(f"Topic {target.topic} is gone: make a new plan for another target.")
        lacking = [right for right, may in (("Read", topic.may_read), ("Write", topic.may_write)) if may is False]
        if lacking:
            raise UsageError(
                f"Afterlog is not allowed to {' and '.join(lacking).lower()} topic {topic.name}: grant it the "
                f"operation{'s' * (len(lacking) > 1)} {' and '.join(lacking)} there."
            )
        if topic.topic_id != target.topic_id:
            raise Gone(f"Topic {topic.name} was deleted and created again since the plan: make a new plan.")
        if topic.partitions < len(target.ends):
            raise Gone(f"Topic {topic.name} has fewer partitions than when the plan was made: make a new plan.")
        if topic.ends is None or topic.starts is None:
            raise EnvironmentLacking(f"A partition of topic {topic.name} has no leader: run the plan when it has one.")
    return topics


def are_gone(admin: Admin, plan: Plan) -> bool:
    """Tell whether all targets are deleted, or are other topics now: then no record of the plan stands anywhere."""
    now = describe_ids(admin, {target.topic: target.topic_id for target in plan.targets})
    return all(
        target.topic not in now or now[target.topic] not in (None, target.topic_id)  # None: ACLs hide it
        for target in plan.targets
    )


def unchanged(admin: Admin, plan: Plan) -> None:
    """Check that the targets are still the same topics; raises UsageError: one is not."""
    ids = {target.topic: target.topic_id for target in plan.targets}
    now = describe_ids(admin, ids)
    changed = sorted(name for name, topic_id in ids.items() if now.get(name) != topic_id)
    if changed:
        raise Gone(f"While the plan ran, {named(changed)} was deleted, and maybe created again: make a new plan.")


def describe_ids(admin: Admin, topics: Iterable[str]) -> dict[str, str | None]:
    """Return the ids of topics that exist."""
    return {name: topic.topic_id for name, topic in describe(admin, topics).items()}


def bounds(plan: Plan, topics: Mapping[str, Topic], noted: Ends, status: Status) -> Ends:
    """Return, for each partition where records of the plan can stand, the offset from which to look for them.

    Raises Gone: the log does not go back so far, or is compacted, and a run may have replayed records.
    """
    begins = {}
    for target in plan.targets:
        topic = topics[target.topic]
        assert topic.starts is not None
        assert topic.ends is not None
        for partition in _partitions(plan, topic):
            planned = target.ends[partition] if partition < len(target.ends) else 0
            begin = noted.get((topic.name, partition), planned)
            start, end = topic.starts[partition], topic.ends[partition]
            if not status.is_untouched:
                where = f"topic {topic.name}, partition {partition}"
                if begin < start:
                    raise Gone(
                        f"Records of {where} from offset {begin:,} on are deleted up to {start:,}, so nobody can tell "
                        "which records of the plan were replayed there: make a new plan for those that were not."
                    )
                if end < begin:
                    raise Gone(
                        f"The log of {where} ends at offset {end:,}, before {begin:,}, where the plan began: records "
                        "were lost, so look at the brokers and make a new plan."
                    )
                if topic.is_compacted and begin < end:
                    raise Gone(
                        f"Topic {topic.name} is compacted, so nobody can tell which records of the plan were replayed "
                        "there by the run before: make a new plan for those that were not."
                    )
            begins[topic.name, partition] = min(max(begin, start), end)
    return begins


def read_back(
    settings: Settings, admin: Admin, plan: Plan, begins: Ends, topics: Mapping[str, Topic], stopped: Callable[[], bool]
) -> list[Replayed] | None:
    """Return the plan's records that stand committed on its targets; None if ``stopped`` while it waited.

    No producer of the plan is at work, so nothing comes behind the ends of ``topics``.

    Raises EnvironmentLacking: another producer's transaction hides records, or records were deleted meanwhile.
    """
    ends = {
        (name, partition): topic.ends[partition]
        for name, topic in topics.items()
        if topic.ends is not None
        for partition in range(topic.partitions)
    }
    spans = {
        topic_partition: (begin, ends[topic_partition])
        for topic_partition, begin in begins.items()
        if begin < ends[topic_partition]
    }
    if not spans:
        return []
    if not settled(admin, {topic_partition: end for topic_partition, (_, end) in spans.items()}, stopped):
        return None
    produced = _read(settings, plan, spans)
    starts = offsets(admin, spans, "earliest")
    for (name, partition), (begin, _) in spans.items():
        if starts.get((name, partition), 0) > begin:
            raise EnvironmentLacking(
                f"Records of topic {name}, partition {partition}, were deleted while the replay read them: run it "
                "again."
            )
    return produced


def _partitions(plan: Plan, topic: Topic) -> Sequence[int]:
    """Return the partitions where records of the plan can stand."""
    chosen = {record.partition for record in plan.records if record.topic == topic.name}
    if None in chosen:
        return range(topic.partitions)
    gone = [partition for partition in chosen if partition is not None and partition >= topic.partitions]
    if gone:
        raise UsageError(f"Topic {topic.name} has no partition {gone[0]}: make a new plan.")
    return sorted(partition for partition in chosen if partition is not None)


def settled(admin: Admin, ends: Ends, stopped: Callable[[], bool], least_seconds: float = 0.0) -> bool:
    """Wait until all transactions before the ends have ended, at least so long; return False if stopped.

    Raises EnvironmentLacking: one does not end in time.
    """
    deadline = time.monotonic() + max(admin.answers.seconds, least_seconds)
    while True:
        stable = offsets(admin, ends, "latest", "read_committed")
        behind = [topic_partition for topic_partition, end in ends.items() if stable.get(topic_partition, 0) < end]
        if not behind:
            return True
        if stopped():
            return False
        if time.monotonic() > deadline:
            topic, partition = behind[0]
            raise EnvironmentLacking(
                f"Another producer's transaction is open on topic {topic}, partition {partition}, from offset "
                f"{stable.get(behind[0], 0):,} on, and hides what stands behind it: nothing was replayed, so end that "
                "transaction, or wait until the brokers abort it, and run the plan again."
            )
        time.sleep(0.2)


def _read(settings: Settings, plan: Plan, spans: Mapping[tuple[str, int], tuple[int, int]]) -> list[Replayed]:
    """Return the plan's records among those that stand between two offsets of partitions."""
    expected: dict[tuple[str, bytes], deque[PlannedRecord]] = defaultdict(deque)
    for record in plan.records:
        expected[record.topic, bytes_of(record.letter.coordinate)].append(record)
    own = bytes_of(plan.plan_id)
    produced: list[Replayed] = []

    def take(message: Message, topic_partition: tuple[str, int], offset: int) -> None:
        headers = dict(message.headers() or ())
        wanted = expected.get((topic_partition[0], _bytes(headers.get(RECORD))))
        if wanted and headers.get(PLAN) == own:
            produced.append(Replayed(wanted.popleft(), topic_partition[1], offset, message.timestamp()[1]))

    read(settings, spans, take)
    return sorted(produced, key=lambda replayed: replayed.record.position)


def read(
    settings: Settings,
    spans: Mapping[tuple[str, int], tuple[int, int]],
    take: Callable[[Message, tuple[str, int], int], None],
) -> None:
    """Give the committed records between two offsets of partitions, with their coordinates, to a function.

    The spans are not empty, and no open transaction hides records in them.
    """
    if not spans:
        return
    answers = Answers(settings)
    reader = consumer(settings, "read_committed", answers=answers)
    left = {topic_partition: end for topic_partition, (_, end) in spans.items()}
    try:
        reader.assign([TopicPartition(*topic_partition, begin) for topic_partition, (begin, _) in spans.items()])
        for topic_partition, offset, message in stream(reader, answers):
            if topic_partition not in left:
                continue
            if message is not None and offset < left[topic_partition]:
                take(message, topic_partition, offset)
            if offset >= left[topic_partition] - (message is not None):
                del left[topic_partition]
                if not left:
                    break
                reader.incremental_unassign([TopicPartition(*topic_partition)])
    finally:
        reader.close()


def _bytes(value: str | bytes | None) -> bytes:
    return value.encode() if isinstance(value, str) else value or b""
