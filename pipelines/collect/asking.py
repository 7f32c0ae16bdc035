"""A Kafka cluster -> what its settings are: of topics, groups and brokers, and its streams groups' topologies.

A right that is refused gives null: unknown is never missing. Only the settings that are named here are kept.
"""

from __future__ import annotations

import base64
import contextlib
import json
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from pipelines import moments
from pipelines.collect import describes
from pipelines.jvm import clients
from pipelines.kafka.cluster import admin_client
from pipelines.kafka.errors import MOST_NAMES, as_sentence, kinds
from pipelines.kafka.properties import properties
from pipelines.settings import Settings
from pipelines.text import first_names

CLUSTER, BROKER, TOPIC, GROUP = "cluster", "broker", "topic", "group"
PRESENT, MISSING, UNKNOWN = "present", "missing", "unknown"

DLQ_TOPIC = "errors.deadletterqueue.topic.name"
OF_BROKERS = (
    "auto.create.topics.enable",
    "default.replication.factor",
    "errors.deadletterqueue.auto.create.topics.enable",
    "errors.deadletterqueue.topic.name.prefix",
    "message.max.bytes",
)
OF_TOPICS = (
    "cleanup.policy",
    "errors.deadletterqueue.group.enable",
    "max.message.bytes",
    "min.insync.replicas",
    "retention.bytes",
    "retention.ms",
)
OF_GROUPS = (
    "errors.deadletterqueue.copy.record.enable",
    DLQ_TOPIC,
    "share.delivery.count.limit",
    "share.isolation.level",
)
FACTS_OF_TOPICS = ("in_sync_replicas", "is_outrun", "partitions", "replicas", "topic_id")
FACTS_OF_GROUPS = ("group_type", "sources")
FACTS_OF_CLUSTERS = ("bootstrap_servers", "cluster_id", "share.version")

DESCRIBE_GROUPS, DESCRIBE_THEIR_TOPICS = "Describe on groups", "Describe on the topics of groups"
AT_ONCE = 200  # resources of one request
_LEGAL_TOPIC = re.compile(r"[A-Za-z0-9._-]{1,249}")
_REFUSED = {"TopicAuthorizationException", "GroupAuthorizationException", "ClusterAuthorizationException"}
_TOO_OLD = {"UnsupportedVersionException", "InvalidRequestException"}
_GONE = {
    *("UnknownTopicOrPartitionException", "UnknownTopicIdException", "InvalidTopicException"),
    *("GroupIdNotFoundException", "InvalidGroupIdException"),
}
_DYNAMIC_GROUP = "DYNAMIC_GROUP_CONFIG"

Value = tuple[str | None, str | None]
"""A setting's value, and the source of it that Kafka names; both null where unknown."""


@dataclass(frozen=True)
class Subject:
    """A topic, group, broker or the cluster: whether it is there, and its settings and facts by name."""

    kind: str
    name: str
    state: str
    values: Mapping[str, Value]

    def value(self, name: str) -> str | None:
        """Return a value, null if it is unknown."""
        return self.values.get(name, (None, None))[0]


@dataclass(frozen=True)
class Described:
    """A streams group as a describe response shows it, in the wire's schema."""

    group: str
    response: Mapping[str, Any]


@dataclass
class Answer:
    """All that a cluster said at one moment, and sentences on what it refused.

    ``newest_at`` is the time of the newest record, in epoch milliseconds, of each DLQ topic that has one.
    """

    asked_at: datetime
    subjects: list[Subject] = field(default_factory=list)
    streams_groups: list[Described] = field(default_factory=list)
    newest_at: dict[str, int] = field(default_factory=dict)
    remarks: list[str] = field(default_factory=list)


def ask(settings: Settings, known: Collection[tuple[str, str]] = (), streams: Collection[str] = ()) -> Answer:
    """Ask the cluster of the settings, also about ``known`` subjects and streams groups that it no longer lists.

    Raises AfterlogError: one sentence about what is wrong with the settings, the jars or the cluster.
    """
    client_properties = properties(settings.kafka)
    with clients.newest() as jvm:
        admin = admin_client(jvm, settings.kafka, client_properties)
        try:
            with as_sentence(settings.kafka):
                return _Asking(settings, jvm, admin).answer(known, streams)
        finally:
            with contextlib.suppress(Exception):  # after Ctrl-C the JVM has perhaps ended
                admin.close(jvm.java.time.Duration.ofSeconds(2))


