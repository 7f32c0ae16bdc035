"""seed -> landing files: realistic dead-letter traffic of every header profile, with a ledger of the truth about it.

The truth of a batch assumes that one run lands all of its files. Then every line is accepted, quarantined with the
codes that the ledger lists, or a duplicate. The same arguments give the same bytes.
"""

from __future__ import annotations

import errno
import json
import math
import random
import struct
from base64 import b64encode
from collections import Counter, deque
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from hashlib import sha256
from itertools import cycle
from pathlib import Path
from typing import IO, Any

from expectations import rules
from pipelines.errors import EnvironmentLacking, UsageError

START = int(datetime(2026, 11, 18, tzinfo=UTC).timestamp()) * 1000
FIRST_SPAN = 3 * 24 * 3_600_000  # ms of traffic in batch 0
NEXT_SPAN = 3_600_000  # ms of traffic in each later batch
SEGMENT = 300_000
LINES_PER_FILE = 100_000
CHUNK = 1_000
REDELIVERED_SHARE = 0.006
CONFLICT_EVERY = 6  # one redelivered record in so many has other content under the same coordinates
CONFLICT = ("grain.conflict",)

OFFSET, TIMESTAMP = b"\0offset\0", b"\0timestamp\0"  # placeholders in templates for values that differ by record


@dataclass(frozen=True, eq=False)
class Failure:
    """Why a record is dead-lettered: a disposition for share groups, an exception for all others."""

    message: str
    disposition: str | None = None
    deliveries: int = 1
    exception: str = ""


@dataclass(frozen=True, eq=False)
class Flow:
    """Records that one consumer dead-letters; the last failure is the systemic one, which incidents show."""

    profile: str
    dlq_topic: str
    dlq_partitions: int
    topic: str
    partitions: int
    group: str
    failures: tuple[Failure, ...]
    weight: int = 1
    copied: bool = True
    timestamp_type: int = 0


REJECTED = Failure("Offset rejected by client.", "CLIENT_REJECTED")


def _exhausted(limit: int) -> Failure:
    return Failure("Offset delivery count exceeded the threshold.", "MAX_DELIVERY_ATTEMPTS_REACHED", limit)


def _draft(*dispositions: str) -> tuple[Failure, ...]:
    return tuple(Failure("", disposition) for disposition in dispositions)


def _thrown(*failures: tuple[str, str]) -> tuple[Failure, ...]:
    return tuple(Failure(message, exception=exception) for exception, message in failures)


# fmt: off
FLOWS = (
    Flow("kip-1191", "dlq.orders", 3, "orders", 6, "orders-workers", (REJECTED, REJECTED, _exhausted(3)), 26),
    Flow("kip-1191", "dlq.orders", 3, "orders", 6, "fraud-workers", (REJECTED, _exhausted(3)), 12),
    Flow("kip-1191", "dlq.billing", 2, "orders", 6, "billing-workers", (REJECTED, _exhausted(2)), 14, copied=False),
    Flow("kip-1191", "dlq.shipping", 1, "shipments", 4, "shipping-workers", (REJECTED, _exhausted(5)), 8),
    Flow("kip-1191", "dlq.audit", 1, "shipments", 4, "audit-workers", (_exhausted(2),), 4, timestamp_type=1),
    Flow("kip-1317", "dlq.payments", 3, "payments", 6, "payments-workers", _draft(
        *["CLIENT_REJECTED"] * 12, "CIRCUIT_BREAKER_ARCHIVED", "COORDINATOR_INITIATED",
        *["MAX_DELIVERY_ATTEMPTS_REACHED"] * 6), 10),
    Flow("kip-1317", "dlq.refunds", 1, "refunds", 3, "refunds-workers",
         _draft("CLIENT_REJECTED", "MAX_DELIVERY_ATTEMPTS_REACHED"), 4),
    Flow("kafka-streams", "enrichment-dlq", 2, "clicks", 4, "enrichment", _thrown(
        ("org.apache.kafka.common.errors.SerializationException", "Unknown magic byte!"),
        ("java.lang.NullPointerException", "Cannot read field \"country\" because \"visit\" is null"),
        ("org.apache.kafka.streams.errors.StreamsException", "State store sessions is not open")), 8),
    Flow("kafka-connect", "dlq-warehouse-sink", 1, "invoices", 3, "connect-warehouse-sink", _thrown(
        ("org.apache.kafka.connect.errors.DataException", "Converting byte[] to Kafka Connect data failed"),
        ("org.apache.kafka.connect.errors.DataException", "Field amount is required and has no value"),
        ("org.apache.kafka.connect.errors.ConnectException", "Connection to the warehouse was refused")), 7),
    Flow("spring-kafka", "inventory-dlt", 3, "inventory", 3, "inventory-service", _thrown(
        ("com.example.StockBelowZeroException", "Listener failed; stock is below zero"),
        ("com.example.UnknownWarehouseException", "Listener failed; unknown warehouse"),
        ("java.net.SocketTimeoutException", "Listener failed; read timed out")), 7),
)
SECOND_HOP = Flow("kip-1191", "dlq.second-hop", 1, "dlq.orders", 3, "dlq-cleaner", (REJECTED,))
SELF_LOOP = Flow("kip-1191", "dlq.loop", 1, "dlq.loop", 1, "loop-workers", (REJECTED,))
# fmt: on
COPYING = tuple(flow for flow in FLOWS if flow.profile == "kip-1191" and flow.copied)
KEEPING_HEADERS = tuple(flow for flow in FLOWS if not flow.profile.startswith("kip-"))  # share groups drop user headers
SHARE = ("kip-1191", "kip-1317")

