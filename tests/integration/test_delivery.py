"""The feed ``delivery`` on real Delta tables: the outcome of each message, and what does not add up."""

from __future__ import annotations

import base64
import gzip
import json
import random
import shutil
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from pipelines.catalog import stages
from pipelines.commands import trace
from pipelines.engines import spark as engine_of_spark
from pipelines.run import runner
from pipelines.settings import ROOT, Settings
from pipelines.stores import lock
from pipelines.warehouse import tables as tables_of_warehouse
from pipelines.warehouse.quality import StageRun
from pipelines.warehouse.tables import Warehouse
from tests.testing import segments
from tests.testing.builders import kip_1191, land, line, needed_by, rows, warehouse_of
from tests.testing.deliveries import (
    TRACE,
    acknowledgement,
    archived,
    at,
    failure,
    millis,
    not_enabled,
    producer,
    unproduced,
)

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


def run(spark: SparkSession, settings: Settings, *tables: str) -> dict[str, StageRun]:
    """Run the feeds ``dlq`` and ``delivery``, or the stages of some tables, once; no stage may break."""
    wanted = [one for one in stages() if (one.table in tables if tables else one.feed in ("dlq", "delivery"))]
    with lock.writer(settings, "test"):
        done = {one.table: one for one in runner.run(Warehouse(settings, spark), wanted)}
    assert {one.status for one in done.values()} <= {"passed", "idle"}, done
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


@pytest.fixture(scope="module")
def new(empty_warehouse: Path, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Settings]:
    def made(name: str) -> Settings:
        return warehouse_of(empty_warehouse, tmp_path_factory.mktemp(name), segments={"cleanup_policy": POLICIES})

    return made


# --- the captures --------------------------------------------------------------------------------------------------


def sources() -> list[dict[str, Any]]:
    with gzip.open(DATA / "sources.jsonl.gz", "rt", encoding="utf-8") as lines:
        return [json.loads(text) for text in lines]


def deliveries() -> dict[Key, tuple[str, int]]:
    """The action of the last delivery of each source record to each group, and its delivery count."""
    last: dict[Key, tuple[int, str, int]] = {}
    with gzip.open(DATA / "deliveries.jsonl.gz", "rt") as lines:
        for one in map(json.loads, lines):
            key = (one["group"], one["topic"], one["partition"], one["offset"])
            last[key] = max(last.get(key, (0, "", 0)), (one["ts"], one["action"], one["deliveryCount"]))
    return {key: (action, count) for key, (_, action, count) in last.items()}


@pytest.fixture(scope="module")
def captured(spark: SparkSession, new: Callable[[str], Settings]) -> Settings:
    """One run over DLQ dumps, an acknowledgement of each source record, the brokers' logs and segments."""
    settings = new("captured")
    for feed in ("dlq", "acknowledgements", "broker-logs", "segments"):
        shutil.copytree(DATA / feed, settings.landing_of(feed))
    told = []
    for one in sources():
        traces = [base64.b64decode(h["value"]).decode() for h in one["headers"] if h["key"] == "traceparent"]
        place = one["topic"], one["partition"], one["offset"]
        more = {"timestamp": one["timestamp"], "acknowledged_at": one["timestamp"] + 5}
        told.append(acknowledgement(*place, trace=traces[-1] if traces else None, **more))
    land(settings, {"sources.jsonl": told}, "acknowledgements")
    shutil.copytree(DATA / "dlq-segments", settings.landing_of("segments"), dirs_exist_ok=True)
    run(spark, settings, *OF_OUTCOMES)
    return settings


def test_every_record_that_the_broker_dead_lettered_is_found_and_no_other(
    spark: SparkSession, captured: Settings
) -> None:
    found = {
        (letter["consumer_group"], *place): letter
        for place, row in ledger(spark, captured).items()
        for letter in row["dead_letters"]
        if letter["dlq_topic"] != "dlq.second-hop"
    }

    last = deliveries()
    given_up = {
        key
        for key, (action, count) in last.items()
        if action == "REJECT" or (count >= LIMITS[key[0]] and action != "ACCEPT")
    }
    too_late = found.keys() - given_up
    assert given_up <= found.keys()
    assert len(found) == 1563
    assert {(key[0], *last[key]) for key in too_late} == {("audit-workers", "ACCEPT", 2)}
    assert len(too_late) == 22
    assert {found[key]["disposition"] for key in too_late} == {"MAX_DELIVERY_ATTEMPTS_REACHED"}


