"""Source records -> where and when each was written first, and whether the record at its coordinate now is still it.

A coordinate alone does not tell: a topic that is deleted and created again has the same offsets. The record's
timestamp, its sizes and its topic's ids do, as far as dead letters, acknowledgements, plans, settings and landed
segments have them.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any

from pipelines.columns import slices
from pipelines.engines.duckdb import sessions
from pipelines.replay.died_again import tells_when_it_died
from pipelines.replay.model import Headers, Letter, Source, millis_of
from pipelines.warehouse import jvmless
from pipelines.warehouse.tables import Warehouse

if TYPE_CHECKING:
    from pipelines.replay.fetch import Fetched

ACKNOWLEDGEMENTS, SETTINGS, BATCHES = "silver.acknowledgements", "silver.cluster_settings", "silver.log_batches"
RECORDS, HOPS, PLANS = "silver.dlq_records", "silver.dlq_hops", "gold.replay_plans"
MOST_ASKED = 1_000  # slices of acknowledgements that one query looks at
MOST_HOPS = 20

Coordinate = tuple[str, int, int]
Row = Mapping[str, Any]


def headers_of(row: Row) -> Headers:
    """Return the user's headers of a dead letter."""
    return tuple(
        (header["key"], header["value"]) for header in row["user_headers"] or () if header and header["key"] is not None
    )


def first_of(row: Row, died: Row | None, hops: Mapping[Coordinate, Coordinate]) -> Source | None:
    """Return where and when the record of a dead letter was written first; None: where its headers say.

    Headers that a replay added tell it best. Then the row of gold.replayed_records that the dead letter is about, if
    there is one (``died``). Then the oldest hop that its headers, or other dead letters (``hops``), tell.
    """
    if (from_headers := Source.told_by(headers_of(row))) is not None:
        return from_headers
    source: Any = Source.of(row)[:3]
    at = source
    if died is not None:
        if died["first_place"] is not None:
            return Source.of_coordinate(died["first_place"], millis_of(died["first_timestamp"]))
        at = Source.of(died)[:3]
    elif row["earlier_hops"]:
        oldest = row["earlier_hops"][0]
        hop = tuple(oldest[part] for part in ("topic", "partition", "offset"))
        at = hop if None not in hop else at
    first = at
    for _ in range(MOST_HOPS):
        if first not in hops:
            break
        first = hops[first]
    return None if first == source or None in first else Source(*first)


def hops_of(warehouse: Warehouse) -> dict[Coordinate, Coordinate]:
    """Return the origins of dead letters that were dead-lettered again, by coordinate."""
    if not warehouse.exists(HOPS):
        return {}
    origins: dict[Any, Any] = {}
    columns = ["topic", "partition", "offset", "original_topic", "original_partition", "original_offset"]
    for row in jvmless.rows(warehouse, HOPS, {"cluster": warehouse.cluster}, columns):
        if None not in (origin := Source.of(row)[:3]):
            origins[row["topic"], row["partition"], row["offset"]] = origin
    return origins


@dataclass(frozen=True)
class Acknowledged:
    """What the one acknowledgement of a record tells: its timestamp, and sizes in bytes (-1: none, or unknown)."""

    timestamp: int | None
    key_size: int
    value_size: int


def acknowledged(warehouse: Warehouse, coordinates: Collection[Coordinate]) -> dict[Coordinate, Acknowledged]:
    """Return what acknowledgements tell of records; not of coordinates that several acknowledgements name."""
    if not coordinates or not warehouse.exists(ACKNOWLEDGEMENTS):
        return {}
    wanted = sorted({slices.name(*coordinate) for coordinate in coordinates})
    by_coordinate: dict[Coordinate, list[Acknowledged]] = defaultdict(list)
    for begin in range(0, len(wanted), MOST_ASKED):
        values = {f"slice_{number}": name for number, name in enumerate(wanted[begin : begin + MOST_ASKED])}
        parameters = ", ".join(f":{name}" for name in values)
        text = f"""
            SELECT topic, partition, offset, unix_millis(timestamp) AS millis, key_size, value_size
            FROM {ACKNOWLEDGEMENTS}
            WHERE cluster = :cluster AND outcome = 'ACKNOWLEDGED' AND slice IN ({parameters})
        """
        rows = sessions.answer(
            warehouse, text, {"cluster": warehouse.cluster, **values}, (ACKNOWLEDGEMENTS,), {}
        ).objects()
        for row in rows:
            coordinate = row["topic"], row["partition"], row["offset"]
            if coordinate in coordinates:
                sizes = (-1 if row[name] is None else row[name] for name in ("key_size", "value_size"))
                by_coordinate[coordinate].append(Acknowledged(row["millis"], *sizes))
    return {
        coordinate: acknowledgements[0]
        for coordinate, acknowledgements in by_coordinate.items()
        if len(acknowledgements) == 1
    }


