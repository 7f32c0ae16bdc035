"""Names of headers that no profile knows -> a sentence that lists them, and a guessed profile for the settings.

Only names are read, never values. Names can be hostile, so they are quoted and escaped as TOML requires.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import takewhile

from expectations.silver.dlq_records import PROFILES

MOST_NAMES = 10
MOST_CHARACTERS = 120  # of a name
MOST_OF_A_PROFILE = 64  # characters of its name

Counts = Mapping[str, int]  # rows by header name; a row counts once per name

_TIMES = ("timestamp", "time", "ts", "at", "date", "datetime", "when")
_FIRST = ("original", "orig", "source", "src", "origin", "input", "first", "produced", "created")
_ELSEWHERE = ("dlq", "dlt", "dead", "deadletter", "retry", "target", "destination", "dest", "next", "reply", "output")
_ERRORS = ("error", "err", "exception", "failure", "fail", "failed", "ex")


@dataclass(frozen=True)
class _Guess:
    """A field, and the words in a header's name that suggest it: one of each group, and none of ``without``."""

    field: str
    groups: tuple[tuple[str, ...], ...]
    without: tuple[str, ...] = ()


# The first guess that fits a name counts. Of several names for one field the most frequent counts, then the one that
# fits more groups of words.
_GUESSES = (
    _Guess("original_timestamp_type", (("timestamp",), ("type",))),
    _Guess("exception_stacktrace", (("stacktrace", "stack", "traceback", "backtrace"),)),
    _Guess("exception_cause_class", (("cause", "rootcause"), ("class", "type", "name", "fqcn"))),
    _Guess("exception_class", (_ERRORS, ("class", "type", "name", "fqcn", "kind"))),
    _Guess("error_message", (_ERRORS, ("message", "msg", "reason", "text", "description", "detail", "details"))),
    _Guess("disposition", (("disposition",),)),
    _Guess("original_partition", (("partition",), _FIRST)),
    _Guess("original_offset", (("offset",), _FIRST)),
    _Guess("original_topic", (("topic",), _FIRST)),
    _Guess("original_partition", (("partition",),), _ELSEWHERE),
    _Guess("original_offset", (("offset",),), _ELSEWHERE),
    _Guess("original_topic", (("topic",),), _ELSEWHERE),
    _Guess("consumer_group", (("group", "groupid", "consumer"),)),
    _Guess("delivery_count", (("attempt", "attempts", "retries", "tries", "deliveries"),), ("max", "next", *_TIMES)),
    _Guess("delivery_count", (("count", "counter", "number"), ("retry", "delivery", "redelivery")), ("max", "next")),
    _Guess("delivery_count", (("count",),), ("max",)),
    _Guess("original_timestamp", (_TIMES, _FIRST)),
    _Guess("routed_at", (_TIMES,), ("next", "expires", "expiry", "until", "delay", "not")),
    _Guess("connector_name", (("connector",),)),
    _Guess("task_id", (("task",), ("id",))),
    _Guess("stage", (("stage", "step"),)),
    _Guess("exception_class", (("exception",),)),
    _Guess("error_message", ((*_ERRORS, "reason", "message"),), ("code", "id", *_ELSEWHERE)),
)
_PLACE = ("original_topic", "original_partition", "original_offset")
_RUN_TOGETHER = (
    *("stacktrace", "exception", "timestamp", "partition", "offset", "topic", "group", "attempt", "original", "source"),
)
_SAY_NOT_WHOSE = frozenset((*_FIRST, *_ERRORS, *_TIMES, "header", "headers", "kafka", "message", "record"))
_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[0-9]+")


