"""gold.message_ledger and the events of a message -> the story of one message, or of each message of a trace."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

from expectations.rules import counted
from expectations.text import visible
from pipelines.commands import unread_lines
from pipelines.commands.coordinate import Coordinate, Key
from pipelines.commands.describe import Answer
from pipelines.commands.message_events import (
    ACKNOWLEDGEMENTS,
    DEAD_LETTERS,
    HELD_ACKNOWLEDGEMENTS,
    NEVER,
    Event,
    acknowledgements,
    events_of,
    held_acknowledgements,
    rows_held,
)
from pipelines.errors import UsageError
from pipelines.settings.teams import NO_TEAM
from pipelines.teams import Teams, in_words, is_of, refuse_others
from pipelines.text import elided, hint, iso
from pipelines.warehouse.jvmless import query, rows
from pipelines.warehouse.tables import Warehouse

LEDGER = "gold.message_ledger"

MOST_MESSAGES = 20
FEEDS = ("acknowledgements", "dlq", "segments", "broker-logs")
_TRACEPARENT = re.compile(r"[0-9a-fA-F]{2}-([0-9a-fA-F]{32})-[0-9a-fA-F]{16}-[0-9a-fA-F]{2}(?:-.*)?")
_TRACE_ID = re.compile(r"[0-9a-fA-F]{32}")
_WIDEST = 80  # columns of the user's text in an error message

OUTCOMES = {
    "LOST": "its producer was told success, and its partition's log, which is not compacted, does not have it",
    "ABORTED": "its transaction was aborted: readers of committed records never see it",
    "DEAD_LETTERED": "what consumed it could not process it",
    "ABSENT": "its producer was told success, and its partition's log does not have it; it is lost unless compaction "
    "removed it, which nothing tells",
    "FAILED": "its producer was told an error that rules out that it was written",
    "ACKNOWLEDGED": "its producer was told success, and nothing else is known to have happened to it",
    "UNKNOWN": "nothing tells whether it was written",
}


@dataclass(frozen=True)
class Story:
    """All that is known of a message; ``ledger`` is its row in the ledger, empty if it has none."""

    coordinate: Coordinate | None
    ledger: dict[str, Any]
    events: tuple[Event, ...]

    @property
    def remark(self) -> str | None:
        """A sentence on what would decide an outcome that is in doubt (ABSENT); None for any other outcome."""
        if self.ledger.get("outcome") != "ABSENT":
            return None
        return (
            f"What decides it: cleanup.policy of topic '{visible(self.ledger['topic'])}', in a setting "
            "[[segments.cleanup_policy]] with that topic and its policy, or from the cluster of [kafka], where Afterlog"
            " needs the operation DescribeConfigs on the topic; then run `afterlog run`."
        )

    def as_text(self) -> str:
        """Return a heading, the outcome, and a line for each event."""
        name = (
            self.coordinate
            or f"{self.ledger['topic']}, offset unknown, acknowledgement {self.ledger['acknowledgement_id']}"
        )
        lines = [visible(str(name))]
        outcome = self.ledger.get("outcome")
        if outcome:
            lines.append(f"  {outcome}: {OUTCOMES[outcome]}.")
        if self.remark:
            lines.append(f"  {self.remark}")
        if self.ledger.get("trace_id"):
            lines.append(f"  trace {visible(self.ledger['trace_id'])}")
        if self.ledger.get("hop_count"):
            root = Coordinate(*(self.ledger[f"root_{part}"] for part in Coordinate._fields))
            lines.append(f"  it is a dead letter itself; {root} is behind it")
        width = max((len(event.what) for event in self.events), default=0)
        for event in self.events:
            at = iso(event.at) if event.at else "at an unknown time"
            lines.append(f"  {at:<24}  {event.what:<{width}}  {event.sentence}".rstrip())
        return "\n".join(lines)

    def as_json(self) -> str:
        """Return one JSON object in one line; times in ISO-8601, UTC."""
        ledger = self.ledger
        coordinate = self.coordinate or Coordinate(ledger["topic"], ledger["partition"], ledger["offset"])
        facts: dict[str, Any] = {
            **coordinate._asdict(),
            "acknowledgement_id": ledger.get("acknowledgement_id"),
            "trace_id": ledger.get("trace_id"),
            "outcome": ledger.get("outcome"),
            "remark": self.remark,
            **{f"root_{part}": ledger.get(f"root_{part}") for part in Coordinate._fields},
            "events": [{"at": event.at, "what": event.what, **event.facts} for event in self.events],
        }
        return json.dumps(facts, default=iso)


def answer(warehouse: Warehouse, wanted: str, form: str = "text", team: str | None = None) -> Answer:
    """Tell the story of the message at TOPIC:PARTITION:OFFSET, or of each message of a trace (``text`` or ``json``).

    A trace is given by its id, or by the whole W3C ``traceparent`` header. JSON is one object per message. The exit
    code is 1 if nothing is known. A ``team`` sees the messages of its topics and applications, and those whose dead
    letters belong to it.

    Raises UsageError: a table does not exist, or the text seems meant as a coordinate, but is neither one nor a known
    trace, or all that is known is of other teams.
    """
    teams = Teams.of_settings(warehouse.settings)
    coordinate = Coordinate.of(wanted)
    remarks: tuple[str, ...] = ()
    story = _of_coordinate(warehouse, coordinate) if coordinate else None
    stories = [story] if story else []
    if story is not None:
        refuse_others(
            team, teams.of_row({"topic": coordinate and coordinate.topic, **story.ledger}), f"Message {coordinate}"
        )
    if coordinate is None or (
        not stories and ":" in coordinate.topic
    ):  # no topic has a colon, but a trace's id can have one
        in_ledger = _of_trace(warehouse, wanted)
        known = sorted([*in_ledger, *_held_of_trace(warehouse, wanted, in_ledger)], key=_in_time)
        messages = [row for row in known if is_of(team, teams.of_row(row))]
        if known and not messages:
            trace = elided(wanted, _WIDEST)
            raise UsageError(f"No message of trace '{trace}' is of {in_words([team or NO_TEAM])}, but of others.")
        stories = [_of_row(warehouse, row) for row in messages[:MOST_MESSAGES]]
        if len(messages) > MOST_MESSAGES:
            first = f"The first {MOST_MESSAGES} of {len(messages):,} messages of the trace"
            remarks = (f"{first}: ask for one by TOPIC:PARTITION:OFFSET.",)
        if others := len(known) - len(messages):
            remarks += (f"{counted(others, 'message')} of other teams {'is' if others == 1 else 'are'} not told.",)
    if not stories:
        return _nothing(warehouse, wanted, coordinate, form)
    if form == "json":
        return Answer("\n".join(story.as_json() for story in stories), remarks)
    return Answer("\n\n".join(story.as_text() for story in stories), remarks)


def _of_trace(warehouse: Warehouse, wanted: str) -> list[dict[str, Any]]:
    """Return the ledger's rows of a trace.

    The ledger has the trace of a message's first acknowledgement only, so others are found by their acknowledgements.

    Raises UsageError: the table does not exist, or the text seems meant as a coordinate and no such trace is known.
    """
    mistake = _mistake(wanted)
    equal: Key = {"cluster": warehouse.cluster, "trace_id": _trace_id(wanted)}
    try:
        messages = rows(warehouse, LEDGER, equal)
        acknowledged = rows(warehouse, ACKNOWLEDGEMENTS, equal, list(Coordinate._fields))
    except UsageError as absent:
        raise mistake or absent from None
    known = {Coordinate(*(row[part] for part in Coordinate._fields)) for row in messages}
    for coordinate in sorted({Coordinate(**row) for row in acknowledged if row["offset"] >= 0} - known):
        messages += rows(
            warehouse, LEDGER, {"cluster": warehouse.cluster, "slice": coordinate.slice, **coordinate._asdict()}
        )
    if mistake and not messages:
        raise mistake
    return messages


def _held_of_trace(warehouse: Warehouse, wanted: str, known: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the held acknowledgements of a trace as rows of the ledger, one per message that ``known`` lacks."""
    coordinates = {(row["topic"], row["partition"], row["offset"]) for row in known}
    columns = ["topic", "partition", "offset", "trace_id", "acknowledged_at", "_bronze_id"]
    equal: Key = {"cluster": warehouse.cluster, "trace_id": _trace_id(wanted)}
    waiting = []
    for row in rows_held(warehouse, HELD_ACKNOWLEDGEMENTS, equal, columns):
        coordinate = (row["topic"], row["partition"], row["offset"])
        if row["topic"] is None or coordinate in coordinates:
            continue
        if None in coordinate or min(coordinate[1:]) < 0:
            row |= {"partition": None, "offset": None}
        else:
            coordinates.add(coordinate)
        never = {"produced_at": None, "first_dead_lettered_at": None}
        waiting.append(row | never | {"acknowledgement_id": row["_bronze_id"]})
    return waiting