def test_all_source_records_are_in_the_ledger_once(spark: SparkSession, captured: Settings) -> None:
    found = ledger(spark, captured)
    topics = {"orders", "payments", "shipments"}
    places = {(one["topic"], one["partition"], one["offset"]) for one in sources()}

    assert {place for place in found if place[0] in topics} == places
    assert {found[place]["acknowledgement_count"] for place in places} == {1}
    assert {(found[place]["outcome"], bool(found[place]["dead_letters"])) for place in places} == {
        ("ACKNOWLEDGED", False),
        ("DEAD_LETTERED", True),
    }
    traced = next(one for one in sources() if any(header["key"] == "traceparent" for header in one["headers"]))
    value = next(header["value"] for header in traced["headers"] if header["key"] == "traceparent")
    place = traced["topic"], traced["partition"], traced["offset"]
    assert found[place]["trace_id"] == base64.b64decode(value).decode().split("-")[1]


def test_the_root_is_behind_the_second_hop(spark: SparkSession, captured: Settings) -> None:
    first_hop = {}
    for text in (DATA / "dlq" / "dlq.orders.jsonl").read_text().splitlines():
        one = json.loads(text)
        named = {h["key"]: base64.b64decode(h["value"]).decode() for h in one["headers"]}
        root = tuple(named[f"__dlq.errors.{part}"] for part in ("topic", "partition", "offset"))
        first_hop[one["partition"], one["offset"]] = root

    hops = {place: row for place, row in ledger(spark, captured).items() if place[0] == "dlq.orders"}

    assert len(hops) == 215
    assert {row["hop_count"] for row in hops.values()} == {1}
    assert all(
        (row["root_topic"], str(row["root_partition"]), str(row["root_offset"])) == first_hop[place[1:]]
        for place, row in hops.items()
    )


def test_the_captures_add_up(spark: SparkSession, captured: Settings) -> None:
    found = totals(spark, captured)

    assert found["dead_lettered_count"] == 1563 + 215
    assert (found["client_rejected_count"], found["no_disposition_count"]) == (1192 + 215, 0)
    assert (found["unacknowledged_count"], found["lost_count"], found["dlq_gap_count"]) == (0, 0, 0)
    assert (found["dlq_write_failure_count"], found["dlq_write_failure_unattributed_count"]) == (5, 3)
    assert found["dlq_write_failure_offset_count"] == 12


def test_failed_writes_are_those_that_the_brokers_logged(spark: SparkSession, captured: Settings) -> None:
    found = {row["consumer_group"]: row for row in rows(spark, captured, "silver.dlq_write_failures")}

    assert {group: row["error_class"].rpartition(".")[2] for group, row in found.items()} == {
        "g-topic-not-enabled": "ConfigException",
        "g-wrong-prefix": "ConfigException",
        "g-tiny-max-message": "RecordTooLargeException",
        "g-compacted-headers-only": "InvalidRecordException",
        "g-no-such-topic-no-autocreate": "ConfigException",
    }
    tiny, prefix = found["g-tiny-max-message"], found["g-wrong-prefix"]
    assert (tiny["original_topic"], tiny["original_partition"]) == ("src.tiny-max-message", 0)
    assert (tiny["first_offset"], tiny["last_offset"], tiny["delivery_count"]) == (0, 5, 1)
    assert (tiny["dlq_topic"], tiny["cause"]) == ("dlq.tiny-max-message", "Offset rejected by client.")
    assert tiny["reason"].startswith("The request included a message larger than the max message size")
    assert f"{tiny['failed_at']:%H:%M:%S.%f}" == "02:43:01.138000"
    assert (prefix["dlq_topic"], prefix["original_topic"], prefix["is_attributed"]) == ("rejects.orders", None, False)
    assert "Compacted topic cannot accept" in found["g-compacted-headers-only"]["reason"]
    assert not any(row["is_partial"] for row in found.values())


