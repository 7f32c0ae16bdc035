"""kafka-clients 4.4 in a JVM of its own, driven from Python: clients for the demo and tests.

Spark's connector brings another version of the same library, so this code never runs in a Spark session's JVM.
"""

from __future__ import annotations

import base64
import contextlib
import json
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from types import TracebackType
from typing import Any, Literal, Self

from py4j.java_gateway import GatewayParameters  # type: ignore[import-untyped]
from py4j.protocol import Py4JJavaError, Py4JNetworkError  # type: ignore[import-untyped]

from expectations.rules import counted
from pipelines.errors import EnvironmentLacking
from pipelines.jvm import clients, jars, launch

Headers = Sequence[tuple[str, bytes | None]]

_DESCRIBED_SECONDS = 30
_EXPIRY_SECONDS = 1.2  # how long after the end of its lock a record with Action.EXPIRE is still held
_TIMESTAMP_TYPES = {"CREATE_TIME": 0, "LOG_APPEND_TIME": 1}


class KafkaFailure(EnvironmentLacking):
    """A broker or a Java client refused something; ``reason`` is the simple name of Kafka's exception."""

    def __init__(self, reason: str, message: str | None) -> None:
        """Take the name and the text of the exception."""
        super().__init__(f"Kafka answers {reason}: {message}" if message else f"Kafka answers {reason}.")
        self.reason = reason


class Action(StrEnum):
    """What a share consumer does with a record; EXPIRE accepts it only after its acquisition lock has expired."""

    ACCEPT = "ACCEPT"
    REJECT = "REJECT"
    RELEASE = "RELEASE"
    EXPIRE = "EXPIRE"


@dataclass(frozen=True)
class Message:
    """A message to produce; without a partition or a timestamp (ms) the producer chooses it."""

    value: bytes | None
    key: bytes | None = None
    headers: Headers = ()
    partition: int | None = None
    timestamp: int | None = None


@dataclass(frozen=True)
class Record:
    """A consumed record, with every byte and all headers in order; only share groups have a ``delivery_count``."""

    topic: str
    partition: int
    offset: int
    timestamp: int
    timestamp_type: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]
    delivery_count: int | None = None


@dataclass(frozen=True)
class Delivery:
    """A record that a share consumer received, and what the consumer did with it."""

    record: Record
    action: Action


