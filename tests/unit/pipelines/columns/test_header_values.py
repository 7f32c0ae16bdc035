"""Values of headers: the encodings by which they fit a field, and the fields that they show by themselves."""

from __future__ import annotations

import struct
from collections.abc import Sequence

import pytest

from pipelines.columns.header_values import Values, is_lawful

AT = 1_795_100_000_000
STACK = b"java.lang.IllegalStateException: no\n\tat com.acme.Main.run(Main.java:7)\n"


def values(contents: Sequence[bytes], topic: str = "dlq.orders") -> Values:
    made = Values()
    for content in contents:
        made.add(content, topic, AT)
    return made


def packed(form: str, *numbers: int) -> list[bytes]:
    return [struct.pack(form, number) for number in numbers]


@pytest.mark.parametrize(
    ("field", "contents", "expected"),
    [
        ("original_partition", packed(">i", 4, 0, -1), "int32"),
        ("original_partition", packed("<i", 4, 1), None),
        ("original_partition", [b"4", b"-1"], "text"),
        ("original_partition", [b"1980", b"1981"], "text"),
        ("original_partition", [b"four"], None),
        ("original_partition", [b"4", *packed(">i", 4)], None),
        ("original_offset", packed(">q", 70_000, 70_001), "int64"),
        ("original_offset", packed("<q", 70_000, 70_001), None),
        ("original_offset", packed(">d", 70_000.0), None),
        ("original_offset", [b"70000"] * 9 + [b"+7"], "text"),
        ("delivery_count", [b"\x03", b"5"], "integer"),
        ("delivery_count", [b"\x03", b"\x01\x00"], "integer"),
        ("original_timestamp", packed(">q", AT), "int64"),
        ("original_timestamp", [AT.to_bytes(6, "big")], "integer"),
        ("original_timestamp", [b"2026-11-21T02:41:07.123Z"], "text"),
        ("original_timestamp", [b"2026-11-21T02:41:07+02:00"], None),
        ("original_timestamp", [b"1795100000"], None),
        ("original_timestamp", [b"1795100000000000000"], None),
        ("original_topic", [b"orders"], "text"),
        ("original_topic", [b"kafka://prod/orders"], "uri"),
        ("original_topic", [b'"orders"'], None),
        ("exception_class", [b"java.lang.IllegalStateException"], "text"),
        ("exception_class", [b"System.TimeoutException, mscorlib"], "text"),
        ("exception_class", [b"ValueError"], "text"),
        ("exception_class", [b"java.lang.X: no luck", b"java.lang.Y"], "throwable"),
        ("exception_class", [b"no luck today"], None),
        ("exception_class", [STACK], None),
        ("error_message", [b"no luck today"], "text"),
        ("error_message", [b"\xff\xfe\x00"], None),
        ("error_message", [STACK], None),
        ("disposition", [b"CLIENT_REJECTED"], "text"),
        ("disposition", [b"rejected"], None),
        ("consumer_group", [b"router"], "text"),
        ("original_topic", [], None),
    ],
)
def test_the_values_tell_the_encoding(field: str, contents: list[bytes], expected: str | None) -> None:
    assert values(contents).encoding_of(field) == expected


@pytest.mark.parametrize(
    ("contents", "known", "expected"),
    [
        ([STACK], (), "exception_stacktrace"),
        ([b"Traceback (most recent call last):\n  File 'a.py'\nValueError: no"], (), "exception_stacktrace"),
        ([b"   at Acme.Router.Route() in Router.cs:line 7\n   at Acme.Main()"], (), "exception_stacktrace"),
        ([b"System.TimeoutException"], (), "exception_class"),
        ([b"com.acme.Order"], (), None),
        ([b"orders"], (), "original_topic"),  # in the name dlq.orders
        ([b"parcels"], ("parcels",), "original_topic"),
        ([b"parcels"], (), None),
        ([b"some text"], (), None),
    ],
)
def test_some_values_show_a_field_by_themselves(
    contents: list[bytes], known: tuple[str, ...], expected: str | None
) -> None:
    assert values(contents).shows(known) == expected


def test_what_is_said_of_values_has_nothing_of_them() -> None:
    kinds = [
        values(item).kind for item in ([], [b"7"], packed(">i", 7), packed("<q", 7), [STACK], [b"anna"], [b"\xff" * 9])
    ]
    assert kinds == [
        "no values",
        "decimal digits",
        "4 bytes",
        "8 bytes, little-endian",
        "stack traces",
        "text",
        "bytes",
    ]


def test_times_are_near_those_of_the_records() -> None:
    assert values([str(AT - 1000).encode()]).is_near
    assert values([b"2026-11-19T14:13:20Z"]).is_near == (abs(1_795_097_600_000 - AT) < 3_600_000)
    assert not values([str(AT - 10**9).encode()]).is_near
    assert not values([b"soon"]).is_near


def test_lawful_is_what_the_contract_lets_in() -> None:
    assert is_lawful("original_partition", "4")
    assert not is_lawful("original_partition", "0x04")
    assert not is_lawful("original_topic", "a topic")
    assert is_lawful("routed_at", "2026-11-21T02:41:07Z")
    assert not is_lawful("routed_at", "2026-11-21 02:41:07")
    assert not is_lawful("error_message", "a\ufffd")
