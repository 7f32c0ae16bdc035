"""What a person or the rules choose -> the dead letters, each with what the tables know about it."""

from __future__ import annotations

import contextlib
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import cached_property
from typing import Any

from expectations.contract import Contract, contract_of
from expectations.owners import OWNER, owner_of, owner_sql
from expectations.text import visible
from pipelines import moments
from pipelines.commands.coordinate import Coordinate
from pipelines.engines.duckdb import nodes, sessions
from pipelines.errors import UsageError
from pipelines.incidents import ids
from pipelines.incidents.signature import frame_of, pattern_of
from pipelines.replay import origins
from pipelines.replay.accepted import (
    COLUMNS,
    HELD,
    INCIDENTS,
    IS_REPLAYED,
    LETTER,
    PLANS,
    QUARANTINE,
    REPLAYED,
    REPLAYS,
    TABLES,
    TRANSACTIONS,
    same_letter,
    statement_of,
)
from pipelines.replay.candidate import Candidate, Replay
from pipelines.replay.choice import Choice
from pipelines.replay.conditions import condition
from pipelines.replay.died_again import ReplayedRecords
from pipelines.replay.model import Letter, attempt_of
from pipelines.replay.rules import Rules
from pipelines.teams import Teams, is_of, refuse_others
from pipelines.text import elided
from pipelines.warehouse import jvmless
from pipelines.warehouse.tables import Warehouse

PAGE = 50_000  # dead letters that are in memory at once while they are tested one by one
WIDEST = 80

SIGNATURE = ("consumer_group", "original_topic", "disposition", "exception_class", "exception_cause_class")
HOW_MANY = "more records than [replay] most_records allows"


Spans = list[tuple[datetime, datetime, str, str | None]]


