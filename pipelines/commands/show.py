"""silver.dlq_records, its quarantine and its held rows -> one dead letter, whole, with its secrets masked."""

from __future__ import annotations

import base64
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any, Literal

from expectations.contract import contract_of
from expectations.owners import OWNER, owner_of
from expectations.rules import counted
from expectations.text import visible
from pipelines.commands import unread_lines
from pipelines.commands.coordinate import Coordinate, Key
from pipelines.commands.describe import Answer
from pipelines.errors import UsageError
from pipelines.payloads import FRAME, MAGIC, Masked, Part, Payload, as_json
from pipelines.privacy import Masks
from pipelines.steps.collapse import CONFLICT
from pipelines.teams import Teams, refuse_others
from pipelines.text import elided, first_names, hint
from pipelines.warehouse import erased
from pipelines.warehouse.jvmless import query, rows
from pipelines.warehouse.tables import Warehouse

SILVER, QUARANTINE, HELD = "silver.dlq_records", "quarantine.dlq_records", "held.dlq_records"
STATES = {SILVER: "accepted", QUARANTINE: "quarantined", HELD: "held"}

As = Literal["auto", "text", "json", "hex"]

MOST_OF_PAYLOAD = 4_000  # characters; --full shows all
MOST_LINES_SHOWN = 40  # of a payload or message
MOST_IN_HEX = 512  # bytes of a payload
LINES_OF_TRACE = 12  # lines
MOST_OF_ERROR = 1_000  # characters
MOST_OF_HEADER = 200
MOST_NAMED = 5
BYTES_OF_LINE = 16
_WIDEST = 80

FACTS = (
    *("header_profile", "disposition", "disposition_source", "consumer_group"),
    *("original_topic", "original_partition", "original_offset", "original_timestamp", "delivery_count"),
    *("error_message", "exception_class", "exception_cause_class", "exception_stacktrace"),
    *("connector_name", "task_id", "stage", "stage_class", "routed_at", "routed_at_source"),
    *("payload_copied", "control_marker_suspected"),
)
EVIDENCE = {
    "missing_fields": "mandatory fields without a value",
    "undecoded_fields": "fields that do not decode",
    "undecodable_headers": "fields that are not UTF-8",
}


def answer(
    warehouse: Warehouse,
    wanted: str,
    form: str = "text",
    *,
    shown_as: As = "auto",
    full: bool = False,
    team: str | None = None,
) -> Answer:
    """Show the dead letter at TOPIC:PARTITION:OFFSET of its DLQ topic, as ``text`` or ``json``.

    ``shown_as`` and ``full`` decide how much of the payload the text shows and in which form; JSON has all of it. The
    exit code is 1 if nothing is known at the coordinate.

    Raises UsageError: the text is no coordinate, the table does not exist, a mask has no key, a schema file cannot be
    used, or the dead letter is of other teams than the ``team`` that asks.
    """
    coordinate = Coordinate.of(wanted)
    if coordinate is None:
        text = elided(wanted, _WIDEST)
        raise UsageError(f"'{text}' is not the place of a dead letter: write it like dlq.orders:0:5.")
    masks = Masks.of(warehouse.settings)
    for table, state in STATES.items():
        known = _at(warehouse, table, coordinate)
        if known:
            refuse_others(
                team, Teams.of_settings(warehouse.settings).of_row(known[0]), f"The dead letter at {coordinate}"
            )
            erased_at = erased.by_coordinate(warehouse).get((coordinate.topic, coordinate.partition, coordinate.offset))
            letter = Letter(coordinate, table, state, known[0], masks, erased_at)
            return Answer(letter.as_json() if form == "json" else letter.as_text(shown_as, full), _others(known))
    return _nothing(warehouse, coordinate, form)


def _at(warehouse: Warehouse, table: str, coordinate: Coordinate) -> list[dict[str, Any]]:
    """Return the rows of a table at a coordinate, the newest first; none if there is no table beside the main one."""
    key: Key = {
        "cluster": warehouse.cluster,
        "dlq_topic": coordinate.topic,
        "dlq_partition": coordinate.partition,
        "dlq_offset": coordinate.offset,
    }
    return sorted(_rows(warehouse, table, key), key=lambda row: (row["_ingested_at"], row["_bronze_id"]), reverse=True)


