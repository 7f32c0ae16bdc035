"""Adversarial headers, each with its expected row and violations; then random headers; then real ones."""

from __future__ import annotations

import base64
import json
import struct
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from expectations.bronze.dlq_records import CONTRACT as BRONZE
from expectations.silver.dlq_records import CONTRACT
from pipelines.columns.profiles import NAMES
from pipelines.settings import Dlq, MappedHeader, OwnProfile, RequiredProfile, load
from pipelines.silver.dlq_records import transform

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Row, SparkSession

CAPTURES = Path(__file__).parents[2] / "data" / "dlq"
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


CASES = [
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
    # Repeated names.
    Case(
        "what is left before a complete set gives no value",
        [("__dlq.errors.topic", b"forged"), *KIP_1191],
        {"original_topic": "orders", "user_headers": [], "reserved_header_collision": True},
    ),
    Case(
        "what is left behind a complete set gives no value",
        [*KIP_1191, ("__dlq.errors.offset", None)],
        {"original_offset": 1234567890123, "reserved_header_collision": True},
    ),
    Case(
        "an invalid value before a valid one",
        [("__dlq.errors.offset", b"\xff"), *KIP_1191],
        {"original_offset": 1234567890123, "undecodable_headers": None},
    ),
    Case(
        "repeated user headers in order",
        [("b", b"2"), *KIP_1191[:3], ("a", b"1"), ("b", b"2"), *KIP_1191[3:], ("a", None)],
        {"user_headers": [("b", b"2"), ("a", b"1"), ("b", b"2"), ("a", None)], "reserved_header_collision": False},
    ),
    Case(
        "10,000 headers",
        [*(("n", b"%d" % number) for number in range(9994)), *KIP_1191],
        {"header_profile": "kip-1191", "original_partition": 4, "reserved_header_collision": False},
    ),
    Case(
        "a header of 1 MB",
        but(KIP_1191, message=b"x" * 1_000_000),
        {"error_message": "x" * 1_000_000, "disposition": None, "disposition_source": "unknown"},
    ),
    Case("NUL in a name", [("a\0b", b"1"), *KIP_1191], {"user_headers": [("a\0b", b"1")]}),
    Case("bidirectional name", [("\u202etopic", b"1"), *KIP_1191], {"user_headers": [("\u202etopic", b"1")]}),
    # Topics.
    Case("topic absent", without(KIP_1191, ".topic"), breaks("original_topic.not_null")),
    Case("topic null", but(KIP_1191, topic=None), breaks("original_topic.not_null")),
    Case("topic empty", but(KIP_1191, topic=b""), breaks("original_topic.not_null", original_topic=None)),
    Case(
        "topic id",
        but(KIP_1191, topic=b"Vn1bUBB8Qoi5cSZnWGTtgw"),
        {"original_topic": "Vn1bUBB8Qoi5cSZnWGTtgw", "original_topic_id": "Vn1bUBB8Qoi5cSZnWGTtgw"},
    ),
    Case("22 letters of one case", but(KIP_1191, topic=b"orders-with-long-nameg"), {"original_topic_id": None}),
    Case("topic id, draft", but(KIP_1317, topic=b"Vn1bUBB8Qoi5cSZnWGTtgw"), {"original_topic_id": None}),
    Case("topic of 249 letters", but(KIP_1191, topic=b"a" * 249), {"original_topic": "a" * 249}),
    Case("topic of 250 letters", but(KIP_1191, topic=b"a" * 250), breaks("original_topic.legal_topic_name")),
    Case("topic .", but(KIP_1191, topic=b"."), breaks("original_topic.legal_topic_name")),
    Case("topic ..", but(KIP_1317, topic=b".."), breaks("original_topic.legal_topic_name")),
    Case("topic ...", but(KIP_1317, topic=b"..."), {"original_topic": "..."}),
    Case("topic with a slash", but(CONNECT, topic=b"a/b"), breaks("original_topic.legal_topic_name")),
    Case("topic with a final newline", but(STREAMS, topic=b"a\n"), breaks("original_topic.legal_topic_name")),
    Case(
        "topic not UTF-8",
        but(KIP_1191, topic=b"\xff\xfe"),
        breaks("original_topic.utf8", original_topic="\ufffd\ufffd"),
    ),
    # Partitions and offsets, as Kafka prints them.
    Case("partition absent", without(KIP_1317, ".partition"), breaks("original_partition.not_null")),
    Case("partition empty", but(KIP_1317, partition=b""), breaks("original_partition.not_null")),
    Case("greatest partition", but(KIP_1191, partition=b"2147483647"), {"original_partition": 2**31 - 1}),
    *(
        Case(
            f"partition {text!r}",
            but(KIP_1191, partition=text),
            breaks("original_partition.decimal_int32", original_partition=None, original_partition_text=text.decode()),
        )
        for text in (
            b"-1",
            b"+1",
            b" 1",
            b"1\n",
            b"01",
            b"1e3",
            b"1.0",
            b"2147483648",
            b"0x1",
            "\u0663".encode(),
            b"1\0",
        )
    ),
    Case("greatest offset", but(KIP_1191, offset=b"9223372036854775807"), {"original_offset": 2**63 - 1}),
    *(
        Case(
            f"offset {text!r}",
            but(KIP_1317, offset=text),
            breaks("original_offset.decimal_int64", original_offset=None, original_offset_text=text.decode()),
        )
        for text in (b"-1", b"7 ", b"9223372036854775808", b"99999999999999999999", b"NaN", "\uff11".encode(), b"null")
    ),
    Case(
        "offset not UTF-8",
        but(KIP_1191, offset=b"1\xc0\x80"),
        breaks("original_offset.utf8", original_offset=None, undecodable_headers=["original_offset"]),
    ),
    Case(
        "two fields not UTF-8",
        but(KIP_1191, group=b"\xed\xa0\x80", message=b"\xf8"),
        breaks("consumer_group.utf8", "error_message.utf8", undecodable_headers=["consumer_group", "error_message"]),
    ),
    Case(
        "spring, partition of 2 bytes",
        but(SPRING, partition=b"\0\3"),
        breaks("original_partition.decimal_int32", original_partition_text="0x0003"),
    ),
    Case("spring, partition as text", but(SPRING, partition=b"2"), breaks("original_partition.decimal_int32")),
    Case("spring, partition of 4 digits as text", but(SPRING, partition=b"1234"), {"original_partition": 0x31323334}),
    Case(
        "spring, partition -1: unknown",
        but(SPRING, partition=struct.pack(">i", -1)),
        {"original_partition": None, "original_partition_text": None},
    ),
    Case("spring, partition empty: unknown", but(SPRING, partition=b""), {"original_partition": None}),
    Case(
        "streams, no source record",
        but(STREAMS, topic=None, partition=b"-1", offset=b"-1"),
        {"header_profile": "kafka-streams", "original_topic": None, "original_partition": None, "missing_fields": []},
    ),
    Case("streams, offset -2", but(STREAMS, offset=b"-2"), breaks("original_offset.decimal_int64")),
    Case(
        "connect, incomplete",
        without(CONNECT, ".offset"),
        breaks("original_offset.not_null", missing_headers=["__connect.errors.offset"]),
    ),
    Case(
        "spring, greatest partition",
        but(SPRING, partition=struct.pack(">i", 2**31 - 1)),
        {"original_partition": 2**31 - 1},
    ),
    Case(
        "spring, offset of 4 bytes",
        but(SPRING, offset=b"\0\0\0\3"),
        breaks("original_offset.decimal_int64", original_offset_text="0x00000003"),
    ),
    Case(
        "spring, least offset",
        but(SPRING, offset=struct.pack(">q", -(2**63))),
        breaks("original_offset.decimal_int64", original_offset_text="-9223372036854775808"),
    ),
    Case("spring, greatest offset", but(SPRING, offset=struct.pack(">q", 2**63 - 1)), {"original_offset": 2**63 - 1}),
    Case(
        "spring, offset of 1 MB",
        but(SPRING, offset=b"\xff" * 1_000_000),
        breaks("original_offset.decimal_int64", original_offset_text="0x" + "FF" * 64),
    ),
    Case(
        "spring, timestamp beyond all years", but(SPRING, timestamp=b"\x7f" + b"\xff" * 7), {"original_timestamp": None}
    ),
    Case("spring, timestamp -1", but(SPRING, timestamp=b"\xff" * 8), {"original_timestamp": None}),
    # Groups, counts, dispositions.
    Case("group absent", without(KIP_1191, ".group"), breaks("consumer_group.not_null")),
    Case("group empty", but(KIP_1317, group=b""), breaks("consumer_group.not_null")),
    Case("group of any text", but(KIP_1191, group="\u202e \0'; --".encode()), {"consumer_group": "\u202e \0'; --"}),
    Case(
        "delivery count malformed",
        but(KIP_1191, count=b"three"),
        {"delivery_count": None, "delivery_count_text": "three"},
    ),
    Case("delivery count not UTF-8", but(KIP_1191, count=b"\xff"), breaks("delivery_count.utf8")),
    Case(
        "rejected",
        but(KIP_1191, message=b"Offset rejected by client."),
        {"disposition": "CLIENT_REJECTED", "disposition_source": "message"},
    ),
    Case("a message like the broker's", but(KIP_1191, message=b"Offset rejected by client"), {"disposition": None}),
    Case(
        "reserved disposition",
        but(KIP_1317, disposition=b"COORDINATOR_INITIATED"),
        {"disposition": "COORDINATOR_INITIATED"},
    ),
    Case("circuit breaker", but(KIP_1317, disposition=b"CIRCUIT_BREAKER_ARCHIVED"), {"disposition_source": "header"}),
    Case(
        "disposition absent",
        without(KIP_1317, "disposition"),
        breaks("disposition.not_null", disposition_source="unknown"),
    ),
    Case("disposition null", but(KIP_1317, disposition=None), breaks("disposition.not_null")),
    Case("disposition empty", but(KIP_1317, disposition=b""), breaks("disposition.not_null")),
    Case("disposition unknown", but(KIP_1317, disposition=b"client_rejected"), breaks("disposition.one_of")),
    Case("disposition with a space", but(KIP_1317, disposition=b"CLIENT_REJECTED "), breaks("disposition.one_of")),
    Case("disposition not UTF-8", but(KIP_1317, disposition=b"\xff"), breaks("disposition.utf8")),
    # Times.
    Case("time absent", without(KIP_1317, "timestamp"), breaks("routed_at.not_null", routed_at_source="kafka")),
    Case("time empty", but(KIP_1317, timestamp=b""), breaks("routed_at.not_null")),
    Case("time not UTF-8", but(KIP_1317, timestamp=b"2026\xff"), breaks("routed_at.utf8", routed_at=None)),
    *(
        Case(f"time {text}", but(KIP_1317, timestamp=text.encode()), {"routed_at": shown})
        for text, shown in (
            ("2026-11-21T02:41:36Z", "2026-11-21 02:41:36"),
            ("2026-11-21T02:41:36+00:00", "2026-11-21 02:41:36"),
            ("2026-11-21T02:41:36.25+0000", "2026-11-21 02:41:36.25"),
            ("2026-11-21T02:41:36.123456789123456789+00", "2026-11-21 02:41:36.123456"),
            ("2026-11-21T02:41Z", "2026-11-21 02:41:00"),
            ("2024-02-29T23:59:59Z", "2024-02-29 23:59:59"),
            ("0001-01-01T00:00:00Z", "0001-01-01 00:00:00"),
            ("9999-12-31T23:59:59.999999999Z", "9999-12-31 23:59:59.999999"),
        )
    ),
    *(
        Case(f"time {text!r}", but(KIP_1317, timestamp=text.encode()), breaks("routed_at.iso_8601_utc", routed_at=None))
        for text in (
            "2026-11-21T02:41:36",
            "2026-11-21 02:41:36Z",
            "2026-11-21T02:41:36+01:00",
            "2026-11-21T02:41:36-00:00",
            "2026-02-30T00:00:00Z",
            "2026-02-29T00:00:00Z",
            "2026-04-31T00:00:00Z",
            "1900-02-29T00:00:00Z",
            "0000-01-01T00:00:00Z",
            "2026-13-01T00:00:00Z",
            "2026-11-21T24:00:00Z",
            "2026-12-31T23:59:60Z",
            "2026-11-21T02:41:36.Z",
            "2026-11-21T02:41:36Z\n",
            "\u0662\u0660\u0662\u0666-11-21T02:41:36Z",
            "1795228875344",
            "2026-11-21",
        )
    ),
    Case("Kafka has no timestamp", KIP_1191, {"routed_at": None, "routed_at_source": "kafka"}, {"timestamp": None}),
    # Payloads.
    Case("payload not copied", KIP_1191, {"payload_copied": False}, {"key": None, "value": None}),
    Case("empty payload", KIP_1317, {"payload_copied": True, "value": b""}, {"key": None, "value": b""}),
    Case("key alone", KIP_1191, {"payload_copied": True}, {"value": None}),
    Case("tombstone of a connector", CONNECT, {"payload_copied": True}, {"key": None, "value": None}),
    Case("commit marker", KIP_1191, {"control_marker_suspected": True}, {"key": b"\0\0\0\1", "value": b"\0\0\0\0\0\0"}),
    Case(
        "abort marker, draft",
        KIP_1317,
        {"control_marker_suspected": True},
        {"key": b"\0\0\0\0", "value": b"\0\0\0\0\0\7"},
    ),
    Case(
        "marker of another profile",
        SPRING,
        {"control_marker_suspected": False},
        {"key": b"\0\0\0\1", "value": b"\0" * 6},
    ),
    Case("no such marker", KIP_1191, {"control_marker_suspected": False}, {"key": b"\0\0\0\2", "value": b"\0" * 6}),
    Case(
        "marker's key, other value",
        KIP_1191,
        {"control_marker_suspected": False},
        {"key": b"\0\0\0\1", "value": b"\0" * 7},
    ),
    Case(
        "marker's key, null value", KIP_1191, {"control_marker_suspected": False}, {"key": b"\0\0\0\1", "value": None}
    ),
    # Lines and required profiles.
    Case(
        "unreadable line",
        None,
        breaks("error.readable", raw=b"{", error="not JSON", header_profile=None),
        dict.fromkeys(("topic", "partition", "offset", "timestamp", "key", "value"))
        | {"raw": b"{", "error": "not JSON"},
    ),
    Case("no topic", KIP_1191, breaks("dlq_topic.not_null"), {"topic": None}),
    Case("no partition", KIP_1191, breaks("dlq_partition.not_null"), {"partition": None}),
    Case("no offset", KIP_1191, breaks("dlq_offset.not_null"), {"offset": None}),
    Case(
        "negative place",
        KIP_1191,
        breaks("dlq_partition.at_least_0", "dlq_offset.at_least_0"),
        {"partition": -1, "offset": -1},
    ),
    Case("required profile", KIP_1317, {"required_profile": "kip-1317"}, {"topic": "dlq.payments-eu"}),
    Case(
        "mandatory headers switched off",
        KIP_1191,
        breaks("header_profile.required", required_profile="kip-1317"),
        {"topic": "dlq.payments-eu"},
    ),
    Case(
        "required profile, no header",
        [],
        breaks("header_profile.not_null", "header_profile.required"),
        {"topic": "dlq.payments"},
    ),
    Case("the first pattern decides", KIP_1191, {"required_profile": "kip-1191"}, {"topic": "dlq.payments.old"}),
    Case("a pattern's dot is a dot", KIP_1191, {"required_profile": None}, {"topic": "dlq_payments"}),
    # Profiles of the settings.
    Case(
        "retries",
        [*RETRIED, ("x-retry-queue", b"q"), ("x-error", b"no"), ("x-error-class", b"a.B"), ("x-error-code", b"7")],
        {
            "header_profile": "retries",
            "header_profiles": ["retries"],
            "original_topic": "parcels",
            "original_partition": 3,
            "original_offset": 2**40,
            "error_message": "no",
            "exception_class": "a.B",
            "disposition": None,
            "disposition_source": "unknown",
            "payload_copied": True,
            "control_marker_suspected": False,
            "routed_at_source": "kafka",
            "user_headers": [],
            "missing_fields": [],
            "undecoded_fields": [],
        },
    ),
    Case(
        "retries, all fields typed",
        [
            *RETRIED,
            ("x-original-timestamp", b"1795228875344"),
            ("x-disposition", b"CLIENT_REJECTED"),
            ("x-attempts", struct.pack(">i", 5)),
            ("x-worker", struct.pack(">i", -2)),
            ("x-failed-at", b"2026-11-21T02:41:35.5Z"),
            ("' OR '1'='1", b"s"),
        ],
        {
            "original_timestamp": "2026-11-21 02:41:15.344",
            "disposition": "CLIENT_REJECTED",
            "disposition_source": "header",
            "delivery_count": 5,
            "task_id": "-2",
            "routed_at": "2026-11-21 02:41:35.5",
            "routed_at_source": "header",
            "stage": "s",
        },
    ),
    Case(
        "retries, times in the other form",
        [*RETRIED, ("x-original-timestamp", b"2026-11-21T02:41:15.344+00:00"), ("x-failed-at", b"1795228875344")],
        {"original_timestamp": "2026-11-21 02:41:15.344", "routed_at": "2026-11-21 02:41:15.344"},
    ),
    Case(
        "retries, of headers with a prefix the last counts",
        [*RETRIED, ("x-error-a", b"1"), ("x-error-b", b"2"), ("x-error-class", b"3"), ("x-errors", b"4")],
        {"error_message": "2", "user_headers": [("x-errors", b"4")], "reserved_header_collision": False},
    ),
    Case(
        "retries, incomplete",
        RETRIED[:2],
        breaks("header_profile.mandatory", header_profile="retries", missing_fields=["original_offset"]),
    ),
    Case(
        "retries, mandatory but null and empty",
        [("x-original-topic", b""), ("x-original-partition", None), RETRIED[2]],
        {"header_profile": "retries", "missing_fields": [], "original_topic": None},
    ),
    Case(
        "retries, a header with a prefix alone",
        [("x-retry-at", b"1")],
        breaks("header_profile.mandatory", header_profile="retries", user_headers=[]),
    ),
    Case(
        "retries, numbers of other lengths",
        [*RETRIED, ("x-attempts", b"5"), ("x-worker", b"\0" * 8)],
        breaks(
            "header_profile.decodes",
            undecoded_fields=["delivery_count", "task_id"],
            delivery_count=None,
            delivery_count_text="0x35",
        ),
    ),
    Case(
        "retries, a place that is none",
        [RETRIED[0], ("x-original-partition", b"3"), ("x-original-offset", struct.pack(">q", -1))],
        breaks("original_partition.decimal_int32", original_offset=None, undecoded_fields=[]),
    ),
    Case(
        "retries, times that are none",
        [*RETRIED, ("x-original-timestamp", b"yesterday"), ("x-failed-at", b"2026-11-21T02:41:35+01:00")],
        breaks("header_profile.decodes", undecoded_fields=["original_timestamp", "routed_at"], routed_at=None),
    ),
    Case(
        "retries, not UTF-8",
        [*RETRIED, ("x-failed-at", b"\xff"), ("x-error", b"\xff"), ("x-original-timestamp", b"\xff")],
        breaks(
            "header_profile.decodes",
            "error_message.utf8",
            "routed_at.utf8",
            undecoded_fields=["original_timestamp"],
            undecodable_headers=["routed_at", "error_message", "original_timestamp"],
        ),
    ),
    Case(
        "retries, a disposition of its own",
        [*RETRIED, ("x-disposition", b"GAVE_UP")],
        breaks("disposition.one_of", header_profile="retries"),
    ),
    Case("retries, required", RETRIED, {"header_profile": "retries"}, {"topic": "dlq.parcels"}),
    Case("retries, required and absent", KIP_1191, breaks("header_profile.required"), {"topic": "dlq.parcels"}),
    Case(
        "a share group behind retries",
        [*RETRIED, ("x-retry-at", b"1"), *KIP_1191],
        {
            "header_profile": "kip-1191",
            "missing_fields": [],
            "undecoded_fields": None,
            "earlier_hops": [("retries", "parcels", 3, 2**40, None)],
            "user_headers": [],
            "reserved_header_collision": False,
        },
    ),
    Case(
        "retries behind a share group",
        [*KIP_1191, *RETRIED, ("x-retry-at", b"1")],
        {
            "header_profile": "retries",
            "earlier_hops": [("kip-1191", "orders", 4, 1234567890123, "orders-workers")],
            "consumer_group": None,
            "user_headers": [],
        },
    ),
    Case(
        "retries twice",
        [*RETRIED, *but(RETRIED, topic=b"parcels.again")],
        {"original_topic": "parcels.again", "earlier_hops": [("retries", "parcels", 3, 2**40, None)]},
    ),
    Case(
        "the rest of retries beside a share group's headers",
        [*RETRIED[1:], *KIP_1191],
        {"header_profile": "kip-1191", "reserved_header_collision": True, "user_headers": RETRIED[1:]},
    ),
    Case(
        "envelope",
        [("pipeline", b"p"), ("a", b"1")],
        {
            "header_profile": "cloud",
            "original_topic": "clicks",
            "original_partition": None,
            "original_offset": 12,
            "error_message": "late",
            "connector_name": "p",
            "user_headers": [("a", b"1")],
            "reserved_header_collision": False,
        },
        cloud(),
    ),
    Case(
        "envelope, numbers of JSON and text",
        None,
        {"header_profile": "cloud", "delivery_count": 3, "routed_at": "2026-11-21 02:41:15.344"},
        cloud(attempts=3, at="1795228875344"),
    ),
    Case(
        "envelope, attempts that are none",
        [],
        breaks("header_profile.decodes", undecoded_fields=["delivery_count"]),
        cloud(attempts={"n": 1}),
    ),
    Case(
        "envelope without its message",
        [],
        breaks("header_profile.mandatory", header_profile="cloud", missing_fields=["error_message"]),
        cloud(error={"message": None}),
    ),
    Case(
        "envelope of an illegal topic",
        [],
        breaks("original_topic.legal_topic_name"),
        cloud(source={"topic": "'; DROP TABLE x"}),
    ),
    *(
        Case(f"no envelope: {name}", [], breaks("header_profile.not_null"), {**cloud(raw=raw), **more})
        for name, raw, more in (
            ("another topic", None, {"topic": "dlq.orders"}),
            ("cut off", b'{"source":{"topic":"clicks"},"error":{"message":"late"}', {}),
            ("not UTF-8", b'{"source":{"topic":"clicks"},"error":{"message":"\xff"}}', {}),
            ("text", b'"clicks"', {}),
            ("deep", b'{"source":' + b"[" * 5_000, {}),
            ("other JSON", b"[1, 2]", {}),
        )
    ),
    Case(
        "a share group behind an envelope",
        KIP_1191,
        {
            "header_profile": "kip-1191",
            "earlier_hops": [("cloud", "clicks", None, 12, None)],
            "user_headers": [],
            "reserved_header_collision": False,
        },
        cloud(),
    ),
]
CONTENTS: dict[str, dict[str, Any]] = {
    "plain": {},
    "elsewhere": {"_source": "b.jsonl", "partition": 7, "offset": 7},
    "null key": {"key": None},
    "empty key": {"key": b""},
    "null value": {"value": None},
    "value for key": {"key": None, "value": b"k"},
    "other time": {"timestamp": datetime(2026, 11, 21, tzinfo=UTC)},
    "no time": {"timestamp": None},
    "other timestamp type": {"timestamp_type": 1},
    "no headers": {"headers": []},
    "null headers": {"headers": None},
    "header": {"headers": [("a", b"b")]},
    "header without value": {"headers": [("a", None)]},
    "header with empty value": {"headers": [("a", b"")]},
    "value without name": {"headers": [(None, b"a")]},
    "null header": {"headers": [None]},
    "two headers": {"headers": [("a", b"b"), ("c", b"d")]},
    "two headers turned": {"headers": [("c", b"d"), ("a", b"b")]},
    "null and header": {"headers": [None, ("a", b"b")]},
    "header and null": {"headers": [("a", b"b"), None]},
}
CAPTURED = {"dlq.orders": 916, "dlq.billing": 534, "dlq.shipping": 57, "dlq.audit": 56, "dlq.second-hop": 215}
REQUIRE = Dlq(
    require=(
        RequiredProfile(topic="dlq.payments.???", profile="kip-1191"),
        RequiredProfile(topic="dlq.payments*", profile="kip-1317"),
        RequiredProfile(topic="dlq.parcels", profile="retries"),
    ),
    profile=(RETRIES, CLOUD),
)


