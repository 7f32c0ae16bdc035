"""Headers of dead letters, and the rows of silver.dlq_records that tell who wrote them."""

from __future__ import annotations

import json
import struct
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from pipelines.settings import MappedHeader, OwnProfile

AT = datetime(2026, 11, 21, 2, 41, 36, 854000, UTC)

Headers = list[tuple[str | None, bytes | None] | None]

KIP_1191: Headers = [
    ("__dlq.errors.topic", b"orders"),
    ("__dlq.errors.partition", b"4"),
    ("__dlq.errors.offset", b"1234567890123"),
    ("__dlq.errors.group", b"orders-workers"),
    ("__dlq.errors.delivery.count", b"3"),
    ("__dlq.errors.message", b"Offset delivery count exceeded the threshold."),
]

KIP_1317: Headers = [
    ("_dlq.errors.disposition", b"CLIENT_REJECTED"),
    ("_dlq.errors.original.topic", b"payments"),
    ("_dlq.errors.original.partition", b"0"),
    ("_dlq.errors.original.offset", b"0"),
    ("_dlq.errors.original.consumer.group", b"payments-workers"),
    ("_dlq.errors.timestamp", b"2026-11-21T02:41:35.5Z"),
]

STREAMS: Headers = [
    ("__streams.errors.exception", b"java.lang.IllegalStateException: Unknown: magic"),
    ("__streams.errors.message", b"Unknown: magic"),
    ("__streams.errors.stacktrace", b"java.lang.IllegalStateException: Unknown: magic\n\tat A.b(A.java:1)\n"),
    ("__streams.errors.topic", b"clicks"),
    ("__streams.errors.partition", b"1"),
    ("__streams.errors.offset", b"77"),
]

CONNECT: Headers = [
    ("__connect.errors.topic", b"invoices"),
    ("__connect.errors.partition", b"2"),
    ("__connect.errors.offset", b"9"),
    ("__connect.errors.connector.name", b"warehouse-sink"),
    ("__connect.errors.task.id", b"0"),
    ("__connect.errors.stage", b"VALUE_CONVERTER"),
    ("__connect.errors.class.name", b"org.apache.kafka.connect.json.JsonConverter"),
    ("__connect.errors.exception.class.name", b"org.apache.kafka.connect.errors.DataException"),
    ("__connect.errors.exception.message", b"No schema"),
    ("__connect.errors.exception.stacktrace", b"at A.b"),
]

SPRING: Headers = [
    ("kafka_dlt-original-topic", b"inventory"),
    ("kafka_dlt-original-partition", struct.pack(">i", 2)),
    ("kafka_dlt-original-offset", struct.pack(">q", 2**40)),
    ("kafka_dlt-original-timestamp", struct.pack(">q", 1795228875344)),
    ("kafka_dlt-original-timestamp-type", b"CreateTime"),
    ("kafka_dlt-original-consumer-group", b"inventory-service"),
    ("kafka_dlt-exception-fqcn", b"org.springframework.kafka.listener.ListenerExecutionFailedException"),
    ("kafka_dlt-exception-cause-fqcn", b"com.example.StockBelowZeroException"),
    ("kafka_dlt-exception-message", b"Listener failed; Stock below zero"),
    ("kafka_dlt-exception-stacktrace", b"at A.b"),
]


def but(headers: Headers, **values: bytes | None) -> Headers:
    """The headers with other values; a keyword is the last words of a header's name (``group``, ``task_id``)."""
    changed: Headers = []
    for name, value in headers:  # type: ignore[misc]  # the profiles' headers have no null
        last = [word for word in values if name.replace(".", "_").replace("-", "_").endswith(word)]  # type: ignore[union-attr]
        changed.append((name, values.pop(max(last, key=len)) if last else value))
    assert not values, f"no header ends in {values}"
    return changed


def without(headers: Headers, word: str) -> Headers:
    return [header for header in headers if not (header and header[0] and header[0].endswith(word))]


RETRIES = OwnProfile(
    name="retries",
    headers=(
        MappedHeader(name="x-original-topic", field="original_topic", mandatory=True),
        MappedHeader(name="x-original-partition", field="original_partition", encoding="int32", mandatory=True),
        MappedHeader(name="x-original-offset", field="original_offset", encoding="int64", mandatory=True),
        MappedHeader(name="x-original-timestamp", field="original_timestamp"),
        MappedHeader(name="x-disposition", field="disposition"),
        MappedHeader(name="x-attempts", field="delivery_count", encoding="int32"),
        MappedHeader(name="x-worker", field="task_id", encoding="int32"),
        MappedHeader(name="x-failed-at", field="routed_at"),
        MappedHeader(name="x-error", field="error_message"),
        MappedHeader(name="x-error-*", field="error_message"),
        MappedHeader(name="x-error-class", field="exception_class"),
        MappedHeader(name="x-retry-*"),
        MappedHeader(name="' OR '1'='1", field="stage"),
    ),
)

