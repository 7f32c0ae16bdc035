"""A profile, topics and failures -> flows of dead letters, and their headers and lines."""

from __future__ import annotations

import struct
from base64 import b64encode
from dataclasses import dataclass
from datetime import UTC, datetime

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


def in_base64(value: bytes) -> str:
    """Return bytes as JSON has them."""
    return b64encode(value).decode()


COLLIDING = f'{{"key":"_dlq.errors.disposition","value":"{in_base64(b"written by a user")}"}},'


def headers_of(flow: Flow, partition: int, failure: Failure) -> dict[str, bytes]:
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


def offset_bytes(profile: str, offset: int) -> bytes:
    """Return an offset as the profile's writer writes it."""
    return struct.pack(">q", offset) if profile == "spring-kafka" else b"%d" % offset


def timestamp_bytes(profile: str, at: int) -> bytes:
    """Return when a kip-1317 broker routed the record; for spring-kafka, when the original was produced."""
    if profile == "spring-kafka":
        return struct.pack(">q", at - 1500)
    return f"{datetime.fromtimestamp(at // 1000, UTC):%Y-%m-%dT%H:%M:%S}.{at % 1000:03}Z".encode()


def json_headers(flow: Flow, headers: dict[str, bytes]) -> str:
    """Return headers as items of a JSON array; names get the profile's prefix."""
    prefix = PREFIXES[flow.profile]
    return ",".join(f'{{"key":"{prefix}{name}","value":"{in_base64(value)}"}}' for name, value in headers.items())


def payload_of(flow: Flow, partition: int, offset: int) -> tuple[str, str]:
    """Return key and value as JSON; the same source record has the same payload everywhere."""
    if not flow.copied:
        return "null", "null"
    number = offset * 6 + partition
    noise = number * 2_654_435_761 & 0xFFFFFFFF
    currency = ("EUR", "USD", "GBP", "JPY")[noise & 3]
    value = (
        f'{{"id":"{number:09}","customer":"c-{noise % 997}","amount":{noise % 99_991 / 100},"currency":"{currency}"}}'
    )
    return f'"{in_base64(b"%d" % number)}"', f'"{in_base64(value.encode())}"'


def line_of(flow: Flow, partition: int, offset: int, at: int, key: str, value: str, headers: str) -> str:
    """Return a record in the capture form: a JSON object with the columns of Spark's Kafka source."""
    return (
        f'{{"topic":"{flow.dlq_topic}","partition":{partition},"offset":{offset},"timestamp":{at},'
        f'"timestampType":{flow.timestamp_type},"key":{key},"value":{value},"headers":[{headers}]}}'
    )
