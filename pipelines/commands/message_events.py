"""The tables that gold.message_ledger is made from -> what happened to one message, an Event each."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from expectations.owners import OWNER, owner_of
from expectations.text import visible
from pipelines.commands.coordinate import Coordinate, Key
from pipelines.run.newest import EVER
from pipelines.warehouse import erased
from pipelines.warehouse.jvmless import greatest, rows
from pipelines.warehouse.tables import Warehouse

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
MOST_REPLAYS = 100
MOST_HOPS = 8
NEVER = datetime.min.replace(tzinfo=UTC)
_WAITS = "is held, as its topic broke the contract of"
STATES = {
    "COMMITTED": "transaction committed",
    "ABORTED": "transaction aborted",
    "OPEN": "transaction open",
    "UNKNOWN": "transaction's end unknown",
}


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
        return known is None, known or NEVER, self.at is not None


def events_of(warehouse: Warehouse, coordinate: Coordinate, ledger: dict[str, Any]) -> Iterator[Event]:
    """Yield all that is known to have happened to the message; ``ledger`` is its row in the ledger or empty."""
    yield from _origin(warehouse, coordinate)
    yield from acknowledgements(warehouse, {"cluster": warehouse.cluster, **coordinate._asdict()})
    yield from _transaction(warehouse, coordinate, ledger)
    yield from _dead_letters(warehouse, coordinate, frozenset())
    yield from _replays(warehouse, coordinate)
    yield from _write_failures(warehouse, coordinate)
    yield from _log(warehouse, coordinate)
    yield from _held(warehouse, coordinate)


def _held(warehouse: Warehouse, coordinate: Coordinate) -> Iterator[Event]:
    """Yield the held rows about the message: they landed, but its topic broke a contract, so they wait."""
    yield from held_acknowledgements(warehouse, {"cluster": warehouse.cluster, **coordinate._asdict()})
    key: Key = {"cluster": warehouse.cluster, "topic": coordinate.topic, "partition": coordinate.partition}
    columns = ["scope", "base_offset", "last_offset"]
    for row in rows_held(warehouse, HELD_BATCHES, key, columns):
        bounds = (row["base_offset"], row["last_offset"])
        if None not in bounds and bounds[0] <= coordinate.offset <= bounds[1]:
            facts = {"table": HELD_BATCHES, "scope": row["scope"]}
            yield Event(None, "held", f"a record batch that holds it {_WAITS} silver.record_batches", facts)


def held_acknowledgements(warehouse: Warehouse, key: Key) -> Iterator[Event]:
    """Yield what producers were told about the message, of acknowledgements that wait."""
    for row in rows_held(warehouse, HELD_ACKNOWLEDGEMENTS, key):
        facts = {"table": HELD_ACKNOWLEDGEMENTS, "scope": row["scope"]}
        yield Event(row["acknowledged_at"], "held", f"an acknowledgement {_WAITS} silver.acknowledgements", facts)


def rows_held(warehouse: Warehouse, table: str, key: Key, columns: list[str] | None = None) -> list[dict[str, Any]]:
    """Return rows of a table of held rows; none if the table does not exist, as in an older warehouse."""
    if not warehouse.exists(table):
        return []
    return rows(warehouse, table, key, columns)


def acknowledgements(warehouse: Warehouse, key: Key) -> Iterator[Event]:
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
    latest = max((row["stated_at"] or NEVER for row in stated), default=None)
    return bool(stated) and {row.get("acks") for row in stated if (row["stated_at"] or NEVER) == latest} == {"0"}


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
        if at := erased.by_coordinate(warehouse).get(letter):
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
        yield Event(None, "written", sentence, _inferred_facts(row), NEVER)


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
