"""Files as frameworks and tools write them, landed together as a new user would: the rows and incidents they mean.

``tests/data/cases/`` has a file of each kind, with DLQ topics of its own. All go through one run.
"""

from __future__ import annotations

import shutil
from collections import Counter
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

from pipelines.settings import Settings
from pipelines.warehouse.quality import StageRun
from tests.testing.builders import rows, run_needed, warehouse_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

CASES = Path(__file__).parents[1] / "data" / "cases"
BRONZE, SILVER, INCIDENTS = "bronze.dlq_records", "silver.dlq_records", "gold.dlq_incidents"
LISTENER_FAILED = "org.springframework.kafka.listener.ListenerExecutionFailedException"


class Letter(NamedTuple):
    """What silver knows of a dead letter; what is left out is null there."""

    profile: str
    owner: str
    origin: str | None = None
    group: str | None = None
    exception: str | None = None
    message: str | None = None
    cause: str | None = None
    deliveries: int | None = None
    original_at: str | None = None
    hops: tuple[tuple[str, str | None, str | None], ...] = ()
    key: bytes | None = b"k"
    value: bytes | None = b'{"id":1}'
    is_lossy: bool = False


def place(record: dict[str, Any], prefix: str = "") -> str | None:
    parts = [record[f"{prefix}{name}"] for name in ("topic", "partition", "offset")]
    return None if parts == [None] * 3 else ":".join(map(str, parts))


def letter(row: dict[str, Any]) -> Letter:
    at: datetime | None = row["original_timestamp"]
    return Letter(
        row["header_profile"],
        row["owner"],
        place(row, "original_"),
        row["consumer_group"],
        row["exception_class"],
        row["error_message"],
        row["exception_cause_class"],
        row["delivery_count"],
        None if at is None else f"{at:%H:%M:%S.%f}"[:-3],
        tuple((hop["profile"], place(hop), hop["consumer_group"]) for hop in row["earlier_hops"]),
        row["key"],
        row["value"],
        row["lossy_encoding"],
    )


def error(exception: str, message: str | None = None, cause: str | None = None) -> dict[str, Any]:
    return {"exception": exception, "message": message, "cause": cause}


def hop(profile: str, origin: str, group: str | None = None) -> dict[str, Any]:
    return {"hops": ((profile, origin, group),)}


NO_DEPOT = error(LISTENER_FAILED, "depot 9 is closed", "org.acme.NoSuchDepot")
NO_RATE = error(LISTENER_FAILED, "Kurs für 5 € fehlt", "org.acme.NoRate")
NO_GATE = error("org.springframework.messaging.MessageHandlingException", "gate 4 unknown")
NO_SCHEMA = error("org.apache.kafka.connect.errors.DataException", "no such schema")
SPRING, RETRIED = "spring-kafka", "spring-retry-topic"
STREAM, SMALLRYE = "spring-cloud-stream", "smallrye-dead-letter-queue"
STREAMS = ("kafka-streams", "kafka-streams on streams-dlq")


def refused(by: str) -> dict[str, Any]:
    return error("io.vertx.core.http.HttpClosedException", f"refused by {by}", "java.net.ConnectException")


def retried(origin: str) -> Letter:
    return Letter(RETRIED, "sorters", origin, "sorters", **NO_DEPOT, deliveries=4, original_at="02:39:00.000")


def streamed(owner: str, origin: str, group: str | None = None) -> Letter:
    return Letter(STREAM, owner, origin, group, **NO_GATE, deliveries=3, original_at="02:39:59.999")


def by_rpk(origin: str) -> Letter:
    payload: dict[str, Any] = {"key": b"abcd", "value": b'{"sku":1}', "is_lossy": True}
    return Letter(SMALLRYE, f"{SMALLRYE} on stock-dlq", origin, **refused("stock"), **payload)


