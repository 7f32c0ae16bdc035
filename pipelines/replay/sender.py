"""Planned records -> records on their targets, in transactions of one producer."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Self

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from pipelines.errors import AfterlogError, EnvironmentLacking, UsageError, WriterBusy
from pipelines.replay.client import Answers, Topic, made_of
from pipelines.replay.model import (
    ATTEMPT,
    ORIGINAL,
    PLAN,
    PREFIX,
    RECORD,
    TIMESTAMP,
    Headers,
    Plan,
    PlannedRecord,
    Replayed,
    bytes_of,
)
from pipelines.settings import Settings

TRANSACTIONAL_IDS = "afterlog-replay-"
TRANSACTION_SECONDS = 60.0  # after so long the coordinator aborts a transaction that nobody ends
_ATTEMPTS = 5
_CLOSING_SECONDS = 5.0
_ANY = -1  # the partition that the partitioner chooses
_BATCH_BYTES = 1_000_000  # as librdkafka's default
_UNKNOWN_BATCH_BYTES = 16_384  # as the default of Kafka's own producer, if the topic's limit is not known
_FENCED = {
    *(KafkaError._FENCED, KafkaError.PRODUCER_FENCED, KafkaError.INVALID_PRODUCER_EPOCH),
    KafkaError.INVALID_PRODUCER_ID_MAPPING,
}
_FINAL = {
    *(KafkaError.MSG_SIZE_TOO_LARGE, KafkaError.INVALID_MSG_SIZE, KafkaError.RECORD_LIST_TOO_LARGE),
    *(KafkaError.INVALID_RECORD, KafkaError.POLICY_VIOLATION, KafkaError.TOPIC_AUTHORIZATION_FAILED),
    *(KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC, KafkaError._UNKNOWN_PARTITION),
    *(KafkaError._MSG_TIMED_OUT, KafkaError.INVALID_TIMESTAMP, KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED),
}


class Fenced(WriterBusy):
    """Another process took over the plan."""


class Sender:
    """The producer of one plan: what it sends is committed batch by batch, once.

    Its transactional id is that of the plan, so a later sender of the same plan fences it.
    """

    def __init__(self, settings: Settings, plan: Plan, topics: Mapping[str, Topic]) -> None:
        """Make a producer for the plan's targets; raises UsageError: the settings cannot be used."""
        self._plan = plan
        self._answers = Answers(settings)
        self.transactional_id = f"{TRANSACTIONAL_IDS}{plan.plan_id}"
        limits = [topics[target.topic].max_message_bytes or _UNKNOWN_BATCH_BYTES for target in plan.targets]
        millis = round(TRANSACTION_SECONDS * 1000)
        own: dict[str, Any] = {
            "transactional.id": self.transactional_id,
            "transaction.timeout.ms": millis,
            "delivery.timeout.ms": millis,
            "acks": "all",
            "enable.idempotence": True,
            "partitioner": "murmur2_random",  # as Kafka's own producer places keys
            "linger.ms": 5,
            # A broker refuses a batch above the topic's max.message.bytes, and librdkafka does not split it. A record
            # that is larger on its own goes to the broker, which knows what it takes.
            "batch.size": min(_BATCH_BYTES, *limits),
            "message.max.bytes": 1_000_000_000,
            "allow.auto.create.topics": False,
            "error_cb": self._answers.heard,
        }

        def producer(options: dict[str, Any]) -> Producer:
            patience = min(int(options.get("socket.timeout.ms", millis)), millis)  # librdkafka wants it so
            return Producer(options | own | {"socket.timeout.ms": patience})

        self._producer = made_of(settings, producer)
        self._is_settled = True  # no transaction is open, as far as is known

    def __enter__(self) -> Self:
        """Return the sender."""
        return self

    def __exit__(self, *_: object) -> None:
        """End the producer; a transaction that is open is aborted, now or later, by the next run or the brokers."""
        if not self._is_settled:
            with contextlib.suppress(KafkaException):
                self._producer.abort_transaction(min(_CLOSING_SECONDS, self._answers.seconds))
        self._producer.purge()  # its method close would wait for the brokers, however long they stay away
        # Nothing else may hold the producer: it must end here, and not when and where garbage is collected.
        del self._producer

    def initialise(self) -> None:
        """Fence other senders of the plan, and end their last transaction.

        Raises AfterlogError: the cluster does not answer, or Afterlog is not allowed to use the transactional id.
        """
        try:
            self._persistently("init_transactions")
        except KafkaException as raised:
            raise self._fatal(raised.args[0], 0.0) from None

    def send(self, records: Sequence[PlannedRecord]) -> list[Replayed]:
        """Produce records in one transaction, commit it, and return where they stand.

        Raises Fenced: another process took over the plan. NotCommitted: the transaction was aborted, and trying it
        again is of no use. AfterlogError: the cluster does not tell whether the records were committed.
        """
        for attempt in range(1, _ATTEMPTS + 1):
            began = time.monotonic()
            batch = _Batch(records)
            try:
                self._begin()
                self._produce(batch)
                self._commit(batch)
                return batch.replayed()
            except KafkaException as raised:
                error: KafkaError = raised.args[0]
                if error.fatal() or error.code() in _FENCED:
                    raise self._fatal(error, time.monotonic() - began) from None
                self._abort()
                cause = batch.refusal or error
                if attempt == _ATTEMPTS or cause.code() in _FINAL:
                    raise NotCommitted(self._refused(cause, batch)) from None
                time.sleep(0.2 * attempt)
        raise AssertionError

    def _begin(self) -> None:
        self._producer.begin_transaction()
        self._is_settled = False

    def _produce(self, batch: _Batch) -> None:
        for record in batch.records:
            while True:
                try:
                    self._producer.produce(
                        record.topic,
                        key=record.key,
                        value=record.value,
                        headers=list(headers_of(self._plan, record)),
                        partition=_ANY if record.partition is None else record.partition,
                        on_delivery=batch.delivered(record),
                    )
                    break
                except BufferError:
                    self._producer.poll(0.1)
                except KafkaException as raised:
                    batch.refused = batch.refused or (record, raised.args[0])
                    raise

    def _commit(self, batch: _Batch) -> None:
        """Commit; an error that the client may pass is tried again until the transaction times out."""
        self._persistently("commit_transaction", batch)
        self._is_settled = True

    def _abort(self) -> None:
        try:
            self._persistently("abort_transaction")
            self._is_settled = True
        except KafkaException as raised:
            raise self._fatal(raised.args[0], 0.0) from None

    def _persistently(self, call: str, batch: _Batch | None = None) -> None:
        """Call a method of the producer, again while the error is one that passes.

        Raises KafkaException: the transaction must be aborted, or the producer cannot go on. AfterlogError: it did not
        pass in time.
        """
        patience = TRANSACTION_SECONDS if batch is not None else self._answers.seconds
        deadline = time.monotonic() + patience
        while True:
            try:
                getattr(self._producer, call)(min(1.0, self._answers.seconds))
                self._answers.connected()
                return
            except KafkaException as raised:
                error: KafkaError = raised.args[0]
                if batch is None and not error.fatal():
                    refused = self._not_allowed(error)
                    if refused is not None:
                        raise refused from None
                if error.fatal() or error.txn_requires_abort() or error.code() in _FENCED:
                    raise
                if not error.retriable() and error.code() != KafkaError._TIMED_OUT:
                    raise
                if time.monotonic() > deadline or self._answers.hopeless:
                    if batch is not None:
                        raise EnvironmentLacking(
                            f"The brokers at {self._answers.kafka.bootstrap_servers} do not say whether the last batch "
                            "was committed: run the plan again, which learns it from the target."
                        ) from None
                    raise self._answers.sentence(error) from None

    def _not_allowed(self, error: KafkaError) -> AfterlogError | None:
        if error.code() == KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED:
            return UsageError(
                f"Afterlog is not allowed to use the transactional id {self.transactional_id}: grant it the operation "
                f"Write on transactional ids that begin with {TRANSACTIONAL_IDS}."
            )
        if error.code() == KafkaError.CLUSTER_AUTHORIZATION_FAILED:
            return UsageError(
                "Afterlog is not allowed to produce idempotently: grant it the operation Write on the targets, and on "
                "brokers before 2.8 also IdempotentWrite on the cluster."
            )
        if error.code() == KafkaError.INVALID_TRANSACTION_TIMEOUT:
            return UsageError(
                f"The brokers refuse transactions of {TRANSACTION_SECONDS:.0f} s: raise transaction.max.timeout.ms."
            )
        return None

    def _fatal(self, error: KafkaError, seconds: float) -> AfterlogError:
        if error.code() in _FENCED:
            if seconds > TRANSACTION_SECONDS / 2:
                return EnvironmentLacking(
                    f"A batch took {seconds:.0f} s, and the brokers ended its transaction: run the plan again, with a "
                    "smaller --batch."
                )
            return Fenced(f"Another process took over plan {self._plan.plan_id} and goes on with it.")
        if (refused := self._not_allowed(error)) is not None:
            return refused
        return EnvironmentLacking(
            f"Kafka's producer cannot go on ({error.name()}): run the plan again, which learns from the target what "
            "was committed."
        )

    def _refused(self, error: KafkaError, batch: _Batch) -> AfterlogError:
        """Return one sentence about a record, or a batch, that the brokers do not take."""
        record = batch.refused[0] if batch.refused else batch.records[0]
        code = error.code()
        if code in (KafkaError.MSG_SIZE_TOO_LARGE, KafkaError.INVALID_MSG_SIZE):
            return UsageError(
                f"Topic {record.topic} does not take dead letter {record.letter.coordinate}, which has "
                f"{size_of(record):,} bytes: raise its max.message.bytes, or make a plan without it."
            )
        if code == KafkaError.TOPIC_AUTHORIZATION_FAILED:
            return UsageError(
                f"Afterlog is not allowed to write topic {record.topic}: grant it the operation Write there."
            )
        if code in (KafkaError._UNKNOWN_PARTITION, KafkaError._UNKNOWN_TOPIC, KafkaError.UNKNOWN_TOPIC_OR_PART):
            return UsageError(
                f"Topic {record.topic}, or its partition {record.partition}, is gone: make a new plan."
                if record.partition is not None
                else f"Topic {record.topic} is gone: make a new plan."
            )
        if code == KafkaError.INVALID_RECORD:
            return UsageError(
                f"Topic {record.topic} does not take dead letter {record.letter.coordinate} (the brokers call it "
                "invalid; a compacted topic takes no record without a key): make a plan without it."
            )
        if code in (KafkaError._MSG_TIMED_OUT, KafkaError._TIMED_OUT, KafkaError._TRANSPORT):
            return self._answers.sentence(error)
        return EnvironmentLacking(
            f"The brokers do not take dead letter {record.letter.coordinate} on topic {record.topic} ({error.name()})."
        )


