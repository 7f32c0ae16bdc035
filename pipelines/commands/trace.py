"""gold.message_ledger and the tables that it is made from -> the story of one message, in order of time."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import chain
from typing import Any, NamedTuple

from expectations.owners import OWNER, owner_of
from expectations.rules import counted
from expectations.text import visible
from pipelines.columns import slices
from pipelines.commands import unread_lines
from pipelines.commands.describe import Answer
from pipelines.errors import UsageError
from pipelines.run.newest import EVER
from pipelines.settings.teams import NO_TEAM
from pipelines.teams import Teams, in_words, is_of, refuse_others
from pipelines.text import elided, hint, iso
from pipelines.warehouse import erased
from pipelines.warehouse.jvmless import greatest, query, rows
from pipelines.warehouse.tables import Warehouse

LEDGER = "gold.message_ledger"
ACKNOWLEDGEMENTS = "silver.acknowledgements"
PRODUCERS = "silver.producers"
TRANSACTIONS = "silver.transactions"
LOG_RANGES = "silver.log_ranges"
DEAD_LETTERS = "silver.dead_letters"
INFERRED = "silver.inferred_dead_letters"
RECORDS = "silver.dlq_records"
LANDED = "bronze.dlq_records"
WRITE_FAILURES = "silver.dlq_write_failures"
POLICIES = "silver.topic_policies"
REPLAYED, OUTCOMES_OF_REPLAYS = "gold.replayed_records", "gold.replay_outcomes"
HELD_ACKNOWLEDGEMENTS = "held.acknowledgements"
HELD_BATCHES = "held.record_batches"

MOST_MESSAGES = 20
MOST_REPLAYS = 100
MOST_HOPS = 8
FEEDS = ("acknowledgements", "dlq", "segments", "broker-logs")

_COORDINATE = re.compile(r"(?s)(.+):([0-9]{1,10}):([0-9]{1,19})")
_AS_KAFKA_PRINTS = re.compile(r"([A-Za-z0-9._-]{1,249})-([0-9]{1,10})@([0-9]{1,19})")
_TRACEPARENT = re.compile(r"[0-9a-fA-F]{2}-([0-9a-fA-F]{32})-[0-9a-fA-F]{16}-[0-9a-fA-F]{2}(?:-.*)?")
_TRACE_ID = re.compile(r"[0-9a-fA-F]{32}")
Key = dict[str, str | int]

_INT64_MOST = 2**63 - 1
_NEVER = datetime.min.replace(tzinfo=UTC)
_WIDEST = 80  # columns of the user's text in an error message
_WAITS = "is held, as its topic broke the contract of"

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
STATES = {
    "COMMITTED": "transaction committed",
    "ABORTED": "transaction aborted",
    "OPEN": "transaction open",
    "UNKNOWN": "transaction's end unknown",
}


class Coordinate(NamedTuple):
    """The coordinate of a record: topic, partition and offset."""

    topic: str
    partition: int
    offset: int

    @classmethod
    def of(cls, text: str) -> Coordinate | None:
        """Read TOPIC:PARTITION:OFFSET, or TOPIC-PARTITION@OFFSET; return None if the text is something else."""
        match = _COORDINATE.fullmatch(text) or _AS_KAFKA_PRINTS.fullmatch(text)
        if match is None or int(match[3]) > _INT64_MOST:
            return None
        return cls(match[1], int(match[2]), int(match[3]))

    @property
    def slice(self) -> str:
        """The slice of the ledger that holds it, as the tables name it."""
        return slices.name(self.topic, self.partition, self.offset)

    def __str__(self) -> str:
        """Return it as TOPIC:PARTITION:OFFSET, escaped so that it is safe for a terminal."""
        return visible(f"{self.topic}:{self.partition}:{self.offset}")


@dataclass(frozen=True)
class Event:
    """Something that happened to a message, when, and in words; ``facts`` are for machines.

    ``before`` is a time before which an event of an unknown time happened.
    """

    at: datetime | None
    what: str
    sentence: str
    facts: dict[str, Any] = field(default_factory=dict)
    before: datetime | None = None

    @property
    def order(self) -> tuple[bool, datetime, bool]:
        """What to sort events by: their time, or the time that is behind them; those without any come last."""
        known = self.at or self.before
        return known is None, known or _NEVER, self.at is not None


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
    code is 1 if nothing is known. A ``team`` is told of messages of its topics and applications, and of those whose
    dead letters are its own.

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
    for row in _rows_held(warehouse, HELD_ACKNOWLEDGEMENTS, equal, columns):
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
    return (at is None, at or _NEVER, row["topic"], *numbers, row["acknowledgement_id"] or "")


def _of_row(warehouse: Warehouse, row: dict[str, Any]) -> Story:
    if row["offset"] is not None:
        coordinate = Coordinate(row["topic"], row["partition"], row["offset"])
        return Story(coordinate, row, _in_order(_events(warehouse, coordinate, row)))
    key = {"cluster": warehouse.cluster, "topic": row["topic"], "_bronze_id": row["acknowledgement_id"]}
    return Story(None, row, _in_order(chain(_acknowledgements(warehouse, key), _held_acknowledgements(warehouse, key))))


def _of_coordinate(warehouse: Warehouse, coordinate: Coordinate) -> Story | None:
    in_ledger = rows(
        warehouse, LEDGER, {"cluster": warehouse.cluster, "slice": coordinate.slice, **coordinate._asdict()}
    )
    ledger = in_ledger[0] if in_ledger else {}
    events = _in_order(_events(warehouse, coordinate, ledger))
    return Story(coordinate, ledger, events) if events or ledger else None


def _in_order(events: Iterator[Event]) -> tuple[Event, ...]:
    """Return events in order of time, those without a time last; events of the same time keep their order."""
    return tuple(sorted(events, key=lambda event: event.order))


def _events(warehouse: Warehouse, coordinate: Coordinate, ledger: dict[str, Any]) -> Iterator[Event]:
    yield from _origin(warehouse, coordinate)
    yield from _acknowledgements(warehouse, {"cluster": warehouse.cluster, **coordinate._asdict()})
    yield from _transaction(warehouse, coordinate, ledger)
    yield from _dead_letters(warehouse, coordinate, frozenset())
    yield from _replays(warehouse, coordinate)
    yield from _write_failures(warehouse, coordinate)
    yield from _log(warehouse, coordinate)
    yield from _held(warehouse, coordinate)


def _held(warehouse: Warehouse, coordinate: Coordinate) -> Iterator[Event]:
    """Yield the held rows about the message: they landed, but its topic broke a contract, so they wait."""
    yield from _held_acknowledgements(warehouse, {"cluster": warehouse.cluster, **coordinate._asdict()})
    key: Key = {"cluster": warehouse.cluster, "topic": coordinate.topic, "partition": coordinate.partition}
    columns = ["scope", "base_offset", "last_offset"]
    for row in _rows_held(warehouse, HELD_BATCHES, key, columns):
        bounds = (row["base_offset"], row["last_offset"])
        if None not in bounds and bounds[0] <= coordinate.offset <= bounds[1]:
            facts = {"table": HELD_BATCHES, "scope": row["scope"]}
            yield Event(None, "held", f"a record batch that holds it {_WAITS} silver.record_batches", facts)


def _held_acknowledgements(warehouse: Warehouse, key: Key) -> Iterator[Event]:
    for row in _rows_held(warehouse, HELD_ACKNOWLEDGEMENTS, key):
        facts = {"table": HELD_ACKNOWLEDGEMENTS, "scope": row["scope"]}
        yield Event(row["acknowledged_at"], "held", f"an acknowledgement {_WAITS} silver.acknowledgements", facts)


def _rows_held(warehouse: Warehouse, table: str, key: Key, columns: list[str] | None = None) -> list[dict[str, Any]]:
    """Return rows of a table of held rows; none if the table does not exist, as in an older warehouse."""
    if not warehouse.exists(table):
        return []
    return rows(warehouse, table, key, columns)


def _acknowledgements(warehouse: Warehouse, key: Key) -> Iterator[Event]:
    """Yield what producers were told about the message."""
    for row in rows(warehouse, ACKNOWLEDGEMENTS, key):
        sender = f"to {visible(row['client_id'])}" if row["client_id"] else ""
        facts = {
            name: row[name] for name in ("outcome", "client_id", "trace_id", "error", "timestamp", "acknowledged_at")
        }
        at = row["acknowledged_at"]
        if row["error"] is not None:
            what = "refused" if row["outcome"] == "FAILED" else "error"
            yield Event(at, what, f"{sender}: {visible(row['error'])}".removeprefix(": "), facts)
        elif row["outcome"] == "ACKNOWLEDGED":
            yield Event(at or row["timestamp"], "acknowledged", sender, facts)
        else:
            what = "sent with acks=0" if _sends_with_acks_0(warehouse, row) else "success without an offset"
            yield Event(at or row["timestamp"], what, sender, facts)


def _sends_with_acks_0(warehouse: Warehouse, acknowledgement: dict[str, Any]) -> bool:
    """Tell whether the latest statement on the producer of an acknowledgement and its topic says acks=0."""
    if acknowledgement["client_id"] is None or not warehouse.exists(PRODUCERS):
        return False
    key: Key = {name: acknowledgement[name] for name in ("cluster", "client_id", "topic")}
    stated = rows(warehouse, PRODUCERS, key)
    latest = max((row["stated_at"] or _NEVER for row in stated), default=None)
    return bool(stated) and {row.get("acks") for row in stated if (row["stated_at"] or _NEVER) == latest} == {"0"}


def _transaction(warehouse: Warehouse, coordinate: Coordinate, ledger: dict[str, Any]) -> Iterator[Event]:
    key: Key = {"cluster": warehouse.cluster, "topic": coordinate.topic, "partition": coordinate.partition}
    if ledger.get("producer_id") is not None:
        key |= {name: ledger[name] for name in ("producer_id", "producer_epoch")}
    for row in rows(warehouse, TRANSACTIONS, key):
        if any(span["first_offset"] <= coordinate.offset <= span["last_offset"] for span in row["ranges"]):
            names = ("producer_id", "producer_epoch", "first_offset", "last_offset", "marker_offset")
            marker = f", marker at offset {row['marker_offset']}" if row["marker_offset"] is not None else ""
            sentence = f"of producer {row['producer_id']}, epoch {row['producer_epoch']}{marker}"
            facts = {"state": row["state"], **{name: row[name] for name in names}}
            yield Event(row["ended_at"] or row["last_written_at"], STATES[row["state"]], sentence, facts)


def _dead_letters(warehouse: Warehouse, coordinate: Coordinate, passed: frozenset[Coordinate]) -> Iterator[Event]:
    """Yield each time that the message was dead-lettered, and what happened to its dead letters, hop by hop.

    Dead letters that did not land are known from the headers of later ones.
    """
    landed = set()
    key: Key = {
        "cluster": warehouse.cluster,
        "source_slice": coordinate.slice,
        "original_topic": coordinate.topic,
        "original_partition": coordinate.partition,
        "original_offset": coordinate.offset,
    }
    for row in rows(warehouse, DEAD_LETTERS, key):
        letter = Coordinate(row["dlq_topic"], row["dlq_partition"], row["dlq_offset"])
        landed.add(letter)
        if row.get("is_held"):
            yield _held_letter(row, f"its dead letter {letter}")
        if not row["is_accepted"]:
            continue
        row = _masked(warehouse, row)
        yield Event(
            row["routed_at"] or row["dlq_timestamp"],
            _lettered(row, passed),
            _letter(row, letter, coordinate, passed),
            _facts(row),
        )
        if at := erased.places(warehouse).get(letter):
            yield Event(at, "erased", f"the content of {letter}; what failed, where and when is left", {})
        if letter not in passed and len(passed) < MOST_HOPS:
            yield from _dead_letters(warehouse, letter, passed | {coordinate, letter})
    for letter, row in _inferred(warehouse, "original", coordinate):
        if letter not in landed | passed:
            origin = f" from {coordinate}" if passed else ""
            what = "dead-lettered on" if passed else "dead-lettered"
            sentence = f"to {letter}{origin}{_by(row)}, as headers of {_teller(row)} say"
            followed = passed | {coordinate, letter}
            later = [*_dead_letters(warehouse, letter, followed)] if len(passed) < MOST_HOPS else []
            first = min((known for event in later if (known := event.at or event.before)), default=None)
            yield Event(None, what, sentence, _inferred_facts(row), first)
            yield from later


def _replays(warehouse: Warehouse, coordinate: Coordinate) -> Iterator[Event]:
    """Yield the replays of the message, or of it as a dead letter, and what became of them; and where it came from."""
    if not warehouse.opens_tables or warehouse.last_version(REPLAYED) is None:  # others cannot be replayed from
        return
    cluster: Key = {"cluster": warehouse.cluster}
    parts = ("topic", "partition", "offset")
    here: Key = dict(zip(parts, coordinate, strict=True))
    for row in rows(warehouse, REPLAYED, cluster | {f"target_{part}": at for part, at in here.items()}):
        source = [row[f"original_{part}"] for part in parts]
        origin = f" of {Coordinate(*source)}" if None not in source else ""
        sentence = f"as replay {row['attempt']}{origin} by plan {row['plan_id']}"
        yield Event(row["replayed_at"], "written", sentence, _replay_facts(row))
    seen: set[Coordinate] = {coordinate}
    waiting = [coordinate]
    while waiting:
        at = waiting.pop(0)
        here = dict(zip(parts, at, strict=True))
        replays = rows(warehouse, REPLAYED, cluster | {f"original_{part}": here[part] for part in parts})
        replays += rows(warehouse, REPLAYED, cluster | {f"dlq_{part}": here[part] for part in parts})
        for row in replays:
            target = Coordinate(*(row[f"target_{part}"] for part in parts))
            if target in seen or len(seen) > MOST_REPLAYS:
                continue
            seen.add(target)
            waiting.append(target)
            sentence = f"to {target} by plan {row['plan_id']}, replay {row['attempt']}"
            yield Event(row["replayed_at"], "replayed", sentence, _replay_facts(row))
            became = [*_outcome(warehouse, row), *_dead_letters(warehouse, target, frozenset({at}))]
            yield from became
            if not became:
                yield from _not_looked_for(warehouse, row)


def _not_looked_for(warehouse: Warehouse, row: dict[str, Any]) -> Iterator[Event]:
    """Yield that nobody has looked yet whether a replayed record died again, as no dead letter landed since."""
    landed_at = greatest(warehouse, LANDED, "_ingested_at", EVER) if warehouse.exists(LANDED) else None
    if landed_at is None or landed_at <= row["replayed_at"]:
        sentence = "no dead letter has landed since, so nobody knows whether it died again: `afterlog run` looks for it"
        yield Event(row["replayed_at"], "outcome not known", sentence, _replay_facts(row))


def _outcome(warehouse: Warehouse, row: dict[str, Any]) -> Iterator[Event]:
    """Yield that a group consumed a replayed record, if that is known."""
    if warehouse.last_version(OUTCOMES_OF_REPLAYS) is None:
        return
    grain = ("cluster", "plan_id", "dlq_topic", "dlq_partition", "dlq_offset")
    equal: Key = {name: row[name] for name in grain}
    for known in rows(warehouse, OUTCOMES_OF_REPLAYS, equal):
        if known["outcome"] == "DELIVERED" and known["dlq_topic_id"] == row["dlq_topic_id"]:
            group = visible(known["consumer_group"] or _owner(warehouse, row) or "an unknown group")
            facts = {"plan_id": known["plan_id"], "consumer_group": known["consumer_group"]}
            yield Event(known["looked_at"], "delivered", f"{group} committed an offset behind it by then", facts)


def _owner(warehouse: Warehouse, letter: dict[str, Any]) -> str | None:
    """Return whom the dead letter belongs to that a row is about, as silver.dead_letters tells."""
    names = ("cluster", "dlq_topic", "dlq_partition", "dlq_offset")
    key: Key = {name: letter[name] for name in names if name in letter} | {"cluster": warehouse.cluster}
    there = rows(warehouse, DEAD_LETTERS, key) if warehouse.last_version(DEAD_LETTERS) is not None else []
    same = [row for row in there if row["dlq_topic_id"] == letter["dlq_topic_id"]]
    return owner_of(same[0]) if same else None


def _replay_facts(row: dict[str, Any]) -> dict[str, Any]:
    columns = ("target_topic", "target_partition", "target_offset", "dlq_topic", "dlq_partition", "dlq_offset")
    return {name: row[name] for name in ("plan_id", "attempt", *columns)}


def _lettered(row: dict[str, Any], passed: frozenset[Coordinate]) -> str:
    if row["is_control_marker"]:
        return "marker dead-lettered"
    if row["write_state"] == "ABORTED":
        return "dead-lettering rolled back"
    return "dead-lettered on" if passed else "dead-lettered"


def _letter(row: dict[str, Any], letter: Coordinate, coordinate: Coordinate, passed: frozenset[Coordinate]) -> str:
    parts = [f"to {letter}"]
    if passed:
        parts.append(f"from {coordinate}")
    if (owner := owner_of(row)) is not None:
        parts.append(f"by {visible(owner)}")
    why = [row["disposition"], None if row["delivery_count"] is None else f"delivery {row['delivery_count']}"]
    reasons = ", ".join(visible(reason) for reason in why if reason)
    message = f": {visible(row['error_message'])}" if row["error_message"] else ""
    doubt = " [perhaps a transaction's marker: no segment of its log landed]" if row["control_marker_suspected"] else ""
    return " ".join(parts) + (f" ({reasons})" if reasons else "") + message + doubt


def _masked(warehouse: Warehouse, row: dict[str, Any]) -> dict[str, Any]:
    """Return an accepted row of silver.dead_letters with its error as ``[[privacy]]`` lets it be shown."""
    if not warehouse.settings.privacy or row["error_message"] is None:
        return row
    from pipelines.privacy import Masks  # imports libraries that read payloads

    key: Key = {name: row[name] for name in ("cluster", "dlq_topic", "dlq_partition", "dlq_offset")}
    there = rows(warehouse, RECORDS, key) if warehouse.exists(RECORDS) else []
    same = [
        other
        for other in there
        if (other["dlq_topic_id"], other["error_message"]) == (row["dlq_topic_id"], row["error_message"])
    ]
    # A record that is not found gets the masks of all topics.
    record = same[0] if same else {"error_message": row["error_message"]}
    return row | {"error_message": Masks.hiding(warehouse.settings).record(record)["error_message"]}


def _facts(row: dict[str, Any]) -> dict[str, Any]:
    columns = ("dlq_topic", "dlq_partition", "dlq_offset", "original_topic", "original_partition", "original_offset")
    reasons = ("consumer_group", "disposition", "delivery_count", "error_message", "write_state")
    markers = ("is_control_marker", "control_marker_suspected")
    return {name: row[name] for name in (*columns, *reasons, *markers)} | {OWNER: owner_of(row)}


def _origin(warehouse: Warehouse, coordinate: Coordinate) -> Iterator[Event]:
    """Yield the record whose dead letter the message is, if it is in a DLQ topic."""
    key: Key = {
        "cluster": warehouse.cluster,
        "slice": coordinate.slice,
        "dlq_topic": coordinate.topic,
        "dlq_partition": coordinate.partition,
        "dlq_offset": coordinate.offset,
    }
    for row in rows(warehouse, DEAD_LETTERS, key):
        if row["is_accepted"]:
            origin = _source(row)
            at = row["routed_at"] or row["dlq_timestamp"]
            facts = _facts(_masked(warehouse, row))
            yield Event(at, "written", f"as the dead letter of {origin}{_by(row)}", facts)
        elif row.get("is_held"):
            yield _held_letter(row, "it")
    for _, row in _inferred(warehouse, "dlq", coordinate):
        sentence = f"as the dead letter of {_source(row)}{_by(row)}, as headers of {_teller(row)} say"
        yield Event(None, "written", sentence, _inferred_facts(row), _NEVER)


def _inferred(warehouse: Warehouse, side: str, coordinate: Coordinate) -> Iterator[tuple[Coordinate, dict[str, Any]]]:
    """Yield the dead letters of a message (``original``), or at its coordinate (``dlq``), that did not land."""
    if not warehouse.exists(INFERRED):
        return
    slice_ = "source_slice" if side == "original" else "dlq_slice"
    names: Key = dict(zip((f"{side}_{part}" for part in Coordinate._fields), coordinate, strict=True))
    seen: set[tuple[Coordinate, str | None]] = set()
    for row in rows(warehouse, INFERRED, {"cluster": warehouse.cluster, slice_: coordinate.slice, **names}):
        letter = Coordinate(row["dlq_topic"], row["dlq_partition"], row["dlq_offset"])
        same: Key = {"cluster": warehouse.cluster, "slice": letter.slice}
        same |= dict(zip(("dlq_topic", "dlq_partition", "dlq_offset"), letter, strict=True))
        if (letter, row["consumer_group"]) not in seen and not rows(warehouse, DEAD_LETTERS, same, ["dlq_offset"]):
            seen.add((letter, row["consumer_group"]))
            yield letter, row


def _by(row: dict[str, Any]) -> str:
    return f" by {visible(owner)}" if (owner := owner_of(row)) is not None else ""


def _teller(row: dict[str, Any]) -> Coordinate:
    return Coordinate(*(row[f"told_by_{part}"] for part in Coordinate._fields))


def _inferred_facts(row: dict[str, Any]) -> dict[str, Any]:
    columns = ("dlq_topic", "dlq_partition", "dlq_offset", "original_topic", "original_partition", "original_offset")
    tellers = ("told_by_topic", "told_by_partition", "told_by_offset")
    return {name: row[name] for name in (*columns, "consumer_group", *tellers)}


def _source(row: dict[str, Any]) -> str:
    """Return the coordinate of the record that failed, as far as the headers name it."""
    parts = [row[f"original_{name}"] for name in ("topic", "partition", "offset")]
    if None not in parts:
        return str(Coordinate(*parts))
    return "a record" if parts[0] is None else f"a record of {visible(parts[0])}"


def _held_letter(row: dict[str, Any], what: str) -> Event:
    at = row["routed_at"] or row["dlq_timestamp"]
    sentence = f"{what} is held, as its topic broke the contract of silver.dlq_records"
    return Event(at, "held", sentence, {"table": "held.dlq_records", **_facts(row)})


def _write_failures(warehouse: Warehouse, coordinate: Coordinate) -> Iterator[Event]:
    key: Key = {
        "cluster": warehouse.cluster,
        "original_topic": coordinate.topic,
        "original_partition": coordinate.partition,
    }
    for row in rows(warehouse, WRITE_FAILURES, key):
        if None not in (row["first_offset"], row["last_offset"]) and (
            row["first_offset"] <= coordinate.offset <= row["last_offset"]
        ):
            names = ("consumer_group", "dlq_topic", "reason", "error_class", "first_offset", "last_offset")
            group = f"by {visible(row['consumer_group'] or 'an unknown group')}"
            target = f" to {visible(row['dlq_topic'])}" if row["dlq_topic"] else ""
            reason = f": {visible(row['reason'])}" if row["reason"] else ""
            sentence = f"{group}{target}, and archived without a dead letter{reason}"
            yield Event(row["failed_at"], "dead-lettering failed", sentence, {name: row[name] for name in names})


def _log(warehouse: Warehouse, coordinate: Coordinate) -> Iterator[Event]:
    """Yield whether landed segments hold the offset, or prove that it is absent."""
    ranges = [
        row
        for row in rows(warehouse, LOG_RANGES, {"cluster": warehouse.cluster, "slice": coordinate.slice})
        if row["first_offset"] <= coordinate.offset <= row["last_offset"]
    ]
    for row in sorted(
        ranges, key=lambda row: (not row["is_present"], not row.get("has_batch"), not row["is_compacted"])
    )[:1]:
        compacted = ", which is compacted" if row["is_compacted"] else ""
        what = {True: "in the log", False: "absent from the log", None: "perhaps in the log"}[row["is_present"]]
        if row["is_present"] is None:
            compacted += ": a batch has lost some of its records, and its header does not tell which"
        elif row.get("has_batch") and not row["is_present"]:
            compacted += ": a batch stands there without its records"
        facts = {name: row.get(name) for name in ("segment", "has_batch", "is_present", "is_compacted")}
        if row["is_present"] is False:
            for policies in rows(warehouse, POLICIES, {"cluster": warehouse.cluster, "topic": coordinate.topic}):
                policy, source = (policies[name] for name in ("cleanup_policy", "source"))
                facts |= {"cleanup_policy": policy, "cleanup_policy_source": source}
                if policy is not None:
                    compacted += f"; cleanup.policy of the topic is '{visible(policy)}', as the {source} says"
        yield Event(None, what, f"segment {visible(row['segment'])}{compacted}", facts)
