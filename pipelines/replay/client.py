"""Settings of a cluster -> clients of librdkafka, and what they tell of topics.

Replays need a transactional producer that starts fast and without a JVM; docs/decisions/0062 says why, and 0051 in what
librdkafka differs from Kafka's own clients.
"""

from __future__ import annotations

import os
import re
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future
from concurrent.futures import TimeoutError as Unanswered
from dataclasses import dataclass
from typing import Any, Literal, TypeVar

from confluent_kafka import Consumer, IsolationLevel, KafkaError, KafkaException, TopicCollection, TopicPartition
from confluent_kafka.admin import AclOperation, AdminClient, ConfigResource, OffsetSpec, ResourceType  # type: ignore[attr-defined]

from pipelines.errors import AfterlogError, EnvironmentLacking, UsageError
from pipelines.kafka.errors import describing_refused, probed, tls_failed, unanswered, user_refused
from pipelines.kafka.records import GROUP_PREFIX
from pipelines.replay.properties import NAMES, OF_CONSUMERS, properties, timeout_of
from pipelines.settings import Settings

Isolation = Literal["read_committed", "read_uncommitted"]
T = TypeVar("T")

_HOPELESS = {KafkaError._AUTHENTICATION, KafkaError._SSL, KafkaError._RESOLVE}  # no client gets through after these
_HOPELESS_SECONDS = 3.0
_REFUSED = {KafkaError.TOPIC_AUTHORIZATION_FAILED, KafkaError.CLUSTER_AUTHORIZATION_FAILED}
_GONE = {KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC, KafkaError._UNKNOWN_PARTITION}
_PASSING = {
    *(KafkaError.LEADER_NOT_AVAILABLE, KafkaError.NOT_LEADER_FOR_PARTITION, KafkaError.OFFSET_NOT_AVAILABLE),
    *(KafkaError.FENCED_LEADER_EPOCH, KafkaError.UNKNOWN_LEADER_EPOCH, KafkaError.REPLICA_NOT_AVAILABLE),
    *(KafkaError._TRANSPORT, KafkaError.NETWORK_EXCEPTION, KafkaError.COORDINATOR_LOAD_IN_PROGRESS),
}
_CONFIGS = ("max.message.bytes", "cleanup.policy", "errors.deadletterqueue.group.enable")


class Answers:
    """What librdkafka tells in callbacks, and the deadline of requests.

    librdkafka reports a refused login, a bad certificate or an unknown host by its error callback only; the request
    itself waits until it times out.
    """

    def __init__(self, settings: Settings) -> None:
        """Take the settings of the cluster."""
        self.kafka = settings.kafka
        self.seconds = timeout_of(self.kafka)
        self._heard: deque[KafkaError] = deque(maxlen=20)
        self._first: float | None = None
        self._lock = threading.Lock()

    def heard(self, error: KafkaError) -> None:
        """Keep an error; librdkafka calls this."""
        with self._lock:
            self._heard.append(error)
            if error.code() in _HOPELESS and self._first is None:
                self._first = time.monotonic()

    def connected(self) -> None:
        """Forget errors from before: a request was answered."""
        with self._lock:
            self._heard.clear()
            self._first = None

    @property
    def hopeless(self) -> bool:
        """Tell whether waiting longer is of no use."""
        with self._lock:
            return self._first is not None and time.monotonic() - self._first > min(_HOPELESS_SECONDS, self.seconds / 2)

    def of(self, future: Future[T], poll: Callable[[float], Any]) -> T:
        """Return a future's result; raises KafkaException or, if no answer comes in time, AfterlogError."""
        deadline = time.monotonic() + self.seconds + 1.0
        while True:
            try:
                result = future.result(timeout=0.05)
            except Unanswered:
                poll(0)
                if self.hopeless or time.monotonic() > deadline:
                    raise self.sentence(None) from None
            else:
                self.connected()
                return result

    def sentence(self, error: KafkaError | None) -> AfterlogError:
        """Return one sentence about a request that failed (None: it was not answered), given what was heard."""
        with self._lock:
            heard = list(self._heard)
        codes = {failure.code() for failure in heard} | ({error.code()} if error is not None else set())
        text = "\n".join(str(failure.str()) for failure in [*heard, *([error] if error is not None else [])])
        servers = self.kafka.bootstrap_servers
        if KafkaError.CLUSTER_AUTHORIZATION_FAILED in codes:
            return describing_refused(self.kafka)
        if error is not None and error.code() not in _WAITED:
            return EnvironmentLacking(f"The brokers at {servers} refuse a request of a replay ({error.name()}).")
        if probe_error := probed(self.kafka):
            return probe_error
        if codes & {KafkaError._AUTHENTICATION, KafkaError.SASL_AUTHENTICATION_FAILED}:
            return user_refused(self.kafka)
        if KafkaError._SSL in codes:
            return tls_failed(self.kafka, text)
        if KafkaError._RESOLVE in codes:
            return EnvironmentLacking(
                f"A host that bootstrap_servers or the brokers name cannot be resolved ({servers}): fix it."
            )
        return unanswered(self.kafka, self.seconds)