PREFIXES = {
    "kip-1191": "__dlq.errors.",
    "kip-1317": "_dlq.errors.",
    "kafka-streams": "__streams.errors.",
    "kafka-connect": "__connect.errors.",
    "spring-kafka": "kafka_dlt-",
}
PROFILES = tuple(PREFIXES)


def _base64(value: bytes) -> str:
    return b64encode(value).decode()


COLLIDING = f'{{"key":"_dlq.errors.disposition","value":"{_base64(b"written by a user")}"}},'


def _headers(flow: Flow, partition: int, failure: Failure) -> dict[str, bytes]:
    """Return the headers that the flow's writer writes, in its order; names lack the profile's prefix."""
    topic, group, message = flow.topic.encode(), flow.group.encode(), failure.message.encode()
    number, exception = str(partition).encode(), failure.exception.encode()
    stacktrace = exception + b": " + message + b"\n\tat com.example.Task.run(Task.java:42)"
    if flow.profile == "kip-1191":
        deliveries = str(failure.deliveries).encode()
        headers = {"topic": topic, "partition": number, "offset": OFFSET, "group": group}
        return {**headers, "delivery.count": deliveries, "message": message}
    if flow.profile == "kip-1317":
        origin = {"original.topic": topic, "original.partition": number, "original.offset": OFFSET}
        disposition = (failure.disposition or "").encode()
        return {"disposition": disposition, **origin, "original.consumer.group": group, "timestamp": TIMESTAMP}
    if flow.profile == "kafka-streams":
        thrown = {"exception": exception, "stacktrace": stacktrace, "message": message}
        return {**thrown, "topic": topic, "partition": number, "offset": OFFSET}
    if flow.profile == "kafka-connect":
        origin = {"topic": topic, "partition": number, "offset": OFFSET}
        task = {"connector.name": b"warehouse-sink", "task.id": b"0", "stage": b"VALUE_CONVERTER"}
        thrown = {"exception.class.name": exception, "exception.message": message, "exception.stacktrace": stacktrace}
        return {**origin, **task, "class.name": b"org.apache.kafka.connect.json.JsonConverter", **thrown}
    origin = {"original-topic": topic, "original-partition": struct.pack(">i", partition), "original-offset": OFFSET}
    time = {"original-timestamp": TIMESTAMP, "original-timestamp-type": b"CreateTime"}
    thrown = {"exception-fqcn": exception, "exception-message": message, "exception-stacktrace": stacktrace}
    return {**origin, **time, "original-consumer-group": group, **thrown}


def _offset_bytes(profile: str, offset: int) -> bytes:
    return struct.pack(">q", offset) if profile == "spring-kafka" else b"%d" % offset


def _timestamp_bytes(profile: str, at: int) -> bytes:
    """Return when a kip-1317 broker routed the record; for spring-kafka, when the original was produced."""
    if profile == "spring-kafka":
        return struct.pack(">q", at - 1500)
    return f"{datetime.fromtimestamp(at // 1000, UTC):%Y-%m-%dT%H:%M:%S}.{at % 1000:03}Z".encode()


@dataclass(frozen=True)
class Defect:
    """One way in which a record is bad, and the codes that its row must get.

    ``values`` replace those of the named headers (None: the header is absent). ``spoil`` turns a line into a bad one.
    """

    name: str
    profiles: tuple[str, ...]
    violations: tuple[str, ...]
    values: tuple[tuple[str, bytes | None], ...] = ()
    spoil: Callable[[str], str] | None = None


