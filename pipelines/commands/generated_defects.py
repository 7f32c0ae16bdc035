"""Rules of silver.dlq_records -> the defects that break each of them."""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass

from pipelines.commands.generated_flows import PROFILES, SHARE


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


# The header of each role by profile, as in headers_of.
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
