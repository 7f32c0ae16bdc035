"""Tables -> Content: each table is read once, and no column with a payload, key or header value."""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import fields, replace
from datetime import datetime, timedelta
from functools import partial
from itertools import islice
from operator import attrgetter
from typing import Any, TypeVar

from expectations.gold.message_ledger import OUTCOMES
from expectations.owners import GROUP, OWNER, key_of, owner_of
from expectations.rules import counted
from expectations.text import visible
from pipelines import moments
from pipelines.commands import windows
from pipelines.commands.findings import FINDINGS, LOGS, findings_of, logged_topics, urgent
from pipelines.commands.incidents import story
from pipelines.commands.incidents.front import front, newest_at
from pipelines.commands.incidents.incident import Incident
from pipelines.commands.incidents.reading import (
    DAY,
    ERRORS,
    HOUR,
    INCIDENTS,
    RECORDS,
    SUMMARY,
    SUSPECTS,
    WEEK,
    Incidents,
    minutes_of,
)
from pipelines.commands.incidents.story import DEPLOYED, MOST_SAMPLES, NODES, REVISIONS, Replays, diff_of, quoted
from pipelines.incidents import ids
from pipelines.incidents.blast import Blast, Graph, Revisions
from pipelines.incidents.signature import FINGERPRINT
from pipelines.incidents.state import moment as moment_of
from pipelines.incidents.verdict import POISON_PILL, at_offset, few_keys, in_words, percent
from pipelines.run.freshness import Freshness
from pipelines.run.newest import moment
from pipelines.site import addresses, examples, fronts, news, payloads, places, quality
from pipelines.site.content import (
    SETTLED,
    SHOWN_HOURS,
    Application,
    Case,
    Command,
    Content,
    Delivered,
    Delivery,
    Guarantee,
    Light,
    Lost,
    Marker,
    Partition,
    Replay,
    Replayable,
    Revision,
    Row,
    Sample,
    Series,
    Suspect,
    Timeline,
)
from pipelines.site.damage import guarded
from pipelines.site.findings import sentence
from pipelines.site.places import DeadLetters, dead_letters
from pipelines.site.quality import Feed, Pipeline
from pipelines.text import first_names
from pipelines.warehouse import jvmless
from pipelines.warehouse.tables import Warehouse

CURRENT, CHANGES, HEALTH, EDGES = (
    f"gold.{name}" for name in ("topology_current", "topology_changes", "push_health", "topology_edges")
)
REPLAYS = "gold.replays"
RECONCILIATION, GUARANTEES, LEDGER = "gold.reconciliation", "gold.delivery_guarantees", "gold.message_ledger"

MINUTE, HALF_HOUR = timedelta(minutes=1), timedelta(minutes=30)
SHORT = timedelta(hours=6)
MOST_IN_MINUTES = 200  # incidents
MOST_REPLAYS_LISTED = 5
MOST_JUDGED = 20  # incidents, in about two seconds
MOST_TOLD_APART = 6  # that the timeline tells apart
MOST_DIFFS = 2
MOST_LOST = 50

T = TypeVar("T")


