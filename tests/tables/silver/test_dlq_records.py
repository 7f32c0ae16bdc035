"""Adversarial headers, each with its expected row and violations; then random headers; then real ones."""

from __future__ import annotations

import base64
import json
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from expectations.bronze.dlq_records import CONTRACT as BRONZE
from expectations.silver.dlq_records import CONTRACT
from pipelines.columns.profiles import NAMES
from pipelines.settings import Dlq, RequiredProfile, load
from pipelines.silver.dlq_records import SCOPE_OF_INPUT, transform
from tests.testing.cases_of_values import CASES_OF_VALUES
from tests.testing.cases_of_writers import (
    AT,
    CASES_OF_WRITERS,
    CLOUD,
    CONNECT,
    KIP_1191,
    KIP_1317,
    RETRIES,
    SPRING,
    STREAMS,
    Case,
    Headers,
    but,
    without,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Row, SparkSession

CAPTURES = Path(__file__).parents[2] / "data" / "dlq"


CASES = [*CASES_OF_WRITERS, *CASES_OF_VALUES]
CONTENTS: dict[str, dict[str, Any]] = {
    "plain": {},
    "elsewhere": {"_source": "b.jsonl", "partition": 7, "offset": 7},
    "null key": {"key": None},
    "empty key": {"key": b""},
    "null value": {"value": None},
    "value for key": {"key": None, "value": b"k"},
    "other time": {"timestamp": datetime(2026, 11, 21, tzinfo=UTC)},
    "no time": {"timestamp": None},
    "other timestamp type": {"timestamp_type": 1},
    "no headers": {"headers": []},
    "null headers": {"headers": None},
    "header": {"headers": [("a", b"b")]},
    "header without value": {"headers": [("a", None)]},
    "header with empty value": {"headers": [("a", b"")]},
    "value without name": {"headers": [(None, b"a")]},
    "null header": {"headers": [None]},
    "two headers": {"headers": [("a", b"b"), ("c", b"d")]},
    "two headers turned": {"headers": [("c", b"d"), ("a", b"b")]},
    "null and header": {"headers": [None, ("a", b"b")]},
    "header and null": {"headers": [("a", b"b"), None]},
}
CAPTURED = {"dlq.orders": 916, "dlq.billing": 534, "dlq.shipping": 57, "dlq.audit": 56, "dlq.second-hop": 215}
REQUIRE = Dlq(
    require=(
        RequiredProfile(topic="dlq.payments.???", profile="kip-1191"),
        RequiredProfile(topic="dlq.payments*", profile="kip-1317"),
        RequiredProfile(topic="dlq.parcels", profile="retries"),
    ),
    profile=(RETRIES, CLOUD),
)


def bronze(spark: SparkSession, rows: list[dict[str, Any]]) -> DataFrame:
    given = {
        "_source": "a.jsonl",
        "cluster": "default",
        "topic": "dlq.orders",
        "partition": 0,
        "offset": 0,
        "timestamp": AT,
        "timestamp_type": 0,
        "key": b"k",
        "value": b"v",
        "lossy_encoding": False,
    }
    names = [column.name for column in BRONZE.columns]
    schema = ", ".join(f"`{column.name}` {column.type}" for column in BRONZE.columns)
    return spark.createDataFrame([[{**given, **row}.get(name) for name in names] for row in rows], schema)


def candidates(spark: SparkSession, rows: list[dict[str, Any]], dlq: Dlq | None = None) -> dict[str, Row]:
    """Silver's candidates by ``_bronze_id``, with their violations and with timestamps as text in UTC."""
    from pyspark.sql import functions as F

    found = transform(bronze(spark, rows), load().model_copy(update={"dlq": dlq or REQUIRE}))
    assert [column.name for column in CONTRACT.columns] == found.columns
    times = [column.name for column in CONTRACT.columns if column.type == "timestamp"]
    collected = (
        found.withColumn("mask", CONTRACT.broken_rules())
        .withColumn("violations", CONTRACT.violations(F.col("mask")))
        .withColumns({name: F.col(name).cast("string") for name in times})
        .collect()
    )
    assert len(collected) == len(rows)
    return {row["_bronze_id"]: row for row in collected}


@pytest.fixture(scope="module")
def rows(spark: SparkSession) -> dict[str, Row]:
    """The rows of all cases in this module, from one Spark job."""
    given = [{"_bronze_id": case.id, "headers": case.headers, **case.bronze} for case in CASES]
    given += [
        {"_bronze_id": f"content: {name}", "headers": [("x", b"y")], **content} for name, content in CONTENTS.items()
    ]
    for topic in CAPTURED:
        given += [{"_bronze_id": f"{topic} {place}", **record} for place, record in enumerate(_records(topic))]
    return candidates(spark, given)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.id)