def _rows(warehouse: Warehouse, table: str, key: Key, columns: list[str] | None = None) -> list[dict[str, Any]]:
    if table != SILVER and not warehouse.exists(table):
        return []
    return rows(warehouse, table, key, columns)


def _others(known: Sequence[dict[str, Any]]) -> tuple[str, ...]:
    if len(known) == 1:
        return ()
    its_id = f", whose topic id is {visible(known[0]['dlq_topic_id'])}" if known[0]["dlq_topic_id"] else ""
    return (f"{counted(len(known), 'row')} are known at this place: this is the newest{its_id}.",)


class Letter:
    """A dead letter at its coordinate, as a table has it, masked."""

    def __init__(
        self,
        coordinate: Coordinate,
        table: str,
        state: str,
        row: Mapping[str, Any],
        masks: Masks,
        erased_at: datetime | None = None,
    ) -> None:
        """Mask the row and read its key and value; raises UsageError: a schema file cannot be used."""
        self.coordinate, self.table, self.state, self.erased_at = coordinate, table, state, erased_at
        self.record = masks.record(row)
        parts: tuple[Part, Part] = ("key", "value")
        self.payloads = {part: masks.payload(row, part) for part in parts}

    def as_json(self) -> str:
        """Return one JSON object in one line; times in ISO-8601, UTC."""
        record = self.record
        return as_json(
            {
                "cluster": record["cluster"],
                **self.coordinate._asdict(),
                "topic_id": record["dlq_topic_id"],
                "timestamp": _time(record["dlq_timestamp"]),
                "table": self.table,
                "state": self.state,
                "erased_at": _time(self.erased_at),
                "violations": record.get("violations") or [],
                **{name: record.get(name) or [] for name in (*EVIDENCE, "masked")},
                **{name: _time(record[name]) for name in FACTS},
                OWNER: owner_of(record),
                "user_headers": list(map(_header_facts, filter(None, record["user_headers"] or ()))),
                "earlier_hops": record["earlier_hops"] or [],
                **{part: _payload_facts(payload) for part, payload in self.payloads.items()},
            }
        )

    def as_text(self, shown_as: As, full: bool) -> str:
        """Return a heading, then a line or a block for each thing that is known."""
        lines = [str(self.coordinate)]
        for name, texts in self._facts(full):
            lines += [f"  {name if not at else '':<15}  {text}".rstrip() for at, text in enumerate(texts)]
        for heading, texts in self._blocks(shown_as, full) if self.erased_at is None else ():
            lines += [f"  {heading}", *(f"    {text}".rstrip() for text in texts)]
        return "\n".join(lines)

    def _facts(self, full: bool) -> Iterator[tuple[str, list[str]]]:
        record = self.record
        yield "dead-lettered", [self._when()]
        if self.erased_at is not None:
            yield "erased", [f"on {_time(self.erased_at)}: its content is gone, only the facts below are left"]
        if self.table != SILVER:
            yield self.state, list(self._why())
        words = {"header": "its headers say so", "message": "as the broker's message says"}
        source = words.get(record["disposition_source"])
        disposition = record["disposition"]
        yield "profile", [_or_unknown(record["header_profile"])]
        yield "disposition", [_or_unknown(disposition) + (f", {source}" if disposition and source else "")]
        is_named = record["consumer_group"] is None and record.get(OWNER) is not None
        yield ("belongs to" if is_named else "group"), [_or_unknown(owner_of(record))]
        yield "source", [self._source()]
        yield "deliveries", [_or_unknown(record["delivery_count"])]
        connector = [
            f"{name.replace('_', ' ')} {visible(str(record[name]))}"
            for name in ("connector_name", "task_id", "stage", "stage_class")
            if record[name] is not None
        ]
        if connector:
            yield "connector", [", ".join(connector).removeprefix("connector name ")]
        yield "error", list(self._error(full))

    def _when(self) -> str:
        record = self.record
        if record["routed_at"] is None:
            return "at an unknown time"
        by = "as its header says" if record["routed_at_source"] == "header" else "Kafka's time of the dead letter"
        return f"{_time(record['routed_at'])}, {by}"

    def _why(self) -> Iterator[str]:
        if self.state == "held":
            yield "its topic broke the contract of silver.dlq_records, so all its records wait"
        rules = {rule.code: rule for rule in contract_of(SILVER).rules}
        for code in self.record.get("violations") or ():
            if code == CONFLICT:
                yield f"{code}: the table holds a record of this place with other content, which stands"
            elif code in rules:
                yield f"{code}: the {rules[code].noun} {rules[code].failure}"
            else:
                yield visible(code)
        for name, words in EVIDENCE.items():
            if fields := self.record.get(name):
                yield f"{words}: {', '.join(map(visible, fields))}"

    def _source(self) -> str:
        record = self.record
        parts = [record[f"original_{name}"] for name in Coordinate._fields]
        if None not in parts:
            return str(Coordinate(*parts))
        if parts[0] is None:
            return "unknown"
        known = [f"{name} {value}" for name, value in zip(Coordinate._fields, parts, strict=True) if value is not None]
        return f"{visible(', '.join(known))}, the rest is unknown"

    def _error(self, full: bool) -> Iterator[str]:
        record = self.record
        classes = [_text(record["exception_class"]), _text(record["exception_cause_class"])]
        if any(classes):
            yield ", caused by ".join(name for name in classes if name)
        if record["error_message"] is not None:
            most = None if full else MOST_OF_ERROR
            yield from _cut_lines(record["error_message"], most, MOST_LINES_SHOWN if not full else None)
        elif not any(classes):
            yield "unknown"

    def _blocks(self, shown_as: As, full: bool) -> Iterator[tuple[str, list[str]]]:
        record = self.record
        if record["exception_stacktrace"] is not None:
            most = None if full else LINES_OF_TRACE
            lines = list(_cut_lines(record["exception_stacktrace"].rstrip("\n"), None, most))
            yield "stack trace", lines
        headers = [header for header in record["user_headers"] or () if header]
        if headers:
            yield "user headers", [_header(header, full) for header in headers]
        if record["earlier_hops"]:
            yield "earlier hops", [_hop(hop) for hop in record["earlier_hops"] if hop]
        if record.get("masked"):
            yield "masked", [f"Before it was written: {visible(', '.join(record['masked']))}."]
        if record["payload_copied"] is False and all(record[part] is None for part in self.payloads):
            yield "key and value", ["They were never copied: the broker wrote headers only."]
            return
        for part, payload in self.payloads.items():
            heading, lines = _payload(payload, shown_as, full)
            yield f"{part}, {heading}", lines
        if record["control_marker_suspected"]:
            yield "perhaps a transaction's marker", ["Key and value have the bytes of one."]


