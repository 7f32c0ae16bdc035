"""Lines of a log, in order -> events: parts are joined, wrappers removed, continuation lines put to what they continue.

Lines of different streams, such as two containers in one file, do not continue each other.
"""

from __future__ import annotations

import re
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain, islice
from typing import NamedTuple

from pipelines.sources.logs import layouts, wrappers
from pipelines.sources.logs.layouts import Pattern
from pipelines.sources.logs.wrappers import Line

SAMPLE_LINES, SAMPLE_CHARACTERS = 500, 1 << 20
MOST_OF_AN_EVENT = 10_000  # of an event: more than the longest stack trace
NEWEST_FIRST = frozenset({"loki", "grafana", wrappers.JSON})  # wrappers whose tools can write the newest line first
BURST = 64  # so many other events can stand between the two copies of an event

_OPENS = ("{", "[{", ",{", ", {")  # of an object of JSON over several lines
_BLANK = " \t\r\x0b\x0c\ufeff"
_EXTERNAL = re.compile("[\ud800-\udfff]")


class Event(NamedTuple):
    """An event, or lines that belong to none.

    ``raw`` are its lines as they landed, ``text`` without their wrappers; ``lines`` counts them, also those beyond
    ``MOST_OF_AN_EVENT``. ``begins`` is false for lines that belong to no event. ``ends`` is true for the last event of
    a stream, which may continue. ``pattern`` is as in ``Manner``.
    """

    raw: str
    text: str
    stream: str
    stamp: str | float | None
    lines: int
    begins: bool
    ends: bool = False
    pattern: Pattern | None = None


def is_utf8(text: str) -> bool:
    """Tell whether text was UTF-8 before it was decoded."""
    return text.isascii() or _EXTERNAL.search(text) is None


def encoded(text: str) -> bytes:
    """Return the bytes of text, which are the landed ones if it is from a file."""
    try:
        return text.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:  # a lone surrogate of a JSON string
        return text.encode("utf-8", "replace")


class Manner(NamedTuple):
    """What the first lines of a file tell of all: its doubtful wrappers, and whether its events begin with their date.

    ``is_backward``: the newest line is the first, as Loki's tool writes by default. ``pattern`` is the layout of the
    settings if it fits at least as many of these lines as looking does: files can have different layouts.
    """

    wanted: frozenset[str] | None = None
    is_dated: bool = False
    is_backward: bool = False
    pattern: Pattern | None = None
    begun: int = 0


def manner(sample: Sequence[str], pattern: Pattern | None = None) -> Manner:
    """Look at the first lines of a file."""
    wanted: set[str] = set()
    worn: set[str] = set()
    is_dated = False
    begun = 0
    for raw in sample:
        for line in wrappers.unwrapped(raw, None, pattern):
            worn.update(line.wrappers)
            if layouts.begins(line.text, pattern):
                begun += 1
                wanted.update(wrappers.DOUBTFUL.intersection(line.wrappers))
                is_dated = is_dated or layouts.is_dated_event(line.text) or line.text[:1] == "{"
    is_sorted = not NEWEST_FIRST.isdisjoint(worn)
    is_backward = is_sorted and _is_backward(sample, frozenset(wanted) if begun else None, pattern)
    with_pattern = Manner(frozenset(wanted) if begun else None, is_dated, is_backward, pattern, begun)
    return with_pattern if pattern is None else max(with_pattern, manner(sample), key=lambda known: known.begun)


def _is_backward(sample: Sequence[str], wanted: frozenset[str] | None, pattern: Pattern | None) -> bool:
    """Tell whether the newest of the first lines is the first; of one moment, whether continuing lines come first."""
    stamped = [
        (stamp, layouts.begins(line.text, pattern))
        for raw in sample
        for line in wrappers.unwrapped(raw, wanted, pattern)
        if line.stamp is not None and not NEWEST_FIRST.isdisjoint(line.wrappers)
        if (stamp := layouts.stamp_of(line.stamp)[0]) is not None
    ]
    stamps = [stamp for stamp, _ in stamped]
    if len(stamps) < 2 or sorted(stamps, reverse=True) != stamps:
        return False
    return stamps[0] > stamps[-1] or (stamped[-1][1] and not stamped[0][1])


def sampled(lines: Iterable[str], pattern: Pattern | None = None) -> tuple[Manner, Iterator[str]]:
    """Return what the first lines tell of all, and all lines, oldest first."""
    ahead: list[str] = []
    size = 0
    rest = iter(lines)
    for line in islice(rest, SAMPLE_LINES):
        ahead.append(line)
        size += len(line)
        if size > SAMPLE_CHARACTERS:
            break
    known = manner(ahead, pattern)
    every = chain(ahead, rest)
    return known, _oldest_first(every, known) if known.is_backward else every


def _oldest_first(lines: Iterable[str], known: Manner) -> Iterator[str]:
    """Yield lines in reverse, but those without a wrapper after the wrapped line that they continue."""
    entries: list[list[str]] = [[]]
    for raw in lines:
        if any(line.wrappers for line in wrappers.unwrapped(raw, known.wanted, known.pattern)):
            entries.append([raw])
        else:
            entries[-1].append(raw)
    return chain(entries[0], *reversed(entries[1:]))


