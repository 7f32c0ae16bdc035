"""Topics of a Kafka cluster -> a snapshot of their ids and offsets, and their cleanup policies.

Kafka's Java admin client asks: the one that Spark's connector brings. It runs in the session's JVM, or in a small JVM
where no session runs. docs/decisions/0051-do-not-ask-kafka-with-confluent-kafka.md says why no other client asks.
"""

from __future__ import annotations

import contextlib
import logging
import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from pipelines.errors import AfterlogError, UsageError
from pipelines.jvm import small
from pipelines.kafka.errors import Changed, NoTopics, Refused, as_sentence, kinds, named
from pipelines.kafka.offsets import Log, OffsetRange, TopicProgress
from pipelines.kafka.properties import properties
from pipelines.settings import Kafka, Settings, Topics

_NO_ID = "AAAAAAAAAAAAAAAAAAAAAA"  # the id of every topic on brokers before 2.8, which have no topic ids
_TOPIC = re.compile(r"[A-Za-z0-9._-]{1,249}")  # names of topics come from directories too, which can have any name
_NO_POLICY = {
    *("TopicAuthorizationException", "ClusterAuthorizationException"),
    *("UnknownTopicOrPartitionException", "InvalidTopicException"),
}

log = logging.getLogger("afterlog")


@dataclass(frozen=True)
class TopicSnapshot:
    """The wanted topics of a cluster at one moment.

    ``logs`` are the partitions that Afterlog can read. ``present`` maps names to ids: of all wanted topics, and of
    topics with pending offsets. ``complaint`` says which wanted topics Afterlog is not allowed to read. ``whole`` names
    the topics whose partitions are all among the logs.
    """

    logs: tuple[Log, ...]
    present: Mapping[str, str]
    complaint: AfterlogError | None = None
    cluster_id: str = ""
    whole: frozenset[str] = frozenset()


@contextlib.contextmanager
def connected(settings: Settings) -> Iterator[Cluster]:
    """Yield the cluster that the settings name.

    Raises AfterlogError, here or on the first request: one sentence about what is wrong with the settings or the
    cluster.
    """
    client_properties = properties(settings.kafka)
    jvm = small.jvm()
    admin = admin_client(jvm, settings.kafka, client_properties)
    try:
        yield Cluster(jvm, admin, settings.kafka)
    finally:
        admin.close(jvm.java.time.Duration.ofSeconds(2))


def admin_client(jvm: Any, kafka: Kafka, client_properties: Mapping[str, str]) -> Any:
    """Create an admin client in a JVM; raises AfterlogError: the properties cannot be used."""
    java_properties = jvm.java.util.Properties()
    for name, value in client_properties.items():
        java_properties.setProperty(name, value)
    with as_sentence(kafka):
        return jvm.org.apache.kafka.clients.admin.AdminClient.create(java_properties)