def bronze(spark: SparkSession, rows: list[dict[str, Any]]) -> DataFrame:
    given = {
        "_source": "a.jsonl",
        "cluster": "default",
        "topic": "dlq.orders",
        "partition": 0,
        "offset": 0,
        "timestamp": AT,
        "timestamp_type": 0,
        "key": b"k",
        "value": b"v",
        "lossy_encoding": False,
    }
    names = [column.name for column in BRONZE.columns]
    schema = ", ".join(f"`{column.name}` {column.type}" for column in BRONZE.columns)
    return spark.createDataFrame([[{**given, **row}.get(name) for name in names] for row in rows], schema)


def candidates(spark: SparkSession, rows: list[dict[str, Any]], dlq: Dlq | None = None) -> dict[str, Row]:
    """Silver's candidates by ``_bronze_id``, with their violations and with timestamps as text in UTC."""
    from pyspark.sql import functions as F

    found = transform(bronze(spark, rows), load().model_copy(update={"dlq": dlq or REQUIRE}))
    assert [column.name for column in CONTRACT.columns] == found.columns
    times = [column.name for column in CONTRACT.columns if column.type == "timestamp"]
    collected = (
        found.withColumn("mask", CONTRACT.broken_rules())
        .withColumn("violations", CONTRACT.violations(F.col("mask")))
        .withColumns({name: F.col(name).cast("string") for name in times})
        .collect()
    )
    assert len(collected) == len(rows)
    return {row["_bronze_id"]: row for row in collected}


