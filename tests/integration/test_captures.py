"""Real records from landing to silver, compared with what really happened and with what landed."""

from __future__ import annotations

import base64
import gzip
import json
import shutil
from collections import Counter
from pathlib import Path
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import HealthCheck, Phase, given
from hypothesis import settings as examples
from pyspark.sql import SparkSession

from pipelines.columns.headers import PROFILES
from pipelines.settings import ROOT, Settings
from tests.testing.builders import kip_1191, kip_1317, land, line, rows, run

DATA = ROOT / "tests" / "data"
TOPICS = ("audit", "billing", "orders", "second-hop", "shipping")
REJECTED, EXCEEDED = "Offset rejected by client.", "Offset delivery count exceeded the threshold."


def last_actions() -> dict[tuple[str, str, int, int], str]:
    """The action of the last delivery of each source record to each group."""
    last: dict[tuple[str, str, int, int], tuple[int, str]] = {}
    with gzip.open(DATA / "deliveries.jsonl.gz", "rt") as deliveries:
        for text in deliveries:
            row = json.loads(text)
            key = (row["group"], row["topic"], row["partition"], row["offset"])
            last[key] = max(last.get(key, (0, "")), (row["ts"], row["action"]))
    return {key: action for key, (_, action) in last.items()}


def test_captures_agree_with_their_messages_and_with_what_happened(spark: SparkSession, settings: Settings) -> None:
    directory = settings.landing_of("dlq")
    directory.mkdir(parents=True)
    for topic in TOPICS:
        shutil.copy(DATA / "dlq" / f"dlq.{topic}.jsonl", directory)
    silver = run(spark, settings, "bronze.dlq_records", "silver.dlq_records")["silver.dlq_records"]
    assert (silver.read, silver.accepted, silver.quarantined, silver.duplicates) == (1778, 1778, 0, 0)

    dead_lettered = rows(spark, settings, "silver.dlq_records")
    said = Counter((row["error_message"], row["disposition"], row["disposition_source"]) for row in dead_lettered)
    assert set(said) == {
        (REJECTED, "CLIENT_REJECTED", "message"),
        (EXCEEDED, "MAX_DELIVERY_ATTEMPTS_REACHED", "message"),
    }
    landed = [
        json.loads(text) for topic in TOPICS for text in (DATA / "dlq" / f"dlq.{topic}.jsonl").read_text().splitlines()
    ]
    assert {place(row): (row["key"], row["value"]) for row in dead_lettered} == {
        (row["topic"], row["partition"], row["offset"]): (decoded(row["key"]), decoded(row["value"])) for row in landed
    }

    last = last_actions()
    first_hop = [row for row in dead_lettered if row["dlq_topic"] != "dlq.second-hop"]
    reasons = {
        (row["consumer_group"], row["original_topic"], row["original_partition"], row["original_offset"]): row
        for row in first_hop
    }
    assert {key for key, action in last.items() if action == "REJECT"} <= reasons.keys()
    found = Counter((row["disposition"], last[key]) for key, row in reasons.items())
    # If a record was accepted or rejected after its lock expired, its reason says "exceeded", and it is in the DLQ.
    assert found == {
        ("CLIENT_REJECTED", "REJECT"): 1192,
        ("MAX_DELIVERY_ATTEMPTS_REACHED", "RELEASE"): 331,
        ("MAX_DELIVERY_ATTEMPTS_REACHED", "TIMEOUT"): 12,
        ("MAX_DELIVERY_ATTEMPTS_REACHED", "ACCEPT"): 22,
        ("MAX_DELIVERY_ATTEMPTS_REACHED", "REJECT"): 6,
    }