class KafkaClient:
    """Clients of one cluster; their JVM ends with `close`, with the context or with this process.

    ``options`` are settings of every Java client made here (security, timeouts). With ``beside`` it uses the JVM of
    another KafkaClient.
    """

    def __init__(
        self, bootstrap_servers: str, options: Mapping[str, str] | None = None, *, beside: KafkaClient | None = None
    ) -> None:
        """Start the JVM; raises EnvironmentLacking: no Java or no jars."""
        self.bootstrap_servers = bootstrap_servers
        self._options = {"bootstrap.servers": bootstrap_servers, **(options or {})}
        self._owns = beside is None
        self._gateway: Any = beside._gateway if beside else _launch()
        self._admin: Any = None
        self.jvm: Any = self._gateway.jvm
        self.json: Any = beside.json if beside else clients.json_mapper(self.jvm)

    def __enter__(self) -> Self:
        """Return this client."""
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        """Close this client."""
        self.close()

    def close(self) -> None:
        """Close the admin client, and end the JVM if this client started it."""
        with contextlib.suppress(Py4JNetworkError):
            if self._admin:
                self._admin.close(self._seconds(5))
                self._admin = None
        if self._owns:
            launch.end(self._gateway, self._gateway.java_process)

    # Topics, groups, users

    def create_topic(
        self, name: str, partitions: int = 1, settings: Mapping[str, str] | None = None, *, replicas: int = 1
    ) -> None:
        """Create a topic, and wait until the brokers describe it with all leaders.

        Raises KafkaFailure with reason TopicExistsException: it exists already.
        """
        with clear():
            topic = self.jvm.org.apache.kafka.clients.admin.NewTopic(name, partitions, replicas)
            created = self.admin.createTopics([topic.configs(dict(settings or {}))]).topicId(name).get()
        until = time.monotonic() + _DESCRIBED_SECONDS
        while not self._has_leaders(name, created, partitions):
            if time.monotonic() > until:
                raise KafkaFailure("TimeoutException", f"Nobody leads topic {name} after {_DESCRIBED_SECONDS} s.")
            time.sleep(0.05)

    def _has_leaders(self, topic: str, topic_id: Any, partitions: int) -> bool:
        """Tell whether the brokers know a new topic and a leader of each partition, which may take a moment."""
        try:
            with clear():
                described = self._described(topic)
                if not described.topicId().equals(topic_id):  # that of an earlier topic of the name
                    return False
                known = list(described.partitions())
                return len(known) == partitions and all(
                    partition.leader() and not partition.leader().isEmpty() for partition in known
                )
        except KafkaFailure as failure:
            if failure.reason == "UnknownTopicOrPartitionException":
                return False
            raise

    def topic_id(self, name: str) -> str:
        """Return the id of a topic, as Kafka writes it."""
        with clear():
            return str(self._described(name).topicId().toString())

    def _described(self, topic: str) -> Any:
        return self.admin.describeTopics([topic]).allTopicNames().get().get(topic)

    def configure(
        self, kind: Literal["TOPIC", "GROUP", "BROKER", "BROKER_LOGGER"], name: str, settings: Mapping[str, str]
    ) -> None:
        """Set configurations of a topic, a group, a broker or a broker's loggers; other configurations stay."""
        admin = self.jvm.org.apache.kafka.clients.admin
        config = self.jvm.org.apache.kafka.common.config.ConfigResource
        with clear():
            set_to = admin.AlterConfigOp.OpType.SET
            changes = [admin.AlterConfigOp(admin.ConfigEntry(*pair), set_to) for pair in settings.items()]
            resource = config(config.Type.valueOf(kind), name)
            self.admin.incrementalAlterConfigs({resource: changes}).all().get()

    def dead_letter(
        self,
        group: str,
        topic: str,
        *,
        copy: bool = True,
        limit: int | None = None,
        lock_ms: int | None = None,
        committed: bool = False,
    ) -> None:
        """Let a share group read from the beginning and dead-letter to a topic, with or without the record's payload.

        ``limit`` is the delivery count limit. ``lock_ms`` is how long a delivered record stays locked. ``committed``
        hides aborted records from the group.
        """
        settings = {
            "share.auto.offset.reset": "earliest",
            "share.isolation.level": "read_committed" if committed else "read_uncommitted",
            "errors.deadletterqueue.topic.name": topic,
            "errors.deadletterqueue.copy.record.enable": "true" if copy else "false",
        }
        settings |= {} if limit is None else {"share.delivery.count.limit": str(limit)}
        settings |= {} if lock_ms is None else {"share.record.lock.duration.ms": str(lock_ms)}
        self.configure("GROUP", group, settings)

    def create_dead_letter_topic(
        self, name: str, partitions: int = 1, settings: Mapping[str, str] | None = None
    ) -> None:
        """Create a topic that groups may dead-letter to."""
        self.create_topic(name, partitions, {"errors.deadletterqueue.group.enable": "true", **(settings or {})})

    def log_requests(self, switch: bool = True) -> None:
        """Switch the brokers' request log on or off."""
        with clear():
            nodes = [node.idString() for node in self.admin.describeCluster().nodes().get().toArray()]
        for node in nodes:
            self.configure("BROKER_LOGGER", node, {"kafka.request.logger": "DEBUG" if switch else "WARN"})

    # Producing

    def produce(
        self, topic: str, messages: Iterable[Message], options: Mapping[str, str] | None = None
    ) -> list[tuple[int, int]]:
        """Produce messages, wait for their acknowledgements and return the partition and offset of each message."""
        with self._producer(options or {}) as producer:
            return self._send(producer, topic, messages)

    @contextlib.contextmanager
    def _producer(self, options: Mapping[str, str]) -> Iterator[Any]:
        with clear():
            serializer = self.jvm.org.apache.kafka.common.serialization.ByteArraySerializer
            producer = self.jvm.org.apache.kafka.clients.producer.KafkaProducer(
                {**self._options, **options}, serializer(), serializer()
            )
        try:
            yield producer
        finally:
            producer.close(self._seconds(10))

    def _send(self, producer: Any, topic: str, messages: Iterable[Message]) -> list[tuple[int, int]]:
        with clear():
            promised = [producer.send(self._outgoing(topic, message)) for message in messages]
            producer.flush()
            kept = [promise.get() for promise in promised]
            return [(metadata.partition(), metadata.offset()) for metadata in kept]

    def _outgoing(self, topic: str, message: Message) -> Any:
        headers = self.jvm.org.apache.kafka.common.header.internals.RecordHeaders()
        for name, value in message.headers:
            headers.add(name, value)
        return self.jvm.org.apache.kafka.clients.producer.ProducerRecord(
            topic, message.partition, message.timestamp, message.key, message.value, headers
        )

    # Consuming

    def read(
        self, topic: str, *, expected: int = 0, committed: bool = False, timeout_seconds: float = 30.0
    ) -> list[Record]:
        """Return all records of a topic by partition and offset, as soon as there are ``expected`` records.

        Raises KafkaFailure TimeoutException: the topic has fewer records when the time is up.
        """
        until = time.monotonic() + timeout_seconds
        while True:
            records = self._read(topic, committed, until)
            if len(records) >= expected:
                return sorted(records, key=lambda record: (record.partition, record.offset))
            if time.monotonic() > until:
                message = (
                    f"{topic} has {counted(len(records), 'record')} after {timeout_seconds:.0f} s, not {expected}."
                )
                raise KafkaFailure("TimeoutException", message)
            time.sleep(0.2)

    def _read(self, topic: str, committed: bool, until: float) -> list[Record]:
        """Read a topic from its beginning to its present end."""
        records: list[Record] = []
        isolation = {"isolation.level": "read_committed" if committed else "read_uncommitted"}
        with clear(), self._consumer("KafkaConsumer", isolation) as consumer:
            common = self.jvm.org.apache.kafka.common
            numbers = [information.partition() for information in consumer.partitionsFor(topic) or ()]
            partitions = [common.TopicPartition(topic, number) for number in numbers]
            if not partitions:
                return []
            consumer.assign(partitions)
            consumer.seekToBeginning(partitions)
            ends = consumer.endOffsets(partitions)
            behind = [(partition, ends[partition]) for partition in partitions]
            while behind and time.monotonic() < until:
                records += [record for record, _ in self._records(consumer.poll(self._seconds(0.2)))]
                behind = [(partition, end) for partition, end in behind if consumer.position(partition) < end]
        return records

    def share(
        self,
        group: str,
        topics: Sequence[str],
        decide: Callable[[Record], Action],
        *,
        expected: int | None = None,
        quiet_seconds: float = 3.0,
        timeout_seconds: float = 60.0,
        options: Mapping[str, str] | None = None,
    ) -> list[Delivery]:
        """Consume topics as a member of a share group, and do with each record what ``decide`` returns.

        Ends after ``expected`` deliveries. Without ``expected`` it ends when no delivery has come for
        ``quiet_seconds``.

        Raises KafkaFailure TimeoutException: there were fewer deliveries when the time is up.
        """
        done: list[Delivery] = []
        began = last = time.monotonic()
        settings = {"group.id": group, "share.acknowledgement.mode": "explicit", **(options or {})}
        with clear(), self._consumer("KafkaShareConsumer", settings) as consumer:
            consumer.subscribe(list(topics))
            while expected is None or len(done) < expected:
                records = self._records(consumer.poll(self._seconds(0.3)))
                if records:
                    deliveries = [Delivery(record, decide(record)) for record, _ in records]
                    self._acknowledge(
                        consumer, [delivery.action for delivery in deliveries], [origin for _, origin in records]
                    )
                    done += deliveries
                    last = time.monotonic()
                elif expected is None and done and time.monotonic() - last > quiet_seconds:
                    break
                elif time.monotonic() - began > timeout_seconds:
                    got = counted(len(done), "delivery")
                    message = f"{group} got {got} in {timeout_seconds:.0f} s, not {expected or 'any'}."
                    raise KafkaFailure("TimeoutException", message)
        return done

    def _acknowledge(self, consumer: Any, actions: Sequence[Action], origins: Sequence[Any]) -> None:
        types = self.jvm.org.apache.kafka.clients.consumer.AcknowledgeType
        if Action.EXPIRE in actions:
            lock = consumer.acquisitionLockTimeoutMs()
            expires = time.monotonic() + (lock.get() if lock.isPresent() else 30_000) / 1000 + _EXPIRY_SECONDS
        for action, origin in zip(actions, origins, strict=True):
            if action is not Action.EXPIRE:
                consumer.acknowledge(origin, types.valueOf(action.value))
        if Action.EXPIRE in actions:
            if set(actions) != {Action.EXPIRE}:  # else this would also release locks of transaction markers
                consumer.commitAsync()
            time.sleep(max(0.0, expires - time.monotonic()))
            for action, origin in zip(actions, origins, strict=True):
                if action is Action.EXPIRE:  # a consumer must acknowledge every record before it can poll again
                    consumer.acknowledge(origin, types.ACCEPT)
        consumer.commitSync(self._seconds(10))

    @contextlib.contextmanager
    def _consumer(self, kind: str, settings: Mapping[str, str]) -> Iterator[Any]:
        deserializer = self.jvm.org.apache.kafka.common.serialization.ByteArrayDeserializer
        made = getattr(self.jvm.org.apache.kafka.clients.consumer, kind)
        consumer = made({**self._options, **settings}, deserializer(), deserializer())
        try:
            yield consumer
        finally:
            consumer.close()

    def _records(self, polled: Any) -> list[tuple[Record, Any]]:
        """Return polled records, each with its Java record; one call reads all, because a call per field is slow."""
        pairs: list[tuple[Record, Any]] = []
        for partition in polled.partitions():
            origins = polled.records(partition)
            records = [_record(fields) for fields in json.loads(self.json.writeValueAsString(origins))]
            pairs += zip(records, origins, strict=True)
        return pairs

    @property
    def admin(self) -> Any:
        """The Java admin client, for calls that have no method here."""
        if self._admin is None:
            self._admin = self.jvm.org.apache.kafka.clients.admin.Admin.create(self._options)
        return self._admin

    def _seconds(self, seconds: float) -> Any:
        return self.jvm.java.time.Duration.ofMillis(round(seconds * 1000))


