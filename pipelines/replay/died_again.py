"""Replayed records -> the one that a dead letter is about, as topics of one name can follow each other.

A topic that is created anew begins at offset 0 again. So a dead letter that names a coordinate on a target can be about
an older record, or about one of a later topic. If the writer of the dead letter keeps headers, those of the replay
identify the record. If it does not, a record is ruled out if its time does not fit. A dead letter that fits no replayed
record, or several, is about none.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

from pipelines.commands.coordinate import Coordinate
from pipelines.engines.duckdb import sessions
from pipelines.replay.model import PLAN, RECORD, Letter
from pipelines.warehouse import jvmless
from pipelines.warehouse.tables import Warehouse

COPIES, BATCHES = "silver.log_copies", "silver.log_batches"
COLUMNS = (
    *("original_topic", "original_partition", "original_offset", "header_profile", "routed_at", "routed_at_source"),
    *("dlq_timestamp_type", "user_headers", "_ingested_at"),
)
"""Columns of silver.dlq_records that tell what a dead letter is about."""
CLOCKS = timedelta(minutes=10)
"""How far the clocks of brokers, producers and Afterlog may be apart."""
LONGEST_RUN = timedelta(days=1)
"""A dead letter that a run accepted was written before the run began, or while it lasted."""
BY_BROKERS = ("kip-1191", "kip-1317")
_APPENDED = 1  # the type of a timestamp that the broker set

Row = Mapping[str, Any]


class ReplayedRecords:
    """Replayed records by their coordinate on a target, and until when the topic was there, as far as it is known."""

    def __init__(self, replayed: Iterable[Row], ends: Mapping[tuple[str, str], datetime]) -> None:
        """Take rows of gold.replayed_records, and when another topic was first seen, by topic and topic id."""
        self._ends = ends
        self._records: dict[tuple[Any, ...], list[Row]] = defaultdict(list)
        for row in replayed:
            self._records[tuple(row[f"target_{part}"] for part in Coordinate._fields)].append(row)
        for records in self._records.values():
            records.sort(key=lambda row: row["replayed_at"])

    @classmethod
    def known(cls, warehouse: Warehouse, replayed: Sequence[Row], plans: Iterable[Row]) -> ReplayedRecords:
        """Learn from replays, plans and landed segments which targets were created anew, and since when."""
        seen: dict[str, list[tuple[datetime, str]]] = defaultdict(list)
        for row in replayed:
            if row["target_topic_id"] is not None:
                seen[row["target_topic"]].append((row["replayed_at"], row["target_topic_id"]))
        topics = {row["target_topic"] for row in replayed}
        for row in plans:
            for target in row["targets"] or ():
                if target["topic"] in topics and target["topic_id"] is not None:
                    seen[target["topic"]].append((row["created_at"], target["topic_id"]))
        last: dict[tuple[str, str], datetime] = {}
        for topic, times in seen.items():
            times.sort()
            last |= {(topic, topic_id): at for at, topic_id in times}
        ends = {}
        landed = _landed(warehouse, topics)
        for (topic, topic_id), at in last.items():
            times = seen[topic]
            later = [since for since, _ in times[bisect_right(times, at, key=lambda pair: pair[0]) :][:1]]
            for other in landed.get(topic, set()) - {topic_id}:
                later += _written(warehouse, topic, other, at)
            if later:
                ends[topic, topic_id] = min(later)
        return cls(replayed, ends)

    def about(self, letter: Row) -> Row | None:
        """Return the replayed record that a dead letter is about, given its ``COLUMNS``; None: none, or not known."""
        records = self._records.get(tuple(letter[f"original_{part}"] for part in Coordinate._fields))
        if not records:
            return None
        headers = {header["key"]: header["value"] for header in letter["user_headers"] or ()}
        if (plan := headers.get(PLAN)) is not None:
            wanted = (plan, headers.get(RECORD))
            return next((row for row in records if _names(row) == wanted), None)
        possible = [row for index, row in enumerate(records) if self._can_be(letter, row, records[index + 1 :][:1])]
        return possible[0] if len(possible) == 1 else None

    def _can_be(self, letter: Row, row: Row, following: Sequence[Row]) -> bool:
        """Tell whether a dead letter can be about a record, before another one got its coordinate."""
        if letter["_ingested_at"] < row["replayed_at"] - LONGEST_RUN:
            return False
        at = letter["routed_at"]
        if at is None or not tells_when_it_died(letter):
            return True
        ends = [later["replayed_at"] for later in following]
        if (end := self._ends.get((row["target_topic"], row["target_topic_id"]))) is not None:
            ends.append(end)
        return bool(row["replayed_at"] - CLOCKS <= at and all(at < end + CLOCKS for end in ends))


def tells_when_it_died(letter: Row) -> bool:
    """Tell whether the time is that of the failure: Connect and Kafka Streams keep the time of the record itself."""
    return (
        letter["header_profile"] in BY_BROKERS
        or letter["routed_at_source"] == "header"
        or letter["dlq_timestamp_type"] == _APPENDED
    )


def _names(row: Row) -> tuple[bytes, bytes]:
    """Return the headers that name a replayed record."""
    plan_id: str = row["plan_id"]
    return plan_id.encode("ascii", "backslashreplace"), Letter.of(row).coordinate.encode("ascii", "backslashreplace")


def _landed(warehouse: Warehouse, topics: set[str]) -> dict[str, set[str]]:
    """Return the topic ids of landed segments of some topics, without those of topics that a later one followed."""
    topic_ids: dict[str, set[str]] = defaultdict(set)
    if topics and warehouse.exists(COPIES):
        columns = ["topic", "topic_id", "is_of_older_topic"]
        for row in jvmless.rows(warehouse, COPIES, {"cluster": warehouse.cluster}, columns):
            if row["topic"] in topics and row["topic_id"] is not None and not row["is_of_older_topic"]:
                topic_ids[row["topic"]].add(row["topic_id"])
    return topic_ids


def _written(warehouse: Warehouse, topic: str, topic_id: str, after: datetime) -> list[datetime]:
    """Return when the first landed batch of a topic was written after a time, if there is one."""
    text = f"""
        SELECT min(max_timestamp) AS written_at
        FROM {BATCHES}
        WHERE cluster = :cluster AND topic = :topic AND topic_id = :topic_id AND max_timestamp > :after
    """
    values = {"cluster": warehouse.cluster, "topic": topic, "topic_id": topic_id, "after": after}
    rows = sessions.answer(warehouse, text, values, (BATCHES,), {}).objects() if warehouse.exists(BATCHES) else []
    return [row["written_at"] for row in rows if row["written_at"] is not None]
