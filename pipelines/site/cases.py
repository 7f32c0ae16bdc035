"""Incidents and the tables beside them -> a Case for each."""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

from expectations.owners import GROUP, OWNER, key_of, owner_of
from expectations.rules import counted
from expectations.text import visible
from pipelines.commands import windows
from pipelines.commands.incidents import story
from pipelines.commands.incidents.incident import Incident
from pipelines.commands.incidents.reading import ERRORS, RECORDS, SUSPECTS, Incidents, minutes_of
from pipelines.commands.incidents.story import (
    CURRENT,
    DEPLOYED,
    MOST_SAMPLES,
    NODES,
    REVISIONS,
    Replays,
    diff_of,
    quoted,
)
from pipelines.incidents import ids
from pipelines.incidents.blast import Blast, Graph, Revisions
from pipelines.incidents.signature import FINGERPRINT
from pipelines.incidents.state import moment as moment_of
from pipelines.incidents.verdict import POISON_PILL
from pipelines.incidents.words import at_offset, few_keys, in_words, percent
from pipelines.site import addresses, payloads
from pipelines.site.content import Case, Command, Partition, Row, Sample, Suspect
from pipelines.site.tables import Tables
from pipelines.warehouse import jvmless
from pipelines.warehouse.tables import Warehouse

REPLAYS = "gold.replays"

MINUTE, HALF_HOUR = timedelta(minutes=1), timedelta(minutes=30)
SHORT = timedelta(hours=6)
MOST_IN_MINUTES = 200  # incidents
MOST_JUDGED = 20  # incidents, in about two seconds
MOST_DIFFS = 2


def cases_of(
    warehouse: Warehouse,
    known: Incidents,
    wanted: Sequence[Incident],
    tables: Tables,
    replays: Callable[[str], Replays] | None,
) -> tuple[Case, ...]:
    """Return the ``wanted`` ones of the known incidents; ``replays`` tells of a plan of one."""
    suspects: dict[str, list[Row]] = defaultdict(list)
    for row in tables[SUSPECTS]:
        suspects[row["incident_id"]].append(row)
    revisions: dict[str, list[Row]] = defaultdict(list)
    for row in tables[REVISIONS]:
        revisions[row["group_id"]].append(row)
    no_letters: Letters = {}
    letters = tables.guarded(RECORDS, lambda: _letters(warehouse, wanted), no_letters)
    no_minutes: Mapping[str, Mapping[int, int]] = {}
    minutes = tables.guarded(ERRORS, lambda: _minutes(warehouse, wanted), no_minutes)
    known.learn_usual_rates(wanted)
    blasts = _Blasts(tables)
    no_change = story.no_change(bool(tables[DEPLOYED]))
    show = payloads.shown(warehouse) if warehouse.settings.report.payloads else None
    asked = _planned(known, wanted, tables) if replays is not None else set()

    def replay_of(name: str) -> Replays | None:
        return tables.guarded(RECORDS, lambda: replays(name) if replays is not None and name in asked else None, None)

    return tuple(
        _case(
            known,
            incident,
            sorted(suspects[incident.row["incident_id"]], key=lambda row: row["rank"]),
            no_change,
            letters,
            revisions,
            blasts(incident.row),
            minutes.get(incident.row["incident_id"]),
            show if incident.state.is_open and index < payloads.MOST_INCIDENTS else None,
            replay_of(incident.row["incident_id"]),
        )
        for index, incident in enumerate(wanted)
    )


def _planned(known: Incidents, wanted: Sequence[Incident], tables: Tables) -> set[str]:
    """Return the incidents whose replay pages tell: some that are open, and some of which plans took records."""
    opened = [incident.row["incident_id"] for incident in wanted if incident.state.is_open]
    names = {ids.survivor(row["incident_id"], known.merged) for row in tables.distinct(REPLAYS, "incident_id")}
    planned = [incident.row["incident_id"] for incident in wanted if incident.row["incident_id"] in names]
    return {*opened[:MOST_JUDGED], *planned[:MOST_JUDGED]}


def _minutes(warehouse: Warehouse, known: Sequence[Incident]) -> Mapping[str, Mapping[int, int]]:
    """Return the records of each minute, in microseconds since 1970, of the most urgent incidents that are short."""
    short = [incident.row for incident in known if incident.row["last_at"] - incident.row["first_at"] <= SHORT][
        :MOST_IN_MINUTES
    ]
    if not short:
        return {}
    counts: dict[str, Counter[int]] = defaultdict(Counter)
    for fingerprint, errors in minutes_of(warehouse, {row["fingerprint"] for row in short}).items():
        for minute in (minute for error in errors for minute in error["minutes"] or ()):
            counts[fingerprint][minute["minute"]] += minute["record_count"]
    return {
        row["incident_id"]: {
            minute: count
            for minute, count in counts[row["fingerprint"]].items()
            if (at := moment_of(minute)) is not None and row["first_at"] - MINUTE < at <= row["last_at"]
        }
        for row in short
    }