class NotCommitted(AfterlogError):
    """A batch whose transaction was aborted; ``why`` is the error for the user."""

    def __init__(self, why: AfterlogError) -> None:
        """Take the error for the user."""
        super().__init__(str(why))
        self.why = why


class _Batch:
    """Records of one transaction, and what the brokers answered."""

    def __init__(self, records: Sequence[PlannedRecord]) -> None:
        self.records = records
        self.refused: tuple[PlannedRecord, KafkaError] | None = None
        self._replayed: dict[int, Replayed] = {}

    @property
    def refusal(self) -> KafkaError | None:
        """The first error of a record, but for those that only follow from another one."""
        return self.refused[1] if self.refused else None

    def delivered(self, record: PlannedRecord) -> Callable[[KafkaError | None, Message], None]:
        """Return what librdkafka calls with the record's coordinate, or why it has none."""

        def on_delivery(error: KafkaError | None, message: Message) -> None:
            if error is None:
                _, timestamp = message.timestamp()
                self._replayed[record.position] = Replayed(
                    record, message.partition() or 0, message.offset() or 0, timestamp
                )
            elif self.refused is None and error.code() not in (KafkaError._PURGE_QUEUE, KafkaError._PURGE_INFLIGHT):
                self.refused = (record, error)

        return on_delivery

    def replayed(self) -> list[Replayed]:
        """Return where each record stands."""
        return [self._replayed[record.position] for record in self.records]


def headers_of(plan: Plan, record: PlannedRecord) -> Headers:
    """Return the headers of a record as it is produced: its own, without those of older replays, and the replay's."""
    own = tuple(header for header in record.headers if not header[0].startswith(PREFIX))
    added = {
        PLAN: plan.plan_id,
        RECORD: record.letter.coordinate,
        ATTEMPT: str(record.attempt),
        ORIGINAL: record.origin.coordinate,
        TIMESTAMP: None if record.origin.timestamp is None else str(record.origin.timestamp),
    }
    return own + tuple((name, bytes_of(value)) for name, value in added.items() if value is not None)


def size_of(record: PlannedRecord) -> int:
    """Return the bytes of a record's key, value and headers."""
    headers = sum(len(name.encode()) + len(value or b"") for name, value in record.headers)
    return len(record.key or b"") + len(record.value or b"") + headers
