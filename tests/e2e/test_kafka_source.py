"""Topics of a real broker into bronze: byte for byte and once, whatever happens to the topics or the run."""

from __future__ import annotations

import random
import re
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from local import live
from local.kafka_client import Message
from pipelines.broker import Broker
from pipelines.catalog import stages
from pipelines.commands import doctor
from pipelines.errors import EnvironmentLacking, UsageError
from pipelines.kafka import records as kafka_records
from pipelines.run import freshness, idleness
from pipelines.settings import Dlq, Settings, load
from pipelines.site import quality
from pipelines.site.pages import quality_page
from pipelines.warehouse import progress
from pipelines.warehouse.tables import Warehouse
from tests.integration.killed import killed_at
from tests.testing import deliveries, requests
from tests.testing.builders import kip_1191, land, line, needed_by, run, warehouse_of
from tests.testing.kafka import KafkaAdmin
from tests.testing.kafka_source import (
    BRONZE,
    SILVER,
    asked,
    created,
    environment,
    gaps,
    landed,
    numbers,
    once_before_reading,
    texts,
    to,
    values,
)


def test_every_record_is_what_a_plain_consumer_reads(
    spark: SparkSession, kafka: KafkaAdmin, following: Callable[..., Settings]
) -> None:
    settings = following(r"dlq\.bytes-[ab]")
    kafka.create_topic("dlq.bytes-a", 3, {"retention.ms": "-1"})  # its records have old timestamps
    kafka.create_topic("dlq.bytes-b", settings={"message.timestamp.type": "LogAppendTime"})
    kafka.create_topic("dlq.bytes-a.other")
    noise = random.Random(6)
    odd: list[bytes | None] = [None, b"", b"\xff\xfe\x00", 'ä\n\r"'.encode(), noise.randbytes(200_000)]
    messages = [
        Message(value, key, [("", value), ("twice", b"1"), ("twice", None), ("ümlaut", b"\x80")], at % 3, 1_000 * at)
        for at, (key, value) in enumerate((key, value) for key in odd for value in odd)
    ]
    kafka.produce("dlq.bytes-a", [*messages, Message(b"no headers", timestamp=0, partition=0)])
    kafka.produce("dlq.bytes-b", values(5))
    kafka.produce("dlq.bytes-a.other", values(5))

    done = run(spark, settings, BRONZE)[BRONZE]

    rows = landed(settings)
    consumed = [*kafka.read("dlq.bytes-a", expected=26), *kafka.read("dlq.bytes-b", expected=5)]
    assert (done.read, done.accepted, done.duplicates, done.skipped) == (31, 31, 0, 0)
    assert done.message == "31 records of dlq.bytes-a, dlq.bytes-b"
    assert sorted(map(live.consumed, rows), key=repr) == sorted(consumed, key=repr)
    for row in rows:
        topic_id = kafka.topic_id(row["topic"])
        place = (topic_id, row["partition"], row["offset"], live.consumed(row).timestamp)
        assert row["topic_id"] == topic_id
        assert row["_source"] == f"kafka:{row['topic']}/{topic_id}/{row['partition']}"
        assert row["_bronze_id"] == sha256("\n".join(map(str, ("default", *place))).encode()).hexdigest()
        assert (row["lossy_encoding"], row["raw"], row["error"]) == (False, None, None)