@pytest.fixture(scope="module")
def rows(spark: SparkSession) -> dict[str, Row]:
    """The rows of all cases in this module, from one Spark job."""
    given = [{"_bronze_id": case.id, "headers": case.headers, **case.bronze} for case in CASES]
    given += [
        {"_bronze_id": f"content: {name}", "headers": [("x", b"y")], **content} for name, content in CONTENTS.items()
    ]
    for topic in CAPTURED:
        given += [{"_bronze_id": f"{topic} {place}", **record} for place, record in enumerate(_records(topic))]
    return candidates(spark, given)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.id)
def test_headers_give_the_row_and_the_violations(case: Case, rows: dict[str, Row]) -> None:
    row = rows[case.id]
    expected = {"violations": [], **case.expected}
    assert {name: _plain(row[name]) for name in expected} == expected


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.id)
def test_nothing_of_the_record_is_lost(case: Case, rows: dict[str, Row]) -> None:
    row = rows[case.id]
    given = {"topic": "dlq.orders", "partition": 0, "offset": 0, "key": b"k", "value": b"v", **case.bronze}
    assert (row["dlq_topic"], row["dlq_partition"], row["dlq_offset"]) == (
        given["topic"],
        given["partition"],
        given["offset"],
    )
    assert _plain([row["key"], row["value"]]) == [given["key"], given["value"]]
    assert _plain(row["headers"]) == case.headers
    assert row["disposition_source"] is not None
    assert row["control_marker_suspected"] is not None


