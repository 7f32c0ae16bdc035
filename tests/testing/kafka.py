"""What tests ask of a Kafka cluster beyond what the demo needs: removals, partitions, permissions, transactions."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Literal

from py4j.java_gateway import JavaMember  # type: ignore[import-untyped]
from py4j.protocol import STATIC_PREFIX  # type: ignore[import-untyped]

from local.kafka_client import KafkaClient, Message, clear

_SCRAM_ITERATIONS = 4096  # the least that Kafka takes


class KafkaAdmin(KafkaClient):
    """A client that also changes what others have: it removes topics and records, and gives permissions."""

    def delete_topics(self, *names: str) -> None:
        """Delete topics; a topic created later with the same name gets another id."""
        with clear():
            self.admin.deleteTopics(list(names)).all().get()

    def create_partitions(self, topic: str, total: int) -> None:
        """Add partitions to a topic, up to a total."""
        with clear():
            new = self.jvm.org.apache.kafka.clients.admin.NewPartitions.increaseTo(total)
            self.admin.createPartitions({topic: new}).all().get()

    def delete_records(self, topic: str, partition: int, before: int) -> None:
        """Remove the records of a partition before an offset, as retention does."""
        with clear():
            place = self.jvm.org.apache.kafka.common.TopicPartition(topic, partition)
            # Py4J does not find a static method if an instance method has the same name.
            kind = f"{STATIC_PREFIX}org.apache.kafka.clients.admin.RecordsToDelete"
            before_offset = JavaMember("beforeOffset", None, kind, self._gateway._gateway_client)
            self.admin.deleteRecords({place: before_offset(before)}).all().get()

    def leaders(self, topic: str) -> dict[int, int]:
        """Return the node that leads each partition of a topic; -1 if no node leads it."""
        with clear():
            partitions = self._described(topic).partitions()
            return {
                partition.partition(): partition.leader().id() if partition.leader() else -1 for partition in partitions
            }

    def create_user(self, name: str, password: str) -> None:
        """Create a user with a SCRAM-SHA-512 password, or change the user's password."""
        admin = self.jvm.org.apache.kafka.clients.admin
        with clear():
            how = admin.ScramCredentialInfo(admin.ScramMechanism.SCRAM_SHA_512, _SCRAM_ITERATIONS)
            self.admin.alterUserScramCredentials([admin.UserScramCredentialUpsertion(name, how, password)]).all().get()

    def allow(
        self,
        user: str,
        operation: str,
        kind: Literal["TOPIC", "GROUP", "CLUSTER", "TRANSACTIONAL_ID"],
        name: str,
        prefixed: bool = False,
    ) -> None:
        """Allow a user an operation (``READ``, ``DESCRIBE``, ...) on a resource, or on all with this name as prefix."""
        acl, resource = self.jvm.org.apache.kafka.common.acl, self.jvm.org.apache.kafka.common.resource
        with clear():
            pattern = resource.ResourcePattern(
                resource.ResourceType.valueOf(kind),
                name,
                resource.PatternType.PREFIXED if prefixed else resource.PatternType.LITERAL,
            )
            entry = acl.AccessControlEntry(
                f"User:{user}", "*", acl.AclOperation.valueOf(operation), acl.AclPermissionType.ALLOW
            )
            self.admin.createAcls([acl.AclBinding(pattern, entry)]).all().get()

    def disallow(self, user: str, kind: Literal["TOPIC", "GROUP", "CLUSTER", "TRANSACTIONAL_ID"], name: str) -> None:
        """Take all permissions on a resource from a user."""
        acl, resource = self.jvm.org.apache.kafka.common.acl, self.jvm.org.apache.kafka.common.resource
        with clear():
            pattern = resource.ResourcePatternFilter(
                resource.ResourceType.valueOf(kind), name, resource.PatternType.LITERAL
            )
            every = (acl.AclOperation.ANY, acl.AclPermissionType.ANY)
            entries = acl.AccessControlEntryFilter(f"User:{user}", None, *every)
            self.admin.deleteAcls([acl.AclBindingFilter(pattern, entries)]).all().get()

    @contextlib.contextmanager
    def transaction(self, transactional_id: str, options: Mapping[str, str] | None = None) -> Iterator[Transaction]:
        """Yield a transaction; the end of the context commits it unless it has ended, and an error aborts it."""
        with self._producer({"transactional.id": transactional_id, **(options or {})}) as producer:
            with clear():
                producer.initTransactions()
                producer.beginTransaction()
            transaction = Transaction(self, producer)
            try:
                yield transaction
            except BaseException:
                transaction.abort()
                raise
            transaction.commit()


class Transaction:
    """A transaction of one producer; uncommitted reads see its messages as soon as they are sent."""

    def __init__(self, client: KafkaAdmin, producer: Any) -> None:
        """Take over a producer that has begun a transaction."""
        self._client = client
        self._producer = producer
        self._open = True

    def send(self, topic: str, messages: Iterable[Message]) -> list[tuple[int, int]]:
        """Produce messages, wait for their acknowledgements and return the partition and offset of each message."""
        return self._client._send(self._producer, topic, messages)

    def commit(self) -> None:
        """Commit the transaction, unless it has ended."""
        if self._open:
            self._open = False
            with clear():
                self._producer.commitTransaction()

    def abort(self) -> None:
        """Abort the transaction, unless it has ended."""
        if self._open:
            self._open = False
            with clear():
                self._producer.abortTransaction()