def test_a_run_goes_on_where_the_last_one_ended_and_with_nothing_new_commits_nothing(
    spark: SparkSession, kafka: KafkaAdmin, following: Callable[..., Settings]
) -> None:
    settings = following(r"dlq\.on.*")
    chosen = needed_by(SILVER)
    kafka.create_topic("dlq.on", 2)
    kafka.produce("dlq.on", values(20))
    assert run(spark, settings, BRONZE, SILVER)[SILVER].accepted == 20
    assert {row["dlq_topic_id"] for row in landed(settings, SILVER)} == {kafka.topic_id("dlq.on")}

    before = {table: Warehouse(settings).last_version(table) for table in (BRONZE, SILVER, "quality.stage_runs")}
    assert idleness.idle(Warehouse(settings), chosen)
    assert {ran.status for ran in run(spark, settings, BRONZE, SILVER).values()} == {"idle"}
    assert before == {table: Warehouse(settings).last_version(table) for table in before}
    assert [entry.unread_offsets for entry in freshness.freshness(Warehouse(settings)) if entry.table == BRONZE] == [0]

    kafka.produce("dlq.on", values(3, begin=20))
    kafka.create_topic("dlq.on-new")
    kafka.produce("dlq.on-new", values(2, begin=23))
    assert not idleness.idle(Warehouse(settings), chosen)
    assert [entry.unread_offsets for entry in freshness.freshness(Warehouse(settings)) if entry.table == BRONZE] == [5]
    assert run(spark, settings, BRONZE)[BRONZE].read == 5
    assert texts(settings) == numbers(0, 25)
    assert gaps(settings) == []


def test_that_nothing_is_new_is_known_without_a_session(
    spark: SparkSession, kafka: KafkaAdmin, following: Callable[..., Settings], broker: Broker
) -> None:
    settings = following(r"dlq\.idle")
    kafka.create_topic("dlq.idle")
    kafka.produce("dlq.idle", values(2))
    run(spark, settings, BRONZE)
    asked = (
        "import sys; from pipelines import settings; from pipelines.run import idleness;"
        "from pipelines.warehouse.tables import Warehouse;"
        "from pipelines.catalog import stages;"
        "print(idleness.idle(Warehouse(settings.load(warehouse=sys.argv[1], landing=sys.argv[2])), stages('dlq')[:1]),"
        " 'pyspark' in sys.modules)"
    )

    def idle() -> str:
        command = [sys.executable, "-c", asked, settings.warehouse, settings.landing]
        return subprocess.run(
            command, env=environment(broker, r"dlq\.idle"), capture_output=True, text=True, timeout=60, check=True
        ).stdout

    read = [progress.read_until(Warehouse(settings), BRONZE)]
    assert idle() == "True False\n"
    read.append(progress.read_until(Warehouse(settings), BRONZE))
    assert read[0].keys() == read[1].keys() == {"dlq.idle"}
    assert read[0]["dlq.idle"] < read[1]["dlq.idle"]
    kafka.produce("dlq.idle", values(1))
    assert idle() == "False False\n"
    assert progress.read_until(Warehouse(settings), BRONZE) == read[1]