def _mistake(wanted: str) -> UsageError | None:
    """Return what is wrong with a text that seems meant as a coordinate, but is none; None for any other text."""
    topic, colon, rest = wanted.partition(":")
    if not colon:
        return None
    *names, partition, offset = wanted.split(":") if rest.count(":") else (topic, rest, "")
    topic = ":".join(names)
    if not topic:
        why = "it names no topic"
    elif not _is_number(partition):
        why = f"'{elided(partition, _WIDEST)}' is not a partition"
    elif not _is_number(offset):
        why = f"'{elided(offset, _WIDEST)}' is not an offset" if offset else "it names no offset"
    else:
        return None
    text = elided(wanted, _WIDEST)
    example = f"{elided(topic, _WIDEST) or 'orders'}:0:5"
    return UsageError(f"'{text}' is neither a trace nor TOPIC:PARTITION:OFFSET, as {why}: write it like {example}.")


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit()


def topics(warehouse: Warehouse) -> list[str]:
    """Return the topics of all known messages and dead letters."""
    names: set[str] = set()
    for table, column in ((LEDGER, "topic"), (DEAD_LETTERS, "dlq_topic")):
        distinct = query(
            warehouse, table, f"SELECT DISTINCT {column} AS topic FROM rows", {"cluster": warehouse.cluster}
        )
        names |= {row["topic"] for row in distinct if row["topic"]}
    return sorted(names)