class _Asking:
    """One round of questions; Java's exceptions pass, but for refusals and what an older broker does not know."""

    def __init__(self, settings: Settings, jvm: Any, admin: Any) -> None:
        self.settings = settings
        self.jvm = jvm
        self.admin = admin
        self.admin_of = jvm.org.apache.kafka.clients.admin
        self.json = clients.json_mapper(jvm)
        self.refused: dict[str, list[str]] = {}

    def answer(self, known: Collection[tuple[str, str]], streams: Collection[str]) -> Answer:
        said = Answer(moments.now())
        said.subjects.append(self.cluster())
        said.subjects += self.brokers({name for kind, name in known if kind == BROKER})
        listed = self.listed_groups()
        groups = self.groups(listed, {name for kind, name in known if kind == GROUP})
        said.subjects += groups
        running = {name for name, type_ in listed.items() if type_ == "STREAMS"}
        said.streams_groups = self.streams_groups({*streams, *running})
        wanted = {name for kind, name in known if kind == TOPIC}
        wanted |= {topic for group in groups for topic in _named_by(group)}
        topics = self.topics(wanted)
        said.subjects += topics
        dlqs = {group.value(DLQ_TOPIC) for group in groups}
        said.newest_at = self.newest_records(
            [topic for topic in topics if topic.name in dlqs and topic.state == PRESENT]
        )
        said.remarks = [_remark(operation, names) for operation, names in sorted(self.refused.items())]
        return said

    def cluster(self) -> Subject:
        described = self.admin.describeCluster()
        values: dict[str, str | None] = dict.fromkeys(FACTS_OF_CLUSTERS)
        values["bootstrap_servers"] = self.settings.kafka.bootstrap_servers
        values["cluster_id"] = str(described.clusterId().get() or "") or None
        features = self._of_older_brokers(lambda: self.admin.describeFeatures().featureMetadata().get())
        if features is not None:
            finalized = self._read(features)["finalizedFeatures"]
            values["share.version"] = str(finalized.get("share.version", {}).get("maxVersionLevel", 0))
        return Subject(CLUSTER, "", PRESENT, _facts(values))

    def brokers(self, known: Iterable[str]) -> list[Subject]:
        nodes = sorted(str(node["id"]) for node in self._read(self.admin.describeCluster().nodes().get()))
        values = self._configs("BROKER", nodes, OF_BROKERS)
        present = [Subject(BROKER, node, PRESENT, values[node]) for node in nodes]
        return present + [Subject(BROKER, name, MISSING, _unknown(OF_BROKERS)) for name in sorted({*known} - {*nodes})]

    def listed_groups(self) -> dict[str, str | None]:
        """Return the type of each group that the cluster lists; it leaves out groups that ACLs hide."""
        listing = self._read(self.admin.listGroups().valid().get())
        return {group["groupId"]: group["type"] for group in listing}

    def groups(self, listed: Mapping[str, str | None], known: Iterable[str]) -> list[Subject]:
        """Return share groups, and groups that have settings of their own."""
        share = {name for name, type_ in listed.items() if type_ == "SHARE"}
        names = sorted({*share, *known, *self._configured_groups()})
        values = self._configs("GROUP", names, OF_GROUPS)
        described = self._described_share_groups(share)
        groups = []
        for name in names:
            own = values[name]
            is_set = any(source == _DYNAMIC_GROUP for _, source in own.values())
            is_unknown = all(value is None for value, _ in own.values())
            state = PRESENT if name in listed or is_set else UNKNOWN if is_unknown else MISSING
            facts: dict[str, str | None] = {"group_type": listed.get(name), "sources": described.get(name)}
            shown = {**own, **_facts(facts)} if state != MISSING else _unknown((*OF_GROUPS, *FACTS_OF_GROUPS))
            groups.append(Subject(GROUP, name, state, shown))
        return groups

    def topics(self, wanted: Iterable[str]) -> list[Subject]:
        names = sorted({*self._read(self.admin.listTopics().names().get()), *wanted})
        legal = [name for name in names if _LEGAL_TOPIC.fullmatch(name)]
        described: dict[str, Mapping[str, Any] | None] = {}
        hidden: set[str] = set()
        for some in _batches(legal):
            futures = self.admin.describeTopics(some).topicNameValues()
            for name in some:
                with self._allowed("Describe on topics", name) as allowed:
                    described[name] = self._if_there(futures[name])
                if not allowed:
                    hidden.add(name)
        there = [name for name, topic in described.items() if topic is not None]
        values = self._configs("TOPIC", there, OF_TOPICS)
        subjects = []
        for name in names:
            topic = described.get(name)
            if topic is not None:
                subjects.append(Subject(TOPIC, name, PRESENT, {**values[name], **_facts(_facts_of(topic))}))
            else:
                state = UNKNOWN if name in hidden else MISSING
                subjects.append(Subject(TOPIC, name, state, _unknown((*OF_TOPICS, *FACTS_OF_TOPICS))))
        return subjects

    def newest_records(self, topics: Iterable[Subject]) -> dict[str, int]:
        """Return the time of the newest record of topics that have one, in epoch milliseconds."""
        newest = self.admin_of.OffsetSpec.maxTimestamp()
        newest_at: dict[str, int] = {}
        for topic in topics:
            partitions = [
                self.jvm.org.apache.kafka.common.TopicPartition(topic.name, at)
                for at in range(int(topic.value("partitions") or 0))
            ]
            with self._allowed("Describe on topics", topic.name):
                futures = self.admin.listOffsets(dict.fromkeys(partitions, newest))
                times = [int(futures.partitionResult(partition).get().timestamp()) for partition in partitions]
                if max(times, default=-1) >= 0:
                    newest_at[topic.name] = max(times)
        return newest_at

    def streams_groups(self, names: Iterable[str]) -> list[Described]:
        """Describe streams groups with their topologies; those that are refused are left out."""
        described = []
        for some in _batches(sorted(names)):
            futures = self._streams_futures(some, descriptions=True)
            for name in some:
                with self._allowed(DESCRIBE_GROUPS, name):
                    response = self._streams_response(name, futures)
                    if response is not None:
                        described.append(Described(name, response))
        return described

    def _streams_futures(self, names: list[str], descriptions: bool) -> Any:
        options = self.admin_of.DescribeStreamsGroupsOptions().includeTopologyDescription(descriptions)
        return self.admin.describeStreamsGroups(names, options).describedGroups()

    def _streams_response(self, name: str, futures: Any) -> dict[str, Any] | None:
        """Return the response about a group, without its topology from brokers that cannot give it."""
        try:
            described = self._if_there(futures[name])
        except Exception as error:
            if not kinds(error) & _TOO_OLD:
                raise
            again = self._streams_futures([name], descriptions=False)
            described = self._of_older_brokers(lambda: self._if_there(again[name]))
            if described is None:
                return None
        return describes.absent(name) if described is None else describes.response(described)

    def _configured_groups(self) -> set[str]:
        """Return the groups that have settings of their own, also those that never had a member."""
        resource = self.jvm.org.apache.kafka.common.config.ConfigResource
        of_groups = self.jvm.java.util.Collections.singleton(resource.Type.valueOf("GROUP"))
        options = self.admin_of.ListConfigResourcesOptions()
        listing: list[Any] = []
        with self._allowed("DescribeConfigs on the cluster", ""):
            asked = lambda: self.admin.listConfigResources(of_groups, options).all().get()  # noqa: E731
            listing = self._read(self._of_older_brokers(asked) or [])
        return {listed["name"] for listed in listing if listed["name"]}

    def _described_share_groups(self, names: Iterable[str]) -> dict[str, str | None]:
        """Return the topics that share groups read, with commas between; null if that is unknown.

        Members tell what they are assigned; the offsets of a group tell what it ever read.
        """
        topics_of: dict[str, str | None] = {}
        for some in _batches(sorted(names)):
            described = self.admin.describeShareGroups(some).describedGroups()
            spec = self.admin_of.ListShareGroupOffsetsSpec()
            offsets = self.admin.listShareGroupOffsets(dict.fromkeys(some, spec))
            for name in some:
                with self._allowed(DESCRIBE_GROUPS, name):
                    group = self._if_there(described[name]) or {"members": []}
                    read = {
                        assigned["topic"]
                        for member in group["members"]
                        for assigned in member["assignment"]["topicPartitions"]
                    }
                    started = self._of_older_brokers(lambda: offsets.partitionsToOffsetInfo(name).get())  # noqa: B023
                    for partition in started or ():
                        read.add(str(partition.topic()))
                    topics_of[name] = ",".join(sorted(read)) or None
        return topics_of

    def _configs(self, kind: str, names: Iterable[str], wanted: Collection[str]) -> dict[str, dict[str, Value]]:
        """Return the wanted settings of resources; those that are refused or that a broker does not know are null."""
        resource = self.jvm.org.apache.kafka.common.config.ConfigResource
        of_kind = resource.Type.valueOf(kind)
        values_of = {}
        for some in _batches(names):
            resources = {name: resource(of_kind, name) for name in some}
            futures = self.admin.describeConfigs(list(resources.values())).values()
            for name, asked in resources.items():
                entries: Mapping[str, Mapping[str, Any]] = {}
                what = "the cluster" if kind == "BROKER" else f"{kind.lower()}s"
                with self._allowed(f"DescribeConfigs on {what}", "" if kind == "BROKER" else name):
                    config = self._of_older_brokers(lambda: futures[asked].get())  # noqa: B023
                    entries = self._read(config)["entries"] if config is not None else {}
                values_of[name] = {
                    setting: (entries[setting]["value"], entries[setting]["source"])
                    if setting in entries
                    else (None, None)
                    for setting in wanted
                }
        return values_of

    def _read(self, java: Any) -> Any:
        """Return a Java object's fields."""
        return json.loads(self.json.writeValueAsString(java))

    def _if_there(self, future: Any) -> Any:
        """Return the fields of what a future gives; None if the cluster does not have it."""
        try:
            return self._read(future.get())
        except Exception as error:
            if kinds(error) & _GONE:
                return None
            raise

    def _of_older_brokers(self, asked: Callable[[], Any]) -> Any:
        """Return the answer, or None if the brokers are too old for the question."""
        try:
            return asked()
        except Exception as error:
            if kinds(error) & _TOO_OLD:
                return None
            raise

    @contextlib.contextmanager
    def _allowed(self, operation: str, name: str) -> Iterator[list[bool]]:
        """Note a refusal instead of raising it; what is yielded is empty after one."""
        passed = [True]
        try:
            yield passed
        except Exception as error:
            refused = kinds(error) & _REFUSED
            if not refused:
                raise
            passed.clear()
            if operation == DESCRIBE_GROUPS and "TopicAuthorizationException" in refused:
                operation = DESCRIBE_THEIR_TOPICS  # a group is described to those only who can see all of its topics
            self.refused.setdefault(operation, []).append(name)