def test_a_record_belongs_to_its_group_or_else_to_what_its_headers_name(spark: SparkSession) -> None:
    nameless: Headers = [one for one in CONNECT if one and one[0] != "__connect.errors.connector.name"]
    expected = [
        (KIP_1191, "orders-workers"),
        (CONNECT, "connector warehouse-sink"),
        (nameless, "kafka-connect on dlq.orders"),
        (but(CONNECT, connector_name=b""), "kafka-connect on dlq.orders"),
        (STREAMS, "kafka-streams on dlq.orders"),
        (SPRING, "inventory-service"),
        (but(SPRING, consumer_group=None), "spring-kafka on dlq.orders"),
        ([("trace", b"x")], "unknown writer on dlq.orders"),
    ]
    given = [{"_bronze_id": str(number), "headers": headers} for number, (headers, _) in enumerate(expected)]
    given.append({"_bronze_id": "unreadable", "topic": None, "error": "no JSON", "raw": b"x"})
    found = {row["_bronze_id"]: row["owner"] for row in transform(bronze(spark, given), load()).collect()}
    assert found == {str(number): owner for number, (_, owner) in enumerate(expected)} | {"unreadable": None}


def test_cases_have_distinct_names() -> None:
    assert len({case.id for case in CASES}) == len(CASES) > 60