@pytest.mark.thorough
def test_batches_are_bounded_and_count_together(
    spark: SparkSession,
    kafka: KafkaAdmin,
    following: Callable[..., Settings],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    settings = following(r"dlq\.bounded", max_records_per_batch=10)
    kafka.create_topic("dlq.bounded", 3)
    kafka.produce("dlq.bounded", [*to(0, values(25)), *to(1, values(1, begin=25)), *to(2, values(9, begin=26))])
    read: list[int] = []
    records = kafka_records.records

    def counted(spark: SparkSession, settings: Settings, topics: Any, spans: Any) -> DataFrame:
        read.append(sum(span.length for span in spans))
        return records(spark, settings, topics, spans)

    monkeypatch.setattr(kafka_records, "records", counted)
    done = run(spark, settings, BRONZE)[BRONZE]
    assert (done.read, done.accepted) == (35, 35)
    assert (sum(read), max(read)) == (35, 10)
    assert texts(settings) == numbers(0, 35)
    (reported,) = [row for row in landed(settings, "quality.stage_runs") if row["table"] == BRONZE]
    assert (reported["read"], reported["accepted"]) == (35, 35)


@pytest.mark.thorough
def test_a_topic_created_again_is_read_from_its_beginning_and_does_not_mix(
    spark: SparkSession, kafka: KafkaAdmin, following: Callable[..., Settings]
) -> None:
    settings = following(r"dlq\.again")
    kafka.create_topic("dlq.again")
    kafka.produce("dlq.again", values(5))
    first = kafka.topic_id("dlq.again")
    run(spark, settings, BRONZE, SILVER)
    kafka.delete_topics("dlq.again")
    created(kafka, "dlq.again")
    kafka.produce("dlq.again", values(7, begin=5))
    second = kafka.topic_id("dlq.again")

    done = run(spark, settings, BRONZE, SILVER)

    assert (done[BRONZE].accepted, done[SILVER].accepted, done[SILVER].quarantined) == (7, 7, 0)
    by_id = {
        id_: sorted(row["offset"] for row in landed(settings) if row["topic_id"] == id_) for id_ in (first, second)
    }
    assert by_id == {first: list(range(5)), second: list(range(7))}
    assert texts(settings) == numbers(0, 12)
    assert gaps(settings) == []


def test_a_topic_created_again_while_it_is_read_does_not_mix(
    spark: SparkSession,
    kafka: KafkaAdmin,
    following: Callable[..., Settings],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    settings = following(r"dlq\.swapped")
    kafka.create_topic("dlq.swapped")
    kafka.produce("dlq.swapped", values(5))
    first = kafka.topic_id("dlq.swapped")

    def swap() -> None:
        kafka.delete_topics("dlq.swapped")
        created(kafka, "dlq.swapped")
        kafka.produce("dlq.swapped", values(9, begin=5))

    once_before_reading(monkeypatch, swap)
    run(spark, settings, BRONZE)
    assert landed(settings) == []
    assert gaps(settings) == [("dlq.swapped", first, 0, 0, 5)]

    run(spark, settings, BRONZE)
    assert texts(settings) == numbers(5, 14)
    assert {row["topic_id"] for row in landed(settings)} == {kafka.topic_id("dlq.swapped")}


@pytest.mark.thorough
def test_all_that_was_seen_of_a_topic_is_a_gap_once_another_has_its_name(
    spark: SparkSession, kafka: KafkaAdmin, following: Callable[..., Settings]
) -> None:
    settings = following(r"dlq\.(replaced|other)", max_records_per_batch=4)
    kafka.create_topic("dlq.other")
    kafka.create_topic("dlq.replaced")
    kafka.produce("dlq.replaced", values(5))
    first = kafka.topic_id("dlq.replaced")
    with killed_at("after a batch of topics is fixed"):
        run(spark, settings, BRONZE)
    kafka.delete_topics("dlq.replaced")
    run(spark, settings, BRONZE)
    assert (landed(settings), gaps(settings)) == ([], [])  # the topic may only be hidden

    created(kafka, "dlq.replaced")
    kafka.produce("dlq.replaced", values(2, begin=5))
    for _ in range(2):
        run(spark, settings, BRONZE)
    assert (texts(settings), gaps(settings)) == (["5", "6"], [("dlq.replaced", first, 0, 0, 5)])


def test_a_time_that_spark_cannot_hold_keeps_no_record_back(
    spark: SparkSession,
    kafka: KafkaAdmin,
    following: Callable[..., Settings],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    settings = following(r"dlq\.far-.*")
    anyhow = {"message.timestamp.after.max.ms": str(2**63 - 1), "retention.ms": "-1"}
    kafka.create_topic("dlq.far-a", 2, anyhow)
    kafka.create_topic("dlq.far-b")
    nanoseconds = 1_795_228_875_344_000_000
    times = [None, 0, nanoseconds, None, nanoseconds, 2**63 - 1, *[None] * 8, 2**63 - 1]
    odd = [("", None), ("twice", b"1"), ("twice", None), ("\u00fcmlaut", b"\x80")]
    kafka.produce(
        "dlq.far-a",
        [
            Message(b"%d" % at if at % 3 else None, b"\xff" if at % 2 else None, odd[: at % 5], at % 2, time_)
            for at, time_ in enumerate(times)
        ],
    )
    with kafka.transaction("far") as transaction:
        transaction.send("dlq.far-a", [Message(b"aborted", partition=1, timestamp=nanoseconds)])
        transaction.abort()
    kafka.produce("dlq.far-b", values(3))
    monkeypatch.setattr(kafka_records, "FEW", 6)

    done = run(spark, settings, BRONZE)[BRONZE]

    assert (done.read, done.accepted, done.duplicates) == (18, 18, 0)
    consumed = [*kafka.read("dlq.far-a", expected=15, committed=True), *kafka.read("dlq.far-b", expected=3)]
    expected = [replace(message, timestamp=-1) if message.timestamp >= nanoseconds else message for message in consumed]
    assert sorted(map(live.consumed, landed(settings)), key=repr) == sorted(expected, key=repr)
    for row in landed(settings):
        (sent,) = [message for message in consumed if (message.topic, message.partition, message.offset) == place(row)]
        identity = (kafka.topic_id(row["topic"]), row["partition"], row["offset"], sent.timestamp)
        assert row["_bronze_id"] == sha256("\n".join(map(str, ("default", *identity))).encode()).hexdigest()
    assert (run(spark, settings, BRONZE)[BRONZE].status, gaps(settings)) == ("idle", [])


def test_a_partition_that_cannot_be_read_keeps_no_other_one_from_being_read(
    spark: SparkSession, kafka: KafkaAdmin, broker: Broker, following: Callable[..., Settings]
) -> None:
    settings = following(r"dlq\.(torn|whole)")
    kafka.create_topic("dlq.torn", 2)
    kafka.create_topic("dlq.whole")
    kafka.produce("dlq.torn", [*to(0, values(3)), *to(1, values(2, begin=3))])
    kafka.produce("dlq.whole", values(3, begin=5))
    segment = broker.data / "dlq.torn-0" / f"{0:020}.log"
    sound = segment.read_bytes()
    with segment.open("r+b") as log:  # the disk of the broker is damaged
        log.seek(len(sound) - 1)
        log.write(bytes([sound[-1] ^ 1]))

    with pytest.raises(EnvironmentLacking, match=r"topic dlq\.torn, partition 0"):
        run(spark, settings, BRONZE)
    assert (texts(settings), gaps(settings)) == (numbers(3, 8), [])

    with segment.open("r+b") as log:
        log.write(sound)
    run(spark, settings, BRONZE)
    assert (texts(settings), gaps(settings)) == (numbers(0, 8), [])


def place(row: dict[str, Any]) -> tuple[str, int, int]:
    return row["topic"], row["partition"], row["offset"]


@pytest.mark.thorough
def test_a_new_partition_is_read_from_its_beginning(
    spark: SparkSession, kafka: KafkaAdmin, following: Callable[..., Settings]
) -> None:
    settings = following(r"dlq\.grown")
    kafka.create_topic("dlq.grown")
    kafka.produce("dlq.grown", values(3))
    run(spark, settings, BRONZE)
    kafka.create_partitions("dlq.grown", 3)
    kafka.produce("dlq.grown", [*to(1, values(4, begin=3)), *to(2, values(2, begin=7)), *to(0, values(1, begin=9))])
    assert run(spark, settings, BRONZE)[BRONZE].accepted == 7
    assert texts(settings) == numbers(0, 10)


def test_what_was_removed_before_it_was_read_is_recorded_once_and_the_run_goes_on(
    spark: SparkSession, kafka: KafkaAdmin, following: Callable[..., Settings]
) -> None:
    settings = following(r"dlq\.removed")
    kafka.create_topic("dlq.removed", 2)
    kafka.produce("dlq.removed", to(0, values(10)))
    kafka.delete_records("dlq.removed", 0, 2)  # before the first run, so the topic begins there for Afterlog
    run(spark, settings, BRONZE)
    assert (texts(settings), gaps(settings)) == (numbers(2, 10), [])

    kafka.produce("dlq.removed", to(0, values(10, begin=10)))
    kafka.delete_records("dlq.removed", 0, 8)  # these offsets are read already
    run(spark, settings, BRONZE)
    assert gaps(settings) == []

    kafka.produce("dlq.removed", to(0, values(10, begin=20)))
    kafka.delete_records("dlq.removed", 0, 26)
    assert not idleness.idle(Warehouse(settings), stages("dlq", BRONZE))
    run(spark, settings, BRONZE)
    run(spark, settings, BRONZE)

    expected = ("dlq.removed", kafka.topic_id("dlq.removed"), 0, 20, 26)
    assert gaps(settings) == [expected]
    assert texts(settings) == [*numbers(2, 20), *numbers(26, 30)]
    assert "6 offsets of topics were gone before they were read" in quality_page(quality.gather(Warehouse(settings)))
    (check,) = [check for check in doctor.diagnose(settings) if check.name == "gaps"]
    assert check.state == "warning"
    assert check.finding.startswith("6 offsets of 1 topic were gone before they were read")


def test_what_is_removed_while_it_is_read_is_a_gap_and_the_rest_is_read(
    spark: SparkSession,
    kafka: KafkaAdmin,
    following: Callable[..., Settings],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    settings = following(r"dlq\.vanishing")
    kafka.create_topic("dlq.vanishing", 2)
    kafka.produce("dlq.vanishing", [*to(0, values(10)), *to(1, values(5, begin=10))])
    once_before_reading(monkeypatch, lambda: kafka.delete_records("dlq.vanishing", 0, 4))
    done = run(spark, settings, BRONZE)[BRONZE]
    assert (done.read, done.accepted) == (11, 11)
    assert texts(settings) == numbers(4, 15)
    assert gaps(settings) == [("dlq.vanishing", kafka.topic_id("dlq.vanishing"), 0, 0, 4)]


def test_committed_records_alone_are_read_and_markers_are_no_gaps(
    spark: SparkSession, kafka: KafkaAdmin, following: Callable[..., Settings]
) -> None:
    settings = following(r"dlq\.decided")
    kafka.create_topic("dlq.decided")
    with kafka.transaction("committing") as transaction:
        transaction.send("dlq.decided", values(3))
    with kafka.transaction("aborting") as transaction:
        transaction.send("dlq.decided", values(3, begin=100))
        transaction.abort()
    kafka.produce("dlq.decided", values(2, begin=3))
    kafka.read("dlq.decided", expected=5, committed=True)
    with kafka.transaction("open") as transaction:
        transaction.send("dlq.decided", values(2, begin=5))
        kafka.produce("dlq.decided", values(1, begin=7))
        run(spark, settings, BRONZE)
        assert texts(settings) == numbers(0, 5)
    kafka.read("dlq.decided", expected=8, committed=True)
    run(spark, settings, BRONZE)
    assert texts(settings) == numbers(0, 8)
    assert gaps(settings) == []
    assert idleness.idle(Warehouse(settings), stages("dlq", BRONZE))  # the last marker also counts as read


def test_all_that_was_written_is_read_uncommitted_and_the_report_is_loud(
    spark: SparkSession, kafka: KafkaAdmin, following: Callable[..., Settings]
) -> None:
    settings = following(r"dlq\.undecided", isolation_level="read_uncommitted")
    kafka.create_topic("dlq.undecided")
    with kafka.transaction("undecided") as transaction:
        transaction.send("dlq.undecided", values(3))
        transaction.abort()
    run(spark, settings, BRONZE)
    assert texts(settings) == numbers(0, 3)
    assert "What aborted transactions wrote is read, too" in quality_page(quality.gather(Warehouse(settings)))
    (check,) = [check for check in doctor.diagnose(settings) if check.name == "topics of dlq"]
    assert check.state == "warning"


def test_a_feed_that_reads_no_topics_any_more_rests_and_goes_on_once_it_does(
    spark: SparkSession, kafka: KafkaAdmin, following: Callable[..., Settings]
) -> None:
    settings = following(r"dlq\.resting")
    kafka.create_topic("dlq.resting")
    kafka.produce("dlq.resting", values(3))
    with killed_at("after records of topics, before their progress"):
        run(spark, settings, BRONZE)
    of_files = settings.model_copy(update={"dlq": Dlq()})
    assert idleness.idle(Warehouse(of_files), stages("dlq", BRONZE))
    land(of_files, {"a.jsonl": [line(1)]})
    run(spark, of_files, BRONZE)
    assert idleness.idle(Warehouse(of_files), stages("dlq", BRONZE))
    (check,) = [check for check in doctor.diagnose(of_files) if check.name == BRONZE]
    assert check.state == "ok"

    kafka.delete_records("dlq.resting", 0, 2)
    kafka.produce("dlq.resting", values(2, begin=3))
    assert not idleness.idle(Warehouse(settings), stages("dlq", BRONZE))
    run(spark, settings, BRONZE)
    assert (texts(settings), gaps(settings)) == ([*numbers(0, 5), "v"], [])


def test_masks_at_landing_hide_records_of_topics_and_contradict_no_copy_from_a_file(
    spark: SparkSession, kafka: KafkaAdmin, following: Callable[..., Settings]
) -> None:
    open_ = following(r"dlq\.masked")
    kafka.create_topic("dlq.masked")
    secret = b"4111222233334444"
    kafka.produce("dlq.masked", [Message(secret, secret, kip_1191(offset=number)) for number in range(6)])
    rules = [{"key": True, "do": "hash", "at": "landing"}, {"value": True, "do": "drop", "at": "landing"}]
    own = load(privacy=rules, privacy_key={"hash_key_env": "A_HASH_KEY"})
    masked = open_.model_copy(update={"privacy": own.privacy, "privacy_key": own.privacy_key})
    # The same records in a file: with the mask they are copies. Without it nobody can tell that they are the same.
    copies = [
        line(
            record.offset,
            topic="dlq.masked",
            timestamp=record.timestamp,
            key=secret,
            value=secret,
            headers=kip_1191(offset=record.offset),
        )
        for record in kafka.read("dlq.masked", expected=6)
    ]
    land(masked, {"a.jsonl": copies[:3]})
    with pytest.MonkeyPatch.context() as changed:
        changed.setenv("A_HASH_KEY", "k" * 16)
        done = run(spark, masked, BRONZE, SILVER)
    assert (done[SILVER].accepted, done[SILVER].duplicates, done[SILVER].quarantined) == (6, 3, 0)
    rows = [row for row in landed(masked) if row["topic_id"]]
    assert {(row["value"], *row["masked"]) for row in rows} == {(b"<dropped>", "key", "value")}
    assert (len(rows), len({row["key"] for row in rows})) == (6, 1)
    assert all(row["lossy_encoding"] for row in landed(masked, SILVER))
    land(open_, {"b.jsonl": copies[3:]})
    done = run(spark, open_, BRONZE, SILVER)
    assert (done[SILVER].accepted, done[SILVER].duplicates, done[SILVER].quarantined) == (3, 0, 0)
    kept = sorted((row["dlq_offset"], row["value"]) for row in landed(open_, SILVER))
    assert kept == sorted([(number, b"<dropped>") for number in range(6)] + [(number, secret) for number in (3, 4, 5)])


def of_one_topic(broker: Broker, empty_warehouse: Path, place: Path, feed: str, topic: str) -> Settings:
    """Return settings in which a feed has no files and reads one topic."""
    feeds = {feed: {"source": "kafka", "topic": topic}}
    return warehouse_of(empty_warehouse, place, kafka={"bootstrap_servers": broker.bootstrap_servers}, **feeds)


def test_acknowledgements_of_a_topic_are_the_rows_of_a_file(
    spark: SparkSession, kafka: KafkaAdmin, empty_warehouse: Path, tmp_path: Path, broker: Broker
) -> None:
    lines = [deliveries.acknowledgement(offset=offset) for offset in range(3)]
    lines += [lines[0], "{", "no object"]
    from_file = warehouse_of(empty_warehouse, tmp_path / "files")
    land(from_file, {"a.jsonl": lines}, "acknowledgements")
    run(spark, from_file, "bronze.acknowledgements", feed=None)

    kafka.create_topic("acknowledgements", 2)
    kafka.produce("acknowledgements", [Message(line.encode()) for line in lines])
    kafka.produce("acknowledgements", [Message(None)])
    from_topic = of_one_topic(broker, empty_warehouse, tmp_path / "topic", "acknowledgements", "acknowledgements")
    done = run(spark, from_topic, "bronze.acknowledgements", feed=None)["bronze.acknowledgements"]

    def shown(settings: Settings) -> list[Any]:
        rows = landed(settings, "bronze.acknowledgements")
        return sorted(((row["line"] or b"", row["error"] or "") for row in rows), key=repr)

    assert (done.read, done.accepted, done.duplicates) == (7, 7, 0)
    assert shown(from_topic) == [(b"", "the record has no value"), *shown(from_file)]
    assert len({row["_bronze_id"] for row in landed(from_topic, "bronze.acknowledgements")}) == 7


def test_lines_of_the_request_log_from_a_topic_are_the_rows_of_a_file(
    spark: SparkSession, kafka: KafkaAdmin, empty_warehouse: Path, tmp_path: Path, broker: Broker
) -> None:
    lines = [requests.delete(0), requests.delete(1), "[2026-11-21 02:41:36,854] DEBUG of another API (kafka)"]
    from_file = warehouse_of(empty_warehouse, tmp_path / "files")
    land(from_file, {"a.log": lines}, "streams-requests")
    run(spark, from_file, "bronze.streams_requests", feed=None)

    kafka.create_topic("request-log")
    kafka.produce("request-log", [Message(line.encode()) for line in lines])
    from_topic = of_one_topic(broker, empty_warehouse, tmp_path / "topic", "streams_requests", "request-log")
    done = run(spark, from_topic, "bronze.streams_requests", feed=None)["bronze.streams_requests"]

    def shown(settings: Settings) -> list[Any]:
        names = ("api", "logged_at", "line", "error")
        return sorted(([row[name] for name in names] for row in landed(settings, "bronze.streams_requests")), key=repr)

    assert (done.read, done.accepted, done.skipped) == (3, 2, 1)
    assert shown(from_topic) == shown(from_file)


def test_a_cluster_that_is_away_holds_up_no_files(spark: SparkSession, empty_warehouse: Path, tmp_path: Path) -> None:
    settings = warehouse_of(
        empty_warehouse,
        tmp_path,
        kafka={"bootstrap_servers": "127.0.0.1:1", "timeout_seconds": 1},
        dlq={"source": "kafka"},
    )
    land(settings, {"a.jsonl": [line(1), line(2)]})
    with pytest.raises(EnvironmentLacking):
        run(spark, settings, BRONZE, SILVER)
    assert len(landed(settings, SILVER)) == 2
    runs = {(row["status"], row["read"]) for row in landed(settings, "quality.stage_runs") if row["table"] == BRONZE}
    assert runs == {("passed", 2), ("failed", 0)}
    with pytest.raises(EnvironmentLacking):
        idleness.idle(Warehouse(settings), needed_by(SILVER))
    (bronze,) = [entry for entry in freshness.freshness(Warehouse(settings)) if entry.table == BRONZE]
    assert bronze.unread_offsets is None
    assert bronze.message
    (check,) = [check for check in doctor.diagnose(settings) if check.name == "topics of dlq"]
    assert check.state == "error"


def test_no_topic_matches(following: Callable[..., Settings]) -> None:
    with pytest.raises(UsageError, match=re.escape(r"shows no topics that match nothing\.at\.all: ")):
        asked(following(r"nothing\.at\.all"))