def sentence(counts: Counts, rows: int) -> str:
    """List the header names of rows without a profile, the most frequent first, at most MOST_NAMES."""
    having = f"The {rows:,} rows without a profile have" if rows != 1 else "The row without a profile has"
    if not counts:
        return f"{having} no headers."
    names = sorted(counts, key=lambda name: (-counts[name], name))
    shown = ", ".join(f"{_shown(name)} ({counts[name]:,})" for name in names[:MOST_NAMES])
    more = f" and {len(names) - MOST_NAMES:,} more" if len(names) > MOST_NAMES else ""
    return f"{having} headers named {shown}{more}."


def proposal(counts: Counts) -> str:
    """Return a profile as TOML for the settings, which maps names to fields by their words; empty if no name fits."""
    fields = _fields(counts)
    if not fields:
        return ""
    always = max(counts[name] for name in fields.values())
    places = [field for field in _PLACE if field in fields and counts[fields[field]] == always]
    mandatory = places or [next(field for field, name in fields.items() if counts[name] == always)]
    lines = [
        f"  {{name = {quoted(name)}, field = {quoted(field)}{', mandatory = true' if field in mandatory else ''}}},"
        for field, name in fields.items()
    ]
    return "\n".join(
        [
            "[[dlq.profile]]",
            f"name = {quoted(_name_of(list(fields.values())))}",
            'headers = [  # add encoding = "int32" or "int64" where the bytes are a big-endian number',
            *lines,
            "]",
        ]
    )


def _name_of(headers: Sequence[str]) -> str:
    """Return a name for a profile: the words that all headers begin with, if they tell the writer; else a default."""
    beginnings = [[word.lower() for word in _WORD.findall(header)][:-1] for header in headers]
    common = takewhile(lambda words: len(set(words)) == 1, zip(*beginnings, strict=False))
    shared = [words[0] for words in common] if len(headers) > 1 else []
    name = "-".join(shared)
    tells = any(len(word) > 1 and word not in _SAY_NOT_WHOSE for word in shared)
    return name if tells and len(name) <= MOST_OF_A_PROFILE and name not in PROFILES else "my-profile"


def quoted(text: str) -> str:
    """Return text as a TOML string; characters that a terminal would not show are escaped."""
    return '"' + "".join(map(_escaped, text)) + '"'


def _escaped(character: str) -> str:
    if character in '"\\':
        return f"\\{character}"
    if character.isprintable():
        return character
    return f"\\u{ord(character):04X}" if ord(character) < 1 << 16 else f"\\U{ord(character):08X}"


def _shown(name: str) -> str:
    return quoted(name) if len(name) <= MOST_CHARACTERS else f"{quoted(name[:MOST_CHARACTERS])}..."


def _fields(counts: Counts) -> dict[str, str]:
    """Return the guessed header name of each field; the original topic, partition and offset come first."""
    best: dict[str, tuple[tuple[int, int, str], str]] = {}
    for name, count in counts.items():
        if not name or name.endswith("*") or len(name) > MOST_CHARACTERS or not _is_text(name):
            continue  # the settings would read it differently, or it would not be legible
        if guessed := _guess(words(name)):
            field, fitting = guessed
            rank = (-count, -fitting, name)
            if field not in best or rank < best[field][0]:
                best[field] = (rank, name)
    order = [*_PLACE, *dict.fromkeys(guess.field for guess in _GUESSES if guess.field not in _PLACE)]
    return {field: best[field][1] for field in order if field in best}


def words(name: str) -> frozenset[str]:
    """Return the words of a name in lower case, split at other characters and capitals, and known words within them."""
    parted = re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", " ", name).lower()
    found = re.findall(r"[a-z]+", parted)
    return frozenset([*found, *(known for word in found for known in _RUN_TOGETHER if known in word)])


def _guess(found: Iterable[str]) -> tuple[str, int] | None:
    seen = set(found)
    for guess in _GUESSES:
        if all(seen.intersection(group) for group in guess.groups) and not seen.intersection(guess.without):
            return guess.field, len(guess.groups)
    return None


def _is_text(name: str) -> bool:
    return not any(0xD800 <= ord(character) < 0xE000 for character in name)