def test_every_rule_is_broken_by_a_case() -> None:
    broken = {code for case in CASES for code in case.expected.get("violations", [])}
    unbroken = {rule.code for rule in CONTRACT.rules} - broken
    assert {code for code in unbroken if not code.endswith(".utf8")} == set()


def test_columns_have_the_types_of_the_contract(spark: SparkSession) -> None:
    found = transform(bronze(spark, []), load())
    expected = spark.createDataFrame([], ", ".join(f"`{column.name}` {column.type}" for column in CONTRACT.columns))
    assert [(field.name, field.dataType.simpleString()) for field in found.schema] == [
        (field.name, field.dataType.simpleString()) for field in expected.schema
    ]


def test_content_hash_tells_contents_apart_and_nothing_else(rows: dict[str, Row]) -> None:
    hashes = {name: rows[f"content: {name}"]["_content_hash"] for name in CONTENTS}
    assert hashes.pop("elsewhere") == hashes["plain"]
    assert None not in hashes.values()
    assert len(set(hashes.values())) == len(hashes)


names = st.one_of(st.none(), st.sampled_from(NAMES), st.text(st.characters(exclude_categories=["Cs"]), max_size=30))
values = st.one_of(
    st.none(),
    st.binary(max_size=12),
    st.binary(min_size=4, max_size=4),
    st.binary(min_size=8, max_size=8),
    st.integers(-(2**65), 2**65).map(lambda number: str(number).encode()),
    st.datetimes().map(lambda time: time.isoformat().encode() + b"Z"),
    st.sampled_from([value for headers in (KIP_1191, KIP_1317, SPRING) for _, value in headers]),  # type: ignore[misc]
)
some_headers = st.lists(st.one_of(st.none(), st.tuples(names, values)), max_size=8)
complete = st.sampled_from([KIP_1191, KIP_1317, STREAMS, CONNECT, SPRING])
any_headers = st.one_of(st.none(), some_headers, st.builds(lambda base, more: base + more, complete, some_headers))
payloads = st.one_of(st.none(), st.binary(max_size=8), st.sampled_from([b"\0\0\0\1", b"\0" * 6]))