def test_acknowledgements_of_every_case(spark: SparkSession, captured: Settings) -> None:
    read = {
        (row["topic"], row["offset"], row["outcome"], row["partition"], row["error_class"], row["trace_id"])
        for row in rows(spark, captured, "silver.acknowledgements")
        if row["client_id"] is None
    }

    assert Counter(outcome for _, _, outcome, _, _, _ in read)["UNKNOWN"] == 2
    assert {trace_id for *_, trace_id in read} == {TRACE}
    assert ("bad topic!", -1, "FAILED", -1, "org.apache.kafka.common.errors.InvalidTopicException", TRACE) in read
    assert ("acks", -1, "UNKNOWN", 2, None, TRACE) in read
    outcomes = Counter(
        row["outcome"]
        for row in rows(spark, captured, "gold.message_ledger")
        if row["topic"].split(".")[0] in ("acks", "bad topic!")
    )
    assert outcomes == {"ACKNOWLEDGED": 10, "FAILED": 13, "UNKNOWN": 2}
    closed = "org.apache.kafka.common.KafkaException"  # "Producer is closed forcefully.", perhaps after it was sent
    assert ("acks", -1, "UNKNOWN", 2, closed, TRACE) in read


def test_transactions_are_those_of_the_log(spark: SparkSession, captured: Settings) -> None:
    found = {
        (row["topic"], row["producer_id"], row["producer_epoch"]): row
        for row in rows(spark, captured, "silver.transactions")
    }

    committed = {("batches", producer, 0) for producer in (3, 6, 9, 12, 15, 18)} | {("batches", 18, 1)}
    aborted = {("batches", producer, 0) for producer in (4, 7, 10, 13, 16)}
    assert {key for key, row in found.items() if row["state"] == "COMMITTED"} == committed
    assert {key for key, row in found.items() if row["state"] == "ABORTED"} == aborted
    assert {key for key, row in found.items() if row["state"] == "OPEN"} == {("batches.open", 21, 0)}
    assert {row["marker_epoch"] - row["producer_epoch"] for row in found.values() if row["marker_epoch"]} == {1}
    two = found["batches", 18, 0]
    assert (two["first_offset"], two["last_offset"], two["marker_offset"], two["batch_count"]) == (70, 72, 73, 2)
    assert two["ranges"] == [{"first_offset": 70, "last_offset": 72}]


def test_a_story_is_told_of_what_spark_wrote(captured: Settings) -> None:
    (hop, *_) = [json.loads(text) for text in (DATA / "dlq" / "dlq.second-hop.jsonl").read_text().splitlines()]
    named = {h["key"]: base64.b64decode(h["value"]).decode() for h in hop["headers"]}
    wanted = ":".join(named[f"__dlq.errors.{part}"] for part in ("topic", "partition", "offset"))

    told = json.loads(trace.answer(Warehouse(captured), wanted, "json").result)
    root = json.loads(
        trace.answer(
            Warehouse(captured),
            ":".join(str(told[f"root_{part}"]) for part in ("topic", "partition", "offset")),
            "json",
        ).result
    )

    assert [event["what"] for event in told["events"]][:2] == ["written", "dead-lettered"]
    whats = [event["what"] for event in root["events"]]
    assert whats[:2] == ["acknowledged", "dead-lettered"]
    assert "dead-lettered on" in whats
    moments = [event["at"] for event in root["events"] if event["at"]]
    assert moments == sorted(moments)


# --- one message of each kind, in every order of arrival -----------------------------------------------------------

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
    told = [acknowledgement(offset=offset, seconds=offset) for offset in (0, 0, *range(9), 10, 11)]
    unwritten = [failure(seconds=3, acknowledged_at=None, timestamp=-1), failure("bad topic!", seconds=7200)]
    land(settings, {"a.jsonl": [*told, *unwritten, acknowledgement(offset=-1, seconds=4)]}, "acknowledgements")


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


@pytest.fixture(scope="module")
def mixed(spark: SparkSession, new: Callable[[str], Settings]) -> Settings:
    """A warehouse into which all parts landed at once."""
    settings = new("mixed")
    for part in PARTS:
        part(settings)
    run(spark, settings, *OF_OUTCOMES)
    return settings