@dataclass
class Candidates:
    """Reads dead letters of the settings' cluster, with what the tables know about them."""

    warehouse: Warehouse
    rules: Rules = Rules()  # noqa: RUF009  # it cannot change
    incidents: list[dict[str, Any]] = field(init=False)
    _spans: dict[tuple[Any, ...], Spans] = field(init=False)

    def __post_init__(self) -> None:
        """Read the incidents."""
        self.incidents = []
        if self.warehouse.exists(INCIDENTS):
            columns = [
                "incident_id",
                *SIGNATURE,
                OWNER,
                "error_pattern",
                "error_frame",
                "algorithm_version",
                "first_at",
                "last_at",
                "merged_into",
            ]
            columns += ["record_count", "verdict", "sentence"]
            self.incidents = jvmless.rows(self.warehouse, INCIDENTS, {"cluster": self.warehouse.cluster}, columns)
        self._spans = defaultdict(list)
        for row in self.incidents:
            if row["record_count"] and row["first_at"] is not None:
                key = (*_signature(row), row["algorithm_version"] or 1, row["error_pattern"], row["error_frame"])
                self._spans[key].append((row["first_at"], row["last_at"], row["incident_id"], row["verdict"]))

    def chosen(self, choice: Choice, most: int) -> list[Candidate]:
        """Return the dead letters of a choice.

        Raises UsageError: the choice cannot be understood, names nothing that is known or something of other teams, or
        is larger than ``most``.
        """
        cluster = {"cluster": self.warehouse.cluster}

        def is_own(candidate: Candidate) -> bool:
            return is_of(choice.team, candidate.teams)

        if choice.records:
            candidates = self._named(choice.records)
            for candidate in candidates:
                refuse_others(choice.team, candidate.teams, f"The dead letter at {visible(candidate.coordinate)}")
            candidates = candidates[: choice.limit]
        elif choice.where is not None:
            text = f"({condition(choice.where, now=self.now)})"
            if choice.team is None:
                candidates = self._accepted(text, cluster, choice.limit, most)
            else:
                candidates = self._filtered(text, cluster, is_own, choice.limit, most)
        elif choice.incident is not None:
            incident = self.incident(choice.incident)
            wanted = {name: incident[name] for name in SIGNATURE}
            wanted[OWNER] = owner_of(incident)
            text = " AND ".join(
                f"{text} = :{name}" if value is not None else f"{text} IS NULL"
                for name, value in wanted.items()
                for text in [owner_sql("records") if name == OWNER else f"records.{name}"]
            )
            at = "coalesce(records.routed_at, records.dlq_timestamp, records._ingested_at)"
            text += f" AND {at} BETWEEN :first_at AND :last_at"
            values = {name: value for name, value in wanted.items() if value is not None}
            values |= {"first_at": incident["first_at"], "last_at": incident["last_at"]}
            wanted_id = incident["incident_id"]
            candidates = self._filtered(
                text,
                cluster | values,
                lambda candidate: candidate.incident_id == wanted_id and is_own(candidate),
                choice.limit,
                most,
            )
        else:
            text, values = self.rules.replayed()
            text = f"({text}) AND NOT EXISTS ({IS_REPLAYED})"
            candidates = self._filtered(
                text,
                cluster | values,
                lambda candidate: self.rules.decide(candidate.facts)[0] == "REPLAY" and is_own(candidate),
                choice.limit,
                most,
            )
        return candidates

    def _filtered(
        self, text: str, values: Mapping[str, Any], keeps: Callable[[Candidate], bool], limit: int | None, most: int
    ) -> list[Candidate]:
        """Return the first dead letters that meet a condition and a test in Python, which a condition cannot express.

        Raises UsageError: these are more than ``most``.
        """
        wanted, history = _wanted(limit, most), self._history()
        candidates: list[Candidate] = []
        with contextlib.closing(self._pages(statement_of(text), values, (*TABLES, REPLAYED))) as pages:
            for page in pages:
                candidates += [candidate for candidate in self._known(page, history) if keeps(candidate)]
                if len(candidates) >= wanted:
                    break
        if len(candidates[:wanted]) > most:
            raise _too_many(most)
        return candidates[:wanted]

    @property
    def now(self) -> datetime:
        """The time that ``:now`` and current_timestamp() in a condition stand for."""
        return moments.now()

    def of_plans(self, letters: Mapping[str, Iterable[Letter]]) -> dict[str, list[Candidate]]:
        """Return the dead letters of plans, as the tables know them now, by plan; its own replays do not count."""
        by_coordinate: dict[str, dict[str, list[Letter]]] = defaultdict(lambda: defaultdict(list))
        for plan_id, of_plan in letters.items():
            for letter in of_plan:
                by_coordinate[letter.coordinate][plan_id].append(letter)
        ids = {f"plan_{number}": plan_id for number, plan_id in enumerate(letters)}
        parameters = ", ".join(f":{name}" for name in ids)
        text = (
            f"EXISTS (SELECT 1 FROM {REPLAYS} AS planned WHERE planned.plan_id IN ({parameters}) "
            f"AND planned.position IS NOT NULL AND {same_letter('planned')})"
        )
        rows: dict[str, list[dict[str, Any]]] = {plan_id: [] for plan_id in letters}
        if ids:
            values = {"cluster": self.warehouse.cluster, **ids}
            for row in self._rows(statement_of(text), values, (*TABLES, REPLAYS)):
                current = Letter.of(row)
                for plan_id, planned in by_coordinate.get(current.coordinate, {}).items():
                    if any(letter.may_be(current) for letter in planned):
                        rows[plan_id].append(row)
        return {name: self._known(of_plan, self._history(name)) if of_plan else [] for name, of_plan in rows.items()}

    def incident(self, wanted: str) -> dict[str, Any]:
        """Return the incident that an id, or its beginning, names.

        Raises UsageError: there is none, or several.
        """
        rows = {row["incident_id"]: row for row in self.incidents}
        merged = {name: row["merged_into"] for name, row in rows.items() if row["merged_into"] in rows}
        end = ids.survivor(ids.whole_id(wanted, rows, "an incident", "afterlog incidents"), merged)
        if not rows[end]["record_count"]:
            raise UsageError(f"Incident {end} has no records any more.")
        return rows[end]

    def _incident_of(self, row: Mapping[str, Any]) -> tuple[str | None, str | None]:
        """Return the id and verdict of the incident that a record belongs to."""
        if not self._spans:
            return None, None
        version = row["fingerprint_version"] or 1
        error = (pattern_of(row["error_message"], version), frame_of(row["exception_stacktrace"]))
        spans = self._spans.get((*_signature(row), version, *error), ())
        at = row["routed_at"] or row["dlq_timestamp"] or row["_ingested_at"]
        for first, last, name, verdict in spans:
            if first <= at <= last:
                return name, verdict
        return None, None

    def of_source(self, topic: str, partition: int, offset: int) -> list[Candidate]:
        """Return the accepted dead letters whose headers name a source record."""
        values = {"topic": topic, "partition": partition, "offset": offset}
        here = " AND ".join(f"records.original_{part} = :{part}" for part in values)
        return self._accepted(here, {"cluster": self.warehouse.cluster, **values}, None, None)

    def _named(self, wanted: Sequence[str]) -> list[Candidate]:
        """Return the dead letters at coordinates, those in quarantine and held ones too.

        Raises UsageError: a text is no coordinate, or nothing is known there.
        """
        coordinates = []
        for text in dict.fromkeys(wanted):
            coordinate = Coordinate.of(text)
            if coordinate is None:
                shown = elided(text, WIDEST)
                raise UsageError(f"'{shown}' is not the place of a dead letter: write it like dlq.orders:0:5.")
            coordinates.append(coordinate)
        values: dict[str, Any] = {"cluster": self.warehouse.cluster}
        for number, coordinate in enumerate(coordinates):
            values |= {f"{part}_{number}": at for part, at in coordinate._asdict().items()}
        here = " OR ".join(
            "(" + " AND ".join(f"records.dlq_{part} = :{part}_{number}" for part in Coordinate._fields) + ")"
            for number in range(len(coordinates))
        )
        candidates = self._accepted(here, values, None, None)
        known = {candidate.coordinate for candidate in candidates}
        for coordinate in coordinates:
            if ":".join(map(str, coordinate)) not in known:
                refused = self._refused(coordinate)
                if not refused:
                    raise UsageError(f"Nothing is known of a dead letter at {coordinate} in cluster '{self._cluster}'.")
                candidates += refused
        return candidates

    @property
    def _cluster(self) -> str:
        return visible(self.warehouse.cluster)

    def _refused(self, coordinate: Coordinate) -> list[Candidate]:
        equal: dict[str, str | int] = {
            "cluster": self.warehouse.cluster,
            "dlq_topic": coordinate.topic,
            "dlq_partition": coordinate.partition,
            "dlq_offset": coordinate.offset,
        }
        for table, state in ((QUARANTINE, "quarantined"), (HELD, "held")):
            if self.warehouse.exists(table):
                rows = jvmless.rows(self.warehouse, table, equal)
                if rows:
                    row = {name: rows[0].get(name) for name in COLUMNS}
                    return [Candidate(row, state, teams=self._teams.of_row(row))]
        return []

    def _accepted(
        self,
        text: str,
        values: Mapping[str, Any],
        limit: int | None,
        most: int | None,
    ) -> list[Candidate]:
        """Return accepted dead letters that meet a condition on ``records``.

        Raises UsageError: these are more than ``most``.
        """
        statement = statement_of(text)
        if most is not None:
            statement += f" LIMIT {_wanted(limit, most)}"
        rows = self._rows(statement, values, TABLES)
        if most is not None and len(rows) > most:
            raise _too_many(most)
        return self._known(rows, self._history()) if rows else []

    def _known(self, rows: Sequence[dict[str, Any]], history: _History) -> list[Candidate]:
        """Return candidates with what replays, transactions and incidents say about their source records."""
        candidates = []
        for row in rows:
            source = (row["original_topic"], row["original_partition"], row["original_offset"])
            letter = Letter.of(row)
            same = [
                replay for known, replay in history.by_coordinate.get(letter.coordinate, ()) if known.may_be(letter)
            ]
            of_source = history.by_source.get(source) if None not in source else None
            befores = same[-1:] + ([of_source] if of_source else [])
            before = max(befores, key=lambda replay: replay["attempt"], default=None)
            died = history.replayed_records.about(row)
            attempt = attempt_of(origins.headers_of(row))
            spans = history.aborted.get(source[:2], ()) if None not in source else ()
            incident_id, verdict = self._incident_of(row)
            teams = self._teams.of_row(row)
            candidates.append(
                Candidate(
                    {name: row[name] for name in COLUMNS},
                    is_marker=row["is_marker"],
                    write_state=row["write_state"],
                    is_aborted=_within(spans, row["original_offset"]),
                    copies=row["copies"] or 1,
                    attempt=1 + max([attempt, *(replay["attempt"] for replay in (before, died) if replay is not None)]),
                    replayed=_replay(same[-1] if same else of_source, is_itself=bool(same)),
                    is_discarded=row["is_discarded"],
                    is_discarded_by_rule=row["is_discarded_by_rule"],
                    first=origins.first_of(row, died, history.hops),
                    incident_id=incident_id,
                    verdict=verdict,
                    teams=teams,
                    limits=self._teams.limits(teams),
                )
            )
        return candidates

    def _history(self, but_of: str = "") -> _History:
        """Return what is known of source records; replays of one plan do not count."""
        rows = [row for row in self._replayed if row["plan_id"] != but_of]
        replayed_records = ReplayedRecords.known(self.warehouse, rows, self._plans)
        history = _History(self._aborted, replayed_records, self._hops)
        for row in rows:
            letter = Letter.of(row)
            history.by_coordinate[letter.coordinate].append((letter, row))
            history.by_source[row["original_topic"], row["original_partition"], row["original_offset"]] = row
        return history

    @cached_property
    def _teams(self) -> Teams:
        return Teams.of_settings(self.warehouse.settings)

    @cached_property
    def _replayed(self) -> list[dict[str, Any]]:
        columns = ", ".join((*LETTER, "original_topic", "original_partition", "original_offset", "plan_id", "attempt"))
        columns += ", consumer_group, target_topic, target_topic_id, target_partition, target_offset, replayed_at"
        columns += ", first_place, first_timestamp"
        text = f"SELECT {columns} FROM {REPLAYED} WHERE cluster = :cluster ORDER BY attempt"
        return self._rows(text, {"cluster": self.warehouse.cluster}, (REPLAYED,))

    @cached_property
    def _plans(self) -> list[dict[str, Any]]:
        cluster: dict[str, str | int] = {"cluster": self.warehouse.cluster}
        is_planned = self.warehouse.exists(PLANS)
        return jvmless.rows(self.warehouse, PLANS, cluster, ["created_at", "targets"]) if is_planned else []

    @cached_property
    def _hops(self) -> dict[origins.Coordinate, origins.Coordinate]:
        return origins.hops_of(self.warehouse)

    @cached_property
    def _aborted(self) -> dict[tuple[Any, ...], list[tuple[int, int]]]:
        """Return, by topic and partition, the ranges of offsets of aborted transactions, in order."""
        if not self.warehouse.exists(TRANSACTIONS):
            return {}
        text = f"SELECT topic, partition, ranges FROM {TRANSACTIONS} WHERE cluster = :cluster AND state = 'ABORTED'"
        aborted: dict[tuple[Any, ...], list[tuple[int, int]]] = defaultdict(list)
        for row in self._rows(text, {"cluster": self.warehouse.cluster}, (TRANSACTIONS,)):
            spans = [(span["first_offset"], span["last_offset"]) for span in row["ranges"] or ()]
            aborted[row["topic"], row["partition"]] += spans
        return {partition: sorted(spans) for partition, spans in aborted.items()}

    def _rows(self, text: str, values: Mapping[str, Any], tables: Iterable[str]) -> list[dict[str, Any]]:
        """Return the rows of a statement; tables of replays that do not exist yet are empty."""
        tables = tuple(tables)
        with _choosing():
            return sessions.answer(self.warehouse, text, values, tables, self._missing(tables)).objects()

    def _pages(
        self, text: str, values: Mapping[str, Any], tables: Sequence[str]
    ) -> Generator[list[dict[str, Any]], None, None]:
        """Yield the same rows ``PAGE`` at a time, all from the same versions of the tables."""
        with _choosing():
            for page in sessions.batches(self.warehouse, text, values, tables, self._missing(tables), PAGE):
                yield page.objects()

    def _missing(self, tables: Iterable[str]) -> dict[str, tuple[Contract, tuple[()]]]:
        """Return the tables of replays that do not exist yet, without rows."""
        return {
            table: (contract_of(table), ())
            for table in tables
            if table.startswith("gold.") and not self.warehouse.exists(table)
        }


