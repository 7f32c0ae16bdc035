"""Lines of a broker's log, in order -> the DLQ writes that failed, with all that the log says of each, and starts.

An event begins with a line that has a date and a time; the lines up to the next such line continue it. A broker that
cannot write to a DLQ archives the records and logs ``Failed to write to DLQ``, with an exception that can name the
share group and the DLQ topic. If the write itself failed, the event before names the records too, in a
``ShareGroupDLQRecordParameter``. The broker's single sender thread logs both events, one after the other, so they
belong to the same failure.

A node logs several lines at the end of its start, each of one component; each is an event of one line.
"""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from datetime import tzinfo
from itertools import repeat
from zoneinfo import ZoneInfo

from pyspark.sql import Column
from pyspark.sql import functions as F

from pipelines.sources.logs import events as log_events
from pipelines.sources.logs import layouts, unknown
from pipelines.sources.logs.events import MOST_OF_AN_EVENT, Copy, Event
from pipelines.sources.logs.files import Earlier, Row, Text
from pipelines.sources.logs.layouts import Pattern

FAILED, STARTED = "DLQ_WRITE_FAILED", "BROKER_STARTED"
COPIES = "events that the log printed twice"
_ARCHIVED = "Failed to write to DLQ, proceeding to ARCHIVED regardless."
_NAMES_RECORDS = re.compile(
    r"(?:Unable to (?:produce|create|coalesce|find)|Exhausted max retries|Received empty|Uncaught error"
    r"|Error enqueueing).*ShareGroupDLQRecordParameter\["
)
_NAMES_GROUP = "share group"

# What a started node says: Kafka since KRaft, and KafkaServer with ZooKeeper; a controller alone says the second one.
_STARTED = (
    r"\[(?:(BrokerServer) id=([0-9]{1,10})\] Transition from STARTING to STARTED"
    r"|(KafkaRaftServer) nodeId=([0-9]{1,10})\] Kafka Server started"
    r"|(GroupCoordinator) id=([0-9]{1,10})\] Startup complete\."
    r"|(KafkaServer) id=([0-9]{1,10})\] started)(?= [\[(]|\s*$)"
)
_STARTS = re.compile(_STARTED)
_MARKS = ("ShareGroupDLQRecordParameter[", _ARCHIVED, "STARTED", "tarted", "Startup complete.")

# The kinds of events that are kept: a write that names its records, the end of a write, a start.
_WRITE, _END, _START = 1, 2, 3

_LEGAL = "[a-zA-Z0-9._-]"
_PARAMETER = (
    r"(?s)ShareGroupDLQRecordParameter\[groupId=(.*), topicIdPartition=([a-zA-Z0-9_-]{22}):"
    rf"({_LEGAL}*)-([0-9]{{1,10}}), firstOffset=([0-9]{{1,19}}), lastOffset=([0-9]{{1,19}})"
    r"(?:, deliveryCount=Optional(?:\[([0-9]{1,10})\])?)?"
)
_CAUSE = r"(?s)cause=Optional\[(?:[\w.$]+: )?(.*?)\]\]"
_DLQ_TOPIC = rf"TopicPartitionData\[topicName=({_LEGAL}+)"
_EXCEPTION = (
    r"(?s)proceeding to ARCHIVED regardless[^\n]*\n"
    r"(?:java\.util\.concurrent\.(?:Completion|Execution)Exception: )?"
    r"([\w.$]+)(?:: (.*?))?(?:\n\s+at |\nat [^\s(]+\(|\nCaused by|\s*\z)"
)
_ANSWER = r"(?s)(?:isFenced: [a-z]+\) - |client response error )(.*?)\.(?: \(|\s*\n|\s*\z)"
_GROUP_AND_TOPIC = (
    rf"(?s)share group: (.*?)(?: cannot start with __)?, topic: ({_LEGAL}+?)(?:, prefix: .*)?\.\z",
    rf"(?s)share group (.*) with DLQ topic ({_LEGAL}+?)(?: (?:could|and) .*)?\.\z",
    r"(?s)share group:? (.*?)(?: is empty)?\.\z()",
)


def rows(lines: Text, timezone: str, pattern: Pattern | None, earlier: Earlier | None = None) -> Iterator[Row]:
    """Yield a row for each failure and each start, for each event of another kind and each line outside of events.

    Then yield one for the file if most of its lines are in no known layout. ``event_id`` does not depend on how far the
    file goes. ``is_partial`` is true if the event may continue. If a write and its end are in two files, both tell of
    it with the same ``event_id``: the first with ``is_partial``, the second whole.
    """
    census = unknown.Census()
    others = outside = copies = 0

    def all_events() -> Iterator[Copy]:
        nonlocal others, outside, copies
        for event in log_events.events(lines, pattern):
            census.count(None if event.begins else event.text, min(event.lines, MOST_OF_AN_EVENT))
            if event.lines > MOST_OF_AN_EVENT:
                census.count(event.text, event.lines - MOST_OF_AN_EVENT)
            if event.begins:
                is_wanted = _kind(event) is not None
                others += not is_wanted
                copies += is_wanted
                told_all = (layouts.parsed_json(event.text) if event.text[:1] == "{" else None) or event.text
                logger = f"{event.stream}\n{layouts.logger_of(event.text, event.pattern)}"
                yield Copy(hash((event.stream, told_all)), logger, event if is_wanted else None)
            else:
                outside += event.lines

    def own() -> Iterator[Event]:
        nonlocal copies
        for event in log_events.once(all_events()):
            copies -= 1
            yield event

    zone = ZoneInfo(timezone)
    occurrences: Counter[str] = Counter()
    for told_by in _paired(own(), earlier, pattern):
        row, opening = _row(told_by, zone)
        occurrences[opening] += 1
        number = occurrences[opening]
        again = f"\n{number}" if number > 1 else ""
        digest = hashlib.sha256(log_events.encoded(opening + again)).hexdigest()
        yield row._replace(occurrence=number, event_id=digest)
    yield from repeat(Row(None), others)
    yield from repeat(Row(None, other=COPIES), copies)
    yield from repeat(Row(None, other=unknown.LINES), outside)
    if (finding := census.finding("broker_logs", pattern)) is not None:
        yield Row(None, finding)


