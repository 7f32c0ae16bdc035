"""Dead letters and acknowledgements -> lines that land."""

from __future__ import annotations

import json
import random
from collections.abc import Iterable, Iterator
from zlib import crc32

from bench.scenarios.deaths import DeadLetter, Incident
from bench.scenarios.errors import BELOW, Consumer, filled
from bench.scenarios.topics import Topic
from pipelines.commands.generated_letters import (
    DRAFT,
    SHARE,
    STREAMS,
    WITH_HEADERS,
    Error,
    Fact,
    captured_line,
    headers_of,
    in_base64,
    iso,
)

MOST_TOLD = 6_000
"""Messages that producers tell of around an incident."""


def _acknowledgement(
    topic: str, partition: int, offset: int, at: int, client: str, headers: Iterable[tuple[str, str]] = ()
) -> str:
    shown = [{"key": name, "value": in_base64(value.encode())} for name, value in headers]
    fields = {"topic": topic, "partition": partition, "offset": offset, "timestamp": at, "serializedKeySize": 8}
    fields |= {"serializedValueSize": 40, "exception": None, "headers": shown}
    fields |= {"acknowledged_at": at + 4, "client_id": client}
    return json.dumps(fields, separators=(",", ":"))


def line_of(letter: DeadLetter, topic: Topic, package: str) -> str:
    """Return a dead letter in the capture form; ``package`` is that of the application's classes."""
    consumer, source = letter.incident.consumer, letter.source
    users = source.headers if consumer.profile in WITH_HEADERS else ()
    headers = [*((name, value.encode()) for name, value in users), *_headers(letter, topic, package)]
    payload = (source.key, source.value) if consumer.copied else (None, None)
    coordinate = consumer.dlq_topic, letter.partition, letter.offset
    return captured_line(*coordinate, letter.at, consumer.timestamp_type, payload, headers)


def _headers(letter: DeadLetter, topic: Topic, package: str) -> list[tuple[str, bytes]]:
    """Return the headers that the consumer's profile adds, in its order."""
    r, consumer, source, error = topic.random, letter.incident.consumer, letter.source, letter.incident.error
    facts: dict[str, Fact] = {"original_topic": topic.name, "original_partition": source.partition}
    facts |= {"original_offset": source.offset, "original_timestamp": source.written_at, "routed_at": iso(letter.at)}
    facts |= {"consumer_group": consumer.name, "connector_name": consumer.name, "task_id": source.partition % 3}
    if consumer.profile == SHARE:
        facts["delivery_count"] = r.randrange(1, consumer.limit + 1) if error.is_rejection else consumer.limit
    elif consumer.profile != DRAFT:
        message = filled(error.message, r, ("ord", "inv", "cust")[crc32(str(error).encode()) % 3])
        facts["error_message"] = message
        facts["exception_stacktrace"] = _stacktrace(consumer, error, message, r, package)
        facts["exception_cause_class"] = error.exception if consumer.has_header_of_cause else None
        if consumer.profile == STREAMS:
            facts["exception_class"] = f"{error.exception}: {message}"
    return headers_of(consumer.profile, error, facts)


def _stacktrace(consumer: Consumer, error: Error, message: str, r: random.Random, package: str) -> str:
    """Return a stack trace; what is below the application's frame differs between records."""
    reflection = r.choice(
        (
            f"java.base/jdk.internal.reflect.GeneratedMethodAccessor{r.randrange(20, 90)}.invoke(Unknown Source)",
            "java.base/jdk.internal.reflect.DirectMethodHandleAccessor.invoke(DirectMethodHandleAccessor.java:103)",
        )
    )
    own = (error.frame, f"{package}.Application.handle(Application.java:31)") if error.frame else ()
    frames = (*error.above, *own, reflection, *BELOW[consumer.profile])
    return "\n\tat ".join((f"{error.exception}: {message}", *frames))


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