# The header of each role by profile, as in _headers.
ROLES = {
    "topic": {
        "kip-1191": "topic",
        "kip-1317": "original.topic",
        "kafka-streams": "topic",
        "kafka-connect": "topic",
        "spring-kafka": "original-topic",
    },
    "partition": {
        "kip-1191": "partition",
        "kip-1317": "original.partition",
        "kafka-streams": "partition",
        "kafka-connect": "partition",
        "spring-kafka": "original-partition",
    },
    "offset": {
        "kip-1191": "offset",
        "kip-1317": "original.offset",
        "kafka-streams": "offset",
        "kafka-connect": "offset",
        "spring-kafka": "original-offset",
    },
    "group": {"kip-1191": "group", "kip-1317": "original.consumer.group"},
    "disposition": {"kip-1317": "disposition"},
    "timestamp": {"kip-1317": "timestamp"},
}
COLUMNS = {
    "topic": "original_topic",
    "partition": "original_partition",
    "offset": "original_offset",
    "group": "consumer_group",
    "disposition": "disposition",
    "timestamp": "routed_at",
}
UNREADABLE = ("error.readable",)
BAD_TEXTS: tuple[tuple[str, str, tuple[bytes, ...]], ...] = (
    ("topic", "legal_topic_name", (b"orders/eu", b"..", b"o" * 250, "bestellungen-ö".encode(), b"orders\0")),
    ("partition", "decimal_int32", (b"-1", b"+1", b" 1", b"1e3", b"2147483648", b"01")),
    ("offset", "decimal_int64", (b"-1", b"7 ", b"0x1f", "\u0663".encode(), b"9223372036854775808", b"5.7")),
    ("group", "", ()),
    ("disposition", "one_of", (b"REJECTED", b"client_rejected")),
    (
        "timestamp",
        "iso_8601_utc",
        (b"2026-11-21T02:00:00", b"2026-11-21T02:00:00+01:00", b"1795228875344", b"yesterday"),
    ),
)