def _by_time(row: Row, minutes: Mapping[int, int] | None) -> tuple[tuple[tuple[datetime, int], ...], timedelta]:
    """Return an incident's records by minute if all of them are known so, else by half hour."""
    counts = {bucket["half_hour"]: bucket["record_count"] for bucket in row["timeline"] or ()}
    each = HALF_HOUR
    if minutes and sum(minutes.values()) == sum(counts.values()):
        counts, each = dict(minutes), MINUTE
    timed = ((moment_of(at), count) for at, count in sorted(counts.items()))
    return tuple((at, count) for at, count in timed if at is not None), each


Letters = Mapping[tuple[Any, ...], Row]


def _letters(warehouse: Warehouse, known: Sequence[Incident]) -> Letters:
    """Return the first dead letter of each source record that incidents name, by topic, partition, offset and owner."""
    offsets = sorted(
        {
            record["original_offset"]
            for incident in known
            for record in (incident.row["top_records"] or ())[:MOST_SAMPLES]
            if record["original_offset"] is not None
        }
    )
    if not offsets:
        return {}
    columns = ("original_topic", "original_partition", "original_offset")
    wanted = ", ".join(map(str, offsets))
    rows = jvmless.query(
        warehouse,
        RECORDS,
        f"SELECT {', '.join(columns)}, {GROUP}, {OWNER}, dlq_topic, dlq_partition, dlq_offset, routed_at FROM rows "
        f"WHERE original_offset IN ({wanted})",
        {"cluster": warehouse.cluster},
    )
    first_letters: dict[tuple[Any, ...], Row] = {}
    for row in sorted(rows, key=lambda row: (row["routed_at"] is None, row["routed_at"], row["dlq_offset"])):
        first_letters.setdefault((*(row[name] for name in columns), key_of(row)), row)
    return first_letters


class _Blasts:
    """What topics reach; it is followed once for all incidents of a topic and group between two changes."""

    def __init__(self, tables: Tables) -> None:
        self.revisions = Revisions(tables[REVISIONS], tables[CURRENT])
        self.graph = Graph(tables[NODES], {}) if tables[NODES] else None
        self.times = self.revisions.times
        self.known: dict[tuple[int, str, str | None], Blast] = {}

    def __call__(self, row: Row) -> Blast | None:
        """Return what an incident's source topic reaches; None if no topology has landed."""
        topic, group = row["original_topic"], row["consumer_group"]
        if self.graph is None:
            return None
        index = bisect_right(self.times, row["first_at"])
        if (index, topic, group) not in self.known:
            self.graph.turn(self.revisions.at(row["first_at"], group))
            self.known[index, topic, group] = self.graph.blast(topic, group)
        return self.known[index, topic, group]


def _case(
    known: Incidents,
    incident: Incident,
    suspects: Sequence[Row],
    no_change: str,
    letters: Letters,
    revisions: Mapping[str, Sequence[Row]],
    blast: Blast | None,
    minutes: Mapping[int, int] | None,
    show: Callable[[str], str] | None,
    replay: Replays | None,
) -> Case:
    row, state = incident.row, incident.state
    samples = list(_samples(row, letters, show))
    return Case(
        row["incident_id"],
        row["severity"],
        state.name,
        state.is_open,
        state.is_loud,
        state.is_quiet,
        state.muted_until,
        row["verdict"],
        chip(row),
        row["sentence"],
        incident.owner_on_topic,
        tuple(story.about_the_state(incident, known)),
        tuple(story.evidence(known, incident)),
        row["consumer_group"],
        owner_of(row),
        row["original_topic"],
        tuple(dlq["dlq_topic"] for dlq in row["dlq_topics"] or ()),
        row["record_count"],
        row["source_record_count"],
        None if incident.rate is None else round(incident.rate, 3),
        known.usual_rate(incident),
        row["first_at"],
        row["last_at"],
        tuple(sorted(incident.untimed)),
        *_by_time(row, minutes),
        row["disposition"],
        row["error_pattern"],
        row["exception_class"],
        row["exception_cause_class"],
        row["error_frame"],
        row["fingerprint"],
        story.fingerprint_of(row),
        incident.predecessor,
        row["record_count"] - row["without_payload_count"] - row["suspected_count"],
        row["without_payload_count"],
        tuple(_partitions(row)),
        tuple(samples),
        tuple(map(_suspect, suspects)),
        "" if any(suspect["changed_at"] for suspect in suspects) else no_change,
        blast,
        tuple(map(visible, replay.in_words)) if replay is not None else None,
        tuple(_commands(row, samples, suspects, revisions)),
        known.warehouse.settings.report.address_of(addresses.incident(row["incident_id"])),
    )


