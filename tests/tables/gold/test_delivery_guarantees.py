"""gold.delivery_guarantees: what each producer asked for and has, and what the landed batches show."""

from __future__ import annotations

import itertools
import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from pipelines.settings import ROOT
from tests.testing.builders import land, rows, run, warehouse_of
from tests.testing.deliveries import millis, producer, store

TABLES = ("bronze.producers", "silver.producers", "gold.delivery_guarantees")
NEW: dict[str, Any] = {"client_version": "4.4.0"}
BY_DEFAULT: dict[str, Any] = {"mode": None, **NEW}
MEASURED = json.loads((ROOT / "tests" / "data" / "producer-clients.json").read_text(encoding="utf-8"))
MODES = {"I": "IDEMPOTENT", "P": "PLAIN", "R": "REFUSED"}
GUARANTEES: dict[str, tuple[dict[str, Any], str | None, str | None, str]] = {
    "required": ({"mode": "required"}, "required", "IDEMPOTENT", "OK"),
    "true": ({"mode": True}, "required", "IDEMPOTENT", "OK"),
    "true as text": ({"mode": "TRUE"}, "required", "IDEMPOTENT", "OK"),
    "requested": ({"mode": "requested"}, "requested", "IDEMPOTENT", "OK"),
    "off": ({"mode": "off"}, "off", "PLAIN", "DUPLICATES_POSSIBLE"),
    "false": ({"mode": False}, "off", "PLAIN", "DUPLICATES_POSSIBLE"),
    "required, v1": (
        {"mode": "required", "broker_version": "2.8.2", "message_format_version": "v1"},
        "required",
        "UNSUPPORTED",
        "WOULD_FAIL",
    ),
    "required, v1, broker 3.0": (
        {"mode": "required", "broker_version": "3.0.0", "message_format_version": "v1"},
        "required",
        "IDEMPOTENT",
        "OK",
    ),
    "requested, 0.10.2": (
        {"mode": "requested", "broker_version": "2.8.2", "message_format_version": "0.10.2-IV0"},
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
        {
            "mode": "required",
            "client_version": "0.11.0.3",
            "broker_version": "2.8.2",
            "message_format_version": "v1",
        },
        "required",
        "PLAIN",
        "SILENTLY_OFF",
    ),
    # Settings as clients have them.
    "a JSON true": ({"mode": True, **NEW}, "required", "IDEMPOTENT", "OK"),
    "Confluent": (
        {"mode": "true", "client_version": "7.6.1-ccs", "broker_version": "7.6.1-ccs"},
        "required",
        "IDEMPOTENT",
        "OK",
    ),
    "Confluent, by default": (BY_DEFAULT | {"client_version": "7.6.1-ce"}, None, "IDEMPOTENT", "OK"),
    "Confluent 6.2, by default": (
        BY_DEFAULT | {"client_version": "6.2.0-ccs"},
        None,
        "PLAIN",
        "DUPLICATES_POSSIBLE",
    ),
    "Confluent's own patch of 3.0": (BY_DEFAULT | {"client_version": "7.0.1-ccs"}, None, None, "UNKNOWN"),
    "no format": ({"mode": "true", **NEW, "message_format_version": None}, "required", "IDEMPOTENT", "OK"),
    "no format, broker 2.8": (
        {"mode": "true", **NEW, "broker_version": "2.8.2", "message_format_version": None},
        "required",
        None,
        "UNKNOWN",
    ),
    "no format, off": (
        {"mode": "false", **NEW, "broker_version": "2.8.2", "message_format_version": None},
        "off",
        "PLAIN",
        "DUPLICATES_POSSIBLE",
    ),
    "no broker": ({"mode": "true", **NEW, "broker_version": None}, "required", "IDEMPOTENT", "OK"),
    "no broker, no format": (
        {"mode": "true", **NEW, "broker_version": None, "message_format_version": None},
        "required",
        None,
        "UNKNOWN",
    ),
    "by default, client unknown": (BY_DEFAULT | {"client_version": None}, None, None, "UNKNOWN"),
    "by default, another library": (BY_DEFAULT | {"client_version": "kafkajs 2.2.4"}, None, None, "UNKNOWN"),
    "acks=1, client unknown": (
        BY_DEFAULT | {"client_version": None, "acks": 1},
        None,
        None,
        "UNKNOWN",
    ),
    "acks=1": (BY_DEFAULT | {"acks": "1"}, None, "PLAIN", "SILENTLY_OFF"),
    "acks=-1": (BY_DEFAULT | {"acks": -1}, None, "IDEMPOTENT", "OK"),
    "acks=1, true": ({"mode": "true", **NEW, "acks": "1"}, "required", "REFUSED", "WOULD_FAIL"),
    "retries=0": ({"mode": "true", **NEW, "retries": "0"}, "required", "REFUSED", "WOULD_FAIL"),
    "6 in flight": (
        {"mode": "true", **NEW, "max.in.flight.requests.per.connection": "6"},
        "required",
        "REFUSED",
        "WOULD_FAIL",
    ),
    "6 in flight, 3.9": (
        BY_DEFAULT | {"client_version": "3.9.0", "max_in_flight_requests_per_connection": 6},
        None,
        "PLAIN",
        "SILENTLY_OFF",
    ),
    "transactions, off": (
        {"mode": "false", **NEW, "transactional.id": "t"},
        "off",
        "REFUSED",
        "WOULD_FAIL",
    ),
    "transactions, 2.8": (
        BY_DEFAULT | {"client_version": "2.8.2", "transactional_id": "t"},
        None,
        "IDEMPOTENT",
        "OK",
    ),
    "3.0.0, by default": (BY_DEFAULT | {"client_version": "3.0.0"}, None, "PLAIN", "SILENTLY_OFF"),
    "librdkafka": ({"mode": "true", "client_version": "librdkafka 2.5.0"}, "required", "IDEMPOTENT", "OK"),
    "librdkafka, its names": (
        {
            "mode": None,
            "client_version": "confluent-kafka-python 2.5.0-rdkafka-2.5.0",
            "enable.idempotence": "true",
            "request.required.acks": "0",
        },
        "required",
        "REFUSED",
        "WOULD_FAIL",
    ),
    "librdkafka, by default": (
        BY_DEFAULT | {"client_version": "librdkafka/2.5.0"},
        None,
        "PLAIN",
        "DUPLICATES_POSSIBLE",
    ),
    "requested, later off": ({"mode": "off", "stated_at": millis(9)}, "off", "PLAIN", "DUPLICATES_POSSIBLE"),
}


