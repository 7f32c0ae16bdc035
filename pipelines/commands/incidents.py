"""gold.dlq_incidents and the tables beside it -> what is wrong, since when, why, and what to type next."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from functools import cached_property
from typing import Any, Protocol

from expectations import literals
from expectations.owners import OWNER, key_of, named, owner_of
from expectations.quality import INCIDENT_ACTIONS
from expectations.rules import counted
from expectations.text import visible
from pipelines import moments
from pipelines.catalog import CATALOG
from pipelines.collect.state import asked_at
from pipelines.commands.describe import Answer
from pipelines.commands.findings import (
    FINDINGS,
    MISTAKES,
    amount_of,
    findings_of,
    is_mistake,
    mistakes_of,
    of_team,
    urgent,
)
from pipelines.commands.odd_times import Untimed, all_landed, first_hour
from pipelines.errors import UsageError
from pipelines.incidents import ids
from pipelines.incidents.blast import Blast, Graph, Revisions
from pipelines.incidents.severity import LEVELS
from pipelines.incidents.state import ONGOING, REGRESSED, State, sparkline, state_of
from pipelines.incidents.state import moment as time_of
from pipelines.incidents.until import AS_OF, until
from pipelines.incidents.verdict import (
    are_all_counted,
    at_least,
    at_offset,
    died_around,
    few_keys,
    key_percent,
    keys_of,
    of_all,
    percent,
    shared,
    sources_of,
)
from pipelines.moments import moment_of
from pipelines.run import newest
from pipelines.run.newest import Newest, lasting, moment
from pipelines.settings.runs import Report
from pipelines.steps import held, scopes
from pipelines.teams import Teams, in_words, is_of, refuse_others
from pipelines.text import amount, hint, iso
from pipelines.warehouse import actions, jvmless, progress
from pipelines.warehouse.actions import Action
from pipelines.warehouse.tables import Warehouse

INCIDENTS, SUSPECTS = "gold.dlq_incidents", "gold.incident_suspects"
SUMMARY, RECORDS, ERRORS = "gold.dlq_summary", "silver.dlq_records", "silver.dlq_errors"
INFERRED = "silver.inferred_dead_letters"
DEPLOYED = "silver.changes"
NODES, REVISIONS, CURRENT = "silver.topology_nodes", "gold.topology_revisions", "gold.topology_current"
LANDED = "bronze.dlq_records"
ON_THE_WAY = (RECORDS, ERRORS, "silver.dlq_episodes", INCIDENTS)
ERROR_TEXTS = {
    "error_message": "error_pattern",
    "exception_stacktrace": "error_frame",
    "exception_class": "exception_class",
    "exception_cause_class": "exception_cause_class",
}
"""Columns of silver.dlq_records, and those of gold.dlq_incidents that are made from them."""
WRITERS = "SELECT DISTINCT original_topic, header_profile, {} AS has_hops FROM rows"
HAS_HOPS = {RECORDS: "cardinality(earlier_hops) > 0", INFERRED: "false"}
MOST_SAMPLES = 3
MOST_SHOWN = 20
HOUR = timedelta(hours=1)
DAY = timedelta(days=1)
WEEK = timedelta(days=7)
MOST_WEEKS = 8  # of which the usual rate is the mean
UNSHOWN = ("attribute_value", "replayable_count")
"""A hash of a value, which tells nothing; and what older warehouses still have."""


class Replays(Protocol):
    """What a plan would replay of an incident, and what was replayed of it before."""

    @property
    def in_words(self) -> list[str]:
        """It in sentences."""

    def as_json(self) -> dict[str, Any]:
        """It as plain values."""


@dataclass(frozen=True)
class Incident:
    """An incident and its state at the moment that the answer is about.

    ``known`` is its row as known now if dead letters came after the moment, else None. Then ``row`` has the times and
    counts of the moment, as far as these are known (``AS_OF``); its other columns are as known now. ``read`` says until
    when DLQ topics are known to be read. ``teams`` is empty if the settings have none. ``untimed`` names those of its
    times that tell when a record without a time was read.
    """

    row: Mapping[str, Any]
    state: State
    now: datetime
    actions: Sequence[Action] = ()
    known: Mapping[str, Any] | None = None
    read: Mapping[str, datetime] = field(default_factory=dict)
    teams: tuple[str, ...] = ()
    untimed: frozenset[str] = frozenset()

    @property
    def urgency(self) -> tuple[Any, ...]:
        """What incidents are listed by: open ones first, those ahead last, those that go on, severity, time."""
        return (
            not self.state.is_open,
            self.state.muted_until is not None,
            self.is_ahead,
            self.state.is_quiet,
            LEVELS.index(self.row["severity"]),
            -self.row["last_at"].timestamp(),
            self.row["incident_id"],
        )

    @property
    def is_ahead(self) -> bool:
        """True if all of its records are stamped ahead: their times tell nothing of now."""
        return bool(self.row["first_at"] > self.now)

    @property
    def rate(self) -> float | None:
        """Records an hour, from the first to the last, over at least an hour; None: nothing tells when these came."""
        if self.untimed:
            return None
        span = max((self.row["last_at"] - self.row["first_at"]).total_seconds(), 3600)
        return float(self.row["record_count"] * 3600 / span)

    @property
    def how_often(self) -> str:
        """The rate behind the number of records, for people."""
        return "" if self.rate is None else f", {amount(self.rate)} an hour"

    def began(self, first_at: str | None = None) -> str:
        """Return since when there are records; ``first_at`` is the first one's time in words."""
        first_at = first_at or moment(self.row["first_at"])
        return f"since an unknown time, read since {first_at}" if "first_at" in self.untimed else f"since {first_at}"

    def ended(self, last_at: str) -> str:
        """Return when the last record came; ``last_at`` is its time in words."""
        return f"last {'read ' if 'last_at' in self.untimed else ''}{last_at}"

    @property
    def predecessor(self) -> str | None:
        """The incident of the same error before it; None if nothing tells whether that was before."""
        before: str | None = self.row["predecessor_id"]
        return before if "first_at" not in self.untimed else None

    @property
    def is_told_until_now(self) -> bool:
        """True if its times and counts are those of the moment, False if nothing tells these."""
        return bool(self.row["last_at"] <= self.now)

    @property
    def escalations(self) -> list[dict[str, Any]]:
        """When it escalated until the moment of the answer, with the records an hour before and after."""
        return [
            {**escalation, "at": at}
            for escalation in self.row.get("escalations") or ()
            if (at := time_of(escalation["at"])) is not None and at <= self.now
        ]

    @property
    def escalated(self) -> list[str]:
        """Each escalation as a sentence."""
        return [
            f"It escalated at {moment(escalation['at'])}: {amount(escalation['before_per_hour'])} -> "
            f"{amount(escalation['after_per_hour'])} an hour."
            for escalation in self.escalations
        ]

    @property
    def came_back(self) -> list[str]:
        """Why its state is REGRESSED, each a sentence; none if it is another one."""
        if self.state.name != REGRESSED:
            return []
        before = self.predecessor
        lines = [f"It came back: {before} was the same error before."] if before else []
        if resolved := [action for action in self.actions if action.action == actions.RESOLVE]:
            who, at = visible(resolved[-1].acted_by), moment(resolved[-1].acted_at)
            lines.append(f"{who} resolved it at {at}, and records came since.")
        return lines

    @property
    def topics(self) -> set[str | None]:
        """Its source topic and its DLQ topics."""
        return {self.row["original_topic"], *(dlq["dlq_topic"] for dlq in self.row["dlq_topics"] or ())}

    @property
    def unread_topics(self) -> list[str]:
        """Its DLQ topics that are not known to be read past the silence that ends it."""
        end = self.row["last_at"] + timedelta(seconds=self.row["pause_seconds"])
        topics = (dlq["dlq_topic"] for dlq in self.row["dlq_topics"] or ())
        return [topic for topic in topics if (at := self.read.get(topic)) is None or at <= end]

    @property
    def owner_on_topic(self) -> str:
        """Owner and source topic, for people."""
        topic, owner = self.row["original_topic"], named(*key_of(self.row))
        on = "from" if " on " in owner else "on"  # the owner is a writer on a DLQ topic
        return f"{owner} {on} {visible(topic) if topic else 'an unknown topic'}"

    def as_json(self, report: Report) -> dict[str, Any]:
        """Return the row, the state, the actions and, if ``report`` has a URL, the address of the incident's page."""
        shown = {name: value for name, value in self.row.items() if name not in UNSHOWN}
        shown[OWNER] = owner_of(self.row)
        shown["dlq_topics"] = [dlq["dlq_topic"] for dlq in self.row["dlq_topics"] or ()]
        shown["escalations"] = self.escalations
        shown["timeline"] = [
            bucket | {"half_hour": time_of(bucket["half_hour"])} for bucket in self.row["timeline"] or ()
        ]
        if self.teams:
            shown["teams"] = list(self.teams)
        return shown | {
            "state": self.state.name,
            "is_quiet": self.state.is_quiet,
            "read_until": self.state.read_until,
            "muted_until": self.state.muted_until,
            "resolved_by": self.state.resolved_by,
            "records_an_hour": None if self.rate is None else round(self.rate, 3),
            "times_of_reading": sorted(self.untimed),
            "as_known_now": sorted(self.row.keys() - (AS_OF if self.is_told_until_now else ())) if self.known else [],
            "page": report.address_of(ids.page(self.row["incident_id"])),
            "actions": [
                {
                    "action": action.action,
                    "acted_at": action.acted_at,
                    "acted_by": action.acted_by,
                    "until": action.until,
                    "note": action.note,
                }
                for action in self.actions
            ],
        }