@dataclass
class _History:
    """What is known of source records: aborted transactions by topic and partition, and rows of replayed records.

    ``by_coordinate`` has the rows of dead letters, ``by_source`` those of source records, the last replay last.
    ``replayed_records`` tells which replayed record a dead letter is about, ``hops`` from where a dead letter came.
    """

    aborted: dict[tuple[Any, ...], list[tuple[int, int]]]
    replayed_records: ReplayedRecords
    hops: Mapping[origins.Coordinate, origins.Coordinate]
    by_coordinate: dict[str, list[tuple[Letter, dict[str, Any]]]] = field(default_factory=lambda: defaultdict(list))
    by_source: dict[tuple[Any, ...], dict[str, Any]] = field(default_factory=dict)


@contextlib.contextmanager
def _choosing() -> Iterator[None]:
    """Say in one sentence why DuckDB cannot answer."""
    try:
        yield
    except nodes.Untranslatable as error:
        raise UsageError(f"The records cannot be chosen: DuckDB cannot answer ({visible(str(error))}).") from None


def _signature(row: Mapping[str, Any]) -> tuple[Any, ...]:
    return *(row[name] for name in SIGNATURE), owner_of(row)


def _replay(row: Mapping[str, Any] | None, is_itself: bool) -> Replay | None:
    """Return the replay that a row of gold.replayed_records tells."""
    return None if row is None else Replay(row["plan_id"], Letter.of(row), row["consumer_group"], is_itself)


def _wanted(limit: int | None, most: int) -> int:
    """Return how many records to look for: one more than ``most`` shows that there are more."""
    return most + 1 if limit is None else min(limit, most + 1)


def _too_many(most: int) -> UsageError:
    return UsageError(f"These are {HOW_MANY} ({most:,}): narrow the choice, give --limit, or raise the setting.")


def _within(spans: Sequence[tuple[int, int]], offset: int) -> bool:
    at = bisect_right(spans, (offset, 2**63)) - 1
    return at >= 0 and spans[at][0] <= offset <= spans[at][1]