def gather(
    warehouse: Warehouse,
    behind: Sequence[Freshness] | None = None,
    feeds: Sequence[Feed] | None = None,
    now: datetime | None = None,
    replays: Callable[[str], Replays] | None = None,
) -> Content:
    """Collect what the site says, as of ``now``; ``replays`` tells of a plan of an incident, always as of now."""
    now = now or moments.now()
    feeds = quality.feeds_of(warehouse, now) if feeds is None else feeds
    pipeline = quality.gather(warehouse, behind, feeds, now)
    tables = _Tables(warehouse)
    tables.unreadable |= pipeline.unreadable
    nothing: list[dict[str, Any]] = []
    known = tables.guarded(INCIDENTS, lambda: Incidents(warehouse, now), None)
    pairs = [(feed.newest, feed.silence) for feed in feeds if feed.newest.used]
    opened = [incident for incident in known.known if incident.state.is_open] if known else []
    findings = tables.guarded(
        FINDINGS, lambda: findings_of(warehouse, pairs, now, opened, to_the_second=True), nothing, must_exist=False
    )
    cases = _cases(warehouse, known, tables, replays) if known else ()
    applications = _applications(tables, cases)
    delivery = _delivery(warehouse, tables)
    letters = tables.guarded(SUMMARY, lambda: dead_letters(warehouse, now), DeadLetters())
    markers = _markers(tables, pipeline)
    nobody: Counter[str | None] = Counter()
    timeline = _timeline(
        letters,
        lambda after, until: tables.guarded(SUMMARY, lambda: windows.between(warehouse, after, until), nobody),
        markers,
        now,
    )
    if SUMMARY in tables.unreadable:
        timeline = replace(timeline, series=(), last_hour=None, hour_before=None)
    groups, topics = places.gather(letters, cases, findings, delivery, applications)
    refused = tables.guarded(
        "quarantine", lambda: examples.quarantined(warehouse, pipeline), examples.Quarantined(0, ()), must_exist=False
    )
    used = [feed.newest for feed in feeds if feed.newest.used]

    def light(opened: Sequence[Incident], cases: Sequence[Case], findings: Sequence[Row], pipeline: Pipeline) -> Light:
        def words(is_calm: bool) -> str:
            known_incidents = None if INCIDENTS in tables.unreadable else opened
            known_findings = None if FINDINGS in tables.unreadable else findings
            return front(known_incidents, known_findings, used, now, is_calm)

        judged = _light(words, cases, findings, pipeline, {*tables.unreadable.values()})
        return replace(judged, newest_at=newest_at(used))

    content = Content(
        warehouse.cluster,
        warehouse.root,
        now,
        light(opened, cases, findings, pipeline),
        timeline,
        cases,
        tuple(findings),
        delivery,
        applications,
        _replayable(cases),
        refused,
        groups,
        topics,
        pipeline,
        news.of_report(warehouse.settings.reports(), cases, findings, tables.unreadable),
        _replays(tables),
        {name: ids.survivor(name, known.merged) for name in sorted(known.merged)} if known else {},
        unreadable=tables.unreadable,
    )
    without_tables = replace(pipeline, tables=())  # their state is of all teams
    of_known = known.known if known else ()
    light_of_team = partial(light, pipeline=without_tables)
    return replace(content, fronts=fronts.of_teams(warehouse, content, of_known, light_of_team, _replayable))


class _Tables:
    """The rows of small tables, each read once."""

    def __init__(self, warehouse: Warehouse) -> None:
        self.warehouse = warehouse
        self.read: dict[str, list[dict[str, Any]]] = {}
        self.unreadable: dict[str, str] = {}

    def __getitem__(self, table: str) -> list[dict[str, Any]]:
        """Return the cluster's rows of a table, none if it does not exist or cannot be read."""
        if table not in self.read:
            equal = {"cluster": self.warehouse.cluster}
            none: list[dict[str, Any]] = []
            self.read[table] = self.guarded(table, lambda: jvmless.rows(self.warehouse, table, equal), none)
        return self.read[table]

    def distinct(self, table: str, column: str) -> list[dict[str, Any]]:
        """Return the different values of a column, which are not null, as rows."""
        text = f"SELECT DISTINCT {column} FROM rows WHERE {column} IS NOT NULL"
        equal = {"cluster": self.warehouse.cluster}
        none: list[dict[str, Any]] = []
        return self.guarded(table, lambda: jvmless.query(self.warehouse, table, text, equal), none)

    def guarded(self, table: str, read: Callable[[], T], otherwise: T, must_exist: bool = True) -> T:
        """Return what is read of a table, or something else if that fails: a damaged table must not end the page."""
        is_absent = must_exist and not self.warehouse.exists(table)
        return otherwise if is_absent else guarded(self.unreadable, table, read, otherwise)


# ---------------------------------------------------------------------------------------------------- the first lines