@dataclass
class Incidents:
    """All incidents of the settings' cluster as of ``now``.

    What people did about an incident that another one took in counts for the other one. ``begins`` also has the first
    record of each incident that begins later.
    """

    warehouse: Warehouse
    now: datetime
    known: list[Incident] = field(init=False)
    merged: dict[str, str] = field(init=False)
    begins: dict[str, datetime] = field(init=False)
    _untimed: Untimed = field(init=False)
    _usual: dict[str, float | None] = field(init=False, default_factory=dict)
    _teams: Teams = field(init=False)

    def __post_init__(self) -> None:
        """Read them."""
        self._teams = Teams.of_settings(self.warehouse.settings)
        rows = self._masked(jvmless.rows(self.warehouse, INCIDENTS, {"cluster": self.warehouse.cluster}))
        self.merged = {row["incident_id"]: row["merged_into"] for row in rows if row["merged_into"]}
        acted: dict[str, list[Action]] = defaultdict(list)
        for action in actions.actions(self.warehouse):
            if action.acted_at <= self.now or self.is_present:  # clocks go back; nobody acts in the future
                acted[ids.survivor(action.incident_id, self.merged)].append(action)
        self.begins = {row["incident_id"]: row["first_at"] for row in rows if row["record_count"]}
        went_on = {row["fingerprint"] for row in rows if row["last_at"] and row["last_at"] > self.now}
        errors = {} if self.knows_all else minutes_of(self.warehouse, went_on)
        self._untimed = Untimed(self.warehouse)
        self.known = sorted(
            (
                self._as_of_now(row, errors, acted[row["incident_id"]])
                for row in rows
                if row["record_count"] and (row["first_at"] <= self.now or self.knows_all)
            ),
            key=lambda incident: incident.urgency,
        )

    def _as_of_now(
        self, row: Mapping[str, Any], errors: Mapping[str, Sequence[Mapping[str, Any]]], own: Sequence[Action]
    ) -> Incident:
        known = row if row["last_at"] > self.now and not self.knows_all else None
        if known is not None:
            row = until(row, errors.get(row["fingerprint"], ()), self.now) or row
        untimed = self._untimed.ends(row)
        shown = {**row, "predecessor_id": None} if "first_at" in untimed else row
        state = state_of(shown, self.read_until, self.now, own)
        return Incident(row, state, self.now, own, known, self.read_until, self._teams.of_row(row), untimed)

    def _masked(self, rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """Return the rows with the texts of their errors as ``[[privacy]]`` lets them be shown."""
        if not self.warehouse.settings.privacy:
            return rows
        from pipelines.privacy import Masks  # imports libraries that read payloads

        masks = Masks.hiding(self.warehouse.settings)
        profiles: dict[str | None, set[str | None]] = defaultdict(set)
        with_hops: set[str | None] = set()
        for table, has_hops in HAS_HOPS.items() if masks.ask_for_writers else ():
            if self.warehouse.exists(table):
                equal = {"cluster": self.warehouse.cluster}
                for row in jvmless.query(self.warehouse, table, WRITERS.format(has_hops), equal):
                    profiles[row["original_topic"]].add(row["header_profile"])
                    if row["has_hops"]:
                        with_hops.add(row["original_topic"])
        shown = []
        for row in rows:
            topic = row["original_topic"]
            texts = {column: row[name] for column, name in ERROR_TEXTS.items()}
            seen = masks.error(topic, topic in with_hops, texts, profiles[topic])
            shown.append(row | {name: seen[column] for column, name in ERROR_TEXTS.items()})
        return shown

    def is_first(self, row: Mapping[str, Any]) -> bool:
        """Tell whether an owner had no incident before this one, and its source topic had some."""
        topic, at = row["original_topic"], row["first_at"]
        return self._firsts[OWNER, key_of(row)] == at and topic is not None and self._firsts["topic", topic] < at - HOUR

    @cached_property
    def _firsts(self) -> dict[tuple[str, Any], datetime]:
        """The first record of each owner and of each source topic."""
        firsts: dict[tuple[str, Any], datetime] = {}
        for incident in self.known:
            for key in ((OWNER, key_of(incident.row)), ("topic", incident.row["original_topic"])):
                firsts[key] = min(incident.row["first_at"], firsts.get(key, incident.row["first_at"]))
        return firsts

    @cached_property
    def is_present(self) -> bool:
        """Whether ``now`` is the present."""
        return abs(moments.now() - self.now) < timedelta(minutes=1)

    @cached_property
    def knows_all(self) -> bool:
        """Whether all that landed had landed by ``now``."""
        return all_landed(self.warehouse, self.now)

    @cached_property
    def read_until(self) -> dict[str, datetime]:
        """Until when each DLQ topic is known to be read, not after now.

        That is the time of its newest record, or of the latest read of the topic to its end. The latter counts if all
        that was read has reached the incidents.
        """
        read = {topic: min(at, self.now) for topic, at in self._read_to_their_ends().items()}
        if self.warehouse.exists(SUMMARY):
            text = "SELECT dlq_topic, max(last_routed_at) AS last_at FROM rows GROUP BY dlq_topic"
            span = jvmless.Span("last_routed_at", self.now)
            for row in jvmless.query(self.warehouse, SUMMARY, text, {"cluster": self.warehouse.cluster}, span):
                read[row["dlq_topic"]] = max(row["last_at"], read.get(row["dlq_topic"], row["last_at"]))
        return read

    def _read_to_their_ends(self) -> dict[str, datetime]:
        """Return until when topics were read to their ends; none of those whose records wait before the incidents."""
        noted = progress.read_until(self.warehouse, LANDED)
        if not noted:
            return {}
        waiting: set[str] = set()
        for stage in CATALOG:
            if stage.table not in ON_THE_WAY:
                continue
            known = held.own(self.warehouse, stage.table)
            read = {table: known.version_of(table) if known else None for table in stage.inputs}
            if known is None or known.pending or self.warehouse.versions_after(read):
                return {}
            waiting |= {scopes.within(self.warehouse.cluster, scope) for scope in known.held}
        return {topic: at for topic, at in noted.items() if topic not in waiting}

    def usual_rate(self, incident: Incident) -> float | None:
        """Return how many records an hour the owner usually dead-letters at the incident's hour of the week.

        None: no week before the incident is known.
        """
        name = incident.row["incident_id"]
        if name not in self._usual:
            self.learn_usual_rates([incident])
        return self._usual[name]

    def learn_usual_rates(self, wanted: Sequence[Incident]) -> None:
        """Read the usual rates of several incidents at once."""
        times: dict[str, list[datetime]] = {}
        for incident in wanted:
            begin = incident.row["first_at"].replace(minute=0, second=0, microsecond=0)
            weeks = min((begin - self.first_hour) // WEEK, MOST_WEEKS) if self.first_hour else 0
            times[incident.row["incident_id"]] = [begin - number * WEEK for number in range(1, weeks + 1)]
        needed = {hour for hours in times.values() for hour in hours}
        counts: dict[tuple[Any, ...], int] = {}
        if needed:
            of_day = ", ".join(map(str, sorted({hour.hour for hour in needed})))
            text = f"""
                SELECT hour, consumer_group, owner, sum(record_count) AS record_count
                FROM rows
                WHERE date_part('HOUR', hour) IN ({of_day})
                GROUP BY hour, consumer_group, owner
            """
            span = jvmless.Span("hour", max(needed), min(needed))
            for row in jvmless.query(self.warehouse, SUMMARY, text, {"cluster": self.warehouse.cluster}, span):
                at = (row["hour"], key_of(row))
                counts[at] = counts.get(at, 0) + row["record_count"]
        for incident in wanted:
            hours, key = times[incident.row["incident_id"]], key_of(incident.row)
            mean = float(sum(counts.get((hour, key), 0) for hour in hours) / len(hours)) if hours else None
            self._usual[incident.row["incident_id"]] = mean

    @cached_property
    def first_hour(self) -> datetime | None:
        """The first hour of what is known until now."""
        return first_hour(self.warehouse, self.now)

    def of(self, wanted: str, team: str | None = None) -> Incident:
        """Return the incident that an id, or its beginning, names.

        Raises UsageError: there is none, or several, or it is of other teams than the one that asks.
        """
        names = {incident.row["incident_id"]: incident for incident in self.known}
        later = self.begins.keys() - names.keys()
        whole_id = ids.whole_id(wanted, {*names, *self.merged, *later}, "an incident", "afterlog incidents")
        end = ids.survivor(whole_id, self.merged)
        if end in later:
            now, begin = self.now, self.begins[end]
            written = moment if moment(now) != moment(begin) else iso
            raise UsageError(
                f"Incident {end} had not begun at {written(now)}: its first record is of {written(begin)}."
            )
        if end not in names:
            raise UsageError(f"Incident {end} has no records any more.")
        refuse_others(team, names[end].teams, f"Incident {end}")
        return names[end]


def minutes_of(warehouse: Warehouse, fingerprints: Collection[str]) -> dict[str, list[dict[str, Any]]]:
    """Return the rows of silver.dlq_errors with the minutes of errors, by fingerprint."""
    by_fingerprint: dict[str, list[dict[str, Any]]] = defaultdict(list)
    if fingerprints and warehouse.exists(ERRORS):
        wanted = ", ".join(map(literals.text, sorted(fingerprints)))
        text = f"SELECT fingerprint, minutes FROM rows WHERE fingerprint IN ({wanted})"
        for row in jvmless.query(warehouse, ERRORS, text, {"cluster": warehouse.cluster}):
            by_fingerprint[row["fingerprint"]].append(row)
    return by_fingerprint


def now_of(text: str | None) -> datetime:
    """Return the moment that ``--at`` names, now by default."""
    now = moments.now()
    return now if text is None else moment_of(text, "--at", now)


def listed(
    warehouse: Warehouse,
    form: str = "table",
    *,
    only_open: bool = False,
    since: str | None = None,
    group: str | None = None,
    topic: str | None = None,
    team: str | None = None,
    at: str | None = None,
    width: int | None = None,
) -> Answer:
    """List incidents, the most urgent first; JSON is one object per line.

    Raises UsageError: a time cannot be read, or the table does not exist.
    """
    incidents = Incidents(warehouse, now_of(at))
    begin = None if since is None else moment_of(since, "--since", incidents.now)
    chosen = [
        incident
        for incident in incidents.known
        if (not only_open or incident.state.is_open)
        and (begin is None or incident.row["last_at"] >= begin)
        and group in (None, owner_of(incident.row))
        and is_of(team, incident.teams)
        and (topic is None or topic in incident.topics)
    ]
    if form == "json":
        return Answer("\n".join(_json(incident.as_json(warehouse.settings.report)) for incident in chosen))
    if not chosen:
        near = _meant(incidents.known, group, topic)
        return Answer("", (f"No incident matches; {counted(len(incidents.known), 'incident')} in all.{near}",))
    muted = sum(incident.state.muted_until is not None for incident in chosen) if only_open else 0
    said = (f"{counted(len(chosen) - muted, 'incident')} open, {muted:,} muted.",) if muted else ()
    return Answer("\n".join(_lines(chosen, incidents.now)), (*said, *as_known_now(chosen, incidents.now)))


def _meant(known: Sequence[Incident], group: str | None, topic: str | None) -> str:
    """Return the names of owners and topics near those that no incident has, as the end of a message."""
    owners = {owner for incident in known if (owner := owner_of(incident.row)) is not None}
    topics = {name for incident in known for name in incident.topics if name is not None}
    wanted = ((group, owners), (topic, topics))
    return "".join(hint(name, sorted(there)) for name, there in wanted if name is not None and name not in there)


def as_known_now(shown: Iterable[Incident], now: datetime) -> tuple[str, ...]:
    """Say of incidents that had dead letters after the moment of the answer what is not told as of that moment."""
    went_on = [incident for incident in shown if incident.known]
    if not went_on:
        return ()
    untold = sum(not incident.is_told_until_now for incident in went_on)
    also = f"; so are times and counts of {untold:,}, which no table tells by minute" if untold else ""
    had = f"{counted(len(went_on), 'incident')} had dead letters after {moment(now)}"
    return (f"{had}: verdicts and severities are as known now{also}.",)


def _lines(incidents: Sequence[Incident], now: datetime, most: int | None = None) -> list[str]:
    """Return two lines for each incident."""
    lines = []
    for incident in incidents[:most]:
        row = incident.row
        muted = f", muted until {moment(incident.state.muted_until)}" if incident.state.muted_until else ""
        of_teams = f", {in_words(incident.teams)}" if incident.teams else ""
        lines.append(
            f"{row['incident_id']}  {row['severity']:<8}  {incident.state.name:<9}  {row['verdict']:<15}  "
            f"{incident.owner_on_topic}  {counted(row['record_count'], 'record')}{incident.how_often}{muted}{of_teams}"
        )
        since = f"{incident.began()}, {incident.ended(_ago(row['last_at'], now))}"
        lines.append(f"           {since}  {sparkline(row['timeline'])}".rstrip())
    if most is not None and len(incidents) > most:
        lines.append(f"           and {len(incidents) - most:,} more: `afterlog incidents --open`")
    return lines


def _ago(at: datetime, now: datetime) -> str:
    """Say how long before now a time is; a clock can be ahead."""
    return f"{lasting(at - now)} ahead" if at > now else f"{lasting(now - at)} ago"


def top(warehouse: Warehouse, form: str = "text", at: str | None = None, team: str | None = None) -> Answer:
    """Tell whether anything is wrong, the open incidents, the findings about trust, and how old each feed is.

    A ``team`` is told of its own incidents and findings; feeds are of all teams.
    """
    now = now_of(at)
    warehouse.open_ahead({INCIDENTS, INCIDENT_ACTIONS.table, SUMMARY, FINDINGS, MISTAKES, *newest.tables()})
    incidents = Incidents(warehouse, now)
    opened = [incident for incident in incidents.known if incident.state.is_open and is_of(team, incident.teams)]
    all_feeds = newest.of_feeds(warehouse, now)
    feeds = [feed for feed in all_feeds if feed.used]
    silences = [(feed, newest.silence(warehouse, feed)) for feed in feeds]
    findings = findings_of(warehouse, silences, now, opened, to_the_second=True)
    findings = of_team(warehouse, team, findings, now, opened)
    sentence = front(opened, findings, feeds, now)
    if form == "json":
        return Answer(
            _json(
                {
                    "cluster": warehouse.cluster,
                    "sentence": sentence,
                    **({} if team is None else {"team": team}),
                    "now": now,
                    "incidents": [incident.as_json(warehouse.settings.report) for incident in opened],
                    "findings": findings,
                    "misconfigurations": mistakes_of(warehouse, now, team),
                    "feeds": [{"feed": feed.feed, "newest_at": feed.at, "sentence": feed.in_words} for feed in feeds],
                }
            )
        )
    lines = [sentence, *as_known_now(opened, now)]
    if team is not None:
        lines.append(f"Only what is of {in_words([team])}; how old feeds are concerns all teams.")
    if at is not None:
        timeless = sum(finding["since"] is None for finding in findings)
        but = f"; nothing tells when {timeless:,} of them began" if timeless else ""
        later = "findings and settings are as known now, but for those that began later"
        lines.append(f"As of {moment(now)}; {later}{but}.")
    ahead = [incident for incident in opened if incident.is_ahead]
    quiet = [incident for incident in opened if incident.state.is_quiet]
    for words, shown in (
        ("Open incidents", [incident for incident in opened if not incident.state.is_quiet and not incident.is_ahead]),
        ("Quiet incidents, which are not known to be over", quiet),
        ("Incidents whose records are all stamped ahead of now", ahead),
    ):
        if shown:
            lines += ["", words, *_lines(shown, now, MOST_SHOWN)]
            touched = _touched(warehouse, shown)
            lines += [f"           topics {', '.join(touched)}"] if touched else []
    others = [finding for finding in findings if not is_mistake(finding)]
    mistakes = [finding for finding in findings if is_mistake(finding)]
    if others:
        below = f"; {len(mistakes):,} of them, of settings, stand below" if mistakes else ""
        head = f"Findings: {len(findings):,}, of which {len(urgent(findings)):,} are urgent{below}"
        lines += ["", head, *_of_findings(others)]
    if mistakes:
        lines += ["", "Settings that lose dead letters or make them useless", *_of_findings(mistakes)]
        asked = asked_at(warehouse.settings) or max(finding["last_at"] for finding in mistakes)
        lines.append(f"  as the cluster said {lasting(now - asked)} ago; `afterlog collect` asks again")
    lines += ["", "Feeds", *(f"  {feed.feed}: {feed.in_words}" for feed in feeds)]
    if unused := [feed.feed for feed in all_feeds if not feed.used]:
        lines.append(f"  nothing is known of {', '.join(unused)}: `afterlog doctor` says how to set them up")
    if opened:
        lines += ["", f"Next: afterlog incident {opened[0].row['incident_id']}"]
    return Answer("\n".join(lines), exit_code=0)


def _of_findings(findings: Sequence[Mapping[str, Any]]) -> list[str]:
    lines = []
    for finding in findings[:MOST_SHOWN]:
        subject, evidence = visible(finding["subject"]), visible(finding["evidence"])
        of_teams = f" ({in_words(finding['teams'])})" if "teams" in finding else ""
        lines.append(f"  {finding['severity']:<8}  {finding['kind']:<22}  {subject}: {evidence}{of_teams}")
        lines.append(f"            `{visible(finding['remedy'])}`")
    if len(findings) > MOST_SHOWN:
        lines.append(f"  and {len(findings) - MOST_SHOWN:,} more: `afterlog top --format json`")
    return lines


def newest_at(feeds: Iterable[Newest]) -> datetime | None:
    """Return the time of the newest dead letter; None if none is known, as with one that is stamped ahead."""
    return next((feed.at for feed in feeds if feed.feed == "dlq" and feed.ahead is None), None)


def clock(at: datetime, now: datetime) -> str:
    """Return a time, without its date if that is today's (UTC)."""
    return f"{at:%H:%M} UTC" if at.astimezone(UTC).date() == now.astimezone(UTC).date() else f"{at:%Y-%m-%d %H:%M} UTC"


def front(
    opened: Sequence[Incident] | None,
    findings: Sequence[Mapping[str, Any]] | None,
    feeds: Sequence[Newest],
    now: datetime,
    is_calm: bool = True,
) -> str:
    """Return in one sentence whether anything is wrong; ``is_calm``: nothing else is, that the caller knows of.

    Open incidents and findings are None if their tables cannot be read.
    """
    at = newest_at(feeds)
    data = "no dead letter has landed"
    if any(feed.feed == "dlq" and not feed.is_readable for feed in feeds):
        data = "the tables of dead letters cannot be read: see `afterlog doctor`"
    elif ahead := [feed.in_words for feed in feeds if feed.feed == "dlq" and feed.ahead is not None]:
        data = ahead[0]
    elif later := [
        feed.in_words for feed in feeds if feed.feed == "dlq" and feed.at is None and feed.landed_at is not None
    ]:
        data = later[0]
    elif at:
        data = f"data {lasting(now - at)} old (newest dead letter {clock(at, now)})"
    loud = [incident for incident in opened or () if incident.state.is_loud]
    cannot_wait = urgent(findings or ())
    lost = amount_of(findings or (), "LOST_MESSAGES")
    quiet = sum(incident.state.is_quiet for incident in loud)
    parts = ["open incidents unknown"]
    if opened is not None:
        parts = [f"{counted(len(loud), 'incident')} open" + (f" ({quiet:,} quiet)" if quiet else "")]
    if muted := len(opened or ()) - len(loud):
        parts.append(f"{muted:,} muted")
    if lost:
        parts.append(f"{counted(lost, 'message')} lost")
    if cannot_wait:
        parts.append(f"{counted(len(cannot_wait), 'urgent finding')}")
    if findings is None:
        parts.append("findings unknown")
    if is_calm and not loud and not cannot_wait and None not in (opened, findings):
        return f"Nothing is wrong as far as the data tells: {', '.join(parts)}; {data}."
    return f"{', '.join(parts)}; {data}."


def _touched(warehouse: Warehouse, opened: Sequence[Incident]) -> list[str]:
    return sorted({visible(incident.row["original_topic"]) for incident in opened if incident.row["original_topic"]})[
        :MOST_SHOWN
    ]


def one(
    warehouse: Warehouse,
    wanted: str,
    form: str = "text",
    at: str | None = None,
    replays: Callable[[str], Replays] | None = None,
    team: str | None = None,
) -> Answer:
    """Tell all about one incident; ``mermaid`` and ``svg`` draw what it touches.

    ``replays`` tells of a plan of it, always as of now; without it nothing is said of that.

    Raises UsageError: the id names no incident, or several, or one of other teams; or a table does not exist.
    """
    incidents = Incidents(warehouse, now_of(at))
    incident = incidents.of(wanted, team)
    name = incident.row["incident_id"]
    equal: dict[str, str | int] = {"cluster": warehouse.cluster, "incident_id": name}
    suspects = sorted(_rows(warehouse, SUSPECTS, equal), key=lambda row: row["rank"])
    suspects = [
        suspect for suspect in suspects if suspect["changed_at"] is None or suspect["changed_at"] <= incidents.now
    ]
    blast = _blast(warehouse, incident.row, incidents.now)
    if form in ("mermaid", "svg"):
        if blast is None or not blast.counted:
            return Answer("", (f"No topology that was known then touches the source topic of {name}.",), exit_code=1)
        return Answer(blast.drawn(form))
    if form == "json":
        facts = incident.as_json(warehouse.settings.report) | {
            "usual_records_an_hour": incidents.usual_rate(incident),
            "suspects": [{k: v for k, v in row.items() if k not in ("cluster", "incident_id")} for row in suspects],
            "samples": _samples(incidents, incident.row),
            "blast_radius": blast.as_json() if blast else None,
            "replay": replays(name).as_json() if replays is not None else None,
        }
        return Answer(_json(facts))
    replay = replays(name).in_words if replays is not None else []
    if replay and at is not None:
        replay = ["As known now:", *replay]
    return Answer("\n".join(_story(incidents, incident, suspects, blast, replay)))


def _rows(warehouse: Warehouse, table: str, equal: Mapping[str, str | int]) -> list[dict[str, Any]]:
    return jvmless.rows(warehouse, table, equal) if warehouse.exists(table) else []


def _samples(incidents: Incidents, row: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the places of some dead letters of an incident, for ``afterlog show``."""
    warehouse = incidents.warehouse
    columns = [
        "dlq_topic",
        "dlq_partition",
        "dlq_offset",
        "original_topic",
        "original_partition",
        "original_offset",
        "consumer_group",
        "routed_at",
        OWNER,
    ]
    samples: list[dict[str, Any]] = []
    for record in (row["top_records"] or [])[:MOST_SAMPLES]:
        topic = row["original_topic"]
        equal = {
            "cluster": warehouse.cluster,
            "original_partition": record["original_partition"],
            "original_offset": record["original_offset"],
        } | ({} if topic is None else {"original_topic": topic})
        letters = [
            letter
            for letter in jvmless.rows(warehouse, RECORDS, equal, columns)
            if (letter["original_topic"], key_of(letter)) == (topic, key_of(row))
            and (letter["routed_at"] is None or letter["routed_at"] <= incidents.now or incidents.knows_all)
        ]
        letters.sort(key=lambda letter: (letter["routed_at"] is None, letter["routed_at"], letter["dlq_offset"]))
        samples += letters[:1]
    return samples


def evidence(incidents: Incidents, incident: Incident) -> list[str]:
    """Return the figures behind an incident's verdict and severity as known now, each a sentence."""
    incident = replace(incident, row=incident.known or incident.row)
    row = incident.row
    parts = [f"{counted(row['record_count'], 'record')} of {sources_of(row)}"]
    if row["partitions"]:
        parts.append(counted(len(row["partitions"]), "partition"))
    if row["keyed_count"]:
        parts.append(keys_of(row))
    usual = incidents.usual_rate(incident)
    against = f"; usually {amount(usual)} at this hour of the week" if usual is not None else ""
    often = f"; {amount(incident.rate)} an hour{against}" if incident.rate is not None else ""
    lines = [f"{', '.join(parts)}{often}."]
    if died := died_around(row, row):
        known, offsets = row["window_record_count"], row["window_offset_count"]
        filled = f"; {known:,} of the {counted(offsets, 'offset')} hold records" if known and offsets else ""
        whole = of_all(row)
        lines.append(f"{died}{filled}{f'; {whole}' if whole else ''}.")
    if (share := row["partition_share"]) is not None:
        lines.append(f"{percent(share)} of the source records are of partition {row['partition']}.")
    if (share := row["key_share"]) is not None and (many := key_percent(row, share)):
        keys = few_keys(row)
        one_of = "" if keys == "one key" else "one of "
        lines.append(f"{many.capitalize()} of the records have {one_of}{keys}.")
    if (share := row["attribute_share"]) is not None:
        is_least = row["attribute_kind"] == "client"  # acknowledgements tell it
        many = f"{at_least(share).capitalize()} of the source records" if is_least else percent(share)
        lines.append(f"{many} {visible(shared(row['attribute_kind'], row['attribute_name']))}.")
    lines += [row["would_change"], f"Severity {row['severity']}: {visible('; '.join(row['severity_reasons']))}."]
    if payload := row["without_payload_count"]:
        lines.append(f"{counted(payload, 'record')} {'has' if payload == 1 else 'have'} no payload.")
    return lines


def _story(
    incidents: Incidents,
    incident: Incident,
    suspects: Sequence[Mapping[str, Any]],
    blast: Blast | None,
    replay: Sequence[str],
) -> list[str]:
    row, state, now = incident.row, incident.state, incidents.now
    known_now = ", as known now" if incident.known else ""
    lasted = f", for {lasting(row['last_at'] - row['first_at'])}" if not incident.untimed else ""
    lines = [
        f"{row['incident_id']}  {row['severity']}  {state.name}  {row['verdict']}{known_now}",
        f"  {'As known now: ' if incident.known else ''}{visible(row['sentence'])}",
        f"  S{incident.began()[1:]} ({_ago(row['first_at'], now)}), {incident.ended(moment(row['last_at']))} "
        f"({_ago(row['last_at'], now)}){lasted}.",
        *(f"  {line}  records by time" for line in [sparkline(row["timeline"])] if line),
    ]
    lines += [f"  {line}" for line in about_the_state(incident, incidents)]
    lines += ["", f"Evidence{known_now}", *(f"  {line}" for line in evidence(incidents, incident))]
    lines += ["", "Error", f"  {visible(row['error_pattern'] or row['disposition'] or 'unknown')}"]
    for label, name in (("class", "exception_class"), ("cause", "exception_cause_class"), ("frame", "error_frame")):
        if row[name]:
            lines.append(f"  {label} {visible(row[name])}")
    lines.append(f"  fingerprint {row['fingerprint']} {fingerprint_of(row)}")
    lines += ["", f"Where{known_now}"]
    if not row["top_records"]:
        lines.append("  No header names a source record.")
    least = "" if are_all_counted(row) else "at least "
    for record in (row["top_records"] or [])[:MOST_SAMPLES]:
        where = at_offset(row["original_topic"], record["original_partition"], record["original_offset"])
        lines.append(f"  {visible(where)}  {least}{counted(record['record_count'], 'time')}")
    samples = _samples(incidents, row)
    lines += ["", "Suspects", *(f"  {suspect['rank']}. {visible(suspect['sentence'])}" for suspect in suspects[:5])]
    if not any(suspect["changed_at"] for suspect in suspects):
        deployed_at = jvmless.greatest(incidents.warehouse, DEPLOYED, "changed_at", now)
        lines.append(f"  {no_change(deployed_at is not None)}")
    if blast is not None:
        lines += ["", "Blast radius", *(f"  {line}" for line in blast.as_lines())]
    if replay:
        lines += ["", "Replay", *(f"  {visible(line)}" for line in replay)]
    lines += ["", "Next"]
    for sample in samples:
        letter = f"{sample['dlq_topic']}:{sample['dlq_partition']}:{sample['dlq_offset']}"
        lines.append(f"  afterlog show {quoted(letter)}")
    for sample in samples[:1] if row["original_topic"] else ():
        source = at_offset(row["original_topic"], sample["original_partition"], sample["original_offset"])
        lines.append(f"  afterlog trace {quoted(source)}")
    for suspect in suspects[:3]:
        if suspect["kind"] in ("topology", "writer_topology"):
            equal: dict[str, str | int] = {"cluster": incidents.warehouse.cluster, "group_id": suspect["name"]}
            lines.append(f"  {diff_of(suspect, _rows(incidents.warehouse, REVISIONS, equal))}")
    if row["record_count"]:
        lines.append(f"  afterlog replay plan --incident {row['incident_id']} --dry-run")
    lines.append(f"  afterlog incident {row['incident_id']} --mute-until TIME | --resolve | --note TEXT")
    if address := incidents.warehouse.settings.report.address_of(ids.page(row["incident_id"])):
        lines += ["", f"Page  {address}"]
    return lines


def fingerprint_of(row: Mapping[str, Any]) -> str:
    """Return what an incident's fingerprint is made of."""
    return (
        f"(version {row['algorithm_version']}) of cluster, owner, source topic, disposition "
        f"{visible(row['disposition'] or 'unknown')}, class, message and frame"
    )


def no_change(knows_deployments: bool) -> str:
    """Return what is said of an incident of which no suspect is a change."""
    deployments = "deployments" if knows_deployments else "deployments that land in changes/, where none has landed"
    return f"Nothing known changed. Afterlog sees topologies, producers' settings, brokers' starts and {deployments}."


def about_the_state(incident: Incident, incidents: Incidents) -> list[str]:
    """Return what is to be said of an incident's state, each a sentence."""
    row, state = incident.row, incident.state
    pause = lasting(timedelta(seconds=row["pause_seconds"]))
    lines = [*([f"It is of {in_words(incident.teams)}."] if incident.teams else []), *incident.escalated]
    if incident.untimed:
        lines.append("Records without a time count at the moment when they were read; its suspects are of that time.")
    if incident.known:
        until_now = f"{counted(row['record_count'], 'record')} until {moment(incidents.now)}"
        known_until = (
            until_now
            if incident.is_told_until_now
            else f"No table tells how many records until {moment(incidents.now)}"
        )
        last = moment(incident.known["last_at"])
        lines.append(f"{known_until}; as known now {incident.known['record_count']:,}, the last at {last}.")
    elif row["last_at"] > incidents.now:
        ahead = lasting(row["last_at"] - incidents.now)
        lines.append(f"Its last record is stamped {ahead} ahead: check the clock of {named(*key_of(row))}.")
    if state.is_open:
        lines.append(f"It ends after {pause} without a record{', as known now' if incident.known else ''}.")
    if incidents.is_first(row):
        lines.append(f"It is the first incident of {named(*key_of(row))}; its source topic had others before.")
    lines += incident.came_back
    if state.resolved_by:
        lines.append(f"{visible(state.resolved_by)} resolved it.")
    elif state.is_quiet and state.is_open:
        until = f"was read until {moment(state.read_until)}" if state.read_until else "was not read since"
        lines.append(f"No record came for longer than {pause}, but its DLQ topic {until}: that does not prove an end.")
    if state.muted_until:
        lines.append(f"Muted until {moment(state.muted_until)}.")
    lines += [
        f"{moment(action.acted_at)} {visible(action.acted_by)}: {visible(action.note)}"
        for action in incident.actions
        if action.note
    ]
    merged = sorted(name for name, into in incidents.merged.items() if into == row["incident_id"])
    if merged:
        are = "is" if len(merged) == 1 else "are"
        lines.append(f"Records that came later showed that {', '.join(merged)} {are} the same incident.")
    return lines


def _blast(warehouse: Warehouse, row: Mapping[str, Any], now: datetime) -> Blast | None:
    """Return what an incident's source topic reaches by what is known until now: the revisions at its first record.

    None: no topology has landed.
    """
    if not warehouse.exists(NODES) or not warehouse.exists(REVISIONS):
        return None
    equal: dict[str, str | int] = {"cluster": warehouse.cluster}
    columns = ["group_id", "revision", "accepted_at", "topology_hash"]
    revisions = [
        row
        for row in jvmless.rows(warehouse, REVISIONS, equal, columns)
        if row["accepted_at"] is not None and row["accepted_at"] <= now
    ]
    groups = jvmless.rows(warehouse, CURRENT, equal, ["group_id", "deleted_at"]) if warehouse.exists(CURRENT) else []
    valid = Revisions(revisions, groups).at(row["first_at"], row["consumer_group"])
    columns = ["group_id", "topology_hash", "part", "part_place", "subtopology_id", "node", "node_type"]
    columns += ["source_topics", "sink_topic", "stores", "successors"]
    nodes = jvmless.rows(warehouse, NODES, equal, columns)
    return Graph(nodes, valid).blast(row["original_topic"], row["consumer_group"]) if nodes else None


def diff_of(suspect: Mapping[str, Any], revisions: Iterable[Mapping[str, Any]]) -> str:
    """Return the command that tells what changed in a suspected topology, given the group's revisions."""
    accepted = sorted(
        row["revision"]
        for row in revisions
        if row["accepted_at"] is not None and row["accepted_at"] <= suspect["changed_at"]
    )
    diff = f" --diff {accepted[-2]} {accepted[-1]}" if len(accepted) > 1 else ""
    return f"afterlog describe {quoted(suspect['name'])}{diff}"


def quoted(text: str) -> str:
    """Return text as a word of a shell, safe for a terminal."""
    import shlex

    return shlex.quote(visible(text))


def acted(
    warehouse: Warehouse,
    wanted: str,
    mute_until: str | None = None,
    resolve: bool = False,
    note: str | None = None,
    team: str | None = None,
) -> Answer:
    """Mute, resolve or note an incident; the answer says what was recorded.

    Raises UsageError: the id names no incident, or one of other teams, the time is not in the future, the note is
    empty, or it is to be muted and resolved at once.
    """
    now = moments.now()
    if note is not None and not note.strip():
        raise UsageError("--note needs a text.")
    if resolve and mute_until is not None:
        raise UsageError("Give --resolve or --mute-until, not both.")
    row = Incidents(warehouse, now).of(wanted, team).row
    name, said = row["incident_id"], []
    if mute_until is not None:
        until = moment_of(mute_until, "--mute-until", now, ahead=True)
        actions.act(warehouse, name, actions.MUTE, until, note)
        said.append(f"{name} is muted until {moment(until)}.")
    if resolve:
        ahead = row["last_at"] if row["last_at"] > now else None  # a producer's clock can be
        actions.act(warehouse, name, actions.RESOLVE, ahead, note)
        said.append(f"{name} is resolved; a new record makes it {REGRESSED}.")
    if note is not None and not said:
        actions.act(warehouse, name, actions.NOTE, note=note)
        said.append(f"The note on {name} is kept.")
    return Answer("\n".join(said))


def _json(value: Mapping[str, Any]) -> str:
    def plain(content: Any) -> Any:
        if isinstance(content, datetime):
            return iso(content)
        raise TypeError(type(content).__name__)

    return json.dumps(value, default=plain)


__all__ = ["ONGOING", "Incident", "Incidents", "acted", "listed", "one", "top"]
