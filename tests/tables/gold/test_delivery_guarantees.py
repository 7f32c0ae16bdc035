"""gold.delivery_guarantees: what each producer asked for and has, and what the landed batches show (KIP-185)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from tests.testing.builders import land, rows, run, warehouse_of
from tests.testing.deliveries import millis, producer, store

TABLES = ("bronze.producers", "silver.producers", "gold.delivery_guarantees")
GUARANTEES = {
    "required": ({"mode": "required"}, "required", "IDEMPOTENT", "OK"),
    "true": ({"mode": True}, "required", "IDEMPOTENT", "OK"),
    "true as text": ({"mode": "TRUE"}, "required", "IDEMPOTENT", "OK"),
    "requested": ({"mode": "requested"}, "requested", "IDEMPOTENT", "OK"),
    "off": ({"mode": "off"}, "off", "PLAIN", "DUPLICATES_POSSIBLE"),
    "false": ({"mode": False}, "off", "PLAIN", "DUPLICATES_POSSIBLE"),
    "required, v1": ({"mode": "required", "message_format_version": "v1"}, "required", "UNSUPPORTED", "WOULD_FAIL"),
    "requested, 0.10.2": (
        {"mode": "requested", "message_format_version": "0.10.2-IV0"},
        "requested",
        "PLAIN",
        "SILENTLY_OFF",
    ),
    "required, broker 0.11": (
        {"mode": "required", "broker_version": "0.11.0.3", "message_format_version": "0.11.0-IV2"},
        "required",
        "IDEMPOTENT",
        "OK",
    ),
    "requested, broker 0.11": (
        {"mode": "requested", "broker_version": "0.11.0.3", "message_format_version": "0.11.0-IV2"},
        "requested",
        "PLAIN",
        "SILENTLY_OFF",
    ),
    "required, broker 0.10": (
        {"mode": "required", "broker_version": "0.10.2"},
        "required",
        "UNSUPPORTED",
        "WOULD_FAIL",
    ),
    "required, client 0.11": ({"mode": "required", "client_version": "0.11.0.3"}, "required", "PLAIN", "SILENTLY_OFF"),
    "requested, client 0.11": (
        {"mode": "requested", "client_version": "0.11.0.3"},
        "requested",
        "PLAIN",
        "SILENTLY_OFF",
    ),
    "true, client 0.11": ({"mode": "true", "client_version": "0.11.0.3"}, "required", "IDEMPOTENT", "OK"),
    "true, client 0.10": ({"mode": "true", "client_version": "0.10.2.2"}, "required", "PLAIN", "SILENTLY_OFF"),
    "off, client 0.11": ({"mode": "off", "client_version": "0.11.0.3"}, "off", "PLAIN", "DUPLICATES_POSSIBLE"),
    "requested, client unknown": ({"mode": "requested", "client_version": None}, "requested", "IDEMPOTENT", "OK"),
    "required, v1, client 0.11": (
        {"mode": "required", "client_version": "0.11.0.3", "message_format_version": "v1"},
        "required",
        "PLAIN",
        "SILENTLY_OFF",
    ),
    "requested, later off": ({"mode": "off", "stated_at": millis(9)}, "off", "PLAIN", "DUPLICATES_POSSIBLE"),
}


@pytest.fixture(scope="module")
def by_client(
    spark: SparkSession, empty_warehouse: Path, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, dict[str, Any]]:
    """The row of each client, whose topic has batches of producer 9 and of producers without an id."""
    settings = warehouse_of(empty_warehouse, tmp_path_factory.mktemp("guarantees"))
    written = {"cluster": settings.cluster, "topic": "orders", "is_control": False}
    store(settings, "silver.log_batches", *({**written, "producer_id": number} for number in (9, -1)))
    stated = [producer(name, **given) for name, (given, *_) in GUARANTEES.items()]
    stated += [
        producer("requested, later off", mode="requested", stated_at=millis(8)),
        producer("of id 9", producer_id=9),
    ]
    stated += [producer("elsewhere", topic="nowhere"), *stated[:1]]
    land(settings, {"producers.jsonl": stated}, "producers")
    run(spark, settings, *TABLES, feed="delivery")
    return {row["client_id"]: row for row in rows(spark, settings, TABLES[-1])}


@pytest.mark.parametrize("name", GUARANTEES)
def test_guarantees_follow_the_specification(name: str, by_client: dict[str, dict[str, Any]]) -> None:
    _, requested, effective, verdict = GUARANTEES[name]
    found = by_client[name]

    assert (found["requested_mode"], found["effective_mode"], found["verdict"]) == (requested, effective, verdict)
    assert (found["observed_mode"], found["observed_by"]) == ("MIXED", "topic")
    assert ("Idempotence is in effect" in found["sentence"]) == (verdict == "OK")


def test_a_producer_is_observed_by_its_id(by_client: dict[str, dict[str, Any]]) -> None:
    assert (by_client["of id 9"]["observed_mode"], by_client["of id 9"]["observed_by"]) == ("IDEMPOTENT", "producer")
    assert (by_client["elsewhere"]["observed_mode"], by_client["elsewhere"]["observed_by"]) == (None, None)