@hypothesis_settings(max_examples=4, deadline=None, suppress_health_check=list(HealthCheck))
@given(records=st.lists(st.tuples(any_headers, payloads, payloads), min_size=100, max_size=200))
def test_whatever_headers_arrive(
    spark: SparkSession, records: list[tuple[Headers | None, bytes | None, bytes | None]]
) -> None:
    from pyspark.sql import functions as F

    given = [
        {"_bronze_id": str(place), "headers": headers, "key": key, "value": value}
        for place, (headers, key, value) in enumerate(records)
    ]
    found = (
        transform(bronze(spark, given), load())
        .withColumn("mask", CONTRACT.broken_rules())
        .withColumn("violations", CONTRACT.violations(F.col("mask")))
        .select("_bronze_id", "headers", "key", "value", "mask", "violations")
        .collect()
    )
    assert sorted(int(row["_bronze_id"]) for row in found) == list(range(len(records)))
    for row in found:
        assert [_plain(row[name]) for name in ("headers", "key", "value")] == list(records[int(row["_bronze_id"])])
        assert (row["mask"] == 0) == (row["violations"] == [])


BROKERS_WORDS = {
    "Offset rejected by client.": "CLIENT_REJECTED",
    "Offset delivery count exceeded the threshold.": "MAX_DELIVERY_ATTEMPTS_REACHED",
}


