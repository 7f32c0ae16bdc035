"""The values that a header has in many records -> whether they fit a field, and by which encoding.

Values may be personal data: nothing here returns one or puts one into text.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Literal

from expectations.rules import INT32, INT64
from expectations.silver.dlq_records import DISPOSITIONS, ISO_8601_UTC, TOPIC_NAME
from pipelines.columns.profiles import Encoding

LEAST_SHARE = 0.9  # of the values, which must fit
NEAR_MILLIS = 3_600_000  # between the time that a value says and the record's own
FEW = 3  # values, of which nothing can be told
MILLIS = range(10**12, 5 * 10**12)  # of the years 2001 to 2128
GREATEST = {
    "original_partition": 10**5,
    "original_offset": 2**48,
    "delivery_count": 10**6,
}
"""Greater numbers are read with a wrong encoding, such as little-endian."""
BYTE_ORDERS: tuple[Literal["big", "little"], ...] = ("big", "little")
NUMBERS = frozenset((*GREATEST, "original_timestamp", "routed_at"))

_TOPIC = re.compile(TOPIC_NAME.replace(r"\z", r"\Z"))
_INT32, _INT64 = (re.compile(pattern.replace(r"\z", r"\Z")) for pattern in (INT32, INT64))
_ISO = re.compile(ISO_8601_UTC.replace(r"\z", r"\Z"))
_CLASS = re.compile(r"\*?[A-Za-z_][\w$]*(?:(?:\.|::|\\|\+|/)\*?[A-Za-z_][\w$]*)*")
_OF_ERRORS = re.compile(r".*(?:Exception|Error|Failure|Fault|Throwable|Timeout|Panic|Warning)s?(?:`\d+)?", re.DOTALL)
_STACK = re.compile(
    r"\s+at \S.*$|^Traceback \(most recent call last\)|^goroutine \d+ \[|^Caused by: |^\s+from \S+:\d+"
    r"|^\s*\S+\.(?:rb|go|php|py|js|ts|rs):\d+|^#\d+ \S",
    re.MULTILINE,
)


@dataclass
class Values:
    """The values of a header that are not empty, in order of the records; the lists run side by side.

    ``topics`` are the DLQ topics of the records, ``times`` their timestamps in milliseconds.
    """

    contents: list[bytes] = field(default_factory=list)
    topics: list[str] = field(default_factory=list)
    times: list[int | None] = field(default_factory=list)

    def add(self, content: bytes, topic: str, time: int | None) -> None:
        """Add the value that a record has."""
        self.contents.append(content)
        self.topics.append(topic)
        self.times.append(time)

    @cached_property
    def texts(self) -> list[str | None]:
        """Each value as text; null if it is none: no UTF-8, or with bytes that no text has."""
        return [_text(content) for content in self.contents]

    @cached_property
    def number_encoding(self) -> Encoding | None:
        """The encoding of numbers that all values have; None if they have several, or are none."""
        if not self.contents:
            return None
        if self._share([text is not None and _is_number(text) for text in self.texts]) >= LEAST_SHARE:
            return "text"
        if all(text is not None for text in self.texts):
            return None
        lengths = {len(content) for content in self.contents}
        if lengths == {4}:
            return "int32"
        if lengths == {8}:
            return "int64"
        return "integer" if all(map(_is_minimal, self.contents)) or lengths == {4, 8} else None

    @property
    def kind(self) -> str:
        """How the values look, in words that say nothing of their content."""
        if not self.contents:
            return "no values"
        if (encoding := self.number_encoding) is not None:
            if encoding in ("int32", "int64") and self._is_little_endian:
                return f"{len(self.contents[0])} bytes, little-endian"
            return {"text": "decimal digits", "int32": "4 bytes", "int64": "8 bytes"}.get(encoding, "few bytes")
        if self.fraction(_is_stack) >= LEAST_SHARE:
            return "stack traces"
        if self.fraction(lambda text: _ISO.match(text) is not None) >= LEAST_SHARE:
            return "ISO times"
        return "text" if None not in self.texts else "bytes"

    @property
    def _is_little_endian(self) -> bool:
        """Whether the numbers are small only if their bytes are read from the last to the first."""
        most = GREATEST["original_offset"] if self.number_encoding == "int64" else GREATEST["original_partition"]
        straight, swapped = (max(int.from_bytes(content, order) for content in self.contents) for order in BYTE_ORDERS)
        return straight >= most > swapped

    @property
    def numbers(self) -> list[int | None]:
        """Each value as a number by ``number_encoding``."""
        if self.number_encoding == "text":
            return [int(text) if text is not None and _is_number(text) else None for text in self.texts]
        return [int.from_bytes(content, "big", signed=True) for content in self.contents]

    def encoding_of(self, name: str, known_topics: Collection[str] = ()) -> Encoding | None:
        """Return the encoding by which the values fit a field; None if they do not fit it."""
        if not self.contents:
            return None
        if name in NUMBERS:
            return self._encoding_of_number(name)
        if name == "original_topic":
            return self._encoding_of_topic(known_topics)
        if name in ("exception_class", "exception_cause_class"):
            return self._encoding_of_class()
        holds = {
            "exception_stacktrace": lambda text: True,
            "error_message": lambda text: not _is_stack(text),
            "disposition": lambda text: text in DISPOSITIONS,
        }
        return "text" if self.fraction(holds.get(name, _is_short)) >= LEAST_SHARE else None

    def fraction(self, holds: object) -> float:
        """Return the share of values that are text for which a predicate holds."""
        assert callable(holds)
        return self._share([text is not None and bool(holds(text)) for text in self.texts])

    def shows(self, known_topics: Collection[str]) -> str | None:
        """Return the field that the values alone show, whatever the name; None if they show none."""
        if self.fraction(_is_stack) >= LEAST_SHARE:
            return "exception_stacktrace"
        if self._encoding_of_class() and self.fraction(_is_class_of_errors) >= LEAST_SHARE:
            return "exception_class"
        if self.names_topics(known_topics) and self._encoding_of_topic(known_topics):
            return "original_topic"
        return None

    def names_topics(self, known: Collection[str]) -> bool:
        """Tell whether the values are names of topics that are known, or in the names of the DLQ topics."""
        are_topics = [
            text is not None and (_last(text) in known or _is_part(_last(text), topic))
            for text, topic in zip(self.texts, self.topics, strict=True)
        ]
        return bool(are_topics) and self._share(are_topics) >= LEAST_SHARE

    @property
    def names_own_topic(self) -> bool:
        """Tell whether most values are the DLQ topic that holds the record, so not where it came from."""
        own = [text == topic for text, topic in zip(self.texts, self.topics, strict=True)]
        return bool(own) and self._share(own) > 0.5

    @property
    def differ(self) -> bool:
        """Whether no value comes twice, as of the id of a message; few values tell nothing."""
        return FEW < len(self.contents) == len(set(self.contents))

    @property
    def is_near(self) -> bool:
        """Tell whether the values are times near those of the records."""
        near = [
            time is not None and moment is not None and abs(moment - time) <= NEAR_MILLIS
            for moment, time in zip(map(self._millis, range(len(self.contents))), self.times, strict=True)
        ]
        return bool(near) and self._share(near) >= LEAST_SHARE

    def _millis(self, at: int) -> int | None:
        text = self.texts[at]
        if text is not None and _ISO.match(text):
            from datetime import datetime

            seconds = re.sub(r"(?<=\d)(?:Z|\+00(?::?00)?)\Z", "", text)[: len("2026-11-21T02:41:07.123456")]
            try:
                moment = datetime.fromisoformat(f"{seconds}+00:00")
            except ValueError:
                return None
            return int(moment.timestamp() * 1000)
        return self.numbers[at] if self.number_encoding else None

    def _encoding_of_number(self, name: str) -> Encoding | None:
        encoding = self.number_encoding
        if encoding is None:
            is_time = name not in GREATEST and self.fraction(lambda text: _ISO.match(text) is not None) >= LEAST_SHARE
            return "text" if is_time else None
        allowed = range(GREATEST[name]) if name in GREATEST else MILLIS
        fitting = [number is not None and (number == -1 or number in allowed) for number in self.numbers]
        if all(number == -1 for number in self.numbers):
            return encoding if encoding != "integer" else None
        return encoding if self._share(fitting) >= LEAST_SHARE else None

    def _encoding_of_topic(self, known: Collection[str]) -> Encoding | None:
        if self.fraction(lambda text: _TOPIC.match(text) is not None) >= LEAST_SHARE:
            return "text"
        behind = self.fraction(lambda text: "/" in text and _TOPIC.match(_last(text)) is not None)
        return "uri" if behind >= LEAST_SHARE else None

    def _encoding_of_class(self) -> Encoding | None:
        if self.fraction(_is_class) >= LEAST_SHARE:
            return "text"
        throwable = self.fraction(lambda text: _is_class(text.split(": ", 1)[0]) and not _is_stack(text))
        return "throwable" if throwable >= LEAST_SHARE and self.fraction(_is_throwable) > 0 else None

    @staticmethod
    def _share(held: Sequence[bool]) -> float:
        return sum(held) / len(held) if held else 0.0


def is_lawful(name: str, text: str) -> bool:
    """Tell whether the text of a field breaks no rule of the contract that judges what profiles map."""
    if "\ufffd" in text:
        return False
    patterns = {"original_topic": _TOPIC, "original_partition": _INT32, "original_offset": _INT64}
    patterns |= {"delivery_count": _INT32}
    if name in patterns:
        return patterns[name].match(text) is not None
    if name in ("original_timestamp", "routed_at"):
        return _INT64.match(text) is not None or _ISO.match(text) is not None
    return text in DISPOSITIONS if name == "disposition" else True


def _text(content: bytes) -> str | None:
    try:
        text = content.decode()
    except UnicodeDecodeError:
        return None
    return text if all(character >= " " or character in "\t\r\n" for character in text) else None


def _is_number(text: str) -> bool:
    return text == "-1" or _INT64.match(text) is not None


def _is_minimal(content: bytes) -> bool:
    """Tell whether bytes are a number of at most 8 bytes as Java's BigInteger writes it: without a needless byte."""
    number = int.from_bytes(content, "big", signed=True)
    return len(content) == min(number if number >= 0 else ~number, 2**63).bit_length() // 8 + 1


def _is_short(text: str) -> bool:
    return len(text) <= 250 and "\n" not in text


def _is_class(text: str) -> bool:
    name = text.split(",", 1)[0]  # .NET can name the assembly behind it
    return (
        len(text) <= 500
        and _CLASS.fullmatch(name) is not None
        and any(character.isupper() or character == "." for character in name)
    )


def _is_class_of_errors(text: str) -> bool:
    return _OF_ERRORS.fullmatch(text.split(": ", 1)[0].split(",", 1)[0]) is not None


def _is_throwable(text: str) -> bool:
    return ": " in text and _is_class(text.split(": ", 1)[0])


def _is_stack(text: str) -> bool:
    return ("\n" in text or "\tat " in text) and _STACK.search(text) is not None


def _last(text: str) -> str:
    return text.rsplit("/", 1)[-1]


def _is_part(text: str, topic: str) -> bool:
    """Tell whether text is in a topic's name, between its separators."""
    if len(text) < 3 or text == topic or not _TOPIC.match(text):
        return False
    return re.search(rf"(?<![A-Za-z0-9]){re.escape(text)}(?![A-Za-z0-9])", topic) is not None