def _light(
    front: Callable[[bool], str],
    cases: Sequence[Case],
    findings: Sequence[Row],
    pipeline: Pipeline,
    unreadable: Collection[str],
) -> Light:
    """Return red if data is stale, held or lost, or an incident is critical; never green if nothing is known.

    A feed whose silence calls nobody is amber.
    """
    red = [
        f"{table} cannot be read, so that this page may lack what it tells: afterlog doctor"
        for table in sorted(unreadable)
    ]
    amber: list[str] = []
    for feed in pipeline.feeds:
        if feed.silence:
            messages = red if feed.silence.is_urgent else amber
            messages.append(f"Nothing landed in {feed.name} for longer than usual: {feed.newest.in_words}.")
    for table in pipeline.tables:
        if table.state == "blocked":
            scopes = table.freshness.held_scopes
            of_scopes = f" of {first_names([*map(visible, scopes)], 3)}" if scopes else ""
            red.append(
                f"{table.name} holds rows{of_scopes} since {moment(table.blocked_since)}."
                if table.blocked_since
                else ""
            )
        elif table.state == "failed":
            red.append(f"The last run of {table.name} failed.")
    red += [sentence(finding) for finding in findings if finding["severity"] == "critical"]
    loud = [case for case in cases if case.is_loud]
    if critical := sum(case.severity == "critical" for case in loud):
        red.append(f"{counted(critical, 'critical incident')} {'is' if critical == 1 else 'are'} open.")
    if others := sum(case.severity != "critical" for case in loud):
        amber.append(
            f"{counted(others, 'other incident' if critical else 'incident')} {'is' if others == 1 else 'are'} open."
        )
    if cannot_wait := len(urgent(findings)):
        amber.append(f"{counted(cannot_wait, 'finding')} {'is' if cannot_wait == 1 else 'are'} urgent.")
    if late := sum(table.state == "behind" and table.name not in pipeline.unused for table in pipeline.tables):
        amber.append(f"{counted(late, 'table')} {'has' if late == 1 else 'have'} unread input: afterlog run")
    red = [reason for reason in red if reason]
    if red:
        return Light("red", front(False), (*red, *amber))
    known = any(feed.name == "dlq" and feed.newest.at is not None for feed in pipeline.feeds)
    if not known and not loud:
        how = [feed.newest.in_words for feed in pipeline.feeds if feed.name == "dlq"]
        return Light(
            "grey", "Nothing is known yet: no dead letter has landed.", (*(f"dlq: {words}." for words in how), *amber)
        )
    return Light("amber" if amber else "green", front(True), tuple(amber))


def _timeline(
    letters: DeadLetters,
    between: Callable[[datetime, datetime], Counter[str | None]],
    markers: Iterable[Marker],
    now: datetime,
) -> Timeline:
    """Count the dead letters of the last 7 days, or of the 7 days until the newest if that is older."""
    this_hour = _hour(now)
    newest, first = letters.last_hour, letters.first_hour
    is_past = newest is not None and newest <= this_hour - WEEK
    end = (newest if newest is not None and is_past else this_hour) + HOUR
    begin = end - SHOWN_HOURS * HOUR
    until = letters.last_at if is_past and letters.last_at is not None else now
    week, day, hour = (between(until - span, until) for span in (WEEK, DAY, HOUR))
    is_known = first is not None and first <= until - WEEK - HOUR
    before = between(until - WEEK - HOUR, until - WEEK).total() if is_known else None
    counts: dict[str | None, Counter[int]] = defaultdict(Counter)
    for row in letters.hours:
        if begin <= row["hour"] < end:
            counts[row["name"]][(row["hour"] - begin) // HOUR] += row["record_count"]
    ranked = sorted(counts, key=lambda name: (-counts[name].total(), name or ""))

    def series(owner: str | None, names: Sequence[str | None], is_rest: bool = False) -> Series:
        summed: Counter[int] = sum((counts[name] for name in names), Counter())
        windows = (sum(window[name] for name in names) for window in (week, day, hour))
        return Series(owner, is_rest, _spread(summed), *windows)

    shown = [series(name, [name]) for name in ranked[:MOST_TOLD_APART]]
    if rest := ranked[MOST_TOLD_APART:]:
        shown.append(series(f"{len(rest):,} other owners" if len(rest) > 1 else rest[0], rest, len(rest) > 1))
    within = tuple(marker for marker in markers if begin <= marker.at < end)
    return Timeline(begin, end, is_past, tuple(shown), within, until, hour.total(), before)


def _hour(at: datetime) -> datetime:
    return at.replace(minute=0, second=0, microsecond=0)


def _spread(counts: Mapping[int, int]) -> tuple[int, ...]:
    return tuple(counts.get(hour, 0) for hour in range(SHOWN_HOURS))


def _markers(tables: _Tables, pipeline: Pipeline) -> list[Marker]:
    markers = [
        Marker(row["accepted_at"], "revision", f"revision {row['revision']}", row["group_id"])
        for row in tables[REVISIONS]
        if row["accepted_at"] is not None
    ]
    markers += [
        Marker(
            row["changed_at"], "deployment", f"{visible(row['what'] or row['commit'])} was deployed", row["application"]
        )
        for row in tables[DEPLOYED]
    ]
    markers += [
        Marker(run.started_at, "gate", f"The gate of {table.name} broke")
        for table in pipeline.tables
        for run in table.runs
        if run.status == "broken"
    ]
    markers += [
        Marker(
            gap.found_at, "gap", f"{counted(gap.offsets, 'offset')} of {visible(gap.topic)} were gone before reading"
        )
        for gap in pipeline.gaps
    ]
    return sorted(markers, key=lambda marker: (marker.at, marker.kind, marker.application or "", marker.words))


# ---------------------------------------------------------------------------------------------------------- incidents


def _cases(
    warehouse: Warehouse, known: Incidents, tables: _Tables, replays: Callable[[str], Replays] | None
) -> tuple[Case, ...]:
    suspects: dict[str, list[Row]] = defaultdict(list)
    for row in tables[SUSPECTS]:
        suspects[row["incident_id"]].append(row)
    revisions: dict[str, list[Row]] = defaultdict(list)
    for row in tables[REVISIONS]:
        revisions[row["group_id"]].append(row)
    no_letters: Letters = {}
    letters = tables.guarded(RECORDS, lambda: _letters(warehouse, known.known), no_letters)
    no_minutes: Mapping[str, Mapping[int, int]] = {}
    minutes = tables.guarded(ERRORS, lambda: _minutes(warehouse, known.known), no_minutes)
    known.learn_usual_rates(known.known)
    blasts = _Blasts(tables)
    no_change = story.no_change(bool(tables[DEPLOYED]))
    show = payloads.shown(warehouse) if warehouse.settings.report.payloads else None
    asked = _planned(known, tables) if replays is not None else set()

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
        for index, incident in enumerate(known.known)
    )


