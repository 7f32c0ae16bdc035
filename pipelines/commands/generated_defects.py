"""Rules of silver.dlq_records -> the defects that break each of them."""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass

from pipelines.commands.generated_letters import HEADERS, PROFILES, SHARE_GROUP, SPRING


@dataclass(frozen=True)
class Defect:
    """One way in which a record is bad, and the codes that its row must get.

    ``values`` replace those of headers, by columns (None: the header is absent). ``spoil`` turns a line into a bad one.
    """

    name: str
    profiles: tuple[str, ...]
    violations: tuple[str, ...]
    values: tuple[tuple[str, bytes | None], ...] = ()
    spoil: Callable[[str], str] | None = None


UNREADABLE = ("error.readable",)
BAD_TEXTS: dict[str, tuple[str, str, tuple[bytes, ...]]] = {
    "original_topic": (
        *("topic", "legal_topic_name"),
        (b"orders/eu", b"..", b"o" * 250, "bestellungen-ö".encode(), b"orders\0"),
    ),
    "original_partition": ("partition", "decimal_int32", (b"-1", b"+1", b" 1", b"1e3", b"2147483648", b"01")),
    "original_offset": (
        *("offset", "decimal_int64"),
        (b"-1", b"7 ", b"0x1f", "\u0663".encode(), b"9223372036854775808", b"5.7"),
    ),
    "consumer_group": ("group", "", ()),
    "disposition": ("disposition", "one_of", (b"REJECTED", b"client_rejected")),
    "routed_at": (
        *("timestamp", "iso_8601_utc"),
        (b"2026-11-21T02:00:00", b"2026-11-21T02:00:00+01:00", b"1795228875344", b"yesterday"),
    ),
}
"""By column: how people call it, the rule on its text, and texts that break the rule."""


def _defects() -> tuple[Defect, ...]:
    """Return defects for every kind of violation that the contract of silver.dlq_records knows."""
    defects = [
        Defect("no recognised header", PROFILES, ("header_profile.not_null",), spoil=_without_headers),
        Defect("not JSON", PROFILES, UNREADABLE, spoil=lambda line: "java.lang.IllegalStateException: " + line[:60]),
        Defect("cut off", PROFILES, UNREADABLE, spoil=lambda line: line[: len(line) // 2]),
        Defect("not an object", PROFILES, UNREADABLE, spoil=lambda line: f"[{line}]"),
        Defect("not base64", PROFILES, UNREADABLE, spoil=lambda line: line.replace('"value":"', '"value":"%', 1)),
    ]
    for column, (name, rule, texts) in BAD_TEXTS.items():
        for profile in PROFILES:
            if column not in HEADERS[profile].values() or (column == "consumer_group" and profile == SPRING):
                continue  # Spring's recoverer names a group only if it knows one
            is_binary = profile == SPRING and column != "original_topic"
            values: list[tuple[bytes | None, str]] = [(None, "not_null"), (b"", "not_null")]
            if profile not in SHARE_GROUP:  # an empty value or -1 says unknown there, which breaks no rule
                values[1] = (b"\0\0", rule) if is_binary else (b"\xff", "utf8")
                texts = tuple(b"-2" if text == b"-1" else text for text in texts)
            if not is_binary:
                values += [(b"\xff\xfe\xc0", "utf8"), *((text, rule) for text in texts)]
            for value, broken in values:
                shown = "absent" if value is None else ascii(value[:20])[1:]
                defects.append(Defect(f"{name} {shown}", (profile,), (f"{column}.{broken}",), ((column, value),)))
    for column, rule, value in (
        ("original_partition", "decimal_int32", struct.pack(">h", 3)),
        ("original_partition", "decimal_int32", struct.pack(">i", -2)),
        ("original_offset", "decimal_int64", struct.pack(">i", 3)),
        ("original_offset", "decimal_int64", struct.pack(">q", -2)),
    ):
        name = f"{column.replace('_', '-')} {value.hex()}"
        defects.append(Defect(name, (SPRING,), (f"{column}.{rule}",), ((column, value),)))
    return tuple(defects)


def _without_headers(line: str) -> str:
    return line[: line.index('"headers":')] + '"headers":[]}'


DEFECTS = _defects()
