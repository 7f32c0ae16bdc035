"""Plans, what they replayed and what was discarded <-> the gold tables of replays, written without a JVM.

Only the commands of this package write these tables. They hold a lock of their own, so that a plan can be made while a
run writes or ``--follow`` goes on. A plan counts once its row in gold.replay_plans is there, which is written last.
"""

from __future__ import annotations

import contextlib
import math
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

from expectations.gold import replay_discards, replay_outcomes, replay_plans, replayed_records, replays
from pipelines import moments
from pipelines.errors import UsageError
from pipelines.incidents import ids
from pipelines.replay.accepted import DISCARDS, OUTCOMES, PLANS, REPLAYED, REPLAYS
from pipelines.replay.candidate import Candidate
from pipelines.replay.draft import Draft
from pipelines.replay.journal import Journal, journal_store
from pipelines.replay.model import Letter, Plan, PlannedRecord, Replayed, Source, Target, millis_of
from pipelines.warehouse import append, jvmless
from pipelines.warehouse.actions import account
from pipelines.warehouse.tables import Warehouse


@contextlib.contextmanager
def writing(warehouse: Warehouse) -> Iterator[None]:
    """Hold the lock of the tables of replays.

    Raises EnvironmentLacking: the store cannot be written.
    """
    journal_store(warehouse.settings)
    with warehouse.store.lock(append.REPLAYS_LOCK, "replays", math.inf):
        yield


def keep(warehouse: Warehouse, draft: Draft) -> bool:
    """Write a plan and what its rules discard; return False if the same plan was written before."""
    plan = draft.plan
    equal = {"cluster": plan.cluster, "plan_id": plan.plan_id}
    with writing(warehouse):
        if _rows(warehouse, PLANS, equal, ["plan_id"]):
            return False
        _discard(
            warehouse,
            [(entry.candidate, entry.rule, None) for entry in draft.entries if "discard" in entry.reasons],
        )
        if not _rows(warehouse, REPLAYS, equal, ["plan_id"]):
            append.append(warehouse, replays.CONTRACT, [_row_of(draft, entry) for entry in draft.entries])
        with Journal.of(warehouse.settings) as journal:
            journal.add(plan.plan_id)
        append.append(warehouse, replay_plans.CONTRACT, [_plan_row(draft)])
    return True


def _plan_row(draft: Draft) -> dict[str, Any]:
    plan = draft.plan
    return {
        "cluster": plan.cluster,
        "plan_id": plan.plan_id,
        "plan_hash": plan.plan_hash,
        "created_at": plan.created_at,
        "created_by": draft.created_by,
        "choice": draft.choice,
        "target": draft.options.to or "original",
        "kafka_cluster_id": plan.kafka_cluster_id,
        "targets": [
            {"topic": target.topic, "topic_id": target.topic_id, "ends": list(target.ends)} for target in plan.targets
        ],
        "again": draft.options.again,
        "max_replays": draft.options.max_replays,
        "rules_hash": draft.rules.digest,
        "ignores_rules": draft.options.ignore_rules,
        "transform": draft.transform.file.name if draft.transform else None,
        "transform_hash": draft.transform.digest if draft.transform else None,
        "record_count": len(draft.entries),
        "eligible_count": len(plan.records),
        "order_kept": draft.order,
        "allowed": sorted(draft.options.allowed) or None,
    }


def _row_of(draft: Draft, entry: Any) -> dict[str, Any]:
    letter, source, eligible = entry.letter, entry.source, not entry.reasons
    return {
        "cluster": draft.plan.cluster,
        "plan_id": draft.plan.plan_id,
        **_letter(letter),
        **_source(source),
        "source_timestamp": append.moment(source.timestamp),
        "consumer_group": entry.candidate.row["consumer_group"],
        "incident_id": entry.candidate.incident_id,
        "attempt": entry.candidate.attempt,
        "position": entry.position if eligible else None,
        "reasons": sorted(set(entry.reasons)),
        "rule": entry.rule,
        "action": entry.action,
        "target_topic": entry.topic,
        "target_partition": entry.partition,
        "key": entry.content.key if eligible else None,
        "value": entry.content.value if eligible else None,
        "headers": entry.content.headers if eligible else None,
        "payload_from": entry.payload_from,
        "headers_lost": entry.headers_lost,
        "is_transformed": entry.is_transformed,
        **_first(entry.first),
        "dead_lettered_at": entry.dead_lettered_at,
    }


def plans(warehouse: Warehouse) -> list[dict[str, Any]]:
    """Return the rows of all plans of the settings' cluster, the newest first."""
    rows = _rows(warehouse, PLANS, {"cluster": warehouse.cluster})
    return sorted(rows, key=lambda row: (row["created_at"], row["plan_id"]), reverse=True)


