"""The examples of header profiles: Afterlog reads what their code writes as their settings say, without violations."""

from __future__ import annotations

import importlib.util
import tomllib
from dataclasses import dataclass, field
from datetime import UTC, datetime
from types import ModuleType
from typing import TYPE_CHECKING, Any

import pytest

from expectations.bronze.dlq_records import CONTRACT as BRONZE
from expectations.silver.dlq_records import CONTRACT
from pipelines.settings import ROOT, load
from pipelines.silver.dlq_records import transform

if TYPE_CHECKING:
    from pyspark.sql import Row, SparkSession


def example(name: str) -> ModuleType:
    specification = importlib.util.spec_from_file_location(name, ROOT / "examples" / "python" / f"{name}.py")
    assert specification
    assert specification.loader
    module = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    return module


@dataclass
class Message:
    at: int = 2**40

    def topic(self) -> str:
        return "parcels"

    def partition(self) -> int:
        return 3

    def offset(self) -> int:
        return self.at

    def timestamp(self) -> tuple[int, int]:
        return 1, 1_795_228_875_344

    def key(self) -> bytes | None:
        return None

    def value(self) -> bytes:
        return b"payload"


@dataclass
class Producer:
    produced: list[dict[str, Any]] = field(default_factory=list)

    def produce(self, topic: str, **record: Any) -> None:
        self.produced.append({"topic": topic, **record})


class TooLate(Exception):
    pass


def _fail(_: Message) -> None:
    raise TooLate("no\u202e more")


@pytest.fixture(scope="module")
def rows(spark: SparkSession) -> list[Row]:
    """The silver rows of both examples' dead letters, and their violations."""
    from pyspark.sql import functions as F

    producer, library = Producer(), example("retry_library")
    assert library.consume(Message(), print, producer, group="g", dead_letters="parcels.dlq")
    assert not library.consume(Message(), _fail, producer, group="packers", dead_letters="parcels.dlq", attempts=4)
    value, headers = example("cloud_pipeline").dead_letter(Message(), TooLate("late"), step="parse", attempts=2)
    records = [*producer.produced, {"topic": "clicks.failed.eu", "value": value, "headers": headers}]
    profiles = [
        tomllib.loads((ROOT / "examples" / "profiles" / f"{name}.toml").read_text())["dlq"]
        for name in ("retry-library", "cloud-pipeline")
    ]
    dlq = {
        "profile": [profile for said in profiles for profile in said["profile"]],
        "require": [rule for said in profiles for rule in said.get("require", [])],
    }
    given = {"_source": "a.jsonl", "cluster": "default", "partition": 0, "lossy_encoding": False}
    schema = ", ".join(f"`{column.name}` {column.type}" for column in BRONZE.columns)
    bronze = spark.createDataFrame(
        [
            [
                {**given, "_bronze_id": str(index), "offset": index, **record}.get(column.name)
                for column in BRONZE.columns
            ]
            for index, record in enumerate(records)
        ],
        schema,
    )
    found = transform(bronze, load(dlq=dlq)).withColumn("violations", CONTRACT.violations(CONTRACT.broken_rules()))
    return (
        found.withColumn("original_timestamp", F.col("original_timestamp").cast("string"))
        .orderBy("dlq_offset")
        .collect()
    )


def test_the_headers_of_a_retry_library_are_read(rows: list[Row]) -> None:
    row, _ = rows
    assert row["violations"] == []
    assert (row["header_profile"], row["required_profile"]) == ("retry-library", "retry-library")
    assert [row[f"original_{name}"] for name in ("topic", "partition", "offset")] == ["parcels", 3, 2**40]
    assert row["original_timestamp"] == "2026-11-21 02:41:15.344"
    assert (row["consumer_group"], row["delivery_count"]) == ("packers", 4)
    assert (row["exception_class"], row["error_message"]) == ("TooLate", "no\u202e more")
    assert row["routed_at_source"] == "header"
    assert abs((row["routed_at"].replace(tzinfo=UTC) - datetime.now(UTC)).total_seconds()) < 3_600
    assert row["user_headers"] == []


def test_the_envelope_of_a_cloud_pipeline_is_read(rows: list[Row]) -> None:
    _, row = rows
    assert row["violations"] == []
    assert row["header_profile"] == "cloud-pipeline"
    assert [row[f"original_{name}"] for name in ("topic", "partition", "offset")] == ["parcels", 3, 2**40]
    assert (row["exception_class"], row["error_message"], row["delivery_count"]) == ("TooLate", "late", 2)
    assert (row["stage"], row["connector_name"], row["routed_at_source"]) == ("parse", "clicks-7", "header")
    assert [header["key"] for header in row["user_headers"]] == ["content-type"]