_WAITED = {
    *(KafkaError._TIMED_OUT, KafkaError._TIMED_OUT_QUEUE, KafkaError._MSG_TIMED_OUT, KafkaError.REQUEST_TIMED_OUT),
    *(KafkaError._TRANSPORT, KafkaError._ALL_BROKERS_DOWN, KafkaError._WAIT_COORD, KafkaError._RESOLVE),
    *(KafkaError._SSL, KafkaError._AUTHENTICATION, KafkaError.SASL_AUTHENTICATION_FAILED, KafkaError._DESTROY),
    *(KafkaError._BAD_MSG, KafkaError.NETWORK_EXCEPTION, KafkaError._NOENT),
    *_PASSING,
}


@dataclass(frozen=True)
class Admin:
    """An admin client with what it was told; make one with `admin`."""

    client: AdminClient
    answers: Answers

    def of(self, future: Future[T]) -> T:
        """Return a request's answer; raises KafkaException: the broker refuses it. AfterlogError: no answer."""
        return self.answers.of(future, self.client.poll)

    def all_of(self, ask: Callable[[], Mapping[Any, Future[T]]], *passing: int) -> dict[Any, T | KafkaError]:
        """Ask, and return each answer or refusal; ask again while some answers pass, such as that of a new leader."""
        deadline = time.monotonic() + self.answers.seconds
        while True:
            answers: dict[Any, T | KafkaError] = {}
            for key, future in ask().items():
                try:
                    answers[key] = self.of(future)
                except KafkaException as error:
                    answers[key] = error.args[0]
            refusals = [refusal for refusal in answers.values() if isinstance(refusal, KafkaError)]
            if not any(refusal.code() in _PASSING for refusal in refusals) or time.monotonic() > deadline:
                return answers
            time.sleep(0.1)


@dataclass(frozen=True)
class Topic:
    """A topic of a cluster; what Afterlog is not allowed to know, or a broker does not have, is None.

    ``topic_id`` is written as Kafka writes it. ``ends`` are high watermarks, ``starts`` the first offsets that are
    still there; both are None if a partition has no leader. ``may_read`` and ``may_write`` are False if an ACL is
    missing, None if the cluster does not tell.
    """

    name: str
    topic_id: str | None = None
    partitions: int = 0
    ends: tuple[int, ...] | None = None
    starts: tuple[int, ...] | None = None
    max_message_bytes: int | None = None
    cleanup_policy: str | None = None
    is_dead_letter_topic: bool | None = None
    may_read: bool | None = None
    may_write: bool | None = None

    @property
    def is_compacted(self) -> bool | None:
        """Whether the topic keeps only the last record of each key; None if it is not known."""
        return None if self.cleanup_policy is None else "compact" in self.cleanup_policy.split(",")


def admin(settings: Settings) -> Admin:
    """Return the process's admin client for the settings' cluster; it connects with its first request.

    It lives until the process ends. The collector of garbage can run in a thread of librdkafka, and librdkafka aborts
    the process if an admin client is destroyed there.

    Raises UsageError: the settings cannot be used.
    """
    options = properties(settings.kafka)
    key = os.getpid(), timeout_of(settings.kafka), *sorted((name, str(value)) for name, value in options.items())
    with _KEEPING:
        if key not in _KEPT:
            answers = Answers(settings)
            made = made_of(settings, lambda given: AdminClient(given | {"error_cb": answers.heard}))
            _KEPT[key] = Admin(made, answers)
        return _KEPT[key]