def _planned(known: Incidents, tables: _Tables) -> set[str]:
    """Return the incidents whose replay pages tell: some that are open, and some of which plans took records."""
    opened = [incident.row["incident_id"] for incident in known.known if incident.state.is_open]
    names = {ids.survivor(row["incident_id"], known.merged) for row in tables.distinct(REPLAYS, "incident_id")}
    planned = [incident.row["incident_id"] for incident in known.known if incident.row["incident_id"] in names]
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

    def __init__(self, tables: _Tables) -> None:
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
    samples = list(_samples(row, letters))
    if show is not None and samples:
        samples[0] = replace(samples[0], shown=show(samples[0].dead_letter))
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
        tuple(
            Partition(
                partition["original_partition"],
                partition["record_count"],
                partition["source_record_count"],
                partition["first_offset"],
                partition["last_offset"],
            )
            for partition in row["partitions"] or ()
        ),
        tuple(samples),
        tuple(
            Suspect(suspect["kind"], suspect["name"], suspect["sentence"], suspect["changed_at"])
            for suspect in suspects
        ),
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


def _samples(row: Row, letters: Letters) -> Iterable[Sample]:
    topic = row["original_topic"]
    for record in (row["top_records"] or ())[:MOST_SAMPLES]:
        partition, offset = record["original_partition"], record["original_offset"]
        dead_letter = letters.get((topic, partition, offset, key_of(row)))
        if dead_letter is not None:
            letter = f"{dead_letter['dlq_topic']}:{dead_letter['dlq_partition']}:{dead_letter['dlq_offset']}"
            yield Sample(letter, at_offset(topic, partition, offset), record["record_count"], dead_letter["routed_at"])


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


def _replayable(cases: Sequence[Case]) -> tuple[Replayable, ...]:
    by_key: dict[tuple[str | None, str | None, str | None], list[Case]] = defaultdict(list)
    for case in cases:
        if case.is_open and (case.with_payload or case.without_payload):
            by_key[case.group, case.owner, case.topic].append(case)
    summed = [
        Replayable(
            *key,
            sum(case.with_payload for case in matching),
            sum(case.without_payload for case in matching),
            tuple(case.incident_id for case in matching),
        )
        for key, matching in by_key.items()
    ]
    return tuple(
        sorted(summed, key=lambda replayable: (-replayable.records, replayable.topic or "", replayable.owner or ""))
    )


def _chosen(choice: str) -> str:
    """Return what chose a plan's records, without a condition that a person typed: it may quote a record."""
    return {"where": "a condition", "record": "named records"}.get(choice.partition(" ")[0], choice)


