"""An error and the facts about a failure -> a dead letter: the headers of five kinds of writers, and its line.

``afterlog generate`` writes such dead letters, and so do the labelled incidents of the benchmark and the demo's week.
"""

from __future__ import annotations

import struct
from base64 import b64encode
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime

PROFILES = ("kip-1191", "kip-1317", "kafka-streams", "kafka-connect", "spring-kafka")
SHARE, DRAFT, STREAMS, CONNECT, SPRING = PROFILES
SHARE_GROUP = (SHARE, DRAFT)
WITH_HEADERS = (STREAMS, CONNECT, SPRING)
"""Profiles that keep the user's headers. Share groups drop them, and only share groups can leave out the payload."""
_ORIGIN = {"topic": "original_topic", "partition": "original_partition", "offset": "original_offset"}
# fmt: off
_WRITTEN = (
    (SHARE, "__dlq.errors.", {
        **_ORIGIN, "group": "consumer_group", "delivery.count": "delivery_count", "message": "error_message"}),
    (DRAFT, "_dlq.errors.", {
        "disposition": "disposition", "original.topic": "original_topic", "original.partition": "original_partition",
        "original.offset": "original_offset", "original.consumer.group": "consumer_group", "timestamp": "routed_at"}),
    (STREAMS, "__streams.errors.", {
        "exception": "exception_class", "stacktrace": "exception_stacktrace", "message": "error_message", **_ORIGIN}),
    (CONNECT, "__connect.errors.", {
        **_ORIGIN, "connector.name": "connector_name", "task.id": "task_id", "stage": "stage",
        "class.name": "stage_class", "exception.class.name": "exception_class", "exception.message": "error_message",
        "exception.stacktrace": "exception_stacktrace"}),
    (SPRING, "kafka_dlt-", {
        "original-topic": "original_topic", "original-partition": "original_partition",
        "original-offset": "original_offset", "original-timestamp": "original_timestamp",
        "original-timestamp-type": "original_timestamp_type", "original-consumer-group": "consumer_group",
        "exception-fqcn": "exception_class", "exception-cause-fqcn": "exception_cause_class",
        "exception-message": "error_message", "exception-stacktrace": "exception_stacktrace"}),
)
# fmt: on
PREFIXES = {profile: prefix for profile, prefix, _ in _WRITTEN}
HEADERS = {profile: {f"{prefix}{name}": names[name] for name in names} for profile, prefix, names in _WRITTEN}
"""The headers of each profile in its writer's order, and the columns that they fill."""

Payload = tuple[bytes | None, bytes | None]
"""Key and value of a record."""
Fact = str | int | bytes | None
"""What a header says; bytes are written as they are, and a header without a fact is left out."""


@dataclass(frozen=True, eq=False)
class Error:
    """Why records fail. Each record fills the places of the message anew; all else of an error stays the same.

    A share group gives a disposition, after so many deliveries, all others an exception. ``frame`` is the
    application's own in the stack trace, below those ``above``.
    """

    message: str
    exception: str = ""
    disposition: str = ""
    deliveries: int = 1
    above: tuple[str, ...] = ()
    frame: str = ""

    @property
    def is_rejection(self) -> bool:
        """True if the application refused the record."""
        return self.disposition == "CLIENT_REJECTED"

    def __str__(self) -> str:
        """Return class or disposition, message and place, as labels show them."""
        where = f" at {self.frame}" if self.frame else ""
        return f"{self.exception or self.disposition}: {self.message}{where}"


REJECTED = Error("Offset rejected by client.", disposition="CLIENT_REJECTED")
EXHAUSTED = Error("Offset delivery count exceeded the threshold.", disposition="MAX_DELIVERY_ATTEMPTS_REACHED")


def headers_of(profile: str, error: Error, facts: Mapping[str, Fact]) -> list[tuple[str, bytes]]:
    """Return the headers that a writer writes in its order, with facts by columns beside those of the error."""
    known: dict[str, Fact] = {"disposition": error.disposition, "delivery_count": error.deliveries}
    known |= {"error_message": error.message, "exception_class": error.exception, "stage": "VALUE_CONVERTER"}
    known |= {"original_timestamp_type": "CreateTime", "stage_class": "org.apache.kafka.connect.json.JsonConverter"}
    known |= facts
    written = ((name, column, known.get(column)) for name, column in HEADERS[profile].items())
    return [(name, _value(profile, column, fact)) for name, column, fact in written if fact is not None]


def _value(profile: str, column: str, fact: str | int | bytes) -> bytes:
    """Return a header's value; Spring writes numbers in big-endian bytes, all others in digits."""
    if isinstance(fact, str):
        return fact.encode()
    if isinstance(fact, bytes):
        return fact
    return b"%d" % fact if profile != SPRING else struct.pack(">i" if column == "original_partition" else ">q", fact)


def captured_line(
    topic: str,
    partition: int,
    offset: int,
    at: int,
    timestamp_type: int,
    payload: Payload,
    headers: Iterable[tuple[str, bytes]],
) -> str:
    """Return a record in the capture form: a JSON object with the columns of Spark's Kafka source."""
    key, value = ("null" if part is None else f'"{in_base64(part)}"' for part in payload)
    items = ",".join([f'{{"key":"{name}","value":"{in_base64(content)}"}}' for name, content in headers])
    return (
        f'{{"topic":"{topic}","partition":{partition},"offset":{offset},"timestamp":{at},'
        f'"timestampType":{timestamp_type},"key":{key},"value":{value},"headers":[{items}]}}'
    )


def in_base64(value: bytes) -> str:
    """Return bytes in base64."""
    return b64encode(value).decode()


def iso(at: int) -> str:
    """Return a time in ms since 1970 in ISO 8601."""
    return f"{datetime.fromtimestamp(at // 1000, UTC):%Y-%m-%dT%H:%M:%S}.{at % 1000:03}Z"