IN_ORDER = (PARTS[:3], PARTS[3:7], PARTS[7:])
IN_REVERSE = (PARTS[7:], PARTS[5:7], PARTS[2:5], PARTS[1:2], PARTS[:1])


@pytest.mark.parametrize(
    "arrivals",
    [
        pytest.param(IN_ORDER, id="in order", marks=pytest.mark.thorough),
        pytest.param(IN_REVERSE, id="in reverse", marks=pytest.mark.thorough),
    ],
)
def test_the_order_of_arrival_does_not_matter(
    arrivals: Sequence[Sequence[Callable[[Settings], None]]],
    spark: SparkSession,
    mixed: Settings,
    new: Callable[[str], Settings],
) -> None:
    run(spark, mixed)  # the tables that the other tests do not read
    settings = new("arrivals")
    for parts in arrivals:
        for part in parts:
            part(settings)
        run(spark, settings)

    def found(of: Settings, table: str) -> list[dict[str, Any]]:
        """Return a table's rows; findings about late data depend on the order of arrival."""
        return [row for row in rows(spark, of, table) if row.get("kind") != "LATE_DATA"]

    for table in TABLES:
        assert found(settings, table) == found(mixed, table), table


def test_each_message_has_its_outcome(spark: SparkSession, mixed: Settings) -> None:
    found = ledger(spark, mixed)

    assert {place[2]: row["outcome"] for place, row in found.items() if place[0] == "orders"} == {
        0: "ACKNOWLEDGED",
        1: "DEAD_LETTERED",
        2: "ABORTED",
        3: "ABORTED",
        4: "ACKNOWLEDGED",  # the transaction of its dead letter was aborted
        5: "ACKNOWLEDGED",
        6: "LOST",
        7: "ACKNOWLEDGED",
        8: "ABORTED",
        10: "ACKNOWLEDGED",
        11: "ACKNOWLEDGED",  # after the end of the landed log
        20: "DEAD_LETTERED",
    }
    twice, dead_twice, aborted = (found["orders", 0, offset] for offset in (0, 1, 2))
    assert (twice["acknowledgement_count"], twice["acknowledged_at"]) == (3, at(1).replace(tzinfo=None))
    assert (dead_twice["dead_lettered_count"], dead_twice["dead_lettered_again_count"]) == (2, 1)
    assert [letter["times"] for letter in dead_twice["dead_letters"]] == [1, 2]
    assert (aborted["transaction_state"], aborted["producer_id"], aborted["dead_lettered_count"]) == ("ABORTED", 7, 1)
    assert [found["orders", 0, offset]["in_log"] for offset in (5, 6, 11)] == [True, False, None]
    assert found["orders", 0, 5]["transaction_state"] is None  # between the offsets of a transaction
    assert not found["orders", 0, 20]["acknowledged"]
    hop = found["dlq.orders", 0, 0]
    assert (hop["outcome"], hop["root_topic"], hop["root_offset"], hop["hop_count"]) == (
        "DEAD_LETTERED",
        "orders",
        1,
        1,
    )
    alone = [row for row in rows(spark, mixed, "gold.message_ledger") if row["offset"] is None]
    assert sorted((row["topic"], row["outcome"], row["partition"]) for row in alone if row["outcome"] == "FAILED") == [
        ("bad topic!", "FAILED", None),
        ("orders", "FAILED", None),
    ]
    assert [(row["outcome"], row["partition"]) for row in alone if row["outcome"] == "UNKNOWN"] == [("UNKNOWN", 0)]


