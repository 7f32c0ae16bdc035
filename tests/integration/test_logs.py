"""Logs in the layouts and wrappers that people have -> the same rows as from Kafka's own layout."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from pipelines.bronze import streams_requests
from pipelines.settings import ROOT, Settings, load
from pipelines.sources import broker_log
from pipelines.sources.logs import files
from tests.testing.builders import rows, run, warehouse_of
from tests.testing.requests import exchange, push

LOGS = ROOT / "tests" / "data" / "logs"
TOPOLOGY = ("bronze.streams_requests", "silver.topology_pushes", "silver.group_heartbeats")
DELIVERY = ("bronze.broker_events", "silver.dlq_write_failures", "silver.broker_starts")


def read(spark: SparkSession, settings: Settings) -> dict[str, list[tuple[object, ...]]]:
    """Return what the tables say of the brokers' logs, with times of the day."""
    time = "%H:%M:%S.%f"
    return {
        "pushes": sorted(
            (row["group_id"], row["node_count"], row["pushed_at"].strftime(time)[:-3])
            for row in rows(spark, settings, "silver.topology_pushes")
        ),
        "heartbeats": [
            (row["group_id"], row["heartbeat_at"].strftime(time)[:-3])
            for row in rows(spark, settings, "silver.group_heartbeats")
        ],
        "failures": sorted(
            (
                *(row["consumer_group"], row["dlq_topic"], row["original_topic"], row["original_partition"]),
                *(row["first_offset"], row["last_offset"], (row["error_class"] or "").rpartition(".")[2]),
                *(row["reason"], row["is_partial"], row["failed_at"].strftime(time)[:-3]),
            )
            for row in rows(spark, settings, "silver.dlq_write_failures")
        ),
        "starts": sorted(
            (row["component"], row["node_id"], row["started_at"].strftime(time)[:-3])
            for row in rows(spark, settings, "silver.broker_starts")
        ),
    }


def expected(name: str) -> dict[str, list[tuple[object, ...]]]:
    def at(time: str) -> str:
        return f"{time[:-4]}.000" if name == "strimzi" else time  # which prints no fraction of a second

    wide = [("freight-wide", 162, at("02:41:36.881"))] if name == "cri" else []
    no_dlq = "DLQ is not enabled on configured DLQ topic for share group: crate-counters, topic: dlq.crates."
    return {
        "pushes": [("freight-router", 3, at("02:41:36.701")), *wide],
        "heartbeats": [("freight-router", at("02:41:36.581"))],
        "failures": [
            ("crate-counters", "dlq.crates", *[None] * 4, "ConfigException", no_dlq, False, at("02:41:56.581")),
            (
                *("pallet-packers", "dlq.pallets", "pallets", 2, 40, 44, "RecordTooLargeException"),
                *("1200000 bytes are too large.", False, at("02:41:46.581")),
            ),
        ],
        "starts": [("BrokerServer", 3, at("02:41:06.681")), ("KafkaRaftServer", 3, at("02:41:06.881"))],
    }


@pytest.mark.parametrize("name", ["strimzi", "logstash-json", "cri", "crlf", "doubled"])
def test_logs_are_read_in_the_clothes_that_they_come_in(
    spark: SparkSession, empty_warehouse: Path, tmp_path: Path, name: str
) -> None:
    settings = warehouse_of(empty_warehouse, tmp_path)
    shutil.copytree(LOGS / name, settings.landing)
    done = run(spark, settings, *TOPOLOGY, feed="topology") | run(spark, settings, *DELIVERY, feed="delivery")
    assert read(spark, settings) == expected(name)
    assert done["bronze.streams_requests"].message.startswith("1 new or changed file; skipped FETCH ")
    assert not any(stage_run.quarantined for stage_run in done.values())