def _row(told_by: list[Event], zone: tzinfo) -> tuple[Row, str]:
    """Return the row of a failure or a start without its numbers, and its first two lines."""
    first, last = told_by[0], told_by[-1]
    said = layouts.parts(first.text, first.pattern)
    at = None if said is None else layouts.moment(said, first.stamp, zone)
    is_start = _kind(first) == _START
    text = "\n".join(event.text for event in told_by)
    opening = "\n".join(text.split("\n", 2)[:2])
    if is_start:
        text = text.split("\n", 1)[0]
    message = "\n".join(_message(event) for event in told_by)
    error = None if at is not None else unknown.why_no_time(first.text, said, first.pattern)
    row = Row(
        line=log_events.encoded(text),
        kind=STARTED if is_start else FAILED,
        logged_micros=at,
        message=log_events.encoded(message).decode("utf-8", "replace") if text[:1] == "{" else None,
        error=error if log_events.is_utf8(text) else "the event is not UTF-8",
        is_partial=not is_start and (last.ends or _kind(last) == _WRITE),
    )
    return row, opening


def _message(event: Event) -> str:
    """Return what an event says if it is in JSON, else its text."""
    said = layouts.parsed_json(event.text) if event.text[:1] == "{" else None
    return event.text if said is None else said.message


def _kind(event: Event) -> int | None:
    if not any(mark in event.text for mark in _MARKS):
        return None
    first = _message(event).split("\n", 1)[0]
    if _NAMES_RECORDS.search(first):
        return _WRITE
    if _STARTS.search(first):
        return _START
    return _END if _ARCHIVED in first else None


def _paired(
    events: Iterable[Event], earlier: Earlier | None = None, pattern: Pattern | None = None
) -> Iterator[list[Event]]:
    """Yield the events of each failure, and each start.

    The end of a write follows the event that names its records, unless it names the group itself. The first end in a
    file can follow the last write of the file before it.
    """
    writes: dict[str, Event] = {}
    before: dict[str, Event] | None = None
    seen: set[str] = set()
    for event in events:
        kind = _kind(event)
        if kind == _START or (kind == _END and _NAMES_GROUP in event.text):
            yield [event]
            continue
        write = writes.pop(event.stream, None)
        if kind == _END and event.stream not in seen and earlier is not None:
            before = _unended(log_events.events(earlier(), pattern)) if before is None else before
            write = before.get(event.stream)
        seen.add(event.stream)
        if kind == _WRITE:
            if write is not None:
                yield [write]
            writes[event.stream] = event
        else:
            yield [event] if write is None else [write, event]
    yield from ([write] for write in writes.values())


def _unended(events: Iterable[Event]) -> dict[str, Event]:
    """Return the last write of each stream whose end is not among the events."""
    writes: dict[str, Event] = {}
    for event in events:
        kind = _kind(event) if event.begins else None
        if kind == _WRITE:
            writes[event.stream] = event
        elif kind == _END and _NAMES_GROUP not in event.text:
            writes.pop(event.stream, None)
    return writes


def start(text: Column) -> dict[str, Column]:
    """Return which component of which node an event says has started; null if it says it of none."""
    return {
        "component": F.coalesce(*(_part(text, _STARTED, group) for group in (1, 3, 5, 7))),
        "node_id": F.coalesce(*(_part(text, _STARTED, group) for group in (2, 4, 6, 8))).try_cast("int"),
    }


def failure(text: Column) -> dict[str, Column]:
    """Return what an event says of a failed write; each part is null if the log does not give it."""
    message = _part(text, _EXCEPTION, 2)
    answer = _part(text, _ANSWER, 1)
    groups = [_part(message, pattern, 1) for pattern in _GROUP_AND_TOPIC]
    topics = [_part(message, pattern, 2) for pattern in _GROUP_AND_TOPIC]
    return {
        "consumer_group": F.coalesce(_part(text, _PARAMETER, 1), *groups),
        "dlq_topic": F.coalesce(_part(text, _DLQ_TOPIC, 1), *topics),
        "original_topic_id": _part(text, _PARAMETER, 2),
        "original_topic": _part(text, _PARAMETER, 3),
        "original_partition": _part(text, _PARAMETER, 4).try_cast("int"),
        "first_offset": _part(text, _PARAMETER, 5).try_cast("bigint"),
        "last_offset": _part(text, _PARAMETER, 6).try_cast("bigint"),
        "delivery_count": _part(text, _PARAMETER, 7).try_cast("int"),
        "cause": _part(text, _CAUSE, 1),
        "error_class": _part(text, _EXCEPTION, 1),
        "reason": F.coalesce(F.nullif(answer, F.lit("null")), message, _part(text, _EXCEPTION, 1)),
    }


def _part(text: Column, pattern: str, group: int) -> Column:
    return F.nullif(F.regexp_extract(text, pattern, group), F.lit(""))
