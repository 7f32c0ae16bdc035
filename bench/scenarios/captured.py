"""Dead letters and acknowledgements -> lines that land."""

from __future__ import annotations

import json
import random
import struct
from base64 import b64encode
from collections.abc import Iterable, Iterator
from zlib import crc32

from bench.scenarios.deaths import DeadLetter, Incident
from bench.scenarios.errors import BELOW, CONNECT, DRAFT, SHARE, STREAMS, WITH_HEADERS, Consumer, Error, filled
from bench.scenarios.times import iso
from bench.scenarios.topics import Topic

MOST_TOLD = 6_000
"""Messages that producers tell of around an incident."""


def _acknowledgement(
    topic: str, partition: int, offset: int, at: int, client: str, headers: Iterable[tuple[str, str]] = ()
) -> str:
    fields = {"topic": topic, "partition": partition, "offset": offset, "timestamp": at, "serializedKeySize": 8}
    fields |= {
        "serializedValueSize": 40,
        "exception": None,
        "headers": [{"key": name, "value": _base64(value.encode())} for name, value in headers],
        "acknowledged_at": at + 4,
        "client_id": client,
    }
    return json.dumps(fields, separators=(",", ":"))


def _base64(value: bytes | None) -> str | None:
    return None if value is None else b64encode(value).decode()


def line_of(letter: DeadLetter, topic: Topic, package: str) -> str:
    """Return a dead letter in the capture form; ``package`` is that of the application's classes."""
    consumer, source = letter.incident.consumer, letter.source
    headers: list[tuple[str, bytes]] = []
    if consumer.profile in WITH_HEADERS:
        headers += [(name, value.encode()) for name, value in source.headers]
    headers += _headers(letter, topic, package)
    record = {
        "topic": consumer.dlq_topic,
        "partition": letter.partition,
        "offset": letter.offset,
        "timestamp": letter.at,
        "timestampType": consumer.timestamp_type,
        "key": _base64(source.key if consumer.copied else None),
        "value": _base64(source.value if consumer.copied else None),
        "headers": [{"key": name, "value": _base64(value)} for name, value in headers],
    }
    return json.dumps(record, separators=(",", ":"))


def _headers(letter: DeadLetter, topic: Topic, package: str) -> list[tuple[str, bytes]]:
    """Return the headers that the consumer's profile adds, in its order."""
    r, consumer, source, error = topic.random, letter.incident.consumer, letter.source, letter.incident.error
    partition, offset = source.partition, source.offset
    origin = {"topic": topic.name.encode(), "partition": b"%d" % partition, "offset": b"%d" % offset}
    group = consumer.name.encode()
    if consumer.profile == SHARE:
        deliveries = r.randrange(1, consumer.limit + 1) if error.is_rejection else consumer.limit
        headers = origin | {"group": group, "delivery.count": b"%d" % deliveries, "message": error.message.encode()}
        return [(f"__dlq.errors.{name}", value) for name, value in headers.items()]
    if consumer.profile == DRAFT:
        headers = {"disposition": error.disposition.encode()}
        headers |= {f"original.{name}": value for name, value in origin.items()}
        headers |= {"original.consumer.group": group, "timestamp": iso(letter.at).encode()}
        return [(f"_dlq.errors.{name}", value) for name, value in headers.items()]
    prefix = ("ord", "inv", "cust")[crc32(str(error).encode()) % 3]
    message = filled(error.message, r, prefix)
    stacktrace = _stacktrace(consumer, error, message, r, package)
    if consumer.profile == STREAMS:
        thrown = f"{error.exception}: {message}"
        headers = {"exception": thrown.encode(), "stacktrace": stacktrace, "message": message.encode(), **origin}
        return [(f"__streams.errors.{name}", value) for name, value in headers.items()]
    if consumer.profile == CONNECT:
        headers = origin | {
            "connector.name": group,
            "task.id": b"%d" % (partition % 3),
            "stage": b"VALUE_CONVERTER",
            "class.name": b"org.apache.kafka.connect.json.JsonConverter",
            "exception.class.name": error.exception.encode(),
            "exception.message": message.encode(),
            "exception.stacktrace": stacktrace,
        }
        return [(f"__connect.errors.{name}", value) for name, value in headers.items()]
    headers = {
        "original-topic": topic.name.encode(),
        "original-partition": struct.pack(">i", partition),
        "original-offset": struct.pack(">q", offset),
        "original-timestamp": struct.pack(">q", source.written_at),
        "original-timestamp-type": b"CreateTime",
        "original-consumer-group": group,
        "exception-fqcn": error.exception.encode(),
    }
    if consumer.has_header_of_cause:
        headers["exception-cause-fqcn"] = error.exception.encode()
    headers |= {"exception-message": message.encode(), "exception-stacktrace": stacktrace}
    return [(f"kafka_dlt-{name}", value) for name, value in headers.items()]


def _stacktrace(consumer: Consumer, error: Error, message: str, r: random.Random, package: str) -> bytes:
    """Return a stack trace; what is below the application's frame differs between records."""
    reflection = r.choice(
        (
            f"java.base/jdk.internal.reflect.GeneratedMethodAccessor{r.randrange(20, 90)}.invoke(Unknown Source)",
            "java.base/jdk.internal.reflect.DirectMethodHandleAccessor.invoke(DirectMethodHandleAccessor.java:103)",
        )
    )
    caller = (f"{package}.Application.handle(Application.java:31)",) if error.frame else ()
    own = (error.frame,) if error.frame else ()
    frames = (*error.above, *own, *caller, reflection, *BELOW[consumer.profile])
    return "\n\tat ".join((f"{error.exception}: {message}", *frames)).encode()


def acknowledgements(topic: Topic, main: Incident, tells_all: bool) -> Iterator[str]:
    """Yield what producers were told about the dead records, and about records beside them that went through.

    If producers tell all, these are all records around the main incident, and one beside each other dead record.
    """
    shows = topic.random.random() < 0.5
    around = _around(topic, main) if tells_all else set()
    for partition, number in sorted(around - topic.made.keys()):
        client, at = topic.random.choice(topic.clients), topic.made[min(topic.made)].written_at
        headers = topic.headers(client) if shows else ()
        yield _acknowledgement(topic.name, partition, topic.offset(number), at, client, headers)
    for (partition, number), source in sorted(topic.made.items()):
        coordinate = (topic.name, partition, source.offset, source.written_at)
        yield _acknowledgement(*coordinate, source.client, source.headers if shows else ())
        if (partition, number + 1) not in topic.made.keys() | around:
            client = topic.random.choice(topic.clients)
            headers = topic.headers(client) if shows else ()
            coordinate = (topic.name, partition, topic.offset(number + 1), source.written_at + 1)
            yield _acknowledgement(*coordinate, client, headers)


def _around(topic: Topic, main: Incident) -> set[tuple[int, int]]:
    """Return the records from the first to the last one of the main incident in each partition, if not too many."""
    numbers = {(source.partition, source.offset): number for (_, number), source in topic.made.items()}
    own: dict[int, list[int]] = {}
    for _, source in main.dead:
        own.setdefault(source.partition, []).append(numbers[source.partition, source.offset])
    if sum(max(many) - min(many) + 1 for many in own.values()) > MOST_TOLD:
        return set()
    return {(partition, number) for partition, many in own.items() for number in range(min(many), max(many) + 1)}