def _defects() -> tuple[Defect, ...]:
    """Return defects for every kind of violation that the contract of silver.dlq_records knows."""
    defects = [
        Defect("no recognised header", PROFILES, ("header_profile.not_null",), spoil=_without_headers),
        Defect("not JSON", PROFILES, UNREADABLE, spoil=lambda line: "java.lang.IllegalStateException: " + line[:60]),
        Defect("cut off", PROFILES, UNREADABLE, spoil=lambda line: line[: len(line) // 2]),
        Defect("not an object", PROFILES, UNREADABLE, spoil=lambda line: f"[{line}]"),
        Defect("not base64", PROFILES, UNREADABLE, spoil=lambda line: line.replace('"value":"', '"value":"%', 1)),
    ]
    for role, rule, texts in BAD_TEXTS:
        column = COLUMNS[role]
        for profile, name in ROLES[role].items():
            is_binary = profile == "spring-kafka" and role in ("partition", "offset")
            values: list[tuple[bytes | None, str]] = [(None, "not_null"), (b"", "not_null")]
            if profile not in SHARE:  # an empty value or -1 says unknown there, which breaks no rule
                values[1] = (b"\0\0", rule) if is_binary else (b"\xff", "utf8")
                texts = tuple(b"-2" if text == b"-1" else text for text in texts)
            if not is_binary:
                values += [(b"\xff\xfe\xc0", "utf8"), *((text, rule) for text in texts)]
            for value, broken in values:
                shown = "absent" if value is None else ascii(value[:20])[1:]
                defects.append(Defect(f"{role} {shown}", (profile,), (f"{column}.{broken}",), ((name, value),)))
    for name, value in (
        ("original-partition", struct.pack(">h", 3)),
        ("original-partition", struct.pack(">i", -2)),
        ("original-offset", struct.pack(">i", 3)),
        ("original-offset", struct.pack(">q", -2)),
    ):
        rule = "decimal_int32" if name.endswith("partition") else "decimal_int64"
        column = name.replace("-", "_")
        defects.append(Defect(f"{name} {value.hex()}", ("spring-kafka",), (f"{column}.{rule}",), ((name, value),)))
    return tuple(defects)


def _without_headers(line: str) -> str:
    return line[: line.index('"headers":')] + '"headers":[]}'


DEFECTS = _defects()


@dataclass(frozen=True)
class Record:
    """One generated line and the truth about it."""

    line: str
    flow: Flow
    dlq_partition: int
    dlq_offset: int
    value: str
    disposition: str | None
    kind: str
    incident: str | None = None
    poison_pill: str | None = None
    defect: Defect | None = None

    @property
    def profile(self) -> str | None:
        """The header profile that the line shows; None if its headers are gone or cannot be read."""
        return None if self.defect and self.defect.spoil else self.flow.profile


@dataclass
class _State:
    """Where a batch ends and the next continues: time, next offsets of DLQ partitions, last offsets of sources."""

    at: int
    first_offset: int
    dlq: dict[tuple[str, int], int]
    source: dict[tuple[str, str, int], int]

    def to_json(self) -> dict[str, Any]:
        """Return the state in the form in which the summary keeps it."""
        dlq = [[*partition, offset] for partition, offset in self.dlq.items()]
        source = [[*partition, offset] for partition, offset in self.source.items()]
        return {"at": self.at, "first_offset": self.first_offset, "dlq": dlq, "source": source}

    @staticmethod
    def of_json(state: dict[str, Any]) -> _State:
        """Return the state from a summary."""
        dlq = {(topic, partition): offset for topic, partition, offset in state["dlq"]}
        source = {(group, topic, partition): offset for group, topic, partition, offset in state["source"]}
        return _State(state["at"], state["first_offset"], dlq, source)


@dataclass(frozen=True)
class Incident:
    """A period in which everything that one group reads fails."""

    name: str
    flow: Flow
    start: int
    end: int


@dataclass
class PoisonPill:
    """One source record that is dead-lettered again each time that somebody replays it."""

    name: str
    flow: Flow
    partition: int
    offset: int
    left: int


class _Traffic:
    """The records of one batch in the order in which they were dead-lettered; endless, as the last moment repeats."""

    def __init__(self, records: int, seed: str, bad_share: float, state: _State, span: int) -> None:
        self.records, self.state, self.start, self.end = records, state, state.at, state.at + span
        self.segment = min(SEGMENT, span // 60)
        self.name = seed.partition("/")[2]
        self.random = random.Random(seed)
        self.bad_share, self.bad_owed = bad_share, self.random.random()
        self.defects = cycle(self.random.sample(DEFECTS, len(DEFECTS)))
        self.mix = [flow for flow in FLOWS for _ in range(flow.weight)]
        self.templates: dict[tuple[Flow, int, Failure], tuple[str, str, str | None]] = {}
        self.to_be_read_again: deque[tuple[int, int, str, str]] = deque(maxlen=500)
        self.pills: list[PoisonPill] = []
        days = max(1, round(span / 86_400_000))
        flows = self.random.sample(FLOWS, days)
        self.incidents = [self._incident(number, flow, span // days) for number, flow in enumerate(flows)]

    def _incident(self, number: int, flow: Flow, day: int) -> Incident:
        length = self.random.randint(3, 11) * self.segment
        start = self.start + number * day + self.random.randrange((day - length) // self.segment) * self.segment
        return Incident(f"incident-{self.name}-{number + 1}", flow, start, start + length)

    def __iter__(self) -> Iterator[Record]:
        for start, length, count, incident in self._segments():
            for position in range(count):
                yield self._next(start + int((position + self.random.random()) * length / count), incident)
        while True:
            yield self._next(self.end - 1, None)

    def _segments(self) -> Iterator[tuple[int, int, int, Incident | None]]:
        """Yield (start, length, records, incident): busy days, quiet nights, bursts, more records in an incident."""
        starts = range(self.start, self.end, self.segment)
        under_way = [next((i for i in self.incidents if i.start <= start < i.end), None) for start in starts]
        weights = [
            (1 - 0.7 * math.cos((start % 86_400_000) / 86_400_000 * math.tau))
            * self.random.lognormvariate(0, 0.7)
            * (6 if incident else 1)
            for start, incident in zip(starts, under_way, strict=True)
        ]
        share, done, total = 0.0, 0, sum(weights)
        for start, incident, weight in zip(starts, under_way, weights, strict=True):
            share += weight / total
            count = round(share * self.records) - done
            done += count
            yield start, self.segment, count, incident

    def _next(self, at: int, incident: Incident | None) -> Record:
        self.bad_owed += self.bad_share
        if self.bad_owed >= 1:
            self.bad_owed -= 1
            return self._bad(at)
        draw = self.random.random()
        if incident and draw < 0.75:
            return self._record(incident.flow, at, "incident", incident.flow.failures[-1], incident=incident.name)
        if draw > 0.985:
            return self._poison(at)
        draw = self.random.random()
        if draw < 0.01 and self.to_be_read_again:
            partition, offset, key, value = self.to_be_read_again.popleft()
            return self._record(SECOND_HOP, at, "second_hop", REJECTED, (partition, offset), (key, value))
        if draw < 0.011:
            offset = self.state.dlq.setdefault((SELF_LOOP.dlq_topic, 0), self.state.first_offset + 1)
            return self._record(SELF_LOOP, at, "self_loop", REJECTED, (0, offset - 1))
        if draw < 0.013:
            flow = self.random.choice(COPYING)
            marker = (self.random.choice(('"AAAAAQ=="', '"AAAAAA=="')), '"AAAAAAAA"')
            return self._record(flow, at, "control_marker", flow.failures[-1], payload=marker)
        if draw < 0.018:
            return self._record(self.random.choice(COPYING), at, "headers_only", REJECTED, payload=("null", "null"))
        if draw < 0.023:
            flow = self.random.choice(KEEPING_HEADERS)
            return self._record(flow, at, "collision", flow.failures[0], user_headers=COLLIDING)
        flow = self.mix[int(self.random.random() * len(self.mix))]
        failures = flow.failures
        ordinary = failures if flow.profile in SHARE else failures[:-1]
        return self._record(flow, at, "ordinary", ordinary[int(self.random.random() * len(ordinary))])

    def _poison(self, at: int) -> Record:
        under_way = [pill for pill in self.pills[-6:] if pill.left]
        if len(under_way) < 3:
            flow = self.random.choice(COPYING)
            partition = self.random.randrange(flow.partitions)
            name = f"poison-pill-{self.name}-{len(self.pills) + 1}"
            offset = self._source_offset(flow, partition, "")
            self.pills.append(PoisonPill(name, flow, partition, offset, self.random.randint(3, 12)))
            under_way.append(self.pills[-1])
        pill = self.random.choice(under_way)
        pill.left -= 1
        source = (pill.partition, pill.offset)
        return self._record(pill.flow, at, "poison_pill", pill.flow.failures[-1], source, poison_pill=pill.name)

    def _source_offset(self, flow: Flow, partition: int, kind: str) -> int:
        """Return the next failing offset: in an incident every record fails, otherwise one in many."""
        log = (flow.group, flow.topic, partition)
        gap = 1 if kind == "incident" else 1 + int(-math.log(1 - self.random.random()) * 40)
        offset = self.state.source.get(log, self.state.first_offset) + gap
        self.state.source[log] = offset
        return offset

    def _dlq_offset(self, flow: Flow, partition: int) -> int:
        log = (flow.dlq_topic, partition)
        offset = self.state.dlq.get(log, self.state.first_offset)
        self.state.dlq[log] = offset + 1
        return offset

    def _record(
        self,
        flow: Flow,
        at: int,
        kind: str,
        failure: Failure,
        source: tuple[int, int] | None = None,
        payload: tuple[str, str] | None = None,
        user_headers: str = "",
        incident: str | None = None,
        poison_pill: str | None = None,
    ) -> Record:
        if source:
            partition, offset = source
        else:
            partition = int(self.random.random() * flow.partitions)
            offset = self._source_offset(flow, partition, kind)
        dlq_partition = partition % flow.dlq_partitions
        dlq_offset = self._dlq_offset(flow, dlq_partition)
        key, value = payload or _payload(flow, partition, offset)
        if flow.dlq_topic == "dlq.orders" and kind == "ordinary":
            self.to_be_read_again.append((dlq_partition, dlq_offset, key, value))
        before, between, after = self._template(flow, partition, failure)
        headers = f"{user_headers}{before}{_base64(_offset_bytes(flow.profile, offset))}{between}"
        if after is not None:
            headers = f"{headers}{_base64(_timestamp_bytes(flow.profile, at))}{after}"
        if flow in KEEPING_HEADERS:
            trace = f"00-{self.random.getrandbits(128):032x}-{self.random.getrandbits(64):016x}-01".encode()
            headers = f'{{"key":"traceparent","value":"{_base64(trace)}"}},{headers}'
        line = _line(flow, dlq_partition, dlq_offset, at, key, value, headers)
        return Record(line, flow, dlq_partition, dlq_offset, value, failure.disposition, kind, incident, poison_pill)

    def _template(self, flow: Flow, partition: int, failure: Failure) -> tuple[str, str, str | None]:
        """Return the headers as JSON, cut at the offset and, for some profiles, at the timestamp."""
        cut = self.templates.get((flow, partition, failure))
        if cut is None:
            before, _, rest = _json_headers(flow, _headers(flow, partition, failure)).partition(_base64(OFFSET))
            between, timestamp, after = rest.partition(_base64(TIMESTAMP))
            cut = self.templates[flow, partition, failure] = (before, between, after if timestamp else None)
        return cut

    def _bad(self, at: int) -> Record:
        defect = next(self.defects)
        flow = self.random.choice([flow for flow in FLOWS if flow.profile in defect.profiles])
        failure = self.random.choice(flow.failures)
        partition = self.random.randrange(flow.partitions)
        offset = self._source_offset(flow, partition, "bad")
        dlq_partition = partition % flow.dlq_partitions
        dlq_offset = self._dlq_offset(flow, dlq_partition)
        moving = {OFFSET: _offset_bytes(flow.profile, offset), TIMESTAMP: _timestamp_bytes(flow.profile, at)}
        good = {name: moving.get(value, value) for name, value in _headers(flow, partition, failure).items()}
        headers = {name: value for name, value in {**good, **dict(defect.values)}.items() if value is not None}
        key, value = _payload(flow, partition, offset)
        line = _line(flow, dlq_partition, dlq_offset, at, key, value, _json_headers(flow, headers))
        line = defect.spoil(line) if defect.spoil else line
        return Record(line, flow, dlq_partition, dlq_offset, value, None, "bad", defect=defect)


def _json_headers(flow: Flow, headers: dict[str, bytes]) -> str:
    prefix = PREFIXES[flow.profile]
    return ",".join(f'{{"key":"{prefix}{name}","value":"{_base64(value)}"}}' for name, value in headers.items())


def _payload(flow: Flow, partition: int, offset: int) -> tuple[str, str]:
    """Return key and value as JSON; the same source record has the same payload everywhere."""
    if not flow.copied:
        return "null", "null"
    number = offset * 6 + partition
    noise = number * 2_654_435_761 & 0xFFFFFFFF
    currency = ("EUR", "USD", "GBP", "JPY")[noise & 3]
    value = (
        f'{{"id":"{number:09}","customer":"c-{noise % 997}","amount":{noise % 99_991 / 100},"currency":"{currency}"}}'
    )
    return f'"{_base64(b"%d" % number)}"', f'"{_base64(value.encode())}"'


def _line(flow: Flow, partition: int, offset: int, at: int, key: str, value: str, headers: str) -> str:
    """Return a record in the capture form: a JSON object with the columns of Spark's Kafka source."""
    return (
        f'{{"topic":"{flow.dlq_topic}","partition":{partition},"offset":{offset},"timestamp":{at},'
        f'"timestampType":{flow.timestamp_type},"key":{key},"value":{value},"headers":[{headers}]}}'
    )


def generate(
    records: int,
    seed: int,
    out: Path,
    *,
    batch: int = 0,
    start_offset: int = 0,
    bad_share: float = 0.01,
    advanced: Callable[[int], None] | None = None,
) -> Truth:
    """Write ``records`` lines below ``out/dlq`` and their truth below ``out/_truth``; return the paths of the truth.

    A batch above 0 continues the offsets and the time of the batch before it in the same directory, and covers an hour.
    ``start_offset`` is the first offset of every DLQ partition in batch 0. ``advanced`` is called from time to time
    with the number of lines added since.

    Raises UsageError: arguments are out of range, or the directory already holds other files or cannot be written.
    Raises EnvironmentLacking: no space is left.
    """
    if records < 1:
        raise UsageError(f"--records is {records}: give 1 or more.")
    if not 0 <= bad_share <= 1:
        raise UsageError(f"The share of bad records is {bad_share}: give a number from 0 to 1.")
    if batch < 0 or start_offset < 0:
        raise UsageError("Batch and start offset are numbers of 0 or more.")
    try:
        state = _state_before(batch, out) or _State(START, start_offset, {}, {})
        redelivered = max(2, round(records * REDELIVERED_SHARE)) if records >= 20 else 0
        span = NEXT_SPAN if batch else FIRST_SPAN
        traffic = _Traffic(records - redelivered, f"{seed}/{batch}", bad_share, state, span)
        return _write(traffic, records, redelivered, out, batch, advanced or (lambda lines: None))
    except OSError as error:
        if error.errno == errno.ENOSPC:
            raise EnvironmentLacking(f"No space is left for generated files in {out}: free some, try again.") from None
        raise UsageError(f"Generated files cannot be kept in {out}: {error.strerror or error}.") from None


@dataclass(frozen=True)
class Truth:
    """The paths of a batch's truth: counts (``summary``) and a line for each generated line (``ledger``).

    Both are below ``_truth``, which landing ignores as it ignores every name that begins with ``_``.
    """

    summary: Path
    ledger: Path

    @staticmethod
    def of(out: Path, batch: int) -> Truth:
        """Return the paths of a batch's truth, which need not exist."""
        return Truth(out / "_truth" / f"batch-{batch:04}.json", out / "_truth" / f"batch-{batch:04}.jsonl")

    def __str__(self) -> str:
        """Say how much was written and where, for the command line."""
        counts = self.counts()
        outcomes = ", ".join(f"{count:,} {outcome}" for outcome, count in counts["outcomes"].items())
        where = self.summary.parent.parent
        lines = f"{rules.counted(counts['records'], 'line')} below {where / 'dlq'}"
        return f"{lines} (expected: {outcomes}); truth in {self.ledger}"

    def as_json(self) -> dict[str, Any]:
        """Return how much was written and where, for machines; the ledger and the summary say the rest."""
        counts = self.counts()
        facts = {name: counts[name] for name in ("records", "outcomes", "from", "to")}
        landed = self.summary.parent.parent / "dlq"
        return facts | {"landed": str(landed), "summary": str(self.summary), "ledger": str(self.ledger)}

    def counts(self) -> dict[str, Any]:
        """Return the summary: counts per outcome, kind, profile and violation, incidents, poison pills, time range."""
        counts = json.loads(self.summary.read_text(encoding="utf-8"))
        assert isinstance(counts, dict)
        return counts

    def lines(self) -> Iterator[dict[str, Any]]:
        """Yield the ledger: file, line, bronze_id, coordinates, profile, kind, defect, outcome, violations ..."""
        with self.ledger.open(encoding="utf-8") as ledger:
            yield from map(json.loads, ledger)


def _state_before(batch: int, out: Path) -> _State | None:
    """Return where the batch before ended, None for batch 0.

    Raises UsageError: the directory holds other files or this batch already, or lacks the batch before.
    """
    if batch == 0:
        landed = out / "dlq"
        if (out / "_truth").exists() or (landed.is_dir() and any(landed.iterdir())):
            raise UsageError(f"{out} holds files already: give an empty directory, or continue with --batch.")
        return None
    if Truth.of(out, batch).summary.exists():
        raise UsageError(f"Batch {batch} is in {out} already: continue with a later one.")
    before = Truth.of(out, batch - 1)
    if not before.summary.exists():
        raise UsageError(f"Batch {batch} continues batch {batch - 1}, which is not in {out}: generate that first.")
    return _State.of_json(before.counts()["state"])


class _Files:
    """The files of a batch: written under temporary names, renamed at the end, the ledger first, the summary last."""

    def __init__(self, out: Path, batch: int) -> None:
        self.landed, self.truth, self.batch = out / "dlq", Truth.of(out, batch), batch
        self.written: list[Path] = []
        self.lines = LINES_PER_FILE
        self.name = ""
        for directory in (self.landed, self.truth.summary.parent):
            directory.mkdir(parents=True, exist_ok=True)
        self.open = ExitStack()
        self.file: IO[bytes]
        self.ledger = self.temporary(self.truth.ledger)

    def temporary(self, path: Path) -> IO[bytes]:
        """Open a file under a temporary name; it gets its own name when the batch is complete."""
        self.written.append(path)
        return self.open.enter_context(path.with_name(path.name + ".tmp").open("wb", buffering=1 << 20))

    def begin(self, name: str) -> None:
        """Open the next landed file and make it the current one."""
        self.name, self.lines = f"batch-{self.batch:04}-{name}.jsonl", 0
        self.file = self.temporary(self.landed / self.name)

    def add(self, line: bytes) -> int:
        """Write a line to the current file; return its number, from 1."""
        self.file.write(line + b"\n")
        self.lines += 1
        return self.lines

    def rename_into_place(self) -> None:
        """Close all files of the batch and give them their own names."""
        self.open.close()
        for path in self.written:
            path.with_name(path.name + ".tmp").rename(path)


def _write(
    traffic: _Traffic, records: int, redelivered: int, out: Path, batch: int, advanced: Callable[[int], None]
) -> Truth:
    """Write traffic, then redeliveries: the same records, or other content under the same coordinates."""
    files = _Files(out, batch)
    tally: Counter[tuple[str | None, ...]] = Counter()
    violations: Counter[str] = Counter()
    again: list[tuple[bytes, Record, str, tuple[str, ...]]] = []

    def add(line: bytes, record: Record, outcome: str, codes: tuple[str, ...]) -> None:
        number = files.add(line)
        files.ledger.write(_entry(files.name, number, line, record, outcome, codes))
        pill = record.poison_pill
        tally[record.profile, record.kind, outcome, record.disposition, record.incident, pill] += 1
        violations.update(codes)
        if number % CHUNK == 0:
            advanced(CHUNK)

    with files.open:
        written, arriving = 0, iter(traffic)
        while written + len(again) < records:
            record = next(arriving)
            if files.lines == LINES_PER_FILE:
                files.begin(f"{written // LINES_PER_FILE:04}")
            line = record.line.encode()
            codes = record.defect.violations if record.defect else ()
            due = len(again) < redelivered and written * redelivered >= len(again) * (records - redelivered)
            conflicting = len(again) % CONFLICT_EVERY == 1
            suits = not record.defect and not (conflicting and record.value == "null")
            if due and suits and written + len(again) + 2 <= records:
                if conflicting:
                    other = record.line.replace(f'"value":{record.value}', '"value":"YW5vdGhlcg=="', 1).encode()
                    stands = _digest(line) < _digest(other)  # the lowest id wins
                    codes, lost = ((), CONFLICT) if stands else (CONFLICT, ())
                    rival = replace(record, kind="conflict")
                    again.append((other, rival, "quarantined" if lost else "accepted", lost))
                else:
                    again.append((line, replace(record, kind="duplicate"), "duplicate", ()))
            add(line, record, "quarantined" if codes else "accepted", codes)
            written += 1
        if again:
            files.begin("redelivered")
            for line, record, outcome, codes in again:
                add(line, record, outcome, codes)
        summary = files.temporary(files.truth.summary)
        summary.write(json.dumps(_summary(traffic, tally, violations), indent=1).encode())
    files.rename_into_place()
    return files.truth


def _digest(line: bytes) -> str:
    return sha256(line).hexdigest()


def _entry(file: str, number: int, line: bytes, record: Record, outcome: str, codes: tuple[str, ...]) -> bytes:
    """Return the ledger's line for a generated line, in JSON; ``disposition`` is what an accepted row shows."""

    def text(value: str | None) -> str:
        return "null" if value is None else f'"{value}"'

    defect = json.dumps(record.defect.name if record.defect else None)
    return (
        f'{{"file":"{file}","line":{number},"bronze_id":"{_digest(line)}","dlq_topic":"{record.flow.dlq_topic}",'
        f'"dlq_partition":{record.dlq_partition},"dlq_offset":{record.dlq_offset},"profile":{text(record.profile)},'
        f'"kind":"{record.kind}","defect":{defect},"outcome":"{outcome}",'
        f'"violations":[{",".join(map(text, codes))}],"disposition":{text(record.disposition)},'
        f'"incident":{text(record.incident)},"poison_pill":{text(record.poison_pill)}}}\n'
    ).encode()


def _summary(traffic: _Traffic, tally: Counter[tuple[str | None, ...]], violations: Counter[str]) -> dict[str, Any]:
    def counted(*places: int, only: str | None = None) -> dict[str, int]:
        counts: Counter[str] = Counter()
        for key, count in tally.items():
            if only in (None, key[2]) and key[places[0]] is not None:
                counts["/".join(str(key[position]) for position in places)] += count
        return dict(sorted(counts.items()))

    incidents, pills = counted(4, only="accepted"), counted(5, only="accepted")
    return {
        "records": tally.total(),
        "from": _iso(traffic.start),
        "to": _iso(traffic.end),
        "outcomes": counted(2),
        "profiles": counted(0, 2),
        "kinds": counted(1, 2),
        "dispositions": counted(3, only="accepted"),
        "violations": dict(sorted(violations.items())),
        "incidents": [
            {
                "name": incident.name,
                "consumer_group": incident.flow.group,
                "dlq_topic": incident.flow.dlq_topic,
                "from": _iso(incident.start),
                "to": _iso(incident.end),
                "records": incidents.get(incident.name, 0),
            }
            for incident in traffic.incidents
        ],
        "poison_pills": [
            {
                "name": pill.name,
                "consumer_group": pill.flow.group,
                "original_topic": pill.flow.topic,
                "original_partition": pill.partition,
                "original_offset": pill.offset,
                "records": pills.get(pill.name, 0),
            }
            for pill in traffic.pills
        ],
        "state": traffic.state.to_json() | {"at": traffic.end},
    }


def _iso(at: int) -> str:
    return _timestamp_bytes("kip-1317", at).decode()