def plan_row(warehouse: Warehouse, wanted: str) -> dict[str, Any]:
    """Return the row of the plan that an id, or its beginning, names.

    Raises UsageError: there is none, or several.
    """
    known = {row["plan_id"]: row for row in plans(warehouse)}
    return known[ids.whole_id(wanted, known, "a plan", "afterlog replay plans")]


def records(warehouse: Warehouse, plan_id: str) -> list[dict[str, Any]]:
    """Return the rows of a plan's records: the eligible ones in order, then the others by coordinate."""
    rows = _rows(warehouse, REPLAYS, {"cluster": warehouse.cluster, "plan_id": plan_id})
    return sorted(rows, key=lambda row: (row["position"] is None, row["position"] or 0, *Letter.of(row)))


def letters(warehouse: Warehouse, plan_ids: Collection[str]) -> dict[str, set[Letter]]:
    """Return the eligible dead letters of plans, by plan."""
    equal: dict[str, str | int] = {"cluster": warehouse.cluster}
    if len(plan_ids) == 1:
        equal["plan_id"] = next(iter(plan_ids))
    columns = [*_letter(Letter("", "", 0, 0)), "plan_id", "position"]
    by_plan: dict[str, set[Letter]] = {plan_id: set() for plan_id in plan_ids}
    for row in _rows(warehouse, REPLAYS, equal, columns) if plan_ids else ():
        if row["position"] is not None and row["plan_id"] in by_plan:
            by_plan[row["plan_id"]].add(Letter.of(row))
    return by_plan


def load(warehouse: Warehouse, row: Mapping[str, Any]) -> Plan:
    """Return the plan of a row of gold.replay_plans, with its eligible records in order."""
    planned = [record for record in records(warehouse, row["plan_id"]) if record["position"] is not None]
    if len(planned) != row["eligible_count"]:
        raise UsageError(f"Plan {row['plan_id']} cannot be run: gold.replays does not hold all of its records.")
    return Plan(
        row["plan_id"],
        row["plan_hash"],
        row["cluster"],
        row["kafka_cluster_id"],
        row["created_at"],
        tuple(Target(target["topic"], target["topic_id"], tuple(target["ends"])) for target in row["targets"]),
        tuple(
            PlannedRecord(
                record["position"],
                Letter.of(record),
                source_of(record),
                record["consumer_group"],
                record["attempt"],
                record["target_topic"],
                record["target_partition"],
                record["key"],
                record["value"],
                tuple((header["key"], header["value"]) for header in record["headers"] or ()),
                Source.of_coordinate(record["first_place"] or "", millis_of(record["first_timestamp"])),
                record["dead_lettered_at"],
            )
            for record in planned
        ),
        row["again"],
        tuple(row["allowed"] or ()),
    )


def source_of(row: Mapping[str, Any]) -> Source:
    """Return the coordinate of the record that failed, of a row of gold.replays."""
    return Source.of(row, millis_of(row["source_timestamp"]))


def elsewhere(
    warehouse: Warehouse, records: Sequence[PlannedRecord], but_of: str = ""
) -> dict[tuple[str, str], set[Letter]]:
    """Return which dead letters, or their source records, other plans have taken, by target topic and its id."""
    ids_of = {
        (row["plan_id"], target["topic"]): target["topic_id"] or ""
        for row in plans(warehouse)
        for target in row["targets"] or ()
    }
    letters = {record.letter.coordinate: record.letter for record in records}
    sources = {record.source.coordinate: record.letter for record in records if record.source.coordinate is not None}
    columns = [*_letter(Letter("", "", 0, 0)), *_source(Source(None, None, None))]
    columns += ["plan_id", "position", "target_topic"]
    taken: dict[tuple[str, str], set[Letter]] = defaultdict(set)
    for row in _rows(warehouse, REPLAYS, {"cluster": warehouse.cluster}, columns):
        if row["position"] is None or row["plan_id"] == but_of:
            continue
        same = {letters.get(Letter.of(row).coordinate), sources.get(Source.of(row).coordinate or "")}
        topic = row["target_topic"]
        taken[topic, ids_of.get((row["plan_id"], topic), "")].update(letter for letter in same if letter is not None)
    return {topic: of_topic for topic, of_topic in taken.items() if of_topic}


