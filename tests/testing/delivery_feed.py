"""The feeds ``dlq`` and ``delivery``: what lands, runs of them, one message of each kind, and damage with its truth."""

from __future__ import annotations

import base64
import gzip
import json
import random
import shutil
from collections import Counter, defaultdict
from collections.abc import Callable
from itertools import pairwise
from typing import Any

from pyspark.sql import SparkSession

from pipelines.catalog import stages
from pipelines.run import runner
from pipelines.settings import ROOT, Settings
from pipelines.stores import lock
from pipelines.warehouse.quality import StageRun
from pipelines.warehouse.tables import Warehouse
from tests.testing import segments
from tests.testing.builders import kip_1191, land, line, needed_by, rows
from tests.testing.deliveries import acknowledgement, archived, failure, millis, not_enabled, producer, unproduced

DATA = ROOT / "tests" / "data"
DLQS = ("audit", "billing", "orders", "second-hop", "shipping")
LIMITS = {"orders-workers": 3, "fraud-workers": 3, "billing-workers": 2, "shipping-workers": 5, "audit-workers": 2}
TABLES = (
    *("silver.acknowledgements", "silver.producers", "silver.dlq_write_failures", "silver.log_copies"),
    "silver.broker_starts",
    *("silver.transactions", "silver.log_ranges", "silver.log_gaps", "silver.topic_policies"),
    "silver.dlq_control_markers",
    "silver.acknowledged_topics",
    *("silver.dead_letters", "silver.dlq_hops", "silver.dlq_roots", "silver.dlq_ranges", "silver.dlq_gaps"),
    *("silver.dlq_refusals", "silver.dlq_errors", "silver.dlq_episodes"),
    *("silver.message_attributes", "silver.record_ranges"),
    *("gold.dlq_counts", "gold.dlq_summary", "gold.dlq_incidents", "gold.message_ledger"),
    *("gold.message_counts", "gold.reconciliation", "gold.delivery_guarantees"),
    *("gold.incident_suspects", "gold.blast_radius", "gold.trust_findings"),
)

OF_LETTERS = (
    *("bronze.dlq_records", "silver.dlq_records", "silver.dead_letters"),
    *("silver.dlq_hops", "silver.dlq_roots", "silver.dlq_ranges"),
)

OF_LOGS = (
    *("bronze.record_batches", "silver.record_batches", "silver.log_files"),
    *("silver.log_copies", "silver.log_batches"),
    *("silver.log_ranges", "silver.log_gaps", "silver.transactions"),
)

OF_ACKNOWLEDGEMENTS = ("bronze.acknowledgements", "silver.acknowledgements", "silver.acknowledged_topics")
LEDGER = ("gold.message_ledger", "gold.message_counts", "gold.reconciliation")
OF_OUTCOMES = tuple(stage.table for stage in needed_by(*LEDGER))
IN_TRANSACTION = 0x10
POLICIES = [{"topic": "orders", "policy": "delete"}, {"topic": "*-changelog", "policy": "compact"}]
Key = tuple[str, str, int, int]
Place = tuple[str, int, int]
Injected = tuple[Settings, dict[str, set[Any]]]


def run(spark: SparkSession, settings: Settings, *tables: str) -> dict[str, StageRun]:
    """Run the feeds ``dlq`` and ``delivery``, or the stages of some tables, once; no stage may break."""
    wanted = [stage for stage in stages() if (stage.table in tables if tables else stage.feed in ("dlq", "delivery"))]
    with lock.writer(settings, "test"):
        done = {ran.table: ran for ran in runner.run(Warehouse(settings, spark), wanted)}
    assert {ran.status for ran in done.values()} <= {"passed", "idle"}, done
    return done


def land_segment(settings: Settings, log: str, base_offset: int, *batches: bytes) -> None:
    directory = settings.landing_of("segments") / log
    directory.mkdir(parents=True, exist_ok=True)
    scratch = directory / f".{base_offset:020}.log"
    scratch.write_bytes(b"".join(batches))
    scratch.rename(directory / f"{base_offset:020}.log")


def ledger(spark: SparkSession, settings: Settings) -> dict[Place, dict[str, Any]]:
    found = rows(spark, settings, "gold.message_ledger")
    return {(row["topic"], row["partition"], row["offset"]): row for row in found if row["offset"] is not None}