def landed(warehouse: Warehouse, letters: Collection[Letter]) -> set[Letter]:
    """Return the dead letters that landed segments hold in a batch without a transaction."""
    if not letters or not warehouse.exists(BATCHES):
        return set()
    text = f"""
        SELECT DISTINCT
          records.dlq_topic, records.dlq_topic_id, records.dlq_partition, records.dlq_offset, batches.topic_id
        FROM {RECORDS} AS records
        JOIN {BATCHES} AS batches
          ON batches.cluster = records.cluster
            AND batches.topic = records.dlq_topic
            AND batches.partition = records.dlq_partition
            AND records.dlq_offset BETWEEN batches.base_offset AND batches.last_offset
        WHERE records.cluster = :cluster AND NOT batches.is_transactional AND batches.superseded_by IS NULL
    """
    rows = sessions.answer(warehouse, text, {"cluster": warehouse.cluster}, (RECORDS, BATCHES), {}).objects()
    in_segments = {Letter.of(row) for row in rows if row["dlq_topic_id"] in (None, row["topic_id"])}
    return in_segments & set(letters)


@dataclass
class Topics:
    """When which id of a topic was seen: in plans and replays, settings that were collected, and landed segments."""

    seen: dict[str, dict[str, list[datetime]]] = field(default_factory=lambda: defaultdict(lambda: defaultdict(list)))

    @classmethod
    def known(cls, warehouse: Warehouse, names: Iterable[str]) -> Topics:
        """Read what the tables tell of topics."""
        topics, wanted = cls(), set(names)
        equal: dict[str, str | int] = {"cluster": warehouse.cluster}
        if not wanted:
            return topics
        if warehouse.exists(PLANS):
            for row in jvmless.rows(warehouse, PLANS, equal, ["created_at", "targets"]):
                for target in row["targets"] or ():
                    topics._saw(wanted, target["topic"], target["topic_id"], row["created_at"])
        if warehouse.exists(SETTINGS):
            columns = ["name", "observed_at", "settings"]
            for row in jvmless.rows(warehouse, SETTINGS, equal | {"kind": "topic"}, columns):
                ids = [setting["value"] for setting in row["settings"] or () if setting["name"] == "topic_id"]
                topics._saw(wanted, row["name"], ids[0] if ids else None, row["observed_at"])
        if warehouse.exists(BATCHES):
            text = f"SELECT DISTINCT topic, topic_id FROM {BATCHES} WHERE cluster = :cluster"
            for row in sessions.answer(warehouse, text, equal, (BATCHES,), {}).objects():
                topics._saw(wanted, row["topic"], row["topic_id"], None)  # their times are those of producers
        return topics

    def _saw(self, wanted: Collection[str], topic: str, topic_id: str | None, at: datetime | None) -> None:
        if topic in wanted and topic_id:
            self.seen[topic][topic_id] += [at] if at is not None else []

    def is_same(self, topic: str, now: str | None, at: datetime | None) -> bool | None:
        """Tell whether a topic is the one that it was at a time; None: another id is known, and nothing tells when.

        ``now`` is its id now. A topic of which no other id is known counts as the same.
        """
        ids = self.seen.get(topic, {})
        others = {topic_id: times for topic_id, times in ids.items() if topic_id != now}
        if not others:
            return True
        if now is None or at is None:
            return None
        if any(seen >= at for times in others.values() for seen in times):
            return False
        return True if self.was_seen(topic, now, at) else None

    def was_seen(self, topic: str, now: str | None, at: datetime | None) -> bool:
        """Tell whether a topic had its id of now at a time already."""
        return at is not None and any(seen <= at for seen in self.seen.get(topic, {}).get(now or "", ()))


def is_same_record(
    row: Row, acknowledgement: Acknowledged | None, fetched: Fetched, is_same_topic: bool | None, was_seen: bool = False
) -> bool | None:
    """Tell whether a record in the original topic is the one that a dead letter is about; None: nothing decides.

    The key and value of the dead letter, if it has them, and the sizes that its acknowledgement tells must be the
    record's. So must its timestamp. If the dead letter does not tell that, a record with a later time than the failure
    is another one, unless the topic's id of now ``was_seen`` before the failure: then a clock was ahead.
    """
    key, value = (None if row[part] is None else bytes(row[part]) for part in ("key", "value"))
    if row["payload_copied"] is not False:
        if (fetched.key, fetched.value) != (key, value):
            return False
    elif key is not None and fetched.key != key:
        return False
    if acknowledgement is not None:
        sizes = ((acknowledgement.key_size, fetched.key), (acknowledgement.value_size, fetched.value))
        if any(size >= 0 and size != len(content or b"") for size, content in sizes):
            return False
    if is_same_topic is False:
        return False
    if fetched.timestamp is None:
        return None
    original = millis_of(row["original_timestamp"])
    expected = acknowledgement.timestamp if original is None and acknowledgement is not None else original
    if expected is not None and expected != fetched.timestamp:
        return False
    died = millis_of(row["routed_at"] or row["dlq_timestamp"]) if tells_when_it_died(row) else None
    if died is not None and fetched.timestamp > died and not was_seen:
        return False
    if original is not None:
        return True
    return is_same_topic if died is not None or expected is not None else None