class Replays:
    """Writes what a plan replayed to gold.replayed_records, each record once."""

    def __init__(self, warehouse: Warehouse, plan: Plan) -> None:
        """Read what is known of the plan."""
        self.warehouse, self.plan = warehouse, plan
        self.known = self._written()
        self.waiting: list[Replayed] = []

    def _written(self) -> set[Letter]:
        equal = {"cluster": self.plan.cluster, "plan_id": self.plan.plan_id}
        return {Letter.of(row) for row in _rows(self.warehouse, REPLAYED, equal, [*_letter(Letter("", "", 0, 0))])}

    def add(self, produced: Sequence[Replayed]) -> None:
        """Take records that stand committed on their targets; they are written with the next `flush`."""
        for confirmed in produced:
            if confirmed.record.letter not in self.known:
                self.known.add(confirmed.record.letter)
                self.waiting.append(confirmed)

    def flush(self) -> None:
        """Write what waits."""
        if not self.waiting:
            return
        ids_of = {target.topic: target.topic_id for target in self.plan.targets}
        with writing(self.warehouse):
            written = self._written()  # another process may have completed the plan meanwhile
            rows = [
                {
                    "cluster": self.plan.cluster,
                    "plan_id": self.plan.plan_id,
                    **_letter(confirmed.record.letter),
                    **_source(confirmed.record.source),
                    "consumer_group": confirmed.record.group,
                    "attempt": confirmed.record.attempt,
                    "target_topic": confirmed.record.topic,
                    "target_topic_id": ids_of[confirmed.record.topic],
                    "target_partition": confirmed.partition,
                    "target_offset": confirmed.offset,
                    "replayed_at": append.moment(confirmed.timestamp) or moments.now(),
                    **_first(confirmed.record.origin),
                }
                for confirmed in self.waiting
                if confirmed.record.letter not in written
            ]
            append.append(self.warehouse, replayed_records.CONTRACT, rows)
        self.waiting.clear()


def discard(warehouse: Warehouse, candidates: Sequence[Candidate], note: str | None) -> int:
    """Write that a person gives up dead letters; return how many were not discarded before."""
    with writing(warehouse):
        return _discard(warehouse, [(candidate, None, note) for candidate in candidates])


def _discard(warehouse: Warehouse, given: Sequence[tuple[Candidate, str | None, str | None]]) -> int:
    known = {Letter.of(row) for row in _rows(warehouse, DISCARDS, {"cluster": warehouse.cluster})}
    rows = []
    for candidate, rule, note in given:
        letter = Letter.of(candidate.row)
        if letter in known:
            continue
        known.add(letter)
        source = Source.of(candidate.row)
        said = {"discarded_at": moments.now(), "discarded_by": account(), "rule": rule, "note": note}
        rows.append({"cluster": warehouse.cluster, **_letter(letter), **_source(source), **said})
    append.append(warehouse, replay_discards.CONTRACT, rows)
    return len(rows)


def replayed(warehouse: Warehouse, plan_id: str | None = None) -> list[dict[str, Any]]:
    """Return the rows of gold.replayed_records, of one plan or of all."""
    equal = {"cluster": warehouse.cluster} | ({"plan_id": plan_id} if plan_id else {})
    return _rows(warehouse, REPLAYED, equal)


def outcomes(warehouse: Warehouse, plan_id: str | None = None) -> list[dict[str, Any]]:
    """Return the rows of gold.replay_outcomes, of one plan or of all."""
    equal = {"cluster": warehouse.cluster} | ({"plan_id": plan_id} if plan_id else {})
    return _rows(warehouse, OUTCOMES, equal)


def replace_outcomes(warehouse: Warehouse, rows: Sequence[Mapping[str, Any]]) -> None:
    """Replace the outcomes of the settings' cluster; those of other clusters stay. The caller holds the lock."""
    others: list[dict[str, Any]] = []
    if warehouse.exists(OUTCOMES):
        clusters = jvmless.values(warehouse, OUTCOMES, "cluster", 2**63) or set()
        for cluster in clusters - {warehouse.cluster}:
            others += jvmless.rows(warehouse, OUTCOMES, {"cluster": cluster})
    append.append(warehouse, replay_outcomes.CONTRACT, [*others, *rows], "overwrite")


def _letter(letter: Letter) -> dict[str, Any]:
    return {
        "dlq_topic": letter.topic,
        "dlq_topic_id": letter.topic_id or None,
        "dlq_partition": letter.partition,
        "dlq_offset": letter.offset,
    }


def _first(source: Source | None) -> dict[str, Any]:
    if source is None or source.coordinate is None:
        return {"first_place": None, "first_timestamp": None}
    return {"first_place": source.coordinate, "first_timestamp": append.moment(source.timestamp)}


def _source(source: Source) -> dict[str, Any]:
    return {
        "original_topic": source.topic,
        "original_partition": source.partition,
        "original_offset": source.offset,
    }


def _rows(
    warehouse: Warehouse, table: str, equal: Mapping[str, str | int], columns: list[str] | None = None
) -> list[dict[str, Any]]:
    journal_store(warehouse.settings)
    return jvmless.rows(warehouse, table, equal, columns) if warehouse.exists(table) else []