NAMES = [name for profile in PROFILES for name in profile.names]
HEADERS = st.lists(
    st.tuples(
        st.one_of(st.sampled_from(NAMES), st.text("ab_.-dlq0 é\u202e\0", max_size=8)),
        st.one_of(st.none(), st.binary(max_size=12), st.sampled_from([b"0", b"7", b"orders", b"\x00\x00\x00\x01"])),
    ),
    max_size=8,
)
RECORD = st.tuples(
    st.one_of(HEADERS, HEADERS.map(lambda more: [*kip_1191(), *more]), HEADERS.map(lambda more: [*kip_1317(), *more])),
    st.one_of(st.none(), st.binary(max_size=16)),
    st.one_of(st.none(), st.binary(max_size=16)),
)


def drawn() -> list[list[Any]]:
    """Lists of random records."""
    found: list[list[Any]] = []

    @examples(
        max_examples=4,
        deadline=None,
        database=None,
        derandomize=True,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(st.lists(RECORD, min_size=25, max_size=40))
    def draw(records: list[Any]) -> None:
        found.append(records)

    draw()
    return found


def test_whatever_headers_arrive_no_record_is_lost(spark: SparkSession, settings: Settings) -> None:
    landed: dict[tuple[str, int], Any] = {}
    for number, records in enumerate(drawn()):
        topic = f"dlq.{number}"
        landed |= {(topic, offset): record for offset, record in enumerate(records)}
        lines = [
            line(offset, topic=topic, key=key, value=value, headers=headers)
            for offset, (headers, key, value) in enumerate(records)
        ]
        land(settings, {f"{topic}.jsonl": lines})
    lenient = settings.model_copy(update={"tolerance": 1.0})
    silver = run(spark, lenient, "bronze.dlq_records", "silver.dlq_records")["silver.dlq_records"]
    assert (silver.status, silver.read, silver.duplicates) == ("passed", len(landed), 0)

    quarantined = rows(spark, settings, "quarantine.dlq_records")
    assert all(row["violations"] for row in quarantined)
    found = [*rows(spark, settings, "silver.dlq_records"), *quarantined]
    assert len(found) == len(landed)
    assert {(row["dlq_topic"], row["dlq_offset"]): (row["key"], row["value"]) for row in found} == {
        place: (key, value) for place, (_, key, value) in landed.items()
    }
    assert {
        (row["topic"], row["offset"]): [(header["key"], header["value"]) for header in row["headers"]]
        for row in rows(spark, settings, "bronze.dlq_records")
    } == {place: list(headers) for place, (headers, *_) in landed.items()}


@pytest.mark.thorough
@pytest.mark.parametrize("name", ["dlq.orders.jsonl"])
def test_small_and_large_work_give_the_same_rows(
    spark: SparkSession, settings: Settings, tmp_path: Path, name: str
) -> None:
    """Sessions for short work switch code generation off, sessions for long work keep it."""
    warehouses = []
    for generated in ("false", "true"):
        own = settings.model_copy(update={"warehouse": str(tmp_path / generated)})
        shutil.copytree(settings.warehouse, own.warehouse)
        settings.landing_of("dlq").mkdir(parents=True, exist_ok=True)
        shutil.copy(DATA / "dlq" / name, settings.landing_of("dlq"))
        modes = {
            "spark.sql.codegen.wholeStage": generated,
            "spark.sql.codegen.factoryMode": "CODEGEN_ONLY" if generated == "true" else "NO_CODEGEN",
        }
        before = {key: spark.conf.get(key) for key in modes}
        try:
            for key, value in modes.items():
                spark.conf.set(key, value)
            run(spark, own)
            warehouses.append(rows(spark, own, "silver.dlq_records"))
        finally:
            for key, value in before.items():
                spark.conf.set(key, value or "")
    assert len(warehouses[0]) == 916
    assert warehouses[0] == warehouses[1]


def place(row: dict[str, Any]) -> tuple[str, int, int]:
    return row["dlq_topic"], row["dlq_partition"], row["dlq_offset"]


def decoded(text: str | None) -> bytes | None:
    return None if text is None else base64.b64decode(text)