def _launch() -> Any:
    """Start a JVM with the broker's jars that ends when this process ends."""
    # Kafka's clients report errors as exceptions; their log would repeat them.
    options = launch.options(*launch.LIGHT, "-Dorg.apache.logging.log4j.level=OFF", heap="256m")
    # Ctrl-C must reach only this process, which then ends the JVM.
    port, token, process = launch.gateway(jars.class_path("broker"), options, create_new_process_group=True)
    parameters = GatewayParameters(port=port, auth_token=token, auto_convert=True)
    return clients.Gateway(gateway_parameters=parameters, java_process=process)


def _record(fields: Mapping[str, Any]) -> Record:
    return Record(
        topic=fields["topic"],
        partition=fields["partition"],
        offset=fields["offset"],
        timestamp=fields["timestamp"],
        timestamp_type=_TIMESTAMP_TYPES.get(fields["timestampType"], -1),
        key=_bytes(fields["key"]),
        value=_bytes(fields["value"]),
        headers=tuple(_header(header) for header in fields["headers"]["headers"]),
        delivery_count=fields["deliveryCount"],
    )


def _header(fields: Mapping[str, Any]) -> tuple[str, bytes | None]:
    """Return a header's name and value, which stay in buffers until a consumer asks for them."""
    name = fields["key"]
    if name is None:
        name = base64.b64decode(fields["keyBuffer"]).decode()
    return name, _bytes(fields["value"] if fields["valueBuffer"] is None else fields["valueBuffer"])


def _bytes(text: str | None) -> bytes | None:
    return None if text is None else base64.b64decode(text)


def _interrupt_before(error: BaseException | None) -> BaseException | None:
    """Return the interrupt, such as KeyboardInterrupt, that preceded an error, or None."""
    while isinstance(error, Exception):
        error = error.__context__
    return error


@contextlib.contextmanager
def clear() -> Iterator[None]:
    """Turn a Java exception into an error with Kafka's own message."""
    try:
        yield
    except Py4JJavaError as error:
        if interrupt := _interrupt_before(error):  # a Java client that was interrupted during a call does not close
            raise interrupt from None
        cause = error.java_exception
        while (deeper := cause.getCause()) is not None:
            cause = deeper
        raise KafkaFailure(cause.getClass().getSimpleName(), cause.getMessage()) from None
    except Py4JNetworkError:
        raise EnvironmentLacking("The JVM of Kafka's clients has ended; try again.") from None
