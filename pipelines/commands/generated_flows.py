"""The company's flows of dead letters: who dead-letters which topic with which errors, their headers and payloads."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from pipelines.commands.generated_letters import (
    CONNECT,
    DRAFT,
    EXHAUSTED,
    REJECTED,
    SHARE,
    SPRING,
    STREAMS,
    WITH_HEADERS,
    Error,
    Fact,
    Payload,
    headers_of,
    iso,
)


@dataclass(frozen=True, eq=False)
class Flow:
    """Records that one consumer dead-letters; the last error is the systemic one, which incidents show."""

    profile: str
    dlq_topic: str
    dlq_partitions: int
    topic: str
    partitions: int
    group: str
    errors: tuple[Error, ...]
    weight: int = 1
    copied: bool = True
    timestamp_type: int = 0

    def headers(
        self, partition: int, offset: int, at: int, error: Error, instead: Iterable[tuple[str, bytes | None]] = ()
    ) -> list[tuple[str, bytes]]:
        """Return the headers of a dead letter; ``instead`` has other values for some columns, None for no header."""
        trace = f"{error.exception}: {error.message}\n\tat com.example.Task.run(Task.java:42)"
        facts: dict[str, Fact] = {"original_topic": self.topic, "original_partition": partition}
        facts |= {"original_offset": offset, "original_timestamp": at - 1500}
        facts |= {"routed_at": iso(at)} if self.profile == DRAFT else {}
        facts |= {"consumer_group": self.group, "connector_name": "warehouse-sink", "task_id": 0}
        facts |= {"exception_stacktrace": trace, **dict(instead)}
        return headers_of(self.profile, error, facts)

    def payload(self, partition: int, offset: int) -> Payload:
        """Return key and value; the same source record has the same payload everywhere."""
        if not self.copied:
            return None, None
        number = offset * 6 + partition
        noise = number * 2_654_435_761 & 0xFFFFFFFF
        currency = ("EUR", "USD", "GBP", "JPY")[noise & 3]
        amount = noise % 99_991 / 100
        value = f'{{"id":"{number:09}","customer":"c-{noise % 997}","amount":{amount},"currency":"{currency}"}}'
        return b"%d" % number, value.encode()


def _exhausted(limit: int) -> Error:
    return replace(EXHAUSTED, deliveries=limit)


def _draft(*dispositions: str) -> tuple[Error, ...]:
    return tuple(Error("", disposition=disposition) for disposition in dispositions)


def _thrown(*errors: tuple[str, str]) -> tuple[Error, ...]:
    return tuple(Error(message, exception) for exception, message in errors)


# fmt: off
FLOWS = (
    Flow(SHARE, "dlq.orders", 3, "orders", 6, "orders-workers", (REJECTED, REJECTED, _exhausted(3)), 26),
    Flow(SHARE, "dlq.orders", 3, "orders", 6, "fraud-workers", (REJECTED, _exhausted(3)), 12),
    Flow(SHARE, "dlq.billing", 2, "orders", 6, "billing-workers", (REJECTED, _exhausted(2)), 14, copied=False),
    Flow(SHARE, "dlq.shipping", 1, "shipments", 4, "shipping-workers", (REJECTED, _exhausted(5)), 8),
    Flow(SHARE, "dlq.audit", 1, "shipments", 4, "audit-workers", (_exhausted(2),), 4, timestamp_type=1),
    Flow(DRAFT, "dlq.payments", 3, "payments", 6, "payments-workers", _draft(
        *["CLIENT_REJECTED"] * 12, "CIRCUIT_BREAKER_ARCHIVED", "COORDINATOR_INITIATED",
        *["MAX_DELIVERY_ATTEMPTS_REACHED"] * 6), 10),
    Flow(DRAFT, "dlq.refunds", 1, "refunds", 3, "refunds-workers",
         _draft("CLIENT_REJECTED", "MAX_DELIVERY_ATTEMPTS_REACHED"), 4),
    Flow(STREAMS, "enrichment-dlq", 2, "clicks", 4, "enrichment", _thrown(
        ("org.apache.kafka.common.errors.SerializationException", "Unknown magic byte!"),
        ("java.lang.NullPointerException", "Cannot read field \"country\" because \"visit\" is null"),
        ("org.apache.kafka.streams.errors.StreamsException", "State store sessions is not open")), 8),
    Flow(CONNECT, "dlq-warehouse-sink", 1, "invoices", 3, "connect-warehouse-sink", _thrown(
        ("org.apache.kafka.connect.errors.DataException", "Converting byte[] to Kafka Connect data failed"),
        ("org.apache.kafka.connect.errors.DataException", "Field amount is required and has no value"),
        ("org.apache.kafka.connect.errors.ConnectException", "Connection to the warehouse was refused")), 7),
    Flow(SPRING, "inventory-dlt", 3, "inventory", 3, "inventory-service", _thrown(
        ("com.example.StockBelowZeroException", "Listener failed; stock is below zero"),
        ("com.example.UnknownWarehouseException", "Listener failed; unknown warehouse"),
        ("java.net.SocketTimeoutException", "Listener failed; read timed out")), 7),
)
SECOND_HOP = Flow(SHARE, "dlq.second-hop", 1, "dlq.orders", 3, "dlq-cleaner", (REJECTED,))
SELF_LOOP = Flow(SHARE, "dlq.loop", 1, "dlq.loop", 1, "loop-workers", (REJECTED,))
# fmt: on
COPYING = tuple(flow for flow in FLOWS if flow.profile == SHARE and flow.copied)
KEEPING_HEADERS = tuple(flow for flow in FLOWS if flow.profile in WITH_HEADERS)
COLLIDING = ("_dlq.errors.disposition", b"written by a user")