def test_headers_give_the_row_and_the_violations(case: Case, rows: dict[str, Row]) -> None:
    row = rows[case.id]
    expected = {"violations": [], **case.expected}
    assert {name: _plain(row[name]) for name in expected} == expected


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.id)
def test_nothing_of_the_record_is_lost(case: Case, rows: dict[str, Row]) -> None:
    row = rows[case.id]
    given = {"topic": "dlq.orders", "partition": 0, "offset": 0, "key": b"k", "value": b"v", **case.bronze}
    assert (row["dlq_topic"], row["dlq_partition"], row["dlq_offset"]) == (
        given["topic"],
        given["partition"],
        given["offset"],
    )
    assert _plain([row["key"], row["value"]]) == [given["key"], given["value"]]
    assert _plain(row["headers"]) == case.headers
    assert row["disposition_source"] is not None
    assert row["control_marker_suspected"] is not None


def test_a_record_belongs_to_its_group_or_else_to_what_its_headers_name(spark: SparkSession) -> None:
    nameless = without(CONNECT, "connector.name")
    expected = [
        (KIP_1191, "orders-workers"),
        (CONNECT, "connector warehouse-sink"),
        (nameless, "kafka-connect on dlq.orders"),
        (but(CONNECT, connector_name=b""), "kafka-connect on dlq.orders"),
        (STREAMS, "kafka-streams on dlq.orders"),
        (SPRING, "inventory-service"),
        (but(SPRING, consumer_group=None), "spring-kafka on dlq.orders"),
        ([("trace", b"x")], "unknown writer on dlq.orders"),
    ]
    given = [{"_bronze_id": str(number), "headers": headers} for number, (headers, _) in enumerate(expected)]
    given.append({"_bronze_id": "unreadable", "topic": None, "error": "no JSON", "raw": b"x"})
    found = {row["_bronze_id"]: row["owner"] for row in transform(bronze(spark, given), load()).collect()}
    assert found == {str(number): owner for number, (_, owner) in enumerate(expected)} | {"unreadable": None}


def test_the_scope_of_a_row_is_known_before_it_is_decoded(spark: SparkSession) -> None:
    topics = ("dlq.orders", "", " ", "topic:é", None)
    rows = [{"_bronze_id": str(number), "topic": topic, "offset": number} for number, topic in enumerate(topics)]
    decoded = candidates(spark, rows)
    assert CONTRACT.scope is not None
    assert {row["_bronze_id"]: row[SCOPE_OF_INPUT] for row in rows} == {
        name: row[CONTRACT.scope] for name, row in decoded.items()
    }


def test_cases_have_distinct_names() -> None:
    assert len({case.id for case in CASES}) == len(CASES) > 60


def test_every_rule_is_broken_by_a_case() -> None:
    broken = {code for case in CASES for code in case.expected.get("violations", [])}
    unbroken = {rule.code for rule in CONTRACT.rules} - broken
    assert {code for code in unbroken if not code.endswith(".utf8")} == set()


def test_columns_have_the_types_of_the_contract(spark: SparkSession) -> None:
    found = transform(bronze(spark, []), load())
    expected = spark.createDataFrame([], ", ".join(f"`{column.name}` {column.type}" for column in CONTRACT.columns))
    assert [(field.name, field.dataType.simpleString()) for field in found.schema] == [
        (field.name, field.dataType.simpleString()) for field in expected.schema
    ]


def test_content_hash_tells_contents_apart_and_nothing_else(rows: dict[str, Row]) -> None:
    hashes = {name: rows[f"content: {name}"]["_content_hash"] for name in CONTENTS}
    assert hashes.pop("elsewhere") == hashes["plain"]
    assert None not in hashes.values()
    assert len(set(hashes.values())) == len(hashes)