def totals(spark: SparkSession, settings: Settings) -> dict[str, int]:
    found: Counter[str] = Counter()
    for row in rows(spark, settings, "gold.reconciliation"):
        found.update({name: value for name, value in row.items() if name.endswith("_count")})
    return dict(found)


def sources() -> list[dict[str, Any]]:
    with gzip.open(DATA / "sources.jsonl.gz", "rt", encoding="utf-8") as lines:
        return [json.loads(text) for text in lines]


def deliveries() -> dict[Key, tuple[str, int]]:
    """The action of the last delivery of each source record to each group, and its delivery count."""
    last: dict[Key, tuple[int, str, int]] = {}
    with gzip.open(DATA / "deliveries.jsonl.gz", "rt") as lines:
        for delivery in map(json.loads, lines):
            key = (delivery["group"], delivery["topic"], delivery["partition"], delivery["offset"])
            last[key] = max(last.get(key, (0, "", 0)), (delivery["ts"], delivery["action"], delivery["deliveryCount"]))
    return {key: (action, count) for key, (_, action, count) in last.items()}


def of_captures(spark: SparkSession, settings: Settings) -> Settings:
    """Run once over DLQ dumps, an acknowledgement of each source record, the brokers' logs and segments."""
    for feed in ("dlq", "acknowledgements", "broker-logs", "segments"):
        shutil.copytree(DATA / feed, settings.landing_of(feed))
    lines = []
    for source in sources():
        traces = [base64.b64decode(h["value"]).decode() for h in source["headers"] if h["key"] == "traceparent"]
        place = source["topic"], source["partition"], source["offset"]
        more = {"timestamp": source["timestamp"], "acknowledged_at": source["timestamp"] + 5}
        lines.append(acknowledgement(*place, trace=traces[-1] if traces else None, **more))
    land(settings, {"sources.jsonl": lines}, "acknowledgements")
    shutil.copytree(DATA / "dlq-segments", settings.landing_of("segments"), dirs_exist_ok=True)
    run(spark, settings, *OF_OUTCOMES)
    return settings


PLAIN = [segments.batch(0, 2), segments.batch(4, 2, producer=(9, 0, 0)), segments.batch(7, 1)]
BEFORE_THE_MARKER = [
    PLAIN[0],
    segments.batch(2, 2, flags=IN_TRANSACTION, producer=(7, 0, 0)),
    PLAIN[1],  # offset 6 is missing after it
    PLAIN[2],
    segments.batch(8, 1, flags=IN_TRANSACTION, producer=(7, 0, 2)),
]

BEHIND_IT = [segments.marker(9, commits=False, producer=(7, 1)), segments.batch(10, 1)]
DLQ_LOG = [
    segments.batch(0, 2),
    segments.batch(2, 1, flags=IN_TRANSACTION, producer=(30, 0, 0)),
    segments.marker(3, commits=True, producer=(30, 1)),
    segments.batch(4, 1, flags=IN_TRANSACTION, producer=(31, 0, 0)),
    segments.batch(5, 2),
    segments.marker(7, commits=False, producer=(31, 1)),
]

MARKER = {"key": b"\0\0\0\1", "value": b"\0\0\0\0\0\0"}


def dead(
    offset: int, source: int, group: str = "g", *, dlq: str = "dlq.orders", topic: str = "orders", **more: Any
) -> str:
    """A dead-letter record that was routed ``offset`` minutes after the beginning."""
    headers = kip_1191(topic, 0, source, group)
    return line(offset, topic=dlq, timestamp=millis(60 * offset), headers=headers, **more)


def land_acknowledgements(settings: Settings) -> None:
    written = [acknowledgement(offset=offset, seconds=offset) for offset in (0, 0, *range(9), 10, 11)]
    unwritten = [failure(seconds=3, acknowledged_at=None, timestamp=-1), failure("bad topic!", seconds=7200)]
    land(settings, {"a.jsonl": [*written, *unwritten, acknowledgement(offset=-1, seconds=4)]}, "acknowledgements")


def land_dead_letters(settings: Settings) -> None:
    land(
        settings,
        {"orders.jsonl": [dead(0, 1), dead(1, 2), dead(2, 1), dead(4, 4, "h"), dead(5, 9, **MARKER), dead(6, 20)]},
    )