def consumer(
    settings: Settings, isolation: Isolation, options: Mapping[str, Any] | None = None, answers: Answers | None = None
) -> Consumer:
    """Return a consumer to which partitions are assigned; it commits no offsets. Close it.

    It tells the end of a partition as the error _PARTITION_EOF. For offsets that are gone it reads on from the first
    offset that is there.

    Raises UsageError: the settings cannot be used.
    """
    answers = answers or Answers(settings)
    own: dict[str, Any] = {
        "group.id": f"{GROUP_PREFIX}-replay",  # librdkafka wants one, though nothing is committed
        "enable.auto.commit": False,
        "enable.auto.offset.store": False,
        "auto.offset.reset": "earliest",
        "enable.partition.eof": True,
        "isolation.level": isolation,
        "allow.auto.create.topics": False,
        "queued.max.messages.kbytes": 32 << 10,
        "fetch.wait.max.ms": 50,  # so long the end of a partition takes to be told
        "error_cb": answers.heard,
    }
    return made_of(settings, lambda given: Consumer(given | own | dict(options or {})), of_consumer=True)


def made_of(settings: Settings, make: Callable[[dict[str, Any]], T], *, of_consumer: bool = False) -> T:
    """Make a client of the settings' properties; raises UsageError: librdkafka does not take them."""
    if not settings.kafka.bootstrap_servers:
        raise UsageError("No cluster is set: set bootstrap_servers under [kafka].")
    try:
        return make(properties(settings.kafka, of_consumer=of_consumer))
    except (KafkaException, ValueError, TypeError) as error:
        # The message can quote a value; a property's name in quotes cannot be one.
        known = set(NAMES.values()) | set(OF_CONSUMERS.values()) | {"sasl.mechanism", "ssl.ca.location"}
        property_name = next((name for name in re.findall(r"[a-z.]+", str(error)) if name in known), None)
        which = f" ({property_name})" if property_name else ""
        raise UsageError(f"Kafka's client cannot use the settings of [kafka]{which}: fix them.") from None


def cluster_id(admin: Admin) -> str:
    """Return the cluster's id; raises AfterlogError: the cluster does not answer."""
    try:
        return str(admin.of(admin.client.describe_cluster()).cluster_id or "")
    except KafkaException as error:
        raise admin.answers.sentence(error.args[0]) from None


_KEPT: dict[tuple[object, ...], Admin] = {}
_KEEPING = threading.Lock()


def describe(admin: Admin, topics: Iterable[str]) -> dict[str, Topic]:
    """Return topics by name, without those that do not exist.

    A topic that ACLs hide is there without its id: the cluster does not tell whether it exists.

    Raises AfterlogError: the cluster does not answer.
    """
    names = sorted({name for name in topics if re.fullmatch(r"[A-Za-z0-9._-]{1,249}", name)})
    if not names:
        return {}
    client = admin.client
    described = admin.all_of(lambda: client.describe_topics(TopicCollection(names), include_authorized_operations=True))
    by_name = {}
    for name, answer in described.items():
        if isinstance(answer, KafkaError):
            if answer.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED:
                by_name[name] = Topic(name, may_read=False, may_write=False)
            elif answer.code() not in _GONE:
                raise admin.answers.sentence(answer)
            continue
        operations = answer.authorized_operations
        by_name[name] = Topic(
            name=name,
            topic_id=_as_java(str(answer.topic_id)),
            partitions=len(answer.partitions),
            may_read=AclOperation.READ in operations if operations else None,
            may_write=AclOperation.WRITE in operations if operations else None,
        )
    seen = [topic for topic in by_name.values() if topic.topic_id is not None]
    partitions = [(topic.name, partition) for topic in seen for partition in range(topic.partitions)]
    starts, ends = offsets(admin, partitions, "earliest"), offsets(admin, partitions, "latest")
    configured = _configs(admin, [topic.name for topic in seen])
    for topic in seen:
        enabled = configured.get(topic.name, {})
        of_topic = [(topic.name, partition) for partition in range(topic.partitions)]
        size, dead_letters = enabled.get("max.message.bytes"), enabled.get("errors.deadletterqueue.group.enable")
        by_name[topic.name] = Topic(
            name=topic.name,
            topic_id=topic.topic_id,
            partitions=topic.partitions,
            ends=tuple(ends[topic_partition] for topic_partition in of_topic)
            if all(topic_partition in ends for topic_partition in of_topic)
            else None,
            starts=tuple(starts[topic_partition] for topic_partition in of_topic)
            if all(topic_partition in starts for topic_partition in of_topic)
            else None,
            max_message_bytes=int(size) if size is not None else None,
            cleanup_policy=enabled.get("cleanup.policy"),
            is_dead_letter_topic=dead_letters == "true" if dead_letters is not None else None,
            may_read=topic.may_read,
            may_write=topic.may_write,
        )
    return by_name


