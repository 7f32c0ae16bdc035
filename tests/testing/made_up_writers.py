"""Made-up writers of dead letters: how each calls its headers and encodes their values, and the letters that it writes.

It shares no code with what reads headers.
"""

from __future__ import annotations

import random
import struct
from collections.abc import Sequence
from dataclasses import dataclass

from pipelines.columns.writers import Letter

COMPANIES = ("acme", "globex", "initech", "umbrella", "hooli", "vandelay", "com acme", "zeta9")
PLACES = ("original", "source", "src", "orig", "failed message", "dead letter", "dlq source", "input", "dlq", "first")
NAMES = {
    "consumer_group": ("consumer group", "group id", "original consumer group", "dlq consumer group"),
    "error_message": ("error message", "exception message", "failure reason", "dead letter reason", "err msg"),
    "exception_class": ("err class", "exception class name", "error type", "dead exception fqcn"),
    "exception_cause_class": ("exception cause fqcn", "cause class", "root cause type"),
    "exception_stacktrace": ("stacktrace", "exception stack trace", "error stack", "failure traceback"),
    "delivery_count": ("attempts", "retry count", "delivery attempt", "attempt number", "num retries"),
    "original_timestamp": ("original timestamp", "source ts", "orig time"),
    "routed_at": ("failed at", "dlq timestamp", "error time", "dead letter time"),
}
ENCODINGS = {
    "original_partition": ("text", "int32"),
    "original_offset": ("text", "int64"),
    "delivery_count": ("text", "int32", "integer"),
    "original_timestamp": ("text", "int64", "integer", "iso"),
    "routed_at": ("text", "int64", "iso"),
}
CLASSES = ("java.lang.IllegalStateException", "System.TimeoutException", "ValueError", "requests.exceptions.HTTPError")
STACKS = ("{}: no\n\tat com.acme.Main.run(Main.java:7)\n", "Traceback (most recent call last):\n  File 'a.py'\n{}: no")
USER: tuple[tuple[str, bytes | None], ...] = (
    ("traceparent", b"00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"),
    ("content-type", b"application/json"),
    ("__TypeId__", b"com.acme.Order"),
    ("tenant-id", b"17"),
    ("ce_type", b"orders"),
    ("event-timestamp", b"1795100000000"),
    ("b3", None),
    ("user-group", b"admins"),
)
AT = 1_795_100_000_000


@dataclass
class MadeUp:
    """A writer: the name and the encoding of the header of each field, in its order, and its DLQ topic."""

    topic: str
    headers: dict[str, tuple[str, str]]

    def letter(self, seeded: random.Random, at: int, source: str = "") -> tuple[Letter, dict[str, str]]:
        """Return a letter and the texts of its fields; what is not of the origin can be missing."""
        error = seeded.choice(CLASSES)
        moment = AT - seeded.randrange(1000)
        values: dict[str, int | str] = {
            "original_topic": source or self.topic.split(".")[1],
            "original_partition": seeded.randrange(12),
            "original_offset": at + seeded.randrange(10**6),
            "consumer_group": f"group-{seeded.randrange(3)}",
            "error_message": f"no {seeded.randrange(100)} of anna@example.org",
            "exception_class": error,
            "exception_cause_class": error,
            "exception_stacktrace": seeded.choice(STACKS).format(error),
            "delivery_count": seeded.randrange(1, 9),
            "original_timestamp": moment,
            "routed_at": moment,
        }
        headers, texts = [], {}
        for field, (name, encoding) in self.headers.items():
            if (field.startswith("original_") and field != "original_timestamp") or seeded.random() < 0.8:
                content, texts[field] = _encoded(values[field], encoding)
                headers.append((name, content))
        users = [*seeded.sample(USER, seeded.randrange(len(USER)))]
        return Letter(self.topic, (*users, *headers), AT), texts


def made_up(seeded: random.Random, number: int) -> MadeUp:
    """Return a writer; writers of different numbers have different companies."""
    company = COMPANIES[number] if number or seeded.random() < 0.7 else ""
    place = seeded.choice(PLACES)
    words = {f"original_{item}": f"{place} {item}" for item in ("topic", "partition", "offset")}
    words |= {field: seeded.choice(names) for field, names in NAMES.items() if seeded.random() < 0.8}
    spelling = seeded.choice((_dashed, _dotted, _snake, _capitals, _camel, _pascal))
    fields = seeded.sample(sorted(words), len(words))
    headers = {
        field: (spelling(f"{company} {words[field]}".split()), seeded.choice(ENCODINGS.get(field, ("text",))))
        for field in fields
    }
    return MadeUp(f"dlq.{seeded.choice(('orders', 'payments', 'stock'))}.{number * seeded.randrange(2)}", headers)


def _dashed(words: Sequence[str]) -> str:
    return "x-" + "-".join(words)


def _dotted(words: Sequence[str]) -> str:
    return ".".join(words)


def _snake(words: Sequence[str]) -> str:
    return "_".join(words)


def _capitals(words: Sequence[str]) -> str:
    return "_".join(words).upper()


def _camel(words: Sequence[str]) -> str:
    return words[0] + "".join(word.capitalize() for word in words[1:])


def _pascal(words: Sequence[str]) -> str:
    return "".join(word.capitalize() for word in words)


def _encoded(value: int | str, encoding: str) -> tuple[bytes, str]:
    if isinstance(value, str):
        return value.encode(), value
    if encoding == "iso":
        from datetime import UTC, datetime

        text = datetime.fromtimestamp(value / 1000, UTC).isoformat().replace("+00:00", "Z")
        return text.encode(), text
    packed = {"int32": ">i", "int64": ">q"}
    if encoding in packed:
        return struct.pack(packed[encoding], value), str(value)
    if encoding == "integer":
        return value.to_bytes(value.bit_length() // 8 + 1, "big", signed=True), str(value)
    return str(value).encode(), str(value)