def test_a_log_in_no_known_layout_breaks_the_gate_of_what_it_would_tell(
    spark: SparkSession, empty_warehouse: Path, tmp_path: Path
) -> None:
    settings = warehouse_of(empty_warehouse, tmp_path)
    known = (LOGS / "crlf" / "broker-logs" / "server.log").read_bytes()
    strange = known.replace(b"[2026-11-21 02:", b"at ")
    for feed, name, content in (
        *(("broker-logs", "server.log", strange), ("broker-logs", "other.log", known)),
        ("streams-requests", "server.log", strange),
    ):
        settings.landing_of(feed).mkdir(parents=True, exist_ok=True)
        (settings.landing_of(feed) / name).write_bytes(content)
    done = run(spark, settings, *TOPOLOGY[:2], feed="topology") | run(spark, settings, *DELIVERY[:2], feed="delivery")
    lines = len(strange.splitlines())
    for table, stage_run in done.items():
        if table.startswith("silver"):
            assert (stage_run.status, stage_run.quarantined) == ("broken", 1)
            assert f"Most lines are in no known layout, {lines} of {lines}: the line does not" in stage_run.message
            assert "41:46" not in stage_run.message
    assert read(spark, settings)["failures"] == expected("crlf")["failures"]


def test_records_of_a_topic_are_unwrapped_one_by_one(spark: SparkSession) -> None:
    settings = load()
    line = push(7, "a")
    wrapped = json.dumps([{"date": 1.5, "log": line}, {"date": 1.5, "log": push(8, "b")}]).encode()
    foreign = exchange("FETCH", 9, {}, {}).encode()
    records = [("kafka:t", "1", line.encode(), None), ("kafka:t", "2", f"kafka-1  | {line}".encode(), None)]
    records += [("kafka:t", "3", wrapped, None), ("kafka:t", "4", foreign, None), ("kafka:t", "5", None, "none")]
    lines = spark.createDataFrame(records, "_source string, _bronze_id string, line binary, damage string")
    read = streams_requests.read_records(lines, settings)
    skipped = {row["_bronze_id"]: row["_other"] for row in read.where(streams_requests.skipped(read)).collect()}
    found = (
        streams_requests.parse(read.where(~streams_requests.skipped(read)), settings).orderBy("_bronze_id").collect()
    )
    assert skipped == {"4": "FETCH"}
    assert len({row["_bronze_id"] for row in found}) == 5
    assert sorted((row["error"] or "", f"{row['logged_at'] or ''}"[-2:]) for row in found) == [
        *[("", "07")] * 3,
        ("", "08"),
        ("none", ""),
    ]
    assert bytes(found[1]["line"]) == f"kafka-1  | {line}".encode()


def reason_of(spark: SparkSession, text: str) -> Any:
    """Return why a write failed, as the text of a broker's event says."""
    told = spark.createDataFrame([(text,)], "text string").select(broker_log.failure(F.col("text"))["reason"])
    return told.collect()[0][0]


@pytest.mark.parametrize("end", [" (org.apache.kafka.X)", "", "\n"])
def test_what_the_broker_answered_ends_with_the_message(spark: SparkSession, end: str) -> None:
    text = f"Unable to produce X(y) to DLQ topic node n:1 (id: 1 rack: null isFenced: false) - Not the leader.{end}"
    assert reason_of(spark, text) == "Not the leader"


@pytest.mark.parametrize("frame", ["\tat a.B.c(B.java:7)", "at a.B.c(B.java:7)", "Caused by: a.b.D"])
def test_the_reason_ends_where_the_stack_begins(spark: SparkSession, frame: str) -> None:
    text = f"Failed to write to DLQ, proceeding to ARCHIVED regardless. (a.B)\na.b.C: why\nat last\n{frame}\n{frame}"
    assert reason_of(spark, text) == "why\nat last"


def test_rows_of_an_earlier_version_have_no_message(spark: SparkSession) -> None:
    bronze = spark.createDataFrame([(b"as landed", None), (b"{}", "said")], "line binary, message string")
    assert [row[0] for row in bronze.select(files.said(bronze)).collect()] == ["as landed", "said"]
    earlier = bronze.drop("message")
    assert [row[0] for row in earlier.select(files.said(earlier)).collect()] == ["as landed", "{}"]