def chip(row: Row) -> str:
    """Return the verdict in a few words, with the figure that speaks for it."""
    words = in_words(row["verdict"])
    if row["verdict"] == POISON_PILL and row["top_records"]:
        if row["source_record_count"] != 1:
            return f"{words}, {counted(row['source_record_count'], 'source record')}"
        worst = row["top_records"][0]
        where = at_offset(row["original_topic"], worst["original_partition"], worst["original_offset"])
        return f"{words} {visible(where)}, {counted(worst['record_count'], 'time')}"
    figures = {
        "KEY_LOCAL": (row["key_share"], f"in {few_keys(row)}"),
        "PARTITION_LOCAL": (row["partition_share"], f"in partition {row['partition']}"),
        "PRODUCER_LOCAL": (row["attribute_share"], f"share one {row['attribute_kind']}"),
    }
    share, of_what = figures.get(row["verdict"], (row["offset_share"], f"of {row.get('offset_share_of') or 'offsets'}"))
    return f"{words}, {percent(share)} {of_what}" if share is not None and round(share, 2) > 0 else words


def _suspect(row: Row) -> Suspect:
    return Suspect(row["kind"], row["name"], row["sentence"], row["changed_at"])


def _partitions(row: Row) -> Iterable[Partition]:
    for partition in row["partitions"] or ():
        yield Partition(
            partition["original_partition"],
            partition["record_count"],
            partition["source_record_count"],
            partition["first_offset"],
            partition["last_offset"],
        )


def _samples(row: Row, letters: Letters, show: Callable[[str], str] | None) -> Iterable[Sample]:
    """Yield the samples of an incident; the first one has its dead letter as text if ``show`` is given."""
    topic = row["original_topic"]
    for record in (row["top_records"] or ())[:MOST_SAMPLES]:
        partition, offset = record["original_partition"], record["original_offset"]
        dead_letter = letters.get((topic, partition, offset, key_of(row)))
        if dead_letter is not None:
            letter = f"{dead_letter['dlq_topic']}:{dead_letter['dlq_partition']}:{dead_letter['dlq_offset']}"
            source = at_offset(topic, partition, offset)
            shown = show(letter) if show is not None else None
            show = None
            yield Sample(letter, source, record["record_count"], dead_letter["routed_at"], shown)


_OF_AN_INCIDENT = (
    f"cluster = :cluster AND {FINGERPRINT} = :fingerprint "
    "AND coalesce(routed_at, dlq_timestamp, _ingested_at) BETWEEN :first AND :last AND _bronze_id NOT IN "
    f"(SELECT _bronze_id FROM {windows.MARKERS} WHERE is_control_marker AND cluster = :cluster)"
)
"""As sql/silver/dlq_errors.sql counts them."""


def _commands(
    row: Row, samples: Sequence[Sample], suspects: Sequence[Row], revisions: Mapping[str, Sequence[Row]]
) -> Iterable[Command]:
    name = row["incident_id"]
    yield Command("all about it", f"afterlog incident {name}")
    if samples:
        first = samples[0]
        yield Command("a dead letter, whole", f"afterlog show {quoted(first.dead_letter)}")
    if samples and row["original_topic"]:
        yield Command("what became of its source record", f"afterlog trace {quoted(first.source)}")
        topic, partition, offset = first.source.rsplit(":", 2)
        yield Command(
            "the source record, from Kafka",
            f'kcat -b "$BOOTSTRAP" -C -t {quoted(topic)} -p {partition} -o {offset} -c 1 -J',
        )
    names = {"cluster": row["cluster"], "first": row["first_at"].isoformat(), "last": row["last_at"].isoformat()}
    error = row["fingerprint"]
    names["fingerprint"] = f"'{error}'" if error.isdigit() else error  # a text, also if it looks like a number
    values = " ".join(f"--param {quoted(f'{name}={value}')}" for name, value in names.items())
    yield Command("its dead letters", f'afterlog sql "SELECT * FROM {RECORDS} WHERE {_OF_AN_INCIDENT}" {values}')
    changed = [suspect for suspect in suspects if suspect["kind"] in ("topology", "writer_topology")]
    for suspect in changed[:MOST_DIFFS]:
        yield Command(f"what changed in {visible(suspect['name'])}", diff_of(suspect, revisions[suspect["name"]]))
    if row["record_count"]:
        yield Command("what a replay would do", f"afterlog replay plan --incident {name} --dry-run")
    yield Command("close it", f"afterlog incident {name} --resolve")