def _facts(values: Mapping[str, str | None]) -> dict[str, Value]:
    return {name: (value, None) for name, value in values.items()}


def _unknown(names: Iterable[str]) -> dict[str, Value]:
    return dict.fromkeys(names, (None, None))


def _facts_of(topic: Mapping[str, Any]) -> dict[str, str | None]:
    """Return what a description of a topic says; of its partitions, the one with the fewest replicas counts."""
    partitions = topic["partitions"]
    return {
        "in_sync_replicas": str(min(len(partition["isr"]) for partition in partitions)),
        "is_outrun": None,
        "partitions": str(len(partitions)),
        "replicas": str(min(len(partition["replicas"]) for partition in partitions)),
        "topic_id": _uuid(topic["topicId"]),
    }


def _uuid(fields: Mapping[str, int]) -> str:
    """Return an id as Kafka writes it."""
    halves = (fields["mostSignificantBits"], fields["leastSignificantBits"])
    octets = b"".join(half.to_bytes(8, "big", signed=True) for half in halves)
    return base64.urlsafe_b64encode(octets).decode().rstrip("=")


def _named_by(group: Subject) -> set[str]:
    """Return the topics that a group's findings depend on."""
    return {*filter(None, [group.value(DLQ_TOPIC), *(group.value("sources") or "").split(",")])}


def _batches(names: Iterable[str]) -> Iterator[list[str]]:
    every = list(names)
    for begin in range(0, len(every), AT_ONCE):
        yield every[begin : begin + AT_ONCE]


def _remark(operation: str, names: list[str]) -> str:
    """Say which right is missing."""
    known = sorted({repr(name) for name in names if name})
    which = f" {first_names(known, MOST_NAMES)}" if known else ""
    return f"Afterlog lacks the right {operation}{which}: what only this right tells stays unknown."