@pytest.mark.parametrize(("topic", "records"), CAPTURED.items())
def test_disposition_of_real_records_is_the_brokers_message(topic: str, records: int, rows: dict[str, Row]) -> None:
    captured = _records(topic)
    assert len(captured) == records
    for place, record in enumerate(captured):
        row, said = rows[f"{topic} {place}"], dict(record["headers"])
        message = said["__dlq.errors.message"].decode()
        assert row["violations"] == []
        assert (row["disposition"], row["disposition_source"]) == (BROKERS_WORDS[message], "message")
        assert [row["original_topic"], str(row["original_partition"]), str(row["original_offset"])] == [
            said[f"__dlq.errors.{name}"].decode() for name in ("topic", "partition", "offset")
        ]
        assert row["payload_copied"] == any(record[part] is not None for part in ("key", "value"))
        assert topic != "dlq.billing" or not row["payload_copied"]
        assert not row["reserved_header_collision"]


def _records(topic: str) -> list[dict[str, Any]]:
    """The captured records of a topic as bronze stores them."""
    lines = (CAPTURES / f"{topic}.jsonl").read_text(encoding="utf-8").splitlines()
    return [
        {
            **{name: record[name] for name in ("topic", "partition", "offset")},
            "timestamp": datetime.fromtimestamp(record["timestamp"] / 1000, UTC),
            "timestamp_type": record["timestampType"],
            "key": _bytes(record["key"]),
            "value": _bytes(record["value"]),
            "headers": [(header["key"], _bytes(header["value"])) for header in record["headers"]],
        }
        for record in map(json.loads, lines)
    ]


def _bytes(text: str | None) -> bytes | None:
    return None if text is None else base64.b64decode(text)


def _plain(value: Any) -> Any:
    """Convert rows to tuples and byte arrays to bytes."""
    if isinstance(value, bytearray):
        return bytes(value)
    if isinstance(value, tuple):
        return tuple(_plain(part) for part in value)
    return [_plain(part) for part in value] if isinstance(value, list) else value