def _payload(payload: Payload, shown_as: As, full: bool) -> tuple[str, list[str]]:
    """Return a heading and the lines of a key or value."""
    if payload.masked is not None and payload.form is None:
        return "masked", [visible(payload.masked), *([payload.remark] if payload.remark else [])]
    if payload.masked is not None:
        said = [] if shown_as in ("auto", "json") else ["A mask hides parts of it, so it is shown as JSON."]
        return f"masked, {_form(payload)}", [*_remarks(payload), *said, *_json(payload, full)]
    if payload.content is None:
        return "null", []
    size = counted(len(payload.content), "byte")
    if not payload.content:
        return f"{size}: it is empty", []
    chosen, remarks = shown_as, list(_remarks(payload))
    if chosen == "json" and payload.form is None:
        remarks.append("It is not JSON.")
        chosen = "auto"
    if chosen == "auto":
        chosen = _best(payload)
    if chosen == "json":
        return f"{size}, {_form(payload)}", [*remarks, *_json(payload, full)]
    if chosen == "text":
        text = payload.content.decode("utf-8", "backslashreplace")
        return f"{size}, text", [*remarks, *_cut_lines(text, *_most(full))]
    content = payload.content
    if not payload.is_undecodable and content[:1] == MAGIC and len(content) > FRAME and payload.form is None:
        schema_id = int.from_bytes(content[1:FRAME], "big")
        remarks.append(
            f"If it is in Confluent's wire format, its schema id is {schema_id}: a [[schema]] can decode it."
        )
    return f"{size}, hex", [*remarks, *_hex(content, full)]


