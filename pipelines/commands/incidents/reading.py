"""gold.dlq_incidents and the tables beside it -> Incidents: all of a cluster as of a moment, with usual rates."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import cached_property
from typing import Any

from expectations import literals
from expectations.owners import OWNER, key_of
from pipelines import moments
from pipelines.catalog import CATALOG
from pipelines.commands.incidents.incident import Incident
from pipelines.commands.odd_times import Untimed, all_landed, first_hour
from pipelines.errors import UsageError
from pipelines.incidents import ids
from pipelines.incidents.state import state_of
from pipelines.incidents.until import until
from pipelines.moments import moment_of
from pipelines.run.newest import moment
from pipelines.steps import held, scopes
from pipelines.teams import Teams, refuse_others
from pipelines.text import iso
from pipelines.warehouse import actions, jvmless, progress
from pipelines.warehouse.actions import Action
from pipelines.warehouse.tables import Warehouse

INCIDENTS, SUSPECTS = "gold.dlq_incidents", "gold.incident_suspects"
SUMMARY, RECORDS, ERRORS = "gold.dlq_summary", "silver.dlq_records", "silver.dlq_errors"
INFERRED = "silver.inferred_dead_letters"
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
HOUR = timedelta(hours=1)
DAY = timedelta(days=1)
WEEK = timedelta(days=7)
MOST_WEEKS = 8  # of which the usual rate is the mean


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