def offsets(
    admin: Admin,
    partitions: Iterable[tuple[str, int]],
    which: Literal["earliest", "latest"],
    isolation: Isolation = "read_uncommitted",
) -> dict[tuple[str, int], int]:
    """Return offsets by topic and partition; with read_committed, latest is the last stable offset.

    Partitions that are gone, hidden, or have no leader are left out.

    Raises AfterlogError: the cluster does not answer.
    """
    spec = (OffsetSpec.earliest if which == "earliest" else OffsetSpec.latest)()  # type: ignore[no-untyped-call]
    return _offsets(admin, partitions, spec, isolation)


def offsets_at(admin: Admin, partitions: Iterable[tuple[str, int]], millis: int) -> dict[tuple[str, int], int]:
    """Return, by topic and partition, the first offset whose record has a time or a later one; -1 if there is none.

    Partitions that are gone, hidden, or have no leader are left out.

    Raises AfterlogError: the cluster does not answer.
    """
    spec = OffsetSpec.for_timestamp(millis)
    return _offsets(admin, partitions, spec, "read_uncommitted")


def _offsets(
    admin: Admin, partitions: Iterable[tuple[str, int]], spec: OffsetSpec, isolation: Isolation
) -> dict[tuple[str, int], int]:
    asked = {TopicPartition(topic, partition): spec for topic, partition in partitions}
    if not asked:
        return {}
    level = IsolationLevel.READ_COMMITTED if isolation == "read_committed" else IsolationLevel.READ_UNCOMMITTED
    answers = admin.all_of(lambda: admin.client.list_offsets(asked, isolation_level=level))
    by_partition = {}
    for topic_partition, answer in answers.items():
        if not isinstance(answer, KafkaError):
            by_partition[(topic_partition.topic, topic_partition.partition)] = answer.offset
        elif answer.code() in _WAITED - _PASSING - {KafkaError._NOENT}:
            raise admin.answers.sentence(answer)
    return by_partition


def _configs(admin: Admin, topics: list[str]) -> dict[str, dict[str, str]]:
    """Return configurations by topic, without topics whose configuration Afterlog is not allowed to describe."""
    if not topics:
        return {}
    asked = [ConfigResource(ResourceType.TOPIC, name) for name in topics]
    configurations: dict[str, dict[str, str]] = {}
    for resource, answer in admin.all_of(lambda: admin.client.describe_configs(asked)).items():
        if isinstance(answer, KafkaError):
            if answer.code() not in _REFUSED | _GONE:
                raise admin.answers.sentence(answer)
            continue
        values = {name: answer[name].value for name in _CONFIGS if name in answer and answer[name].value is not None}
        if "cleanup.policy" in values:
            values["cleanup.policy"] = ",".join(sorted(part.strip() for part in values["cleanup.policy"].split(",")))
        configurations[resource.name] = values
    return configurations


def _as_java(topic_id: str) -> str | None:
    """Return a topic id as Kafka writes it: librdkafka uses the plain alphabet of Base64."""
    written = topic_id.replace("+", "-").replace("/", "_").rstrip("=")
    return None if set(written) <= {"A"} else written