def _best(payload: Payload) -> As:
    if payload.is_undecodable:
        return "hex"
    if payload.form is not None and (payload.form != "JSON" or isinstance(payload.data, dict | list)):
        return "json"
    try:
        text = (payload.content or b"").decode("utf-8")
    except UnicodeDecodeError:
        return "hex"
    return "text" if all(character.isprintable() or character in "\t\r\n" for character in text) else "hex"


def _form(payload: Payload) -> str:
    parts: list[str] = [payload.form or ""]
    if payload.schema and not payload.is_undecodable:
        parts.append(visible(payload.schema))
    if payload.schema_id is not None:
        parts.append(f"schema id {payload.schema_id}")
    return ", ".join(parts)


def _remarks(payload: Payload) -> list[str]:
    return [payload.remark] if payload.remark else []


def _most(full: bool) -> tuple[int | None, int | None]:
    return (None, None) if full else (MOST_OF_PAYLOAD, MOST_LINES_SHOWN)


def _json(payload: Payload, full: bool) -> Iterator[str]:
    yield from _cut_lines(as_json(payload.data, 2), *_most(full))


def _cut_lines(text: str, characters: int | None, lines: int | None) -> Iterator[str]:
    """Yield the lines of a text, safe for a terminal, and a sentence if some characters or lines are left out."""
    kept = text if characters is None else text[:characters]
    all_lines = kept.split("\n")
    shown = all_lines if lines is None else all_lines[:lines]
    for line in shown:
        yield visible(line.removesuffix("\r").expandtabs(4))
    if len(shown) < len(all_lines) or len(kept) < len(text):
        total = text.count("\n") + 1
        if len(shown) < total:
            yield f"This is cut: {len(shown):,} of {counted(total, 'line')}. --full shows all."
        else:
            yield f"This is cut: {len(kept):,} of {counted(len(text), 'character')}. --full shows all."


def _hex(content: bytes, full: bool) -> Iterator[str]:
    shown = content if full else content[:MOST_IN_HEX]
    for at in range(0, len(shown), BYTES_OF_LINE):
        line = shown[at : at + BYTES_OF_LINE]
        text = "".join(chr(byte) if 0x20 <= byte < 0x7F else "." for byte in line)
        yield f"{at:08x}  {line.hex(' '):<{3 * BYTES_OF_LINE - 1}}  |{text}|"
    if len(shown) < len(content):
        yield f"This is cut: {len(shown):,} of {counted(len(content), 'byte')}. --full shows all."


def _header(header: Mapping[str, Any], full: bool) -> str:
    name, value = visible(str(header["key"])), header["value"]
    if value is None:
        return f"{name} = null"
    if isinstance(value, Masked):
        return f"{name} = {visible(value)}"
    text = _utf8(value)
    shown = f"0x{value.hex()}" if text is None else visible(text)
    if full or len(shown) <= MOST_OF_HEADER:
        return f"{name} = {shown}"
    return f"{name} = {shown[:MOST_OF_HEADER]}… This is cut: it has {counted(len(value), 'byte')}. --full shows all."


def _hop(hop: Mapping[str, Any]) -> str:
    parts = [hop[name] for name in Coordinate._fields]
    at = str(Coordinate(*parts)) if None not in parts else visible(parts[0] or "unknown")
    group = f" by {visible(hop['consumer_group'])}" if hop["consumer_group"] is not None else ""
    return f"{at}{group} ({visible(hop['profile'])})"


