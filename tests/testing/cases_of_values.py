"""Values of headers, payloads and own profiles, and the rows of silver.dlq_records that they give."""

from __future__ import annotations

import struct

from tests.testing.cases_of_writers import (
    CONNECT,
    KIP_1191,
    KIP_1317,
    RETRIED,
    SPRING,
    STREAMS,
    Case,
    breaks,
    but,
    cloud,
    without,
)

CASES_OF_VALUES = [
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
