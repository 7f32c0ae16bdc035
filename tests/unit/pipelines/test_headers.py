"""The profiles as data, and the decoder on its own: who wrote the headers, and big-endian numbers."""

from __future__ import annotations

import random
import struct
from operator import attrgetter
from typing import TYPE_CHECKING, Any

import pytest

from pipelines.headers import FIELDS, NAMES, PROFILES, Profile, decode

if TYPE_CHECKING:
    from pyspark.sql import Row, SparkSession


def decoded(spark: SparkSession, rows: dict[str, list[tuple[str, bytes | None]]]) -> dict[str, Row]:
    records = spark.createDataFrame(list(rows.items()), "id string, headers array<struct<key: string, value: binary>>")
    return {row["id"]: row for row in decode(records).collect()}


def test_order_of_recognition_and_mandatory_headers() -> None:
    assert {profile.name: profile.mandatory for profile in PROFILES} == {
        "kip-1317": (
            "_dlq.errors.disposition",
            "_dlq.errors.original.topic",
            "_dlq.errors.original.partition",
            "_dlq.errors.original.offset",
            "_dlq.errors.original.consumer.group",
            "_dlq.errors.timestamp",
        ),
        "kip-1191": ("__dlq.errors.topic", "__dlq.errors.partition", "__dlq.errors.offset", "__dlq.errors.group"),
        "kafka-streams": ("__streams.errors.topic", "__streams.errors.partition", "__streams.errors.offset"),
        "kafka-connect": ("__connect.errors.topic", "__connect.errors.partition", "__connect.errors.offset"),
        "spring-kafka": ("kafka_dlt-original-topic", "kafka_dlt-original-partition", "kafka_dlt-original-offset"),
    }
    assert [profile.name for profile in PROFILES] == [
        "kip-1317",
        "kip-1191",
        "kafka-streams",
        "kafka-connect",
        "spring-kafka",
    ]
    assert len(set(NAMES)) == len(NAMES)


@pytest.fixture(scope="module")
def rows(spark: SparkSession) -> dict[str, Row]:
    """All rows of this module, in one Spark job."""
    given: dict[str, list[tuple[str, bytes | None]]] = {"empty": []}
    for profile in PROFILES:
        complete: list[tuple[str, bytes | None]] = [(name, b"1") for name in profile.names]
        given |= {
            f"{profile.name}: all": complete,
            f"{profile.name}: all null": [(name, None) for name in profile.names],
            f"{profile.name}: last of two": [*[(name, b"0") for name in profile.names], *complete],
        }
        given |= {f"only {name}": [(name, b"1")] for name in profile.names}
        for later in PROFILES[PROFILES.index(profile) + 1 :]:
            incomplete = [header for header in complete if header[0] != profile.mandatory[-1]]
            whole: list[tuple[str, bytes | None]] = [(name, b"1") for name in later.mandatory]
            given[f"{profile.name} before {later.name}"] = [*whole, *complete]
            given[f"{profile.name} incomplete before {later.name}"] = [*incomplete, *whole]
            given[f"{profile.name} incomplete, {later.name} too"] = [*whole[1:], *incomplete]
    for number in INT32:
        given[f"int32 {number}"] = [("kafka_dlt-original-partition", struct.pack(">i", number))]
    for number in INT64:
        given[f"int64 {number}"] = [("kafka_dlt-original-offset", struct.pack(">q", number))]
    return decoded(spark, given)


seeded = random.Random(1317)
INT32 = [0, 1, 0x7F, 0x80, 2**31 - 1, -1, -(2**31), *(seeded.randrange(-(2**31), 2**31) for _ in range(50))]
INT64 = [0, 1, 0x7F, 0x80, 2**63 - 1, -1, -(2**63), *(seeded.randrange(-(2**63), 2**63) for _ in range(50))]


def test_big_endian_numbers(rows: dict[str, Row]) -> None:
    assert [rows[f"int32 {number}"]["original_partition_text"] for number in INT32] == list(map(str, INT32))
    assert [rows[f"int64 {number}"]["original_offset_text"] for number in INT64] == list(map(str, INT64))


@pytest.mark.parametrize("profile", PROFILES, ids=attrgetter("name"))
def test_each_name_alone_is_recognised_and_fills_its_field(profile: Profile, rows: dict[str, Row]) -> None:
    for header in profile.headers:
        row = rows[f"only {header.name}"]
        shown = "0x31" if header.encoding.startswith("int") else "1"
        assert row["header_profile"] == profile.name
        assert _said(row) == {header.field: shown}
        assert row["user_headers"] == []
        assert not row["reserved_header_collision"]


@pytest.mark.parametrize("profile", PROFILES, ids=attrgetter("name"))
def test_presence_does_not_depend_on_values(profile: Profile, rows: dict[str, Row]) -> None:
    assert rows[f"{profile.name}: all"]["header_profile"] == profile.name
    assert rows[f"{profile.name}: all null"]["header_profile"] == profile.name
    assert _said(rows[f"{profile.name}: all null"]) == {}


@pytest.mark.parametrize("profile", PROFILES, ids=attrgetter("name"))
def test_last_value_counts(profile: Profile, rows: dict[str, Row]) -> None:
    row = rows[f"{profile.name}: last of two"]
    assert _said(row) == _said(rows[f"{profile.name}: all"])
    assert row["reserved_header_collision"]
    assert row["user_headers"] == []


@pytest.mark.parametrize("profile", PROFILES[:-1], ids=attrgetter("name"))
def test_the_first_complete_profile_wins_then_the_first_of_which_any_is_there(
    profile: Profile, rows: dict[str, Row]
) -> None:
    for later in PROFILES[PROFILES.index(profile) + 1 :]:
        assert rows[f"{profile.name} before {later.name}"]["header_profile"] == profile.name
        assert rows[f"{profile.name} incomplete before {later.name}"]["header_profile"] == later.name
        assert rows[f"{profile.name} incomplete, {later.name} too"]["header_profile"] == profile.name
        assert rows[f"{profile.name} before {later.name}"]["reserved_header_collision"]
        kept = [header["key"] for header in rows[f"{profile.name} before {later.name}"]["user_headers"]]
        assert kept == list(later.mandatory)


def test_no_headers_say_nothing(rows: dict[str, Row]) -> None:
    row = rows["empty"]
    assert row["header_profile"] is None
    assert row["undecodable_headers"] is None
    assert row["user_headers"] == []
    assert row["reserved_header_collision"] is False
    assert _said(row) == {}


def _said(row: Row) -> dict[str, Any]:
    return {field: row[f"{field}_text"] for field in FIELDS if row[f"{field}_text"] is not None}