def land_second_hop(settings: Settings) -> None:
    land(settings, {"second.jsonl": [dead(0, 0, "k", dlq="dlq.second", topic="dlq.orders")]})


def land_log(settings: Settings) -> None:
    if not (settings.landing_of("segments") / "orders-0").exists():  # else this would replace the longer copy
        land_segment(settings, "orders-0", 0, *BEFORE_THE_MARKER)


def land_marker(settings: Settings) -> None:
    land_segment(settings, "orders-0", 0, *BEFORE_THE_MARKER, *BEHIND_IT)


def land_dlq_log(settings: Settings) -> None:
    land_segment(settings, "dlq.orders-0", 0, *DLQ_LOG)


def land_broker_log(settings: Settings) -> None:
    land(settings, {"broker.log": [*unproduced(5, first=5, last=5), *archived(5.001), *not_enabled(9)]}, "broker-logs")


def land_producers(settings: Settings) -> None:
    stated = [producer("of orders", stated_at=millis(8)), producer("of orders", mode="off", stated_at=millis(9))]
    land(settings, {"producers.jsonl": [*stated, producer("of id 9", producer_id=9)]}, "producers")


PARTS: tuple[Callable[[Settings], None], ...] = (
    land_log,
    land_acknowledgements,
    land_dead_letters,
    land_dlq_log,
    land_second_hop,
    land_broker_log,
    land_producers,
    land_marker,
)


def of_parts(spark: SparkSession, settings: Settings, *tables: str) -> Settings:
    """Land all parts at once and run once."""
    for part in PARTS:
        part(settings)
    run(spark, settings, *(tables or OF_OUTCOMES))
    return settings


def of_damage(spark: SparkSession, settings: Settings) -> Injected:
    """Run over topics with random damage to logs, DLQ dumps and acknowledgements; return the true outcomes, too."""
    chance = random.Random(512)
    truth: dict[str, set[Any]] = defaultdict(set)
    lines: list[str] = []
    for partition in range(3):
        first = 40 * partition  # retention has deleted the offsets below
        cuts = [first, first + 300, first + 600, first + 900]
        lost: set[int] = set()
        for base, end in pairwise(cuts):
            offset, batches = base, []
            while offset < end:
                count = min(chance.randint(1, 3), end - offset)
                # A lost end of a segment looks like a segment that has not landed.
                if chance.random() < 0.2 and offset + count < end:
                    lost |= set(range(offset, offset + count))
                else:
                    batches.append(segments.batch(offset, count))
                offset += count
            land_segment(settings, f"orders-{partition}", base, *batches)
        lines += [acknowledgement("orders", partition, offset) for offset in range(first + 920)]
        truth["lost"] |= {("orders", partition, offset) for offset in lost}
    # No false alarm: a segment that did not land, a compacted log, a topic that the settings call compacted.
    for base in (0, 200):
        land_segment(settings, "unlanded-0", base, segments.batch(base, 100))
    land_segment(settings, "thinned-0", 0, segments.batch(0, 3, record_count=2), segments.batch(10, 3))
    land_segment(settings, "app-changelog-0", 0, segments.batch(0, 3), segments.batch(10, 3))
    for topic, count in (("unlanded", 300), ("thinned", 13), ("app-changelog", 13)):
        lines += [acknowledgement(topic, 0, offset) for offset in range(count)]
    chance.shuffle(lines)
    land(settings, {"a.jsonl": lines[::2], "b.jsonl": lines[1::2]}, "acknowledgements")
    letters = []
    for place in range(600):
        source = chance.randrange(place) if place and chance.random() < 0.2 else place
        group = "g" if place % 2 else "h"
        if 0 < place < 599 and chance.random() < 0.15:
            truth["gaps"].add(place)
        else:
            letters.append((place, source, group))
    land(
        settings,
        {
            "dlq.jsonl": [
                line(place, topic="dlq.orders", timestamp=millis(place), headers=kip_1191("orders", 0, source, group))
                for place, source, group in letters
            ]
        },
    )
    seen: set[tuple[int, str]] = set()
    for place, source, group in letters:
        if (source, group) in seen:
            truth["again"].add(place)
        seen.add((source, group))
    of_logs = (*OF_LOGS, "silver.topic_policies", "silver.dlq_gaps")
    run(spark, settings, *OF_ACKNOWLEDGEMENTS, *OF_LETTERS, *of_logs, *LEDGER)
    return settings, truth