names = st.one_of(st.none(), st.sampled_from(NAMES), st.text(st.characters(exclude_categories=["Cs"]), max_size=30))
values = st.one_of(
    st.none(),
    st.binary(max_size=12),
    st.binary(min_size=4, max_size=4),
    st.binary(min_size=8, max_size=8),
    st.integers(-(2**65), 2**65).map(lambda number: str(number).encode()),
    st.datetimes().map(lambda time: time.isoformat().encode() + b"Z"),
    st.sampled_from([value for headers in (KIP_1191, KIP_1317, SPRING) for _, value in headers]),  # type: ignore[misc]
)
some_headers = st.lists(st.one_of(st.none(), st.tuples(names, values)), max_size=8)
complete = st.sampled_from([KIP_1191, KIP_1317, STREAMS, CONNECT, SPRING])
any_headers = st.one_of(st.none(), some_headers, st.builds(lambda base, more: base + more, complete, some_headers))
payloads = st.one_of(st.none(), st.binary(max_size=8), st.sampled_from([b"\0\0\0\1", b"\0" * 6]))


@hypothesis_settings(max_examples=4, deadline=None, suppress_health_check=list(HealthCheck))
@given(records=st.lists(st.tuples(any_headers, payloads, payloads), min_size=100, max_size=200))
def test_whatever_headers_arrive(
    spark: SparkSession, records: list[tuple[Headers | None, bytes | None, bytes | None]]
) -> None:
    from pyspark.sql import functions as F

    given = [
        {"_bronze_id": str(index), "headers": headers, "key": key, "value": value}
        for index, (headers, key, value) in enumerate(records)
    ]
    found = (
        transform(bronze(spark, given), load())
        .withColumn("mask", CONTRACT.broken_rules())
        .withColumn("violations", CONTRACT.violations(F.col("mask")))
        .select("_bronze_id", "headers", "key", "value", "mask", "violations")
        .collect()
    )
    assert sorted(int(row["_bronze_id"]) for row in found) == list(range(len(records)))
    for row in found:
        assert [_plain(row[name]) for name in ("headers", "key", "value")] == list(records[int(row["_bronze_id"])])
        assert (row["mask"] == 0) == (row["violations"] == [])


BROKERS_WORDS = {
    "Offset rejected by client.": "CLIENT_REJECTED",
    "Offset delivery count exceeded the threshold.": "MAX_DELIVERY_ATTEMPTS_REACHED",
}


@pytest.mark.parametrize(("topic", "records"), CAPTURED.items())
def test_disposition_of_real_records_is_the_brokers_message(topic: str, records: int, rows: dict[str, Row]) -> None:
    captured = _records(topic)
    assert len(captured) == records
    for place, record in enumerate(captured):
        row, said = rows[f"{topic} {place}"], dict(record["headers"])
        message = said["__dlq.errors.message"].decode()
        assert row["violations"] == []
        assert (row["disposition"], row["disposition_source"]) == (BROKERS_WORDS[message], "message")
        assert [row["original_topic"], str(row["original_partition"]), str(row["original_offset"])] == [
            said[f"__dlq.errors.{name}"].decode() for name in ("topic", "partition", "offset")
        ]
        assert row["payload_copied"] == any(record[part] is not None for part in ("key", "value"))
        assert topic != "dlq.billing" or not row["payload_copied"]
        assert not row["reserved_header_collision"]


def _records(topic: str) -> list[dict[str, Any]]:
    """The captured records of a topic as bronze stores them."""
    lines = (CAPTURES / f"{topic}.jsonl").read_text(encoding="utf-8").splitlines()
    return [
        {
            **{name: record[name] for name in ("topic", "partition", "offset")},
            "timestamp": datetime.fromtimestamp(record["timestamp"] / 1000, UTC),
            "timestamp_type": record["timestampType"],
            "key": _bytes(record["key"]),
            "value": _bytes(record["value"]),
            "headers": [(header["key"], _bytes(header["value"])) for header in record["headers"]],
        }
        for record in map(json.loads, lines)
    ]


def _bytes(text: str | None) -> bytes | None:
    return None if text is None else base64.b64decode(text)


def _plain(value: Any) -> Any:
    """Convert rows to tuples and byte arrays to bytes."""
    if isinstance(value, bytearray):
        return bytes(value)
    if isinstance(value, tuple):
        return tuple(_plain(part) for part in value)
    return [_plain(part) for part in value] if isinstance(value, list) else value