def test_what_does_not_add_up_is_counted(spark: SparkSession, mixed: Settings) -> None:
    assert totals(spark, mixed) == {
        "acknowledged_count": 11,
        "failed_count": 2,
        "unknown_count": 1,
        "aborted_count": 3,
        "open_count": 0,
        "lost_count": 1,
        "absent_count": 0,
        "dead_lettered_count": 5,
        "client_rejected_count": 5,
        "max_delivery_attempts_reached_count": 0,
        "circuit_breaker_archived_count": 0,
        "coordinator_initiated_count": 0,
        "no_disposition_count": 0,
        "dead_lettered_again_count": 1,
        "dead_lettered_aborted_count": 1,
        "unacknowledged_count": 1,
        "control_marker_count": 1,
        "suspected_marker_count": 0,
        "dlq_gap_count": 1,
        "dlq_gap_marker_count": 1,
        "dlq_gap_aborted_count": 0,
        "dlq_gap_compacted_count": 0,
        "dlq_gap_unexplained_count": 0,
        "dlq_write_failure_count": 2,
        "dlq_write_failure_offset_count": 1,
        "dlq_write_failure_unattributed_count": 1,
        "aborted_dlq_write_count": 1,
        "committed_without_headers_count": 1,
    }
    by_place = {
        (row["topic"], row["consumer_group"], row["hour"]): row for row in rows(spark, mixed, "gold.reconciliation")
    }
    hour = at().replace(tzinfo=None)
    assert by_place["orders", None, hour]["acknowledged_count"] == 11
    assert by_place["orders", "g", hour]["dead_lettered_count"] == 4
    assert by_place["dlq.orders", None, hour]["aborted_dlq_write_count"] == 1
    assert by_place[None, "g", hour]["dlq_write_failure_unattributed_count"] == 1


def changed_files(settings: Settings, table: str) -> Counter[str]:
    """Return how many files the last commit of a table added and removed."""
    version = Warehouse(settings).last_version(table)
    commit = Path(Warehouse(settings).location(table)) / "_delta_log" / f"{version:020}.json"
    return Counter(action for line in commit.read_text().splitlines() for action in json.loads(line))


