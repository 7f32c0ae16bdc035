"""Rows of random values -> rows as their table's contract has them: offsets in order, slices that fit, rules that hold.

Offsets, topics and ids come from few values, so that rows of several tables meet.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any
from zlib import crc32

Row = dict[str, Any]
Shape = Callable[[Row, random.Random, float], None]

MOMENT = datetime(2026, 11, 21, 2, 41, 17, tzinfo=UTC)
TOPICS = ("orders", "orders", "orders", "orders.dlq", "orders.dlq", "payments")
HOSTILE_TOPICS = ("", "it's", "\U0001f4a3", "a\x00b", "É")
OFFSETS = (*range(12), *range(12), 254, 255, 256, 257, 511, 512, 996, 997, 998, 999, 1000, 1001, 1002, 2000)
HOSTILE_OFFSETS = (2**31, 2**53 + 1, 2**63 - 1001, 2**63 - 2, 2**63 - 1)
SECONDS = (0, 0, 1, 59, 1800, 3600, 3601, 5400, 7200, 9000, 86_400, -1, -3600)
HOSTILE_TIMES = (
    datetime(1, 1, 1, tzinfo=UTC),
    datetime(1582, 10, 10, 5, 30, tzinfo=UTC),
    datetime(1969, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC),
    datetime(9999, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC),
)
KEYS = (
    None, b"", b"\x00\x00\x00\x01", b"\xff\xff\xff\xff", "é".encode() * 2, b"\x00\xff\x00\x00\x07data", b"order-17",
    b"it:\xff", b"\x00\x00\x00\x00\x01",
)  # fmt: skip
MESSAGES = (
    "Offset rejected by client.", "order 17 of a.b@example.com failed at https://example.com/?q=1#x", "no id: 'a-1'",
    "\n", "  timeout to broker-1.kafka.svc:9092, 3f2a-77", "é \"x\" `y` 'z'\r\nsecond line", "\x1b[31m\x00 \\ /",
    " \u00a0\u3000no id",
)  # fmt: skip
PIECES = (
    *"aZ9é \t\r\n-_.:/+@'\"`\\<>", "\U0001f4a3", "\x0b", "\x85", "\u2028", "$1", "<*>", "://", "com", ".de", "::ffff",
    "0x1f", "2026-11-21T02:41:17Z", "host.example.com:80", "deadbeef-01", "\u0661",
)  # fmt: skip
FRAMES = (
    "java.lang.X: no\n", "\tat java.base/java.util.A.b(A.java:1)\n", "\tat com.example.Shop$1.pay(Shop.java:17)\n",
    "    at app//org.apache.kafka.X.y(X.java:2)\n", "at a/b/c.D2.e3(", "\r\n", "Caused by: é\n", "\tat kotlin.x.Y.z(\n",
    "\u2028at q.R.s(",
)  # fmt: skip
TRACES = ("".join(FRAMES), FRAMES[0] + FRAMES[2], "x" * 15_990 + FRAMES[2])
DISPOSITIONS = (
    "MAX_DELIVERY_ATTEMPTS_REACHED", "CLIENT_REJECTED", "CIRCUIT_BREAKER_ARCHIVED", "COORDINATOR_INITIATED", None,
)  # fmt: skip


def topic(chance: random.Random, hostile: float) -> str:
    return chance.choice(HOSTILE_TOPICS if chance.random() < hostile / 6 else TOPICS)


def offset(chance: random.Random, hostile: float) -> int:
    return chance.choice(HOSTILE_OFFSETS if chance.random() < hostile / 20 else OFFSETS)


def partition(chance: random.Random, hostile: float) -> int:
    return 2**31 - 1 if chance.random() < hostile / 10 else chance.choice((0, 0, 0, 0, 0, 1))


def time(chance: random.Random, hostile: float) -> datetime | None:
    if chance.random() < 0.1:
        return None
    if chance.random() < hostile / 4:
        return chance.choice(HOSTILE_TIMES)
    return MOMENT + timedelta(seconds=chance.choice(SECONDS), microseconds=chance.choice((0, 0, 0, 1, 999_999)))


def whole_hour(chance: random.Random, hostile: float) -> datetime | None:
    moment = time(chance, hostile)
    return moment and moment.replace(minute=0, second=0, microsecond=0)


def end(first: int, chance: random.Random, most: int = 9) -> int:
    """Return the last offset of a range that begins at an offset."""
    return min(2**63 - 1, first + chance.choice((0, 0, 0, 1, 2, most)))


def slice_of(place: int | None, number: int | None, name: str | None) -> str | None:
    if place is None or number is None or name is None:
        return None
    return f"{str(place // 1000).rjust(16, '0')[:16]}:{number}:{name}"


def slices_of(first: int, last: int, number: int, name: str) -> list[str | None]:
    return [
        slice_of(1000 * index, number, name) for index in range(first // 1000, min(last // 1000, first // 1000 + 3) + 1)
    ]


def ranges(chance: random.Random, hostile: float, most: int = 9) -> list[Row]:
    """Return ranges of offsets in order, not empty, without common offsets."""
    found: list[Row] = []
    for first in sorted({offset(chance, hostile) for _ in range(chance.choice((1, 1, 2, 3)))}):
        if not found or first > found[-1]["last_offset"]:
            found.append({"first_offset": first, "last_offset": end(first, chance, most)})
    return found


def _segment(row: Row, chance: random.Random, hostile: float, name: str) -> None:
    row["topic"], row["partition"] = topic(chance, hostile), partition(chance, hostile)
    begins = chance.choice((0, 0, 0, 2, 1000))
    row[name] = f"{row['topic']}-{row['partition']}/{begins:020}.{'log' if chance.random() > hostile / 4 else 'old'}"


def _topic_id(row: Row, chance: random.Random, *names: str) -> None:
    for name in names:
        row[name] = chance.choice((None, "id1", "id1", "id2"))


def record_batches(row: Row, chance: random.Random, hostile: float) -> None:
    _segment(row, chance, hostile, "_source")
    row["version"] = chance.choice((1, 1, 2, 2, None))
    row["base_offset"] = offset(chance, hostile)
    row["last_offset"] = end(row["base_offset"], chance)
    row["record_count"] = chance.choice((0, 1, 1, row["last_offset"] - row["base_offset"] + 1))
    epoch = crc32(f"{row['cluster']} {row['_source']}".encode()) % 4
    row["partition_leader_epoch"] = epoch if chance.random() < 0.9 else chance.choice((-1, 0, 1, 2, 3))
    row["max_timestamp"] = time(chance, hostile)
    row["position"] = chance.choice((0, 61, 100, 130, 200))


def log_files(row: Row, chance: random.Random, hostile: float) -> None:
    _segment(row, chance, hostile, "_source")
    row["version"] = chance.choice((1, 1, 2, 2))
    epoch = crc32(f"{row['cluster']} {row['_source']}".encode()) % 4
    epoch = epoch if chance.random() < 0.7 else chance.choice((-1, 0, 1, 2))
    row["covered"] = ranges(chance, hostile, 900) if chance.random() > hostile / 4 else []
    if row["covered"] and chance.random() < 0.7:
        row["covered"][-1]["last_offset"] = max(row["covered"][-1]["last_offset"], 1500)
    row["modified_ns"] = chance.choice((1, 2, 3, 3, 4))
    _topic_id(row, chance, "topic_id")
    row["first_version"] = chance.randint(1, row["version"])
    row["batch_count"] = chance.choice((0, 1, 2))
    row["greatest_timestamp"] = chance.choice((-1, 5, 6))
    row["least_epoch"], row["greatest_epoch"] = max(-1, epoch - chance.choice((0, 1))), epoch
    row["greatest_epoch_offset"] = offset(chance, hostile)


def held_record_batches(row: Row, chance: random.Random, hostile: float) -> None:
    _segment(row, chance, hostile, "_source")
    row["version"] = chance.choice((1, 2, 2, 3, 3, 3))


def log_copies(row: Row, chance: random.Random, hostile: float) -> None:
    _segment(row, chance, hostile, "segment")
    _topic_id(row, chance, "topic_id")
    row["first_version"] = chance.choice((1, 1, 2))
    row["is_of_older_topic"] = chance.random() < 0.2
    row["superseded_ranges"] = chance.choice(([], [], ranges(chance, hostile)))
    row["truncated_from"] = chance.choice((None, None, None, offset(chance, hostile)))


def log_batches(row: Row, chance: random.Random, hostile: float) -> None:
    _segment(row, chance, hostile, "segment")
    _topic_id(row, chance, "topic_id")
    row["version"] = chance.choice((0, 1, 1, 2))
    row["base_offset"] = offset(chance, hostile)
    row["last_offset"] = end(row["base_offset"], chance, chance.choice((*(2,) * 20, 9, 900, 30_000)))
    span = row["last_offset"] - row["base_offset"] + 1
    row["record_count"] = min(chance.choice((0, 1, span, span, span)), 2**31 - 1)
    row["size_in_bytes"] = chance.choice((61, 70))
    row["is_control"] = chance.random() < 0.3
    row["is_transactional"] = chance.random() < 0.9
    row["control_type"] = (
        chance.choice(("COMMIT", "ABORT", "COMMIT", "ABORT", "4", None)) if row["is_control"] else None
    )
    if row["is_control"]:
        row["last_offset"], row["record_count"] = row["base_offset"], 1
    row["producer_id"] = chance.choice((1, 1, 1, 1, 1, 2, -1, 2**63 - 1 if chance.random() < hostile else 2))
    row["producer_epoch"] = chance.choice((0, 0, 0, 0, 0, 1, 1, 2, 32767))
    row["max_timestamp"] = time(chance, hostile)
    row["superseded_by"] = chance.choice((None, None, None, None, None, "VERSION", "TOPIC", "COPY", "LEADER"))


def log_ranges(row: Row, chance: random.Random, hostile: float) -> None:
    _segment(row, chance, hostile, "segment")
    _topic_id(row, chance, "topic_id")
    row["first_offset"] = offset(chance, hostile)
    row["last_offset"] = min(end(row["first_offset"], chance, 400), row["first_offset"] // 1000 * 1000 + 999, 2**63 - 1)
    row["has_batch"] = chance.random() < 0.6
    row["is_present"] = chance.choice((True, True, False, None)) if row["has_batch"] else False
    row["is_compacted"] = chance.random() < 0.3
    row["slice"] = slice_of(row["first_offset"], row["partition"], row["topic"])


def log_gaps(row: Row, chance: random.Random, hostile: float) -> None:
    row["topic"] = topic(chance, hostile) if chance.random() < 0.05 else "another"
    row["partition"] = partition(chance, hostile)
    row["first_offset"] = chance.choice((13, 300, 995, 1010, 1500))  # no batch begins there
    row["last_offset"] = end(row["first_offset"], chance)
    row["log"] = f"{row['partition']}:{row['topic']}"


def transactions(row: Row, chance: random.Random, hostile: float) -> None:
    row["topic"], row["partition"] = topic(chance, hostile), partition(chance, hostile)
    _topic_id(row, chance, "topic_id")
    row["producer_id"], row["producer_epoch"] = chance.choice((1, 2, 3)), chance.choice((0, 1, None))
    row["ranges"] = ranges(chance, hostile, 900)
    row["first_offset"], row["last_offset"] = row["ranges"][0]["first_offset"], row["ranges"][-1]["last_offset"]
    row["state"] = chance.choice(("COMMITTED", "ABORTED", "ABORTED", "OPEN", "UNKNOWN"))
    row["ended_at"], row["last_written_at"] = time(chance, hostile), time(chance, hostile)
    row["batch_count"], row["record_count"] = 1, 1
    row["slices"] = slices_of(row["first_offset"], row["last_offset"], row["partition"], row["topic"])


def _origin(row: Row, chance: random.Random, hostile: float) -> None:
    row["original_topic"], row["original_partition"] = topic(chance, hostile), partition(chance, hostile)
    row["original_offset"] = offset(chance, hostile)
    if chance.random() < hostile / 2:
        row[chance.choice(("original_topic", "original_partition", "original_offset"))] = None
    row["source_slice"] = slice_of(row["original_offset"], row["original_partition"], row["original_topic"])


def _letter(row: Row, chance: random.Random, hostile: float) -> None:
    row["dlq_topic"], row["dlq_partition"] = topic(chance, hostile), partition(chance, hostile)
    row["dlq_offset"] = offset(chance, hostile)
    _topic_id(row, chance, "dlq_topic_id")
    _origin(row, chance, hostile)
    row["slice"] = slice_of(row["dlq_offset"], row["dlq_partition"], row["dlq_topic"])
    row["consumer_group"] = chance.choice(("billing", "billing", "shipping", None))
    row["disposition"] = chance.choice(DISPOSITIONS)
    row["routed_at"], row["dlq_timestamp"] = time(chance, hostile), time(chance, hostile)


def _hop(chance: random.Random, hostile: float) -> Row:
    """An earlier hop of headers, some of which do not name all of its place."""
    hop = {"profile": "spring-kafka", "topic": topic(chance, hostile), "partition": partition(chance, hostile)}
    hop |= {"offset": offset(chance, hostile), "consumer_group": chance.choice(("billing", None))}
    if chance.random() < 0.2:
        hop[chance.choice(("topic", "partition", "offset"))] = None
    return hop


def dlq_records(row: Row, chance: random.Random, hostile: float) -> None:
    _letter(row, chance, hostile)
    row["_bronze_id"] = f"b{chance.randrange(200)}"
    row["_content_hash"] = chance.choice((1, 2, 2, -(2**63)))
    row["header_profile"] = chance.choice(("kip-1317", "kip-1191", "connect", None))
    row["earlier_hops"] = chance.choice(
        (None, [], *([_hop(chance, hostile) for _ in range(many)] for many in (1, 2, 3)))
    )
    row["_ingested_at"] = time(chance, hostile)
    row["key"] = chance.choice((*KEYS, b"abc"))
    row["value"] = chance.choice((*KEYS, None))
    row["user_headers"] = chance.choice((None, [], *([{"key": "h", "value": item}] for item in KEYS)))
    row["lossy_encoding"] = chance.random() < 0.2
    row["error_message"] = chance.choice((None, "", *MESSAGES, "".join(chance.choices(PIECES, k=chance.randrange(9)))))
    row["exception_stacktrace"] = chance.choice((None, "", *TRACES, "".join(chance.choices(FRAMES, k=4))))
    row["fingerprint_version"] = chance.choice((None, 1, 2))


def refused_dlq_records(row: Row, chance: random.Random, hostile: float) -> None:
    dlq_records(row, chance, hostile)
    if chance.random() < 0.2:
        row["dlq_offset"] = chance.choice((None, -1))
    codes = (
        "routed_at.not_null",
        "header_profile.mandatory",
        "disposition.one_of",
        None,
        "it's",
        "_not_null",
        "anot_null",
    )
    row["violations"] = [chance.choice(codes) for _ in range(chance.choice((0, 1, 2)))]


def dlq_control_markers(row: Row, chance: random.Random, hostile: float) -> None:
    dlq_records(row, chance, hostile)
    row["is_control_marker"] = chance.random() < 0.6


def dead_letters(row: Row, chance: random.Random, hostile: float) -> None:
    _letter(row, chance, hostile)
    row["write_state"] = chance.choice((None, None, "COMMITTED", "ABORTED", "OPEN", "UNKNOWN"))
    row["is_accepted"] = chance.random() < 0.9
    row["is_held"] = False
    row["is_control_marker"] = chance.random() < 0.1
    row["is_counted"] = row["is_accepted"] and not row["is_control_marker"] and row["write_state"] != "ABORTED"
    row["lacks_mandatory_headers"] = chance.random() < 0.3


def inferred_dead_letters(row: Row, chance: random.Random, hostile: float) -> None:
    _letter(row, chance, 0)
    row["told_by_topic"], row["told_by_partition"] = topic(chance, hostile), partition(chance, hostile)
    row["told_by_offset"], row["hop"] = offset(chance, hostile), chance.randrange(3)
    _topic_id(row, chance, "told_by_topic_id")
    row["header_profile"] = "spring-kafka"
    row["dlq_slice"] = row["slice"]
    row["slice"] = slice_of(row["told_by_offset"], row["told_by_partition"], row["told_by_topic"])


def acknowledgements(row: Row, chance: random.Random, hostile: float) -> None:
    row["topic"] = topic(chance, hostile)
    row["partition"] = chance.choice((-1, 0, 0, 0, 0, 0, 1))
    row["offset"] = (
        offset(chance, hostile) if row["partition"] >= 0 and chance.random() < 0.9 else chance.choice((-1, None))
    )
    row["outcome"] = chance.choice(("ACKNOWLEDGED", "ACKNOWLEDGED", "ACKNOWLEDGED", "FAILED", "UNKNOWN"))
    row["_bronze_id"] = f"a{chance.randrange(100)}"
    row["slice"] = slice_of(max(0, row["offset"] or 0), row["partition"], row["topic"])
    row["timestamp"], row["acknowledged_at"] = time(chance, hostile), time(chance, hostile)


def dlq_hops(row: Row, chance: random.Random, hostile: float) -> None:
    row["topic"], row["partition"] = topic(chance, hostile), partition(chance, hostile)
    row["offset"] = offset(chance, hostile)
    _origin(row, chance, 0)
    if chance.random() < 0.5:  # a chain, one offset at a time
        place = {"original_topic": row["topic"], "original_partition": row["partition"]}
        row.update(place, original_offset=max(0, row["offset"] - 1))
    row["slice"] = slice_of(row["offset"], row["partition"], row["topic"])


def dlq_roots(row: Row, chance: random.Random, hostile: float) -> None:
    dlq_hops(row, chance, hostile)
    row["hop_count"] = chance.choice((None, 1, 2, 8))
    is_known = row["hop_count"] is not None
    row["root_topic"], row["root_partition"] = (topic(chance, hostile), 0) if is_known else (None, None)
    row["root_offset"] = offset(chance, hostile) if is_known else None


def dlq_ranges(row: Row, chance: random.Random, hostile: float) -> None:
    _letter(row, chance, hostile)
    row["first_offset"] = row["dlq_offset"]
    row["last_offset"] = min(end(row["first_offset"], chance), row["first_offset"] // 1000 * 1000 + 999, 2**63 - 1)


def _amounts(row: Row, chance: random.Random, hostile: float) -> None:
    for name in row:
        if name.endswith("_count") and name != "delivery_count":
            row[name] = (
                chance.choice((2**62, 2**63 - 1)) if chance.random() < hostile / 8 else chance.choice((0, 1, 2, 999))
            )


def dlq_gaps(row: Row, chance: random.Random, hostile: float) -> None:
    _letter(row, chance, hostile)
    _amounts(row, chance, hostile * 4)
    row["found_at"] = time(chance, hostile)


def dlq_write_failures(row: Row, chance: random.Random, hostile: float) -> None:
    _letter(row, chance, hostile)
    _amounts(row, chance, hostile * 4)
    row["event_id"] = f"e{chance.randrange(1000)}"
    row["failed_at"] = time(chance, hostile)
    if chance.random() < 0.2:
        row["offset_count"] = None


def message_ledger(row: Row, chance: random.Random, hostile: float) -> None:
    acknowledgements(row, chance, hostile)
    row["acknowledgement_id"] = None if (row["offset"] or -1) >= 0 else f"a{chance.randrange(1000)}"
    row["outcome"] = chance.choice(("ACKNOWLEDGED", "FAILED", "UNKNOWN", "LOST", "ABSENT", "ABORTED", "DEAD_LETTERED"))
    row["transaction_state"] = chance.choice((None, "COMMITTED", "ABORTED", "OPEN"))
    row["acknowledged"] = chance.random() < 0.7
    row["acknowledgement_count"] = chance.choice((0, 1, 1, 2))
    row["produced_at"] = time(chance, hostile)
    row["hop_count"] = chance.choice((0, 0, 1, None))
    row["dead_letters"] = []
    for times in range(1, chance.choice((1, 1, 2, 3))):
        letter: Row = {}
        _letter(letter, chance, hostile)
        row["dead_letters"].append({**letter, "delivery_count": 1, "times": times})


def message_counts(row: Row, chance: random.Random, hostile: float) -> None:
    row["topic"] = topic(chance, hostile)
    row["slice"] = slice_of(offset(chance, hostile), partition(chance, hostile), row["topic"])
    row["hour"] = whole_hour(chance, hostile)
    row["consumer_group"] = chance.choice(("billing", "shipping", None, None))
    _amounts(row, chance, hostile / 8)


def acknowledged_topics(row: Row, chance: random.Random, hostile: float) -> None:
    row["topic"] = topic(chance, hostile)


def topic_policies(row: Row, chance: random.Random, hostile: float) -> None:
    row["topic"] = topic(chance, hostile)
    row["is_compacted"] = chance.choice((None, False, False, True))


def dlq_counts(row: Row, chance: random.Random, hostile: float) -> None:
    _letter(row, chance, hostile)
    row["hour"] = whole_hour(chance, hostile)
    _amounts(row, chance, hostile / 8)
    for name in ("first_routed_at", "last_routed_at", "first_accepted_at", "last_accepted_at"):
        row[name] = time(chance, hostile)


def producers(row: Row, chance: random.Random, hostile: float) -> None:
    row["topic"] = topic(chance, hostile)
    row["client_id"] = chance.choice(("app", "app-2", "it's"))
    row["_bronze_id"] = f"p{chance.randrange(1000)}"
    row["requested_mode"] = chance.choice(("required", "requested", "off", None))
    row["client_mode"] = chance.choice(("IDEMPOTENT", "IDEMPOTENT", "PLAIN", "REFUSED", None))
    row["client_version"] = chance.choice(("0.11.0", "3.9.0", "librdkafka 2.5.0", None))
    row["contradiction"] = chance.choice(("acks", "retries", "max_in_flight", "transactional_id", None))
    row["acks"] = chance.choice(("all", "1", "0", None))
    row["max_in_flight_requests_per_connection"] = chance.choice((5, 6, None))
    row["most_in_flight"] = 5
    for name in ("client_knows_mode", "is_on_by_default", "broker_has_idempotence", "broker_tells_format"):
        row[name] = chance.choice((True, True, False, None))
    row["broker_version"] = chance.choice(("0.11.0", "3.9", None))
    row["message_format_version"] = chance.choice(("0.10", "2.0"))
    row["message_format"] = chance.choice((0, 1, 2, 2, None))
    row["producer_id"] = chance.choice((1, 2, 3, None))
    row["stated_at"] = time(chance, hostile)


SHAPES: dict[str, Shape] = {
    "silver.record_batches": record_batches,
    "silver.log_files": log_files,
    "held.record_batches": held_record_batches,
    "silver.log_copies": log_copies,
    "silver.log_batches": log_batches,
    "silver.log_ranges": log_ranges,
    "silver.log_gaps": log_gaps,
    "silver.transactions": transactions,
    "silver.topic_policies": topic_policies,
    "silver.acknowledged_topics": acknowledged_topics,
    "silver.dlq_records": dlq_records,
    "quarantine.dlq_records": refused_dlq_records,
    "held.dlq_records": refused_dlq_records,
    "silver.dlq_control_markers": dlq_control_markers,
    "silver.dead_letters": dead_letters,
    "silver.inferred_dead_letters": inferred_dead_letters,
    "silver.acknowledgements": acknowledgements,
    "silver.dlq_hops": dlq_hops,
    "silver.dlq_roots": dlq_roots,
    "silver.dlq_ranges": dlq_ranges,
    "silver.dlq_gaps": dlq_gaps,
    "silver.dlq_write_failures": dlq_write_failures,
    "silver.producers": producers,
    "gold.dlq_counts": dlq_counts,
    "gold.message_ledger": message_ledger,
    "gold.message_counts": message_counts,
}
"""By table: what changes a row of random values into one that its contract permits."""

UNIQUE = {
    "silver.dlq_records": ("cluster", "_bronze_id"),
    "held.dlq_records": ("cluster", "_bronze_id"),
}
"""By table: columns beside the grain that identify a row."""


def shaped(table: str, rows: Iterable[Row], chance: random.Random, hostile: float) -> list[Row]:
    """Return rows that a table's contract permits."""
    made = []
    for row in rows:
        names = list(row)
        if shape := SHAPES.get(table):
            row["cluster"] = chance.choice(("c1", "c1", "c2"))
            shape(row, chance, hostile)
        made.append({name: row[name] for name in names})
    return apart(made, chance) if table == "silver.log_batches" else made


def apart(batches: Sequence[Row], chance: random.Random) -> list[Row]:
    """Return batches in the order of their segments; those that count have no offset in common in their logs."""
    reached: dict[tuple[Any, ...], int] = {}
    ends: dict[tuple[Any, ...], int] = {}
    kept = []
    for row in sorted(batches, key=lambda row: row["base_offset"]):
        log, segment = (row["cluster"], row["topic"], row["partition"]), (row["cluster"], row["segment"])
        if row["superseded_by"] is None:
            if row["base_offset"] <= reached.get(log, -1):
                continue
            reached[log] = row["last_offset"]
        row["position"] = ends.get(segment, 0) + chance.choice((0, 0, 0, 7))  # something else stands between them
        ends[segment] = row["position"] + row["size_in_bytes"]
        kept.append(row)
    chance.shuffle(kept)
    return kept