CLOUD = OwnProfile(
    name="cloud",
    topic="dlq.cloud*",
    headers=(
        MappedHeader(path="$.source.topic", field="original_topic", mandatory=True),
        MappedHeader(path="$['error'].message", field="error_message", mandatory=True),
        MappedHeader(path="$.source.records[1].offset", field="original_offset"),
        MappedHeader(path="$.attempts", field="delivery_count"),
        MappedHeader(path="$.at", field="routed_at"),
        MappedHeader(name="pipeline", field="connector_name"),
    ),
)

RETRIED: Headers = [
    ("x-original-topic", b"parcels"),
    ("x-original-partition", struct.pack(">i", 3)),
    ("x-original-offset", struct.pack(">q", 2**40)),
]


def cloud(**changes: Any) -> dict[str, Any]:
    """The bronze columns of a record whose value is an envelope; ``raw`` replaces its JSON."""
    envelope = {"source": {"topic": "clicks", "records": [{}, {"offset": 12}]}, "error": {"message": "late"}}
    value = changes.pop("raw", None) or json.dumps(envelope | changes).encode()
    return {"topic": "dlq.cloud.clicks", "value": value}


@dataclass(frozen=True)
class Case:
    """Headers (and other bronze columns) and the expected silver columns; no violations unless named."""

    id: str
    headers: Headers | None
    expected: dict[str, Any]
    bronze: dict[str, Any] = field(default_factory=dict)


def breaks(*codes: str, **columns: Any) -> dict[str, Any]:
    return {"violations": list(codes), **columns}