def _replays(tables: _Tables) -> tuple[Replay, ...]:
    """Return the newest plans that have something to replay, the newest first."""
    replayed = Counter(row["plan_id"] for row in tables["gold.replayed_records"])
    outcomes = Counter((row["plan_id"], row["outcome"]) for row in tables["gold.replay_outcomes"])
    plans = sorted(tables["gold.replay_plans"], key=lambda row: (row["created_at"], row["plan_id"]), reverse=True)

    def replay_of(row: Row) -> Replay:
        name = row["plan_id"]
        done, delivered, died = replayed[name], outcomes[name, "DELIVERED"], outcomes[name, "DIED_AGAIN"]
        at, choice, target, eligible = (row[column] for column in ("created_at", "choice", "target", "eligible_count"))
        return Replay(name, at, _chosen(choice), target, eligible, done, delivered, died, done - delivered - died)

    replays = (replay_of(row) for row in plans)
    return tuple(islice((replay for replay in replays if replay.eligible or replay.replayed), MOST_REPLAYS_LISTED))


# ------------------------------------------------------------------------------------------------------------ delivery

_SUMS = {
    "acknowledged": "acknowledged_count",
    "failed": "failed_count",
    "lost": "lost_count",
    "absent": "absent_count",
    "aborted": "aborted_count",
    "open": "open_count",
    "dead_lettered": "dead_lettered_count",
    "failed_dlq_writes": "dlq_write_failure_count",
    "unexplained_offsets": "dlq_gap_unexplained_count",
}
_OF_LOGS = ("lost", "absent", "aborted", "open")


def _delivery(warehouse: Warehouse, tables: _Tables) -> Delivery:
    by_topic: dict[str | None, Counter[str]] = defaultdict(Counter)
    everything: Counter[str] = Counter()
    for row in tables[RECONCILIATION]:
        for name, column in _SUMS.items():
            by_topic[row["topic"]][name] += row[column] or 0
            everything[name] += row[column] or 0
    no_topics: set[str] = set()
    logged = tables.guarded(LOGS, lambda: logged_topics(warehouse), no_topics)

    def known(count: int, name: str, is_logged: bool) -> int | None:
        return count if is_logged or count or name not in _OF_LOGS else None

    def sums(counts: Mapping[str, int], is_logged: bool) -> dict[str, Any]:
        return {name: known(counts[name], name, is_logged) for name in _SUMS}

    def shown(counts: Mapping[str, int], is_logged: bool) -> dict[str, int | None]:
        return {name: known(counts[name], name.lower(), is_logged) for name in names}

    topics = [Delivered(topic, **sums(counts, topic in logged)) for topic, counts in by_topic.items()]
    troubles = attrgetter("lost", "failed_dlq_writes", "aborted", "unexplained_offsets", "absent")
    topics.sort(key=lambda row: (*(-(count or 0) for count in troubles(row)), -row.dead_lettered, row.topic or ""))
    total = Delivered(None, **sums(everything, bool(logged))) if by_topic else None
    rows = tables[GUARANTEES]
    broken = [
        Guarantee(row["verdict"], row["client_id"] or "", row["topic"] or "", row["sentence"])
        for row in rows
        if row["verdict"] != "OK"
    ]
    order = ("WOULD_FAIL", "SILENTLY_OFF", "DUPLICATES_POSSIBLE", "UNKNOWN")
    broken.sort(
        key=lambda guarantee: (
            order.index(guarantee.verdict) if guarantee.verdict in order else len(order),
            guarantee.client,
            guarantee.topic,
        )
    )
    no_outcomes: dict[str, Counter[str]] = {}
    no_losses: tuple[Lost, ...] = ()
    outcomes = tables.guarded(LEDGER, lambda: _outcomes(warehouse), no_outcomes)
    names = tuple(name for name in OUTCOMES if any(counts[name] for counts in outcomes.values()))
    return Delivery(
        total,
        tuple(topics),
        tables.guarded(LEDGER, lambda: _lost(warehouse, everything["lost"]), no_losses),
        tuple(broken),
        len(rows) - len(broken),
        tuple((topic, shown(counts, topic in logged)) for topic, counts in sorted(outcomes.items())),
        names,
    )