class Cluster:
    """A Kafka cluster, asked about its topics through an admin client."""

    def __init__(self, jvm: Any, admin: Any, kafka: Kafka) -> None:
        """Take an admin client and the JVM in which it runs."""
        self.jvm = jvm
        self.admin = admin
        self.kafka = kafka

    def snapshot(self, topics: Topics, progress: TopicProgress) -> TopicSnapshot:
        """Return the wanted topics with their ids and offsets.

        A partition without a leader is left out. So is a new topic while any of its partitions has no leader.

        Raises AfterlogError: the cluster does not answer, lists no wanted topic, or is not the cluster that was read
        before.
        """
        cluster_id = self._id()
        if progress.cluster_id and cluster_id not in ("", progress.cluster_id):
            raise UsageError(
                f"The cluster at {self.kafka.bootstrap_servers} is {cluster_id}, but topics were read from "
                f"{progress.cluster_id} so far: fix bootstrap_servers, or set "
                "`cluster` to another name for this cluster."
            )
        names = self._names()
        matching = {name for name in names if re.fullmatch(topics.pattern, name)}
        pending = {span.topic for span in progress.pending}
        everything = self._described(sorted(matching | (pending & names)))
        described = {name: topic for name, topic in everything.items() if name in matching}
        if not described:
            raise NoTopics(
                f"The cluster at {self.kafka.bootstrap_servers} shows no {topics.wanted}: fix the settings, create it, "
                "or grant Afterlog the operations Describe and Read on "
                f"{'it' if ' that ' not in topics.wanted else 'them'}."
            )
        logs = self._logs(_partitions_to_read(described, progress), topics.isolation_level, progress)
        complaint = None
        if refused := sorted(name for name, topic in described.items() if not topic.readable):
            complaint = Refused(
                f"Afterlog is not allowed to read {named(refused)}: grant it the operation Read on "
                f"{'that topic' if len(refused) == 1 else 'those topics'}, or exclude it in the settings."
            )
        present = {name: topic.topic_id for name, topic in everything.items()}
        whole = frozenset(name for name, topic in described.items() if topic.readable and not topic.leaderless)
        return TopicSnapshot(logs, present, complaint, cluster_id or progress.cluster_id, whole)

    def _logs(self, wanted: Mapping[tuple[str, int], str], isolation: str, progress: TopicProgress) -> tuple[Log, ...]:
        """Return partitions, given with their topics' ids, with their offsets."""
        reached = {(id_, at): topic.reached(at) for id_, topic in progress.followed.items() for at in topic.next}
        starts = self._offsets(wanted, "earliest", "read_committed")
        ends = self._offsets(wanted, "latest", isolation)
        ahead = [
            partition for partition in wanted if ends[partition] < reached.get((wanted[partition], partition[1]), 0)
        ]
        last = ends
        # Offsets behind an open transaction are there, though read_committed hides them.
        if ahead and isolation == "read_committed":
            last = ends | self._offsets(ahead, "latest", "read_uncommitted")
        return tuple(
            Log(
                topic=partition[0],
                topic_id=topic_id,
                partition=partition[1],
                start=starts[partition],
                end=max(starts[partition], ends[partition]),
                truncated=last[partition] < reached.get((topic_id, partition[1]), 0),
            )
            for partition, topic_id in wanted.items()
        )

    def check(self, spans: Iterable[OffsetRange]) -> None:
        """Check that the topics still have the ids of the spans; raises Changed if one does not."""
        ids = {span.topic: span.topic_id for span in spans}
        described = self._described(ids)
        if any(name not in described or described[name].topic_id != topic_id for name, topic_id in ids.items()):
            raise Changed

    def cleanup_policies(self, topics: Iterable[str], ids: Collection[str] = ()) -> dict[str, str]:
        """Return the cleanup.policy of topics, with the words of each sorted: ``compact,delete``.

        Topics that are gone, or whose configuration Afterlog is not allowed to describe, are left out.

        Raises AfterlogError: the cluster does not answer, or its id is none of ``ids``.
        """
        if ids and self._id() not in ids:
            raise UsageError(f"The cluster at {self.kafka.bootstrap_servers} is not the cluster that was read before.")
        resource = self.jvm.org.apache.kafka.common.config.ConfigResource
        of_topics = resource.Type.valueOf("TOPIC")
        asked = self.jvm.java.util.ArrayList()
        for topic in topics:
            if _TOPIC.fullmatch(topic):
                asked.add(resource(of_topics, topic))
        policies: dict[str, str] = {}
        if asked.isEmpty():
            return policies
        with as_sentence(self.kafka):
            for entry in self.admin.describeConfigs(asked).values().entrySet():
                try:
                    policy = entry.getValue().get().get("cleanup.policy")
                except Exception as error:
                    if kinds(error) & _NO_POLICY:
                        continue
                    raise
                if policy is not None and policy.value() is not None:
                    parts = {part.strip() for part in str(policy.value()).split(",")} - {""}
                    policies[str(entry.getKey().name())] = ",".join(sorted(parts))
        return policies

    def _id(self) -> str:
        """Return the cluster's id; empty if its brokers do not tell it."""
        with as_sentence(self.kafka):
            return str(self.admin.describeCluster().clusterId().get() or "")

    def _names(self) -> set[str]:
        """Return the names of all topics but internal ones; the cluster omits topics that ACLs hide from Afterlog."""
        with as_sentence(self.kafka):
            names = self.admin.listTopics().names().get()
            return set(filter(None, str(self.jvm.java.lang.String.join("\n", names)).split("\n")))

    def _described(self, names: Iterable[str]) -> dict[str, _Topic]:
        """Return topics by name, without those that were deleted meanwhile."""
        asked = self.jvm.java.util.ArrayList()
        for name in names:
            asked.add(name)
        if asked.isEmpty():
            return {}
        options = self.jvm.org.apache.kafka.clients.admin.DescribeTopicsOptions().includeAuthorizedOperations(True)
        read = self.jvm.org.apache.kafka.common.acl.AclOperation.valueOf("READ")
        described = {}
        with as_sentence(self.kafka):
            futures = self.admin.describeTopics(asked, options).topicNameValues()
            for name in futures:
                try:
                    topic = futures[name].get()
                except Exception as error:
                    if kinds(error) & {"UnknownTopicOrPartitionException", "UnknownTopicIdException"}:
                        continue
                    raise
                infos = list(topic.partitions())
                leaders = {int(info.partition()): info.leader() for info in infos}
                operations = topic.authorizedOperations()
                described[str(name)] = _Topic(
                    topic_id=str(topic.topicId().toString()),
                    partitions=tuple(sorted(leaders)),
                    leaderless=frozenset(at for at, node in leaders.items() if node is None or node.isEmpty()),
                    readable=operations is None or operations.isEmpty() or bool(operations.contains(read)),
                )
        return described

    def _offsets(
        self, topic_partitions: Iterable[tuple[str, int]], which: str, isolation: str
    ) -> dict[tuple[str, int], int]:
        """Return the ``earliest`` or ``latest`` offsets; with read_committed, latest is the last stable offset."""
        admin = self.jvm.org.apache.kafka.clients.admin
        spec = getattr(admin.OffsetSpec, which)()
        level = self.jvm.org.apache.kafka.common.IsolationLevel.valueOf(isolation.upper())
        asked = self.jvm.java.util.HashMap()
        for topic, partition in topic_partitions:
            asked.put(self.jvm.org.apache.kafka.common.TopicPartition(topic, partition), spec)
        if asked.isEmpty():
            return {}
        with as_sentence(self.kafka):
            offsets = self.admin.listOffsets(asked, admin.ListOffsetsOptions(level)).all().get()
            pairs = ((entry.getKey(), entry.getValue()) for entry in offsets.entrySet())
            return {
                (str(topic_partition.topic()), int(topic_partition.partition())): int(info.offset())
                for topic_partition, info in pairs
            }


@dataclass(frozen=True)
class _Topic:
    topic_id: str
    partitions: tuple[int, ...]
    leaderless: frozenset[int]
    readable: bool


def _partitions_to_read(described: Mapping[str, _Topic], progress: TopicProgress) -> dict[tuple[str, int], str]:
    """Return the partitions with a leader of topics that can be read, with the topics' ids.

    Raises UsageError: the brokers have no ids of topics.
    """
    wanted: dict[tuple[str, int], str] = {}
    for name, topic in described.items():
        if topic.topic_id == _NO_ID:
            raise UsageError(f"The brokers have no id for topic {name}: Afterlog reads topics from Kafka 2.8 on.")
        if topic.leaderless:
            log.warning("%s of topic %s: no leader, so nothing is read there now.", _partitions(topic.leaderless), name)
        if topic.readable and (not topic.leaderless or topic.topic_id in progress.followed):
            wanted |= {(name, at): topic.topic_id for at in topic.partitions if at not in topic.leaderless}
    return wanted


def _partitions(numbers: Iterable[int]) -> str:
    shown = ", ".join(map(str, sorted(numbers)))
    return f"Partition{'s' if ',' in shown else ''} {shown}"