def measured() -> dict[str, tuple[dict[str, Any], str]]:
    """The settings that were measured, with what the client made of them, by client and settings."""
    names, values = MEASURED["settings"].keys(), [*itertools.product(*MEASURED["settings"].values())]
    return {
        f"{version} {dict(zip(names, given, strict=True))}": (
            {"mode": None, "client_version": version, **dict(zip(names, given, strict=True))},
            MODES[result],
        )
        for row in MEASURED["clients"]
        for version in row["versions"]
        for given, result in zip(values, row["results"], strict=True)
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
    stated += [producer(name, **given) for name, (given, _) in measured().items()]
    land(settings, {"producers.jsonl": stated}, "producers")
    done = run(spark, settings, *TABLES, feed="delivery")
    assert {name: stage_run.status for name, stage_run in done.items()} == dict.fromkeys(TABLES, "passed"), done
    assert done["silver.producers"].quarantined == 0
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


def test_clients_make_of_settings_what_was_measured(by_client: dict[str, dict[str, Any]]) -> None:
    expected = {name: made for name, (_, made) in measured().items()}

    assert {name: by_client[name]["effective_mode"] for name in expected} == expected
    assert Counter(expected.values())["REFUSED"] > 1_000
    refused = {by_client[name]["verdict"] for name, made in expected.items() if made == "REFUSED"}
    assert refused == {"WOULD_FAIL"}


def test_the_reason_is_the_setting_that_contradicts(by_client: dict[str, dict[str, Any]]) -> None:
    for name, said in {
        "acks=1": "as acks is 1 and",
        "acks=1, true": "as acks is 1 and",
        "retries=0": "as retries is 0 and",
        "6 in flight": "as max.in.flight.requests.per.connection is 6 and idempotence allows at most 5",
        "transactions, off": "as it has a transactional.id and",
        "3.0.0, by default": "version 3.0.0 does not apply that default",
        "no broker, no format": "the version of the brokers",
        "no format, broker 2.8": "the message format of the topic",
        "by default, client unknown": "the client, whose library and version",
    }.items():
        assert said in by_client[name]["sentence"], name