def _meant(warehouse: Warehouse, wanted: str, coordinate: Coordinate | None) -> str:
    """Return a hint on the topic that may be meant, if a coordinate's topic is unknown or only a topic is given."""
    names = topics(warehouse)
    if coordinate is not None:
        return "" if coordinate.topic in names else hint(coordinate.topic, names)
    name = wanted if wanted in names else None
    return f" A message of topic '{visible(name)}' is written {visible(name)}:PARTITION:OFFSET." if name else ""


def _nothing(warehouse: Warehouse, wanted: str, coordinate: Coordinate | None, form: str) -> Answer:
    what = f"message {coordinate}" if coordinate else f"a message of trace '{visible(wanted)}'"
    landed = ", ".join(f"{warehouse.settings.landing_of(feed)}/" for feed in FEEDS)
    message = (
        f"Nothing is known of {what} in cluster '{visible(warehouse.cluster)}': what lands in {landed} can be traced "
        f"once `afterlog run` has taken it in.{_meant(warehouse, wanted, coordinate)}"
    )
    message += unread_lines.hint(warehouse, coordinate.topic) if coordinate else ""
    if form == "json":
        return Answer(json.dumps({"wanted": wanted, "message": message}), (), 1)
    return Answer(message, (), 1)


def _trace_id(text: str) -> str:
    header = _TRACEPARENT.fullmatch(text)
    trace = header[1] if header else text
    return trace.lower() if _TRACE_ID.fullmatch(trace) else trace


def _in_time(row: dict[str, Any]) -> tuple[Any, ...]:
    at = row["acknowledged_at"] or row["produced_at"] or row["first_dead_lettered_at"]
    numbers = (-1 if row[name] is None else row[name] for name in ("partition", "offset"))
    return (at is None, at or NEVER, row["topic"], *numbers, row["acknowledgement_id"] or "")


def _of_row(warehouse: Warehouse, row: dict[str, Any]) -> Story:
    if row["offset"] is not None:
        coordinate = Coordinate(row["topic"], row["partition"], row["offset"])
        return Story(coordinate, row, _in_order(events_of(warehouse, coordinate, row)))
    key = {"cluster": warehouse.cluster, "topic": row["topic"], "_bronze_id": row["acknowledgement_id"]}
    return Story(None, row, _in_order(chain(acknowledgements(warehouse, key), held_acknowledgements(warehouse, key))))


def _of_coordinate(warehouse: Warehouse, coordinate: Coordinate) -> Story | None:
    in_ledger = rows(
        warehouse, LEDGER, {"cluster": warehouse.cluster, "slice": coordinate.slice, **coordinate._asdict()}
    )
    ledger = in_ledger[0] if in_ledger else {}
    events = _in_order(events_of(warehouse, coordinate, ledger))
    return Story(coordinate, ledger, events) if events or ledger else None


def _in_order(events: Iterator[Event]) -> tuple[Event, ...]:
    """Return events in order of time, those without a time last; events of the same time keep their order."""
    return tuple(sorted(events, key=lambda event: event.order))