@pytest.mark.thorough
def test_only_what_news_touches_is_refreshed(
    spark: SparkSession, new: Callable[[str], Settings], monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (tables_of_warehouse, engine_of_spark):
        monkeypatch.setattr(module, "ROWS_OF_A_FILE", 10)
    settings = new("news")
    tables = (*OF_ACKNOWLEDGEMENTS, *OF_LETTERS, *LEDGER)
    told = [acknowledgement(offset=offset, seconds=offset % 7200) for offset in range(0, 60_000, 1_000)]
    land(settings, {"a.jsonl": told}, "acknowledgements")
    run(spark, settings, *tables)
    assert changed_files(settings, "gold.message_ledger")["add"] == 6  # one for each slice
    land(settings, {"orders.jsonl": [dead(0, 31_000)]})

    done = run(spark, settings, *tables)

    assert done["gold.message_ledger"].message == "10 rows refreshed"  # one slice has a thousand offsets
    assert done["gold.message_ledger"].read == 1
    assert changed_files(settings, "gold.message_ledger")["remove"] == 1
    assert done["gold.message_counts"].read == 2  # the message before and after the change
    assert done["gold.reconciliation"].read == 2  # the counts of the group in the slice, and the dead letter
    assert {one.status for one in run(spark, settings, *tables).values()} == {"idle"}


# --- injected losses and duplicates --------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def injected(spark: SparkSession, new: Callable[[str], Settings]) -> tuple[Settings, dict[str, set[Any]]]:
    """Topics with random damage to logs, DLQ dumps and acknowledgements, and the true outcomes."""
    settings = new("injected")
    chance = random.Random(512)
    truth: dict[str, set[Any]] = defaultdict(set)
    told: list[str] = []
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
        told += [acknowledgement("orders", partition, offset) for offset in range(first + 920)]
        truth["lost"] |= {("orders", partition, offset) for offset in lost}
    # No false alarm: a segment that did not land, a compacted log, a topic that the settings call compacted.
    for base in (0, 200):
        land_segment(settings, "unlanded-0", base, segments.batch(base, 100))
    land_segment(settings, "thinned-0", 0, segments.batch(0, 3, record_count=2), segments.batch(10, 3))
    land_segment(settings, "app-changelog-0", 0, segments.batch(0, 3), segments.batch(10, 3))
    for topic, count in (("unlanded", 300), ("thinned", 13), ("app-changelog", 13)):
        told += [acknowledgement(topic, 0, offset) for offset in range(count)]
    chance.shuffle(told)
    land(settings, {"a.jsonl": told[::2], "b.jsonl": told[1::2]}, "acknowledgements")
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


def test_all_injected_losses_are_found_and_no_other(
    spark: SparkSession, injected: tuple[Settings, dict[str, set[Any]]]
) -> None:
    settings, truth = injected
    found = ledger(spark, settings)

    assert len(truth["lost"]) > 300
    assert {place for place, row in found.items() if row["outcome"] == "LOST"} == truth["lost"]
    assert found["thinned", 0, 5]["in_log"] is False
    assert found["unlanded", 0, 150]["in_log"] is None


def test_all_removed_dead_letters_are_found_and_no_other(
    spark: SparkSession, injected: tuple[Settings, dict[str, set[Any]]]
) -> None:
    settings, truth = injected
    gaps = rows(spark, settings, "silver.dlq_gaps")

    assert len(truth["gaps"]) > 60
    assert {place for row in gaps for place in range(row["first_offset"], row["last_offset"] + 1)} == truth["gaps"]
    assert sum(row["unexplained_count"] for row in gaps) == len(truth["gaps"])
    assert totals(spark, settings)["dlq_gap_unexplained_count"] == len(truth["gaps"])


def test_all_repeated_dead_letters_are_found_and_no_other(
    spark: SparkSession, injected: tuple[Settings, dict[str, set[Any]]]
) -> None:
    settings, truth = injected
    again = {
        letter["dlq_offset"]
        for row in ledger(spark, settings).values()
        for letter in row["dead_letters"]
        if letter["times"] > 1
    }

    assert len(truth["again"]) > 20
    assert again == truth["again"]
    assert totals(spark, settings)["dead_lettered_again_count"] == len(truth["again"])


# --- gaps that a DLQ's own log explains; hops without end ----------------------------------------------------------


@pytest.fixture(scope="module")
def odd(spark: SparkSession, new: Callable[[str], Settings]) -> Settings:
    settings = new("odd")
    # Offsets 0, 6, 20, 21 landed; 1-3 aborted, 4 a marker, 5 unexplained, 7-9 unexplained, 10-12 compacted, 13-19 not.
    land_segment(
        settings,
        "dlq.odd-0",
        0,
        segments.batch(0, 1),
        segments.batch(1, 3, flags=IN_TRANSACTION, producer=(40, 0, 0)),
        segments.marker(4, commits=False, producer=(40, 1)),
        segments.batch(5, 5),
        segments.batch(13, 9, record_count=5),
    )
    chain = [dead(offset, offset - 1, "loop", dlq="dlq.loop", topic="dlq.loop") for offset in range(1, 30)]
    first = dead(0, 3, "loop", dlq="dlq.loop")
    land(settings, {"odd.jsonl": [dead(o, o, dlq="dlq.odd") for o in (0, 6, 20, 21)], "loop.jsonl": [first, *chain]})
    run(spark, settings, *OF_LETTERS, *OF_LOGS, "silver.dlq_gaps", "gold.message_ledger")
    return settings


@pytest.mark.thorough
def test_what_explains_a_gap(spark: SparkSession, odd: Settings) -> None:
    gaps = {row["first_offset"]: row for row in rows(spark, odd, "silver.dlq_gaps") if row["dlq_topic"] == "dlq.odd"}
    counts = ("offset_count", "marker_count", "aborted_count", "compacted_count", "unexplained_count")

    assert {first: tuple(row[name] for name in counts) for first, row in gaps.items()} == {
        1: (5, 1, 3, 0, 1),
        7: (13, 0, 0, 3, 10),
    }


@pytest.mark.thorough
def test_a_loop_has_no_root(spark: SparkSession, odd: Settings) -> None:
    found = ledger(spark, odd)
    roots = {
        offset: (found["dlq.loop", 0, offset]["root_topic"], found["dlq.loop", 0, offset]["root_offset"])
        for offset in range(29)
    }

    assert {roots[offset] for offset in range(8)} == {("orders", 3)}
    assert {roots[offset] for offset in range(8, 29)} == {(None, None)}
    assert found["dlq.loop", 0, 7]["hop_count"] == 8
