"""A header's name -> the fields that its words suggest. Only the name is read, never a value."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import takewhile

ORIGIN = ("original_topic", "original_partition", "original_offset")

_TIMES = ("timestamp", "time", "ts", "at", "date", "datetime", "when", "instant")
_FIRST = ("original", "orig", "source", "src", "origin", "input", "initial", "incoming", "inbound", "from")
_MADE = ("first", "produced", "created", "published")
_ELSEWHERE = ("next", "target", "destination", "dest", "reply", "output", "to", "forward", "forwarded")
_DEAD = ("dlq", "dlt", "dead", "deadletter", "letter", "retry", "retries", "rejected", "quarantine", "parked", "poison")
_ERRORS = (
    *("error", "errors", "err", "exception", "exc", "ex", "failure", "failures", "fail", "failed", "failing", "fault"),
    *("throwable", "crash"),
)
_KINDS = ("class", "cls", "classname", "type", "name", "fqcn", "kind", "clazz")
_NUMBERS = ("id", "number", "num", "no", "nr", "index", "idx", "value")
_ATTEMPTS = ("attempt", "attempts", "tries", "retries", "deliveries", "redeliveries", "deliverycount")
_TRIED = (*_ATTEMPTS, *_ERRORS, "retry", "try", "delivery", "redelivery", "redelivered", "death", "deaths", "requeue")
_LATER = ("next", "max", "maximum", "remaining", "left", "limit", "backoff", "delay", "interval", "timeout", "total")
_UNTIL = (
    "next",
    "expires",
    "expiry",
    "expiration",
    "until",
    "delay",
    "not",
    "before",
    "after",
    "backoff",
    "ttl",
    "due",
)
_NEUTRAL = ("x", "kafka", "header", "headers", "message", "msg", "record", "name", "value", "of", "the", "in", "by")


@dataclass(frozen=True)
class _Rule:
    """A field, the words one of which names it, and words beside: one of each group, none of ``without``.

    A field of None says that the word names something else. ``weak``: users' own headers are called so, too.
    """

    field: str | None
    nouns: tuple[str, ...]
    needs: tuple[tuple[str, ...], ...] = ()
    without: tuple[str, ...] = ()
    weak: bool = False


# The word that names the field is the last one in most names: the rule whose word stands last counts, then the first.
_RULES = (
    _Rule("original_timestamp_type", ("type", "kind"), (("timestamp", "time"),)),
    _Rule("exception_stacktrace", ("stacktrace", "stack", "traceback", "backtrace", "tb")),
    _Rule("exception_stacktrace", ("trace",), (("stack", *_ERRORS),)),
    _Rule("stage_class", _KINDS[:-1], (("stage",),), weak=True),
    _Rule("exception_cause_class", _KINDS, (("cause", "rootcause", "root", "inner"),)),
    _Rule("exception_class", _KINDS, (_ERRORS,)),
    _Rule("exception_class", ("fqcn",)),
    _Rule("exception_cause_class", ("cause", "rootcause")),
    _Rule("error_message", ("message", "msg", "text", "description", "desc", "detail", "details"), (_ERRORS,)),
    _Rule("error_message", ("reason", "message", "text", "description"), (("reason", "why"),)),
    _Rule("disposition", ("disposition",)),
    _Rule("connector_name", ("connector", "name"), (("connector",),), weak=True),
    _Rule("task_id", ("task", *_NUMBERS), (("task",),), weak=True),
    _Rule("stage", ("stage", "step", "phase"), weak=True),
    _Rule(
        "original_partition", ("partition", "part", "shard", *_NUMBERS), (("partition", "part", "shard"),), _ELSEWHERE
    ),
    _Rule("original_offset", ("offset", "off", *_NUMBERS), (("offset", "off"),), _ELSEWHERE),
    _Rule("original_offset", ("position", "pos"), (), _ELSEWHERE, weak=True),
    _Rule("original_topic", ("topic", "topicname", "name", "value"), (("topic", "topicname"),), _ELSEWHERE),
    _Rule("original_topic", ("queue", "channel", "stream"), (_FIRST,), _ELSEWHERE),
    _Rule("consumer_group", ("group", "grp", "id", "name"), (("group", "grp"), ("consumer", "id"))),
    _Rule("consumer_group", ("group", "grp", "name"), (("group", "grp"),), weak=True),
    _Rule("consumer_group", ("consumer", "subscription", "subscriber"), weak=True),
    _Rule(
        "application",
        ("application", "app", "service", "function", "listener", "handler", "name", "id"),
        (("application", "app", "service", "function", "listener", "handler"),),
        weak=True,
    ),
    _Rule("delivery_count", (*_ATTEMPTS, *_NUMBERS), (_ATTEMPTS,), (*_LATER, *_TIMES)),
    _Rule("delivery_count", ("count", "counter", "cnt", *_NUMBERS), (_TRIED,), _LATER),
    _Rule("delivery_count", ("count", "retry", "delivery"), (), (*_LATER, *_UNTIL, *_TIMES), weak=True),
    _Rule("original_timestamp", _TIMES, (_FIRST,), _ERRORS),
    _Rule("original_timestamp", _TIMES, (_MADE,), _ERRORS, weak=True),
    _Rule("routed_at", _TIMES, ((*_ERRORS, *_DEAD, "routed"),), _UNTIL),
    _Rule("routed_at", _TIMES, (), (*_UNTIL, *_FIRST, *_MADE), weak=True),
    _Rule("original_timestamp", ("ms", "millis"), (_TIMES, _FIRST)),
    _Rule("routed_at", ("ms", "millis"), (_TIMES, (*_ERRORS, *_DEAD))),
    _Rule("exception_class", ("exception", "throwable", "exc")),
    _Rule("error_message", (*_ERRORS, "why")),
    _Rule("error_message", ("message", "msg", "description"), weak=True),
    _Rule(None, (*_KINDS, *_NUMBERS, "key", "code", "uuid", "guid", "version", "size", "length", "host", "status")),
    _Rule(None, ("level", "severity", "schema", "format", "locale", "encoding", "url", "tenant", "user", "instance")),
)
# A name can have two meanings that only its values tell apart.
_OTHERWISE = {
    "error_message": ("exception_class", "exception_stacktrace"),
    "exception_class": ("error_message", "exception_stacktrace"),
    "exception_cause_class": ("error_message",),
}
_QUALIFIERS = (_TIMES, _FIRST, _MADE, _ELSEWHERE, _DEAD, _ERRORS, _LATER, _UNTIL, _NEUTRAL)
_VOCABULARY = frozenset(
    word
    for words in (*_QUALIFIERS, *(words for rule in _RULES if rule.field for words in (rule.nouns, *rule.needs)))
    for word in words
)
_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[0-9]+")
_RUN_TOGETHER = re.compile(
    "|".join(sorted((word for word in _VOCABULARY if len(word) > 4), key=lambda word: (-len(word), word)))
)
_NOBODYS = re.compile(
    r"traceparent|tracestate|baggage|b3|(x-)?b3[-_.].*|uber-trace-id|sentry-.*|x-datadog-.*|newrelic|x-amzn-.*"
    r"|content[-_.]?(type|encoding|length)|accept.*|ce[-_].*|cloudevents[-_:].*|__.*__|spring_json_.*|kafka_reply.*"
    r"|.*correlation.*|.*request[-_.]?id|.*trace[-_.]?id|.*span[-_.]?id|nativeheaders",
    re.IGNORECASE,
)


@dataclass(frozen=True)
class Sense:
    """A field that a name suggests.

    ``doubt`` is 0 if words say that the record came from there, 2 if they may say where it went, else 1; a meaning that
    only values can show has 3. ``weak``: users' own headers are called so, too.
    """

    field: str
    doubt: int = 1
    weak: bool = False


def _rule(name: str) -> _Rule | None:
    name_words = words(name)
    seen = frozenset(name_words)
    fitting: list[tuple[int, int]] = []
    for order, rule in enumerate(_RULES):
        if all(not seen.isdisjoint(group) for group in rule.needs) and seen.isdisjoint(rule.without):
            at = max((index for index, word in enumerate(name_words) if word in rule.nouns), default=-1)
            if at >= 0:
                fitting.append((-at, order))
    return _RULES[min(fitting)[1]] if fitting else None


def says_nothing(name: str) -> bool:
    """Tell whether no word of a name says what the header holds, so that only values can show it."""
    return _rule(name) is None and not is_nobodys(name)


@cache
def words(name: str) -> tuple[str, ...]:
    """Return the words of a name in lower case, split at other characters, capitals and the known words within them."""
    parts: list[str] = []
    for word in (part.lower() for part in _WORD.findall(name)):
        if word in _VOCABULARY or not word.isalpha():
            parts.append(word)
            continue
        at = 0
        for known in _RUN_TOGETHER.finditer(word):
            parts += [part for part in (word[at : known.start()], known[0]) if part]
            at = known.end()
        parts += [word[at:]] if word[at:] else []
    return tuple(parts)


def strange(name: str) -> frozenset[str]:
    """Return the words of a name that say nothing about fields, such as the name of a company."""
    return frozenset(word for word in words(name) if word not in _VOCABULARY and word.isalpha())


def beginning(sequences: Iterable[Sequence[str]]) -> int:
    """Return how many characters, or words, sequences have in common at their beginnings."""
    alike = takewhile(lambda elements: len(set(elements)) == 1, zip(*sequences, strict=False))
    return sum(1 for _ in alike)


def tells_a_writer(shared: Iterable[str]) -> bool:
    """Tell whether words that names have in common can name their writer."""
    plain = {*_FIRST, *_MADE, *_ERRORS, *_TIMES, *_NEUTRAL, "topic", "partition", "offset"}
    return any(len(word) > 1 and word not in plain for word in shared)


def is_nobodys(name: str) -> bool:
    """Tell whether a name is of headers that applications and tracers write on any record."""
    return _NOBODYS.fullmatch(name) is not None


def senses(name: str) -> list[Sense]:
    """Return the fields that the words of a name suggest, the likeliest first."""
    rule = _rule(name)
    if rule is None or rule.field is None or is_nobodys(name):
        return []
    seen = frozenset(words(name))
    doubt = 0 if not seen.isdisjoint(_FIRST) else 2 if not seen.isdisjoint(_DEAD) else 1
    return [Sense(rule.field, doubt, rule.weak), *(Sense(field, 3) for field in _OTHERWISE.get(rule.field, ()))]