def _header_facts(header: Mapping[str, Any]) -> dict[str, Any]:
    return {"name": header["key"], **_bytes_facts(header["value"])}


def _bytes_facts(value: bytes | Masked | None) -> dict[str, Any]:
    if isinstance(value, Masked):
        return {"base64": None, "text": value, "masked": True}
    if value is None:
        return {"base64": None, "text": None}
    return {"base64": base64.b64encode(value).decode(), "text": _utf8(value)}


def _payload_facts(payload: Payload) -> dict[str, Any] | None:
    """Return what JSON says of a key or value; None if there is none."""
    if payload.content is None and payload.masked is None:
        return None
    facts = {
        "form": payload.form,
        "schema": payload.schema,
        "schema_id": payload.schema_id,
        "data": payload.data,
        "remark": payload.remark,
    }
    size = {} if payload.content is None else {"bytes": len(payload.content)}
    known = {name: value for name, value in facts.items() if value not in (None, "")}
    return size | _bytes_facts(payload.content if payload.masked is None else payload.masked) | known


def _utf8(content: bytes) -> str | None:
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError:
        return None


def _text(text: str | None) -> str:
    return "" if text is None else visible(text)


def _or_unknown(value: object) -> str:
    return "unknown" if value is None else visible(str(value))


def _time(value: Any) -> Any:
    """Return a time in ISO-8601; any other value stays."""
    return value.isoformat(timespec="milliseconds").replace("+00:00", "Z") if isinstance(value, datetime) else value


def _nothing(warehouse: Warehouse, coordinate: Coordinate, form: str) -> Answer:
    """Return the answer for a coordinate at which no dead letter is known, with a hint at what may be meant."""
    letters = _letters_of(warehouse, coordinate)
    message = f"No dead letter is known at {coordinate} in cluster '{visible(warehouse.cluster)}'."
    if letters:
        shown = first_names([*map(str, letters)], MOST_NAMED)
        many = "dead letter is" if len(letters) == 1 else "dead letters are"
        message += f" It is the place of a source record, whose {many} {shown}."
    else:
        message += _meant(warehouse, coordinate) + unread_lines.hint(warehouse, coordinate.topic)
    if form == "json":
        coordinates = [letter._asdict() for letter in letters]
        return Answer(as_json({**coordinate._asdict(), "message": message, "dead_letters": coordinates}), (), 1)
    return Answer(message, (), 1)


def _letters_of(warehouse: Warehouse, coordinate: Coordinate) -> list[Coordinate]:
    """Return the coordinates of the dead letters of a source record."""
    key: Key = {"cluster": warehouse.cluster}
    key |= {f"original_{name}": value for name, value in coordinate._asdict().items()}
    columns = [f"dlq_{name}" for name in Coordinate._fields]
    coordinates = (
        tuple(row[name] for name in columns) for table in STATES for row in _rows(warehouse, table, key, columns)
    )
    return [Coordinate(*parts) for parts in sorted({parts for parts in coordinates if None not in parts})]


def _meant(warehouse: Warehouse, coordinate: Coordinate) -> str:
    """Return a hint on the topic or the offsets that may be meant."""
    by_topic = "SELECT dlq_topic AS topic FROM rows GROUP BY dlq_topic"
    topics = [row["topic"] for row in query(warehouse, SILVER, by_topic, {"cluster": warehouse.cluster})]
    if coordinate.topic not in topics:
        landed = warehouse.settings.landing_of("dlq")
        return hint(coordinate.topic, filter(None, topics)) or (
            f" No dead letter of this topic is known: what lands in {landed}/ can be shown once `afterlog run` has "
            "taken it in."
        )
    key: Key = {"cluster": warehouse.cluster, "dlq_topic": coordinate.topic, "dlq_partition": coordinate.partition}
    ends = "SELECT min(dlq_offset) AS first, max(dlq_offset) AS last FROM rows"
    ((first, last),) = (row.values() for row in query(warehouse, SILVER, ends, key))
    if first is None:
        return f" No dead letter of partition {coordinate.partition} is known."
    return f" The dead letters of this partition have offsets {first} to {last}."