UNKNOWN_WRITER = Letter("unknown", "unknown writer on dlq-sink-ads")
SINK = Letter("kafka-connect", "kafka-connect on dlq.sink", "crm.people:0:5")
CASE: dict[str, tuple[str, dict[str, Letter]]] = {  # by file: its form, and the dead letters by their places
    "spring-retry-topics.jsonl": (
        "capture",
        {"parcels-dlt:3:0": retried("parcels:3:70123"), "parcels-dlt:3:1": retried("parcels:3:1099511627781")},
    ),
    "spring-by-kcat.jsonl": (
        "kcat",
        {
            "rates.DLT:0:0": Letter(
                SPRING,
                "pricing",
                "rates:1:300",
                "pricing",
                **NO_RATE,
                original_at="02:40:00.000",
                key=b"r-0",
                value=b'{"id":0}',
            ),
            "rates.DLT:0:1": Letter(
                SPRING,
                "pricing",
                "rates:200:4269851561",
                "pricing",
                **NO_RATE,
                original_at="02:40:00.001",
                key=b"r-1",
                value=b'\0\0\0\0\x2a\xff\x80"\\',
            ),
        },
    ),
    "spring-cloud-stream.jsonl": (
        "capture",
        {
            "error.shipments.router:4:0": streamed("router", "shipments:4:81000", "router"),
            "shipments-dlq:4:1": streamed(f"{STREAM} on shipments-dlq", "shipments:4:81001"),
        },
    ),
    "smallrye.jsonl": (
        "capture",
        {
            "dead-letter-topic-stock:0:0": Letter(
                SMALLRYE, f"{SMALLRYE} on dead-letter-topic-stock", "stock:6:2980", **refused("stock")
            ),
            "dead-letter-topic-again:0:0": Letter(
                SMALLRYE,
                f"{SMALLRYE} on dead-letter-topic-again",
                "dead-letter-topic-stock:0:0",
                **refused("dead-letter-topic-stock"),
                **hop(SMALLRYE, "stock:6:2980"),
            ),
        },
    ),
    "connect-without-context.jsonl": (
        "capture",
        {"dlq-sink-ads:0:0": UNKNOWN_WRITER, "dlq-sink-ads:0:1": UNKNOWN_WRITER},
    ),
    "streams-punctuator.jsonl": (
        "capture",
        {
            "streams-dlq:0:0": Letter(
                *STREAMS, "meters:1:600", **error("java.lang.ArithmeticException", "by zero"), key=b"w", value=b"5"
            ),
            "streams-dlq:0:1": Letter(*STREAMS, **error("java.lang.IllegalStateException"), key=None, value=None),
        },
    ),
    "rpk-lines.jsonl": (
        "rpk",
        {"stock-dlq:0:0": by_rpk("stock:6:3100"), "stock-dlq:0:1": by_rpk("stock:6:3101")},
    ),
    "spark.json": ("spark", {"dlq.sink:0:0": SINK, "dlq.sink:0:1": SINK}),
    "two-connectors.jsonl": (
        "capture",
        {
            f"dlq.{name}:0:{number}": Letter(
                "kafka-connect", f"connector {name}", f"crm.orders:0:{100 + number}", **NO_SCHEMA
            )
            for name in ("orders-jdbc", "orders-elastic")
            for number in range(3)
        },
    ),
    "spring-two-hops.jsonl": (
        "capture",
        {
            "loans.DLT.DLT:1:3": Letter(
                SPRING,
                "parker",
                "loans.DLT:1:44",
                "parker",
                original_at="02:39:59.956",
                **hop(SPRING, "loans:1:9001", "ledger"),
            ),
            "loans.DLT.DLT:1:4": Letter(
                SPRING,
                "parker",
                "loans.DLT:1:45",
                "parker",
                **error("org.acme.Second", "two"),
                original_at="02:39:59.955",
                **hop(SPRING, "loans:1:9002"),
            ),
        },
    ),
}
LETTERS = [letter for _, letters in CASE.values() for letter in letters.values()]
Landed = tuple[Settings, dict[str, StageRun]]


@pytest.fixture(scope="module")
def landed(spark: SparkSession, empty_warehouse: Path, tmp_path_factory: pytest.TempPathFactory) -> Landed:
    """A warehouse with all cases, and what its one run did."""
    settings = warehouse_of(empty_warehouse, tmp_path_factory.mktemp("cases"))
    shutil.copytree(CASES, settings.landing_of("dlq"))
    return settings, run_needed(spark, settings, INCIDENTS)


def test_each_file_is_a_case() -> None:
    assert {file.name for file in CASES.iterdir()} == {*CASE}


def test_a_run_takes_all_in_and_recognises_the_forms(landed: Landed, spark: SparkSession) -> None:
    settings, done = landed
    assert {stage_run.status for stage_run in done.values()} <= {"passed", "idle"}
    assert (done[SILVER].accepted, done[SILVER].quarantined, done[SILVER].held) == (len(LETTERS), 0, 0)
    forms = Counter((row["_source"], row["form"]) for row in rows(spark, settings, BRONZE))
    assert forms == {(file, form): len(letters) for file, (form, letters) in CASE.items()}


@pytest.mark.parametrize("file", CASE)
def test_silver_has_what_the_writer_meant(file: str, landed: Landed, spark: SparkSession) -> None:
    settings, _ = landed
    found = {place(row, "dlq_"): row for row in rows(spark, settings, SILVER) if row["_source"] == file}
    assert {at: letter(row) for at, row in found.items()} == CASE[file][1]
    assert not [at for at, row in found.items() if row["reserved_header_collision"]]


def test_a_time_with_its_zone_is_the_same_moment(landed: Landed, spark: SparkSession) -> None:
    settings, _ = landed
    times = {row["dlq_timestamp"] for row in rows(spark, settings, SILVER) if row["dlq_topic"] == "dlq.sink"}
    assert times == {datetime(2026, 11, 21, 2, 54, 35, 344_000)}


def test_each_writer_has_incidents_of_its_own(landed: Landed, spark: SparkSession) -> None:
    settings, _ = landed
    found = rows(spark, settings, INCIDENTS)
    expected = Counter((item.owner, item.origin and item.origin.split(":")[0], item.exception) for item in LETTERS)
    assert expected["connector orders-jdbc", "crm.orders", NO_SCHEMA["exception"]] == 3
    assert {
        (row["owner"], row["original_topic"], row["exception_class"]): row["record_count"] for row in found
    } == expected
    assert len(found) == len(expected)