CASES_OF_WRITERS = [
    # Who wrote the headers.
    Case(
        "share group",
        KIP_1191,
        {
            "header_profile": "kip-1191",
            "disposition": "MAX_DELIVERY_ATTEMPTS_REACHED",
            "disposition_source": "message",
            "original_topic": "orders",
            "original_topic_id": None,
            "original_partition": 4,
            "original_offset": 1234567890123,
            "consumer_group": "orders-workers",
            "delivery_count": 3,
            "error_message": "Offset delivery count exceeded the threshold.",
            "routed_at": "2026-11-21 02:41:36.854",
            "routed_at_source": "kafka",
            "payload_copied": True,
            "control_marker_suspected": False,
            "user_headers": [],
            "reserved_header_collision": False,
            "undecodable_headers": None,
        },
    ),
    Case(
        "draft of KIP-1317",
        KIP_1317,
        {
            "header_profile": "kip-1317",
            "disposition": "CLIENT_REJECTED",
            "disposition_source": "header",
            "original_partition": 0,
            "original_offset": 0,
            "routed_at": "2026-11-21 02:41:35.5",
            "routed_at_source": "header",
        },
    ),
    Case(
        "streams",
        STREAMS,
        {
            "header_profile": "kafka-streams",
            "disposition": None,
            "disposition_source": "unknown",
            "original_topic": "clicks",
            "original_partition": 1,
            "original_offset": 77,
            "exception_class": "java.lang.IllegalStateException",
            "error_message": "Unknown: magic",
            "exception_stacktrace": "java.lang.IllegalStateException: Unknown: magic\n\tat A.b(A.java:1)\n",
            "user_headers": [],
        },
    ),
    Case(
        "connect",
        CONNECT,
        {
            "header_profile": "kafka-connect",
            "connector_name": "warehouse-sink",
            "task_id": "0",
            "stage": "VALUE_CONVERTER",
            "stage_class": "org.apache.kafka.connect.json.JsonConverter",
            "exception_class": "org.apache.kafka.connect.errors.DataException",
            "error_message": "No schema",
            "consumer_group": None,
            "user_headers": [],
        },
    ),
    Case(
        "spring",
        SPRING,
        {
            "header_profile": "spring-kafka",
            "original_partition": 2,
            "original_offset": 2**40,
            "original_timestamp": "2026-11-21 02:41:15.344",
            "original_timestamp_type": "CreateTime",
            "consumer_group": "inventory-service",
            "exception_cause_class": "com.example.StockBelowZeroException",
            "undecodable_headers": None,
            "user_headers": [],
        },
    ),
    Case(
        "spring, exception of the key alone",
        [*SPRING[:3], ("kafka_dlt-key-exception-fqcn", b"a.B"), ("kafka_dlt-key-exception-message", b"bad key")],
        {"exception_class": "a.B", "error_message": "bad key", "exception_stacktrace": None},
    ),
    Case("streams, exception without a message", but(STREAMS, exception=b"a.B"), {"exception_class": "a.B"}),
    Case("optional headers absent", KIP_1191[:4], {"delivery_count": None, "disposition": None, "error_message": None}),
    Case(
        "no header at all",
        [],
        breaks("header_profile.not_null", header_profile=None, disposition_source="unknown", payload_copied=None),
    ),
    Case("headers null", None, breaks("header_profile.not_null", user_headers=[], control_marker_suspected=False)),
    Case("null header", [None, *KIP_1191], {"header_profile": "kip-1191", "user_headers": [None]}),
    Case("null header name", [(None, b"x"), *KIP_1191], {"header_profile": "kip-1191", "user_headers": [(None, b"x")]}),
    Case("empty header name", [("", b"x"), *KIP_1191], {"user_headers": [("", b"x")]}),
    Case(
        "user header of a reserved prefix",
        [("_dlq.errors.reason", b"why not"), *KIP_1191],
        {
            "header_profile": "kip-1191",
            "user_headers": [("_dlq.errors.reason", b"why not")],
            "reserved_header_collision": False,
        },
    ),
    Case(
        "only a header of a reserved prefix",
        [("_dlq.errors.reason", b"why not")],
        breaks("header_profile.not_null", user_headers=[("_dlq.errors.reason", b"why not")]),
    ),
    Case(
        "names in another case",
        [("__DLQ.errors.topic", b"orders"), ("__dlq.errors.topic ", b"orders")],
        breaks("header_profile.not_null"),
    ),
    Case(
        "a disposition beside a share group's headers claims the draft",
        [KIP_1317[0], *KIP_1191],
        breaks(
            "original_topic.not_null",
            "original_partition.not_null",
            "original_offset.not_null",
            "consumer_group.not_null",
            "routed_at.not_null",
            header_profile="kip-1317",
            disposition="CLIENT_REJECTED",
            earlier_hops=[],
            reserved_header_collision=True,
        ),
    ),
    Case(
        "the draft without its disposition, a share group's headers behind it",
        [*without(KIP_1317, "disposition"), *KIP_1191],
        breaks("disposition.not_null", header_profile="kip-1317", disposition=None, disposition_source="unknown"),
    ),
    *(
        Case(
            f"both sets of a share group, {order}",
            headers,
            {
                "header_profile": "kip-1317",
                "header_profiles": ["kip-1317", "kip-1191"],
                "disposition": "CLIENT_REJECTED",
                "disposition_source": "header",
                "original_topic": "payments",
                "routed_at_source": "header",
                "delivery_count": 3,
                "error_message": "Offset delivery count exceeded the threshold.",
                "earlier_hops": [],
                "user_headers": [("a", b"1")],
                "reserved_header_collision": False,
            },
        )
        for order, headers in (
            ("the draft's last", [*KIP_1191, ("a", b"1"), *KIP_1317]),
            ("the draft's first", [*KIP_1317, ("a", b"1"), *KIP_1191]),
            ("mixed", [*KIP_1317[:3], ("a", b"1"), *KIP_1191, *KIP_1317[3:]]),
        )
    ),
    Case(
        "both sets of a share group where one is required",
        [*KIP_1317, *KIP_1191],
        {"header_profile": "kip-1317", "required_profile": "kip-1191"},
        {"topic": "dlq.payments.old"},
    ),
    Case(
        "both sets of a share group where the other is required",
        [*KIP_1191, *KIP_1317],
        {"header_profile": "kip-1317", "required_profile": "kip-1317"},
        {"topic": "dlq.payments"},
    ),
    Case(
        "the draft alone where the other is required",
        KIP_1317,
        breaks("header_profile.required", header_profiles=["kip-1317"]),
        {"topic": "dlq.payments.old"},
    ),
    Case(
        "topic id in both sets",
        [*but(KIP_1191, topic=b"Vn1bUBB8Qoi5cSZnWGTtgw"), *but(KIP_1317, topic=b"Vn1bUBB8Qoi5cSZnWGTtgw")],
        {"original_topic_id": "Vn1bUBB8Qoi5cSZnWGTtgw"},
    ),
    Case(
        "a share group before a connector",
        [*KIP_1191, *CONNECT],
        {
            "header_profile": "kafka-connect",
            "original_topic": "invoices",
            "delivery_count": None,
            "disposition": None,
            "consumer_group": None,
            "earlier_hops": [("kip-1191", "orders", 4, 1234567890123, "orders-workers")],
            "user_headers": [],
            "reserved_header_collision": False,
        },
    ),
    Case(
        "a share group's both sets before Spring are one hop",
        [*KIP_1191, *KIP_1317, *SPRING],
        {
            "header_profile": "spring-kafka",
            "earlier_hops": [("kip-1317", "payments", 0, 0, "payments-workers")],
            "reserved_header_collision": False,
        },
    ),
    Case(
        "a connector between a share group's sets",
        [*KIP_1191, *CONNECT, *KIP_1317],
        {
            "header_profile": "kip-1317",
            "header_profiles": ["kip-1317"],
            "delivery_count": None,
            "earlier_hops": [
                ("kip-1191", "orders", 4, 1234567890123, "orders-workers"),
                ("kafka-connect", "invoices", 2, 9, None),
            ],
            "reserved_header_collision": False,
        },
    ),
    Case(
        "an incomplete draft before Spring is an earlier hop, and deserves a look",
        [*without(KIP_1317, "disposition"), *SPRING],
        {
            "header_profile": "spring-kafka",
            "earlier_hops": [("kip-1317", "payments", 0, 0, "payments-workers")],
            "user_headers": without(KIP_1317, "disposition"),
            "reserved_header_collision": True,
        },
    ),
    Case(
        "one header of the draft behind Spring claims it",
        [*SPRING, KIP_1317[0]],
        breaks(
            "original_topic.not_null",
            "original_partition.not_null",
            "original_offset.not_null",
            "consumer_group.not_null",
            "routed_at.not_null",
            header_profile="kip-1317",
            earlier_hops=[("spring-kafka", "inventory", 2, 2**40, "inventory-service")],
        ),
    ),
    Case(
        "a connector again and again",
        [*CONNECT, *but(CONNECT, topic=b"dlq-a", offset=b"10"), *but(CONNECT, topic=b"dlq-b", offset=b"11")],
        {
            "header_profile": "kafka-connect",
            "original_topic": "dlq-b",
            "original_offset": 11,
            "earlier_hops": [
                ("kafka-connect", "invoices", 2, 9, None),
                ("kafka-connect", "dlq-a", 2, 10, None),
            ],
            "user_headers": [],
            "reserved_header_collision": False,
        },
    ),
    Case(
        "Spring appends where the record was, and replaces the exception",
        [*SPRING[:6], *but(SPRING, topic=b"inventory-dlt", group=b"dlt-service")],
        {
            "original_topic": "inventory-dlt",
            "consumer_group": "dlt-service",
            "earlier_hops": [("spring-kafka", "inventory", 2, 2**40, "inventory-service")],
            "reserved_header_collision": False,
        },
    ),
    Case(
        "Streams after a connector after Streams, others' headers between",
        [*STREAMS, ("a", b"1"), *CONNECT, ("b", b"2"), *but(STREAMS, topic=b"invoices-dlq", offset=b"78")],
        {
            "header_profile": "kafka-streams",
            "original_topic": "invoices-dlq",
            "earlier_hops": [("kafka-streams", "clicks", 1, 77, None), ("kafka-connect", "invoices", 2, 9, None)],
            "user_headers": [("a", b"1"), ("b", b"2")],
            "reserved_header_collision": False,
        },
    ),
    Case(
        "the rest of a set behind a complete one",
        [*CONNECT, SPRING[0], SPRING[2]],
        {
            "header_profile": "kafka-connect",
            "earlier_hops": [],
            "user_headers": [SPRING[0], SPRING[2]],
            "reserved_header_collision": True,
        },
    ),
    Case(
        "a set that is partly written again",
        [*CONNECT, CONNECT[0]],
        {"header_profile": "kafka-connect", "earlier_hops": [], "reserved_header_collision": True},
    ),
    Case(
        "an earlier hop whose values say nothing",
        [*but(CONNECT, topic=b"\xff", partition=b"-1", offset=None), *STREAMS],
        {"header_profile": "kafka-streams", "earlier_hops": [("kafka-connect", None, None, None, None)]},
    ),
    Case(
        "two incomplete profiles",
        [CONNECT[0], STREAMS[3]],
        breaks(
            "original_partition.not_null",
            "original_offset.not_null",
            header_profile="kafka-streams",
            original_topic="clicks",
            reserved_header_collision=True,
        ),
    ),
    Case(
        "an optional header alone",
        [("__dlq.errors.message", b"Offset rejected by client.")],
        breaks(
            "original_topic.not_null",
            "original_partition.not_null",
            "original_offset.not_null",
            "consumer_group.not_null",
            header_profile="kip-1191",
            disposition="CLIENT_REJECTED",
        ),
    ),
    Case(
        "a mandatory header that is there with a null value",
        [*SPRING, *but(KIP_1191, group=None)],
        breaks("consumer_group.not_null", header_profile="kip-1191"),
    ),
]
