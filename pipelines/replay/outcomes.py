"""gold.replayed_records, dead letters, committed offsets -> gold.replay_outcomes: what became of each replay.

A dead letter that names the coordinate of a replayed record on its target tells that it died again, unless it cannot be
about that record (``died_again``). An offset that the group committed behind the coordinate tells that it was
delivered; the group of a connector is known by its name. Share groups commit no such offset: of theirs only a death is
known. If the target was created anew, offsets tell nothing.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping
from typing import Any

from expectations.owners import committing_group
from pipelines import moments
from pipelines.engines.duckdb import sessions
from pipelines.replay import client, groups, store, targets
from pipelines.replay.accepted import RECORDS, REPLAYED, same_letter
from pipelines.replay.died_again import COLUMNS, ReplayedRecords
from pipelines.replay.model import Letter
from pipelines.warehouse.tables import Warehouse

DELIVERED, DIED_AGAIN, UNKNOWN = "DELIVERED", "DIED_AGAIN", "UNKNOWN"
_KEPT = (
    *("cluster", "plan_id", "dlq_topic", "dlq_topic_id", "dlq_partition", "dlq_offset", "consumer_group", "attempt"),
    *("target_topic", "target_topic_id", "target_partition", "target_offset"),
)

Committed = Mapping[tuple[str, str, str | None, int], int]
"""Committed offsets by group, topic, topic id (None: not known) and partition."""


def refresh(warehouse: Warehouse, *, asks: bool = True) -> Counter[str]:
    """Bring the outcomes up to date and return how many records have each; ``asks`` the cluster for offsets.

    What was delivered stays so unless it dies later. If the cluster cannot be asked, only the tables tell.
    """
    with store.writing(warehouse):
        replayed = store.replayed(warehouse)
        if not replayed:
            return Counter()
        committing = _committing(warehouse, replayed)
        known = {(row["plan_id"], Letter.of(row)): row for row in store.outcomes(warehouse)}
        deaths = _deaths(warehouse, ReplayedRecords.known(warehouse, replayed, store.plans(warehouse)))
        open_ = [row for row in replayed if known.get((row["plan_id"], Letter.of(row)), {}).get("outcome") != DELIVERED]
        committed = _committed(warehouse, open_, committing) if asks else {}
        now = moments.now()
        rows, changed = [], False
        for row in replayed:
            before = known.get((row["plan_id"], Letter.of(row)))
            outcome = _outcome(row, deaths, committed, before, committing[Letter.of(row).coordinate])
            if before is None or any(before[name] != value for name, value in outcome.items()):
                changed = True
                outcome["looked_at"] = now
            else:
                outcome["looked_at"] = before["looked_at"]
            rows.append({name: row[name] for name in _KEPT} | outcome)
        if changed:
            store.replace_outcomes(warehouse, rows)
        return Counter(row["outcome"] for row in rows)


def _outcome(
    row: Mapping[str, Any],
    deaths: Mapping[tuple[Any, ...], Mapping[str, Any]],
    committed: Committed,
    before: Mapping[str, Any] | None,
    group: str | None,
) -> dict[str, Any]:
    died = deaths.get((row["plan_id"], Letter.of(row)))
    nothing = {"died_in_topic": None, "died_in_partition": None, "died_in_offset": None, "died_at": None}
    if died is not None:
        at = {
            "died_in_topic": died["dlq_topic"],
            "died_in_partition": died["dlq_partition"],
            "died_in_offset": died["dlq_offset"],
            "died_at": died["routed_at"],
        }
        return {"outcome": DIED_AGAIN, "known_by": "dead_letter", **at}
    ids = (row["target_topic_id"], None)
    offset = max(
        committed.get((group, row["target_topic"], known, row["target_partition"]), -1) if group is not None else -1
        for known in ids
    )
    if offset > row["target_offset"] or (before is not None and before["outcome"] == DELIVERED):
        return {"outcome": DELIVERED, "known_by": "committed_offset", **nothing}
    return {"outcome": UNKNOWN, "known_by": None, **nothing}


def _deaths(warehouse: Warehouse, replayed_records: ReplayedRecords) -> dict[tuple[Any, ...], dict[str, Any]]:
    """Return the first dead letter of each replayed record that has one, by the record's plan and dead letter."""
    if not warehouse.exists(RECORDS):
        return {}
    columns = ", ".join(f"records.{name}" for name in COLUMNS if name != "routed_at")
    text = f"""
        SELECT {columns}, records.dlq_topic, records.dlq_partition, records.dlq_offset,
          coalesce(records.routed_at, records.dlq_timestamp) AS routed_at
        FROM {RECORDS} AS records
        JOIN (SELECT DISTINCT target_topic, target_partition, target_offset FROM {REPLAYED}
              WHERE cluster = :cluster) AS replayed
          ON replayed.target_topic = records.original_topic
            AND replayed.target_partition = records.original_partition
            AND replayed.target_offset = records.original_offset
        WHERE records.cluster = :cluster
        ORDER BY routed_at DESC, dlq_topic DESC, dlq_partition DESC, dlq_offset DESC
    """
    tables = (RECORDS, REPLAYED)
    fetched = sessions.answer(warehouse, text, {"cluster": warehouse.cluster}, tables, {})
    deaths = {}
    for letter in fetched.objects():
        if (row := replayed_records.about(letter)) is not None:
            deaths[row["plan_id"], Letter.of(row)] = letter
    return deaths


def _committing(warehouse: Warehouse, replayed: list[dict[str, Any]]) -> dict[str, str | None]:
    """Return the group that commits offsets for the owner of each replayed dead letter, by the letter's coordinate."""
    group_of = {Letter.of(row).coordinate: committing_group(row) for row in replayed}
    if None in group_of.values() and warehouse.exists(RECORDS):
        text = f"""
            SELECT dlq_topic, dlq_topic_id, dlq_partition, dlq_offset, consumer_group, owner
            FROM {RECORDS} AS records
            WHERE cluster = :cluster AND consumer_group IS NULL AND owner IS NOT NULL AND EXISTS (
              SELECT 1 FROM {REPLAYED} AS replayed WHERE {same_letter("replayed")}
            )
        """
        fetched = sessions.answer(warehouse, text, {"cluster": warehouse.cluster}, (RECORDS, REPLAYED), {})
        group_of |= {Letter.of(row).coordinate: committing_group(row) for row in fetched.objects()}
    return group_of


def _committed(warehouse: Warehouse, replayed: list[dict[str, Any]], committing: Mapping[str, str | None]) -> Committed:
    """Return the offsets that classic groups of replayed records committed on the targets; nothing if nobody tells.

    ``committing`` has the groups by the coordinates of dead letters. Offsets of a target that was created
    anew are those of other records.
    """
    grouped = [(group, row) for row in replayed if (group := committing[Letter.of(row).coordinate]) is not None]
    if not grouped or not warehouse.settings.kafka.bootstrap_servers:
        return {}
    asked = client.admin(warehouse.settings)
    ids = targets.describe_ids(asked, {row["target_topic"] for _, row in grouped})
    wanted: dict[str, set[tuple[str, int]]] = defaultdict(set)
    for group, row in grouped:
        if ids.get(row["target_topic"]) in (None, row["target_topic_id"]):  # None: ACLs hide it
            wanted[group].add((row["target_topic"], row["target_partition"]))
    offsets = groups.committed(warehouse.settings, wanted)
    return {(group, topic, ids.get(topic), partition): at for (group, topic, partition), at in offsets.items()}


__all__ = ["DELIVERED", "DIED_AGAIN", "UNKNOWN", "refresh"]