def joined(
    lines: Iterable[str],
    known: Manner,
    is_passed: Callable[[str], bool] | None = None,
) -> Iterator[Line]:
    """Yield lines without wrappers, each whole: parts of a line are joined. A last line that is cut stays a part.

    An object of JSON that is printed over several lines is one line. A line that has no wrapper and begins no event
    continues the wrapped line before it, which a shipper printed with its newlines. ``is_passed`` tells of landed lines
    that surely hold one line whether to leave them out, wrapped as they are.
    """
    begun: dict[str, list[Line]] = {}
    objects: dict[str, list[Line]] = {}
    wrapped: str | None = None
    for raw in lines:
        if not raw.startswith("{") and not raw.strip(_BLANK):
            continue
        if is_passed is not None and not begun and wrappers.is_one_line(raw) and is_passed(raw):
            continue
        for line in wrappers.unwrapped(raw, known.wanted, known.pattern):
            if line.wrappers:
                wrapped = line.stream
            elif wrapped is not None and not layouts.begins(line.text, known.pattern, known.is_dated):
                line = line._replace(stream=wrapped)
            if line.is_part:
                begun.setdefault(line.stream, []).append(line)
                continue
            whole = _whole([*begun.pop(line.stream), line]) if begun and line.stream in begun else line
            if not objects and whole.text not in _OPENS:
                yield whole
            else:
                yield from _printed(whole, objects)
    yield from (_whole(parts) for parts in begun.values())
    yield from (line for parts in objects.values() for line in parts)


def _printed(line: Line, objects: dict[str, list[Line]]) -> Iterator[Line]:
    """Collect the lines of an object that is printed over several lines, and yield it when it is whole."""
    held = objects.get(line.stream)
    if held is None:
        if line.text in _OPENS:
            objects[line.stream] = [line]
        else:
            yield line
        return
    held.append(line)
    if line.text.startswith("}"):
        yield _whole(objects.pop(line.stream))
    elif len(held) >= MOST_OF_AN_EVENT or not line.text.startswith((" ", "\t")):
        yield from objects.pop(line.stream)


def _whole(parts: list[Line]) -> Line:
    raws, texts = [part.raw for part in parts], [part.text for part in parts]
    return parts[0]._replace(raw="\n".join(raws), text="".join(texts), is_part=parts[-1].is_part)


def events(lines: Iterable[str], pattern: Pattern | None = None) -> Iterator[Event]:
    """Yield the events of a log, and the lines that belong to none, in the order in which they end."""
    known, every = sampled(lines, pattern)
    open_: dict[str, list[Line]] = {}
    counts: Counter[str] = Counter()
    begun: set[str] = set()

    def closed(stream: str, ends: bool) -> Event:
        held = open_.pop(stream)
        raw = "\n".join(line.raw for line in held) if len(held) > 1 else held[0].raw
        text = "\n".join(line.text for line in held) if len(held) > 1 else held[0].text
        is_begun = stream in begun
        begun.discard(stream)
        return Event(raw, text, stream, held[0].stamp, counts.pop(stream), is_begun, ends, known.pattern)

    for line in joined(every, known):
        stream = line.stream
        if layouts.begins(line.text, known.pattern, known.is_dated):
            if stream in open_:
                yield closed(stream, False)
            open_[stream] = [line]
            begun.add(stream)
        elif not line.text.strip(_BLANK):
            continue
        else:
            if stream in begun and open_[stream][0].text.startswith("{"):  # a line of JSON is whole
                yield closed(stream, False)
            if len(held := open_.setdefault(stream, [])) < MOST_OF_AN_EVENT:
                held.append(line)
        counts[stream] += 1
    for stream in list(open_):
        yield closed(stream, True)


class Copy(NamedTuple):
    """What tells whether an event is a copy of another one: all that it says, its logger, and the event if wanted."""

    said: int
    logger: str
    event: Event | None


def once(printed: Iterable[Copy]) -> Iterator[Event]:
    """Yield the wanted events of a file without those that the log printed twice.

    A logger with two appenders prints each of its events twice. The copies are equal, time and all, and stand side by
    side, or only other copies stand between them. If more events of a logger come in such pairs than alone, every
    second one of equal events near each other is a copy, so four equal events are two. If not, the logger prints once,
    and equal events are different ones. The last event of a file tells nothing, as its copy may be missing.
    """
    kept: list[tuple[Event, str, bool]] = []
    pairs: Counter[str] = Counter()
    window: deque[tuple[int, Copy]] = deque()
    numbers: dict[int, list[int]] = {}
    said_at: dict[int, int] = {}
    copies: set[int] = set()

    def decide(is_last: bool) -> None:
        number, copy = window.popleft()
        is_copy = number in copies
        copies.discard(number)
        if not is_copy:
            after = next((at for at in numbers[copy.said] if number < at <= number + BURST), None)
            if after is not None:
                copies.add(after)
                between = islice(window, after - number - 1)
                pairs[copy.logger] += 1 if all(len(numbers[other.said]) > 1 for _, other in between) else -1
            elif not is_last:
                pairs[copy.logger] -= 1
        if copy.event is not None:
            kept.append((copy.event, copy.logger, is_copy))
        if (said := said_at.pop(number - BURST, None)) is not None:
            numbers[said].remove(number - BURST)
            if not numbers[said]:
                del numbers[said]

    for number, copy in enumerate(printed):
        window.append((number, copy))
        numbers.setdefault(copy.said, []).append(number)
        said_at[number] = copy.said
        if len(window) > 2 * BURST:
            decide(False)
    while window:
        decide(len(window) == 1)
    yield from (event for event, logger, is_copy in kept if not is_copy or pairs[logger] <= 0)