def _outcomes(warehouse: Warehouse) -> dict[str, Counter[str]]:
    """Count the messages of each topic by outcome."""
    text = "SELECT topic, outcome, count(*) AS messages FROM rows GROUP BY topic, outcome"
    counts: dict[str, Counter[str]] = defaultdict(Counter)
    for row in jvmless.query(warehouse, LEDGER, text, {"cluster": warehouse.cluster}):
        counts[row["topic"]][row["outcome"]] += row["messages"]
    return counts


def _lost(warehouse: Warehouse, messages: int) -> tuple[Lost, ...]:
    if not messages:
        return ()
    text = f"""
        SELECT topic, rows.partition, count(*) AS messages, min(rows.offset) AS first_offset,
          max(rows.offset) AS last_offset
        FROM rows
        WHERE outcome = 'LOST'
        GROUP BY topic, rows.partition
        ORDER BY messages DESC, topic, rows.partition
        LIMIT {MOST_LOST}
    """
    return tuple(
        Lost(**{field.name: row[field.name] for field in fields(Lost)})
        for row in jvmless.query(warehouse, LEDGER, text, {"cluster": warehouse.cluster})
    )


# --------------------------------------------------------------------------------------------------------- topologies

_CHANGES = {
    f"{thing}_{how}": f"{thing} {how}"
    for thing, ways in (
        ("nodes", ("added", "removed", "changed")),
        ("edges", ("added", "removed")),
        ("stores", ("added", "removed")),
        ("topics", ("added", "removed")),
    )
    for how in ways
}


def _applications(tables: _Tables, cases: Sequence[Case]) -> tuple[Application, ...]:
    """Return the applications, those whose topology needs a look first."""
    changes = {(row["group_id"], row["revision"]): row for row in tables[CHANGES]}
    revisions: dict[str, list[Row]] = defaultdict(list)
    for row in tables[REVISIONS]:
        revisions[row["group_id"]].append(row)
    pushes = {row["group_id"]: row for row in tables[HEALTH]}
    read, written = _edges(tables)
    before: dict[str, dict[str, int]] = defaultdict(dict)
    for case in cases:
        for suspect in case.suspects if case.is_open else ():
            if suspect.kind in ("topology", "writer_topology", "new_group") and suspect.changed_at is not None:
                seconds = int((case.first_at - suspect.changed_at).total_seconds())
                seconds_before = before[suspect.name]
                seconds_before[case.incident_id] = min(seconds, seconds_before.get(case.incident_id, seconds), key=abs)
    applications = []
    for row in tables[CURRENT]:
        name = row["group_id"]
        applications.append(
            Application(
                name,
                row["health"],
                row["sentence"],
                row["revision"],
                row["node_count"],
                row["last_seen_at"],
                row["last_pushed_at"],
                tuple(row["defects"] or ()),
                tuple(sorted(read[name])),
                tuple(sorted(written[name])),
                {key: value for key, value in pushes[name].items() if key not in ("cluster", "group_id")}
                if name in pushes
                else None,
                tuple(
                    Revision(
                        revision["revision"],
                        revision["accepted_at"],
                        revision["replaced_at"],
                        tuple(revision["topology_epochs"] or ()),
                        tuple(_changed(changes.get((name, revision["revision"])))),
                        revision["topology_hash"],
                        revision["description"],
                    )
                    for revision in sorted(revisions[name], key=lambda revision: -revision["revision"])
                ),
                tuple(sorted(before[name].items(), key=lambda incident: abs(incident[1]))),
                row["description"],
            )
        )
    return tuple(
        sorted(
            applications,
            key=lambda application: (
                not application.needs_a_look,
                application.health in SETTLED,
                application.health,
                application.name,
            ),
        )
    )


def _edges(tables: _Tables) -> tuple[Mapping[str, set[str]], Mapping[str, set[str]]]:
    read: dict[str, set[str]] = defaultdict(set)
    written: dict[str, set[str]] = defaultdict(set)
    for row in tables[EDGES]:
        if row["is_current"] and row["topic"] is not None:
            (read if row["direction"] == "read" else written)[row["group_id"]].add(row["topic"])
    return read, written


def _changed(row: Row | None) -> Iterable[tuple[str, tuple[str, ...]]]:
    for column, words in _CHANGES.items():
        if row is not None and row[column]:
            names = [
                change if isinstance(change, str) else f"{change['from']} -> {change['to']}" for change in row[column]
            ]
            yield words, tuple(names)
