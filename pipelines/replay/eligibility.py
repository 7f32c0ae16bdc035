"""An incident -> how many of its dead letters a plan would replay, which not and why, and what was replayed before.

Tables, rules and the journal tell it as they tell a plan that asks no cluster, so that no number is promised which the
plan then refuses.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import cached_property
from typing import Any

from expectations.rules import counted
from expectations.text import visible
from pipelines.errors import AfterlogError
from pipelines.replay import judge, planning, rules, store
from pipelines.replay.accepted import RECORDS
from pipelines.replay.candidate import Candidate
from pipelines.replay.candidates import Candidates
from pipelines.replay.choice import MOST_NAMED, Choice
from pipelines.replay.draft import Entry
from pipelines.replay.journal import Journal, journal_store
from pipelines.replay.judge import Options
from pipelines.replay.kept import NAME
from pipelines.replay.model import Letter
from pipelines.replay.rules import Rules
from pipelines.run.newest import moment
from pipelines.settings import Settings
from pipelines.teams import Teams
from pipelines.warehouse import erased, jvmless
from pipelines.warehouse.tables import Warehouse

MOST_JUDGED = 2_000  # of which an answer is there in about a second
MOST_REASONS = 4
MOST_REPLAYS = 5


@dataclass(frozen=True)
class Replayed:
    """What a plan replayed of an incident: how many records, when the last, and what became of them."""

    plan_id: str
    records: int
    last_at: datetime
    outcomes: Mapping[str, int]

    @property
    def in_words(self) -> str:
        """The replay in a sentence."""
        known = [
            f"{self.outcomes[name]:,} {words}" for name, words in judge.OUTCOMES.items() if self.outcomes.get(name)
        ]
        outcome = f": {', '.join(known)}" if known else ", outcome not looked at yet"
        were = f"{counted(self.records, 'record')} {'was' if self.records == 1 else 'were'}"
        return f"{were} replayed by plan {self.plan_id} on {moment(self.last_at)}{outcome}."


@dataclass(frozen=True)
class Eligibility:
    """What a plan of an incident would do; ``to_fetch`` of the ``eligible`` records lack their payload as yet.

    ``of_others`` counts, by plan and group, records that were not replayed themselves, as their source records were, as
    dead letters of that group (None: of no group). ``why_unknown`` is why nobody can tell: then there are no numbers.
    """

    chosen: int | None = None
    eligible: int | None = None
    to_fetch: int = 0
    reasons: Mapping[str, int] | None = None
    replayed: Sequence[Replayed] = ()
    of_others: Mapping[tuple[str, str | None], int] = field(default_factory=dict)
    why_unknown: str | None = None

    @property
    def in_words(self) -> list[str]:
        """What a plan would do, in sentences."""
        lines = [replayed.in_words for replayed in self.replayed[:MOST_REPLAYS]]
        for (plan_id, group), count in list(self.of_others.items())[:MOST_REPLAYS]:
            subject = f"dead letters of group {visible(group)}" if group is not None else "other dead letters"
            were = "1 record was" if count == 1 else f"{count:,} records were"
            lines.append(f"{were} not replayed, but plan {plan_id} replayed the same source records as {subject}.")
        if self.eligible is None or self.chosen is None:
            return [*lines, f"How many records a plan would replay is not known: {self.why_unknown}"]
        subject = "it" if self.chosen == 1 else f"the {self.chosen:,} records"
        lines.append(
            f"A plan would replay {self.eligible:,} of {subject}, as far as the tables tell: no cluster was asked."
        )
        if self.to_fetch:
            lines.append(f"Of these {self.to_fetch:,} only if the original topic still has the payload.")
        ranked = Counter(self.reasons or {}).most_common()
        lines += [f"{count:,} not: {judge.REASONS[name]}." for name, count in ranked[:MOST_REASONS]]
        if len(ranked) > MOST_REASONS:
            lines.append(f"And {counted(len(ranked) - MOST_REASONS, 'other reason')}: the plan names all.")
        return lines

    def as_json(self) -> dict[str, Any]:
        """Return it as plain values."""
        return {
            "records": self.chosen,
            "eligible": self.eligible,
            "payloads_to_fetch": self.to_fetch,
            "reasons": dict(self.reasons or {}),
            "why_unknown": self.why_unknown,
            "of_others": [
                {"plan": plan_id, "consumer_group": group, "records": count}
                for (plan_id, group), count in self.of_others.items()
            ],
            "replayed": [
                {
                    "plan": replayed.plan_id,
                    "records": replayed.records,
                    "last_at": replayed.last_at,
                    "outcomes": dict(replayed.outcomes),
                }
                for replayed in self.replayed
            ],
        }


def of_incident(warehouse: Warehouse, incident_id: str) -> Eligibility:
    """Return what a plan of an incident would do if it was made now."""
    return Replays(warehouse).of_incident(incident_id)


@dataclass
class Replays:
    """Tells what plans of incidents would do if they were made now; what does not depend on one is read once."""

    warehouse: Warehouse

    def of_incident(self, incident_id: str) -> Eligibility:
        """Return what a plan of an incident would do."""
        replayed: Sequence[Replayed] = ()
        settings = self.warehouse.settings
        try:
            journal_store(settings)
            candidates = self._candidates
            incident = candidates.incident(incident_id)
            if incident["record_count"] > MOST_JUDGED:
                return self._of_many(incident)
            letters = candidates.chosen(Choice(incident=incident_id), settings.replay.most_records)
            replayed = self._told(letters)
            options = Options(max_replays=settings.replay.max_replays)
            entries = judged(self.warehouse, letters, candidates.rules, options, self._letter_topics, self._erased)
            planning.leave_out_repeated(entries)
            planning.leave_out_beyond_limits(entries, Teams.of_settings(settings))
        except AfterlogError as error:
            return Eligibility(replayed=replayed, why_unknown=str(error))
        eligible = [entry for entry in entries if not entry.reasons]
        reasons = Counter(reason for entry in entries for reason in entry.reasons)
        to_fetch = sum(entry.is_to_fetch for entry in eligible)
        befores = [
            candidate.replayed
            for candidate in letters
            if candidate.replayed is not None and not candidate.replayed.is_itself
        ]
        of_others = Counter((replay.plan_id, replay.group) for replay in befores)
        return Eligibility(len(entries), len(eligible), to_fetch, reasons, replayed, of_others)

    def _of_many(self, incident: Mapping[str, Any]) -> Eligibility:
        """Return what was replayed of an incident whose records are too many to be judged while somebody waits."""
        name, count = incident["incident_id"], incident["record_count"]
        replayed = [candidate for candidate in self._all_replayed if candidate.incident_id == name]
        why = f"the incident has {count:,} records; `afterlog replay plan --incident {name} --dry-run` judges each."
        return Eligibility(replayed=self._told(replayed), why_unknown=why)

    def _told(self, candidates: Sequence[Candidate]) -> list[Replayed]:
        """Return what plans replayed of dead letters, the newest first."""
        coordinates = {candidate.coordinate for candidate in candidates}
        by_plan: dict[str, list[datetime]] = {}
        for row in self._rows:
            if Letter.of(row).coordinate in coordinates:
                by_plan.setdefault(row["plan_id"], []).append(row["replayed_at"])
        outcomes: dict[str, Counter[str]] = {}
        for row in self._outcomes if by_plan else ():
            if Letter.of(row).coordinate in coordinates:
                outcomes.setdefault(row["plan_id"], Counter())[row["outcome"]] += 1
        replayed = [
            Replayed(plan_id, len(times), max(times), outcomes.get(plan_id, {})) for plan_id, times in by_plan.items()
        ]
        return sorted(replayed, key=lambda replay: (replay.last_at, replay.plan_id), reverse=True)

    @cached_property
    def _candidates(self) -> Candidates:
        return Candidates(self.warehouse, rules.of(self.warehouse.settings))

    @cached_property
    def _letter_topics(self) -> set[str]:
        return letter_topics(self.warehouse)

    @cached_property
    def _erased(self) -> dict[erased.Coordinate, datetime]:
        return erased.by_coordinate(self.warehouse)

    @cached_property
    def _rows(self) -> list[dict[str, Any]]:
        return store.replayed(self.warehouse)

    @cached_property
    def _outcomes(self) -> list[dict[str, Any]]:
        return store.outcomes(self.warehouse)

    @cached_property
    def _all_replayed(self) -> list[Candidate]:
        """The dead letters that plans replayed."""
        coordinates = tuple(dict.fromkeys(Letter.of(row).coordinate for row in self._rows))
        candidates: list[Candidate] = []
        for first in range(0, len(coordinates), MOST_NAMED):
            candidates += self._candidates.chosen(Choice(records=coordinates[first : first + MOST_NAMED]), MOST_NAMED)
        return candidates


def judged(
    warehouse: Warehouse,
    candidates: Sequence[Candidate],
    known: Rules,
    options: Options,
    topics: Collection[str] | None = None,
    gone: Mapping[erased.Coordinate, datetime] | None = None,
) -> list[Entry]:
    """Return the entries of candidates with the reasons that tables, rules and the journal give, without a cluster.

    ``topics`` are the dead-letter topics of which records landed, ``gone`` the dead letters that were erased; both are
    looked up if not given.
    """
    entries = planning.judged(candidates, known, options)
    planning.judge_loops(entries, letter_topics(warehouse) if topics is None else topics)
    planning.judge_erased(entries, erased.by_coordinate(warehouse) if gone is None else gone)
    planning.judge_claims(entries, options, claims(warehouse.settings, entries))
    return entries


def claims(settings: Settings, entries: Sequence[Entry]) -> Mapping[Letter, bool]:
    """Return the dead letters that plans have taken, themselves or others of the same source records.

    True: the journal knows that it stands on a target.
    """
    if not journal_store(settings).has(NAME):
        return {}
    with Journal.of(settings) as journal:
        claimed = journal.claims(entry.letter for entry in entries)
        sources = journal.claimed_sources(entry.source for entry in entries)
        produced = journal.are_produced(claimed)
    taken = {entry.letter for entry in entries if entry.letter in claimed or entry.source.coordinate in sources}
    return {letter: letter in produced for letter in taken}


def letter_topics(warehouse: Warehouse) -> set[str]:
    """Return the dead-letter topics of which records landed."""
    equal: Mapping[str, str | int] = {"cluster": warehouse.cluster}
    rows = jvmless.query(warehouse, RECORDS, "SELECT DISTINCT dlq_topic FROM rows", equal)
    return {row["dlq_topic"] for row in rows}
