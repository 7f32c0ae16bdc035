"""gold.incident_suspects: what changed before an incident, of which kind it is, and how it is ranked."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from expectations.contract import contract_of
from pipelines.steps.refresh import select_of
from pipelines.warehouse import jvmless
from pipelines.warehouse.tables import Warehouse
from tests.testing.builders import run, warehouse_of
from tests.testing.deliveries import store

TABLE, REFUSALS = "gold.incident_suspects", "silver.dlq_refusals"
FIRST = datetime(2026, 11, 21, 12, 40, tzinfo=UTC)
HOUR = timedelta(hours=1)
OURS = {"cluster": "default"}


def stated(client: str, at: datetime, mode: str = "enabled", topic: str = "orders") -> dict[str, Any]:
    settings = {"broker_version": "3.9", "message_format_version": "3.0", "client_version": "3.9"}
    return {**OURS, "client_id": client, "topic": topic, "stated_at": at, "requested_mode": mode, **settings}


def test_a_client_is_new_if_its_first_settings_came_shortly_before_and_what_nothing_compares_is_no_suspect(
    spark: SparkSession, empty_warehouse: Path, tmp_path: Path
) -> None:
    settings = warehouse_of(empty_warehouse, tmp_path)
    incident = {"incident_id": "one", "original_topic": "orders", "consumer_group": "workers", "record_count": 3}
    shared = {
        "attribute_kind": "header",
        "attribute_name": "content-type",
        "attribute_share": 1.0,
    }  # compared with none
    store(settings, "gold.dlq_incidents", {**OURS, **incident, **shared, "first_at": FIRST})
    store(
        settings,
        "silver.producers",
        stated("new", FIRST - HOUR),
        stated("known", FIRST - 90 * HOUR),
        stated("known", FIRST - HOUR),
        stated("changed", FIRST - 90 * HOUR),
        stated("changed", FIRST - HOUR, mode="disabled"),
        stated("both", FIRST - 3 * HOUR),
        stated("both", FIRST - 2 * HOUR, mode="disabled"),
        stated("later", FIRST + HOUR),
        stated("elsewhere", FIRST - HOUR, topic="payments"),
    )
    assert run(spark, settings, TABLE)[TABLE].status == "passed"
    rows = sorted(jvmless.rows(Warehouse(settings), TABLE, OURS), key=lambda row: row["rank"])
    assert [(row["kind"], row["name"], row["score"], row["sentence"]) for row in rows] == [
        ("producer", "changed", 0.4, "changed settings of producer changed came 60 minutes before"),
        ("new_client", "new", 0.3, "the first settings of producer new came 60 minutes before"),
        ("producer", "both", 0.2, "changed settings of producer both came 2 hours before"),
        ("new_client", "both", 0.075, "the first settings of producer both came 3 hours before"),
    ]


def test_the_last_start_of_a_broker_in_the_day_before_is_a_suspect(
    spark: SparkSession, empty_warehouse: Path, tmp_path: Path
) -> None:
    settings = warehouse_of(empty_warehouse, tmp_path)
    incident = {"original_topic": "orders", "consumer_group": "workers", "record_count": 3}
    store(
        settings,
        "gold.dlq_incidents",
        {**OURS, **incident, "incident_id": "zero", "first_at": FIRST - 30 * HOUR},
        {**OURS, **incident, "incident_id": "one", "first_at": FIRST},
        {**OURS, **incident, "incident_id": "two", "first_at": FIRST + 23 * HOUR},
        {**OURS, **incident, "incident_id": "later", "first_at": FIRST + 90 * HOUR},
    )
    start = {**OURS, "component": "BrokerServer"}
    store(
        settings,
        "silver.broker_starts",
        {**start, "node_id": 9, "started_at": FIRST - 25 * HOUR},
        {**start, "node_id": 3, "started_at": FIRST - 2 * HOUR},
        {**start, "node_id": 2, "started_at": FIRST - HOUR},
        {**start, "node_id": 2, "started_at": FIRST - HOUR, "component": "GroupCoordinator"},
        {**start, "node_id": 1, "started_at": FIRST + HOUR},
        {"cluster": "another", "node_id": 7, "started_at": FIRST},
    )
    assert run(spark, settings, TABLE)[TABLE].status == "passed"
    found = {row["incident_id"]: row for row in jvmless.rows(Warehouse(settings), TABLE, OURS)}
    suspects = {key: (row["kind"], row["name"], row["score"], row["sentence"]) for key, row in found.items()}
    several = "the last of 2 that started within a day,"
    assert suspects == {
        "one": (
            "broker_restart",
            "2",
            0.25,
            f"the start of broker 2, {several} came 60 minutes before",
        ),
        "two": ("broker_restart", "1", found["two"]["score"], f"the start of broker 1, {several} came 22 hours before"),
    }


def test_what_came_after_the_first_record_is_not_told_as_before(
    spark: SparkSession, empty_warehouse: Path, tmp_path: Path
) -> None:
    settings = warehouse_of(empty_warehouse, tmp_path)
    incident = {**OURS, "original_topic": "orders", "consumer_group": "workers", "record_count": 3}
    store(
        settings,
        "gold.dlq_incidents",
        {**incident, "incident_id": "zero", "first_at": FIRST - 30 * HOUR},
        {**incident, "incident_id": "one", "first_at": FIRST},
    )
    for node, seconds in ((1, 49), (2, -HOUR.seconds)):
        at = {"node_id": node, "started_at": FIRST + timedelta(seconds=seconds)}
        store(settings, "silver.broker_starts", {**OURS, "component": "BrokerServer"} | at)
    assert run(spark, settings, TABLE)[TABLE].status == "passed"
    found = {row["name"]: row for row in jvmless.rows(Warehouse(settings), TABLE, OURS)}
    assert {name: row["sentence"].partition(" came ")[2] for name, row in found.items()} == {
        "1": "49 seconds after the first record"
    }
    assert {row["distance_seconds"] for row in found.values()} == {0}


def test_a_start_that_precedes_everything_is_no_suspect(
    spark: SparkSession, empty_warehouse: Path, tmp_path: Path
) -> None:
    """A start of another cluster's broker, or of another component at the same start, makes it none either."""
    settings = warehouse_of(empty_warehouse, tmp_path)
    incident = {**OURS, "original_topic": "orders", "consumer_group": "workers", "record_count": 3}
    second = FIRST + 2 * HOUR
    store(
        settings,
        "gold.dlq_incidents",
        {**incident, "incident_id": "one", "first_at": FIRST},
        {**incident, "incident_id": "two", "first_at": second},
    )
    revision = {"group_id": "app", "revision": 1, "accepted_at": FIRST - HOUR / 4}
    store(settings, "gold.topology_revisions", {**OURS, **revision})
    start = {**OURS, "component": "BrokerServer", "node_id": 1}
    early = FIRST - HOUR / 2
    store(
        settings,
        "silver.broker_starts",
        {**start, "started_at": early},
        {**start, "started_at": early + timedelta(seconds=3), "component": "GroupCoordinator"},
        {**start, "started_at": early - HOUR, "cluster": "another"},
        {**start, "started_at": second - timedelta(seconds=90)},
    )
    assert run(spark, settings, TABLE)[TABLE].status == "passed"
    rows = jvmless.rows(Warehouse(settings), TABLE, OURS)
    assert [(row["incident_id"], row["sentence"]) for row in rows] == [
        ("two", "the start of broker 1 came 1 minute before")
    ]


@pytest.mark.parametrize("table", ["quarantine.dlq_records", "held.dlq_records"])
def test_mandatory_headers_that_went_missing_in_the_day_before_are_a_suspect(
    spark: SparkSession, empty_warehouse: Path, tmp_path: Path, table: str
) -> None:
    settings = warehouse_of(empty_warehouse, tmp_path)
    incident = {"original_topic": "orders", "consumer_group": "workers", "record_count": 3, "first_at": FIRST}
    topics = ("dlq.new", "dlq.always", "dlq.other_rule", "dlq.long_ago")
    for name in (*topics, "dlq.elsewhere"):
        place = {"dlq_topic": name, "last_at": 0}
        if name != "dlq.elsewhere":
            store(settings, "gold.dlq_incidents", {**OURS, **incident, "incident_id": name, "dlq_topics": [place]})

    def refused(topic: str, before: timedelta, *codes: str) -> dict[str, Any]:
        at = FIRST - before
        return {**OURS, "dlq_topic": topic, "violations": codes, "dlq_timestamp": at, "_ingested_at": FIRST + 9 * HOUR}

    store(
        settings,
        table,
        refused("dlq.new", HOUR, "original_topic.legal_topic_name", "original_offset.not_null"),
        refused("dlq.new", HOUR / 2, "original_offset.not_null"),
        refused("dlq.new", 70 * HOUR, "header_profile.not_null"),
        *(refused("dlq.always", hours * HOUR, "header_profile.not_null") for hours in range(1, 60, 20)),
        refused("dlq.other_rule", HOUR, "original_offset.decimal_int64"),
        refused("dlq.long_ago", 25 * HOUR, "header_profile.mandatory"),
        refused("dlq.elsewhere", HOUR, "header_profile.mandatory"),
    )
    assert run(spark, settings, REFUSALS, TABLE)[TABLE].status == "passed"
    (row,) = jvmless.rows(Warehouse(settings), TABLE, OURS)
    assert (row["incident_id"], row["kind"], row["name"], row["changed_at"], row["score"], row["sentence"]) == (
        *("dlq.new", "missing_headers", "dlq.new", FIRST - HOUR, 0.275),
        "mandatory headers that are missing in dlq.new came 60 minutes before",
    )


def test_the_rules_about_mandatory_headers_are_those_of_the_contract() -> None:
    codes = set(re.findall(r"'([a-z_]+\.(?:not_null|required|mandatory))'", select_of(TABLE)))
    known = {rule.code for rule in contract_of("silver.dlq_records").rules}
    assert codes <= known
    assert {code for code in known if code.endswith((".required", ".mandatory"))} <= codes
    of_lines = {f"{column}.not_null" for column in ("dlq_topic", "dlq_partition", "dlq_offset")}
    assert {code for code in known if code.endswith(".not_null")} - of_lines <= codes


def test_an_owner_without_a_group_has_suspects_of_its_own(
    spark: SparkSession, empty_warehouse: Path, tmp_path: Path
) -> None:
    """A connector is no application that reads the topic, and is new where the topic had others before."""
    settings = warehouse_of(empty_warehouse, tmp_path)

    def incident(name: str, owner: str | None, topic: str, at: datetime) -> dict[str, Any]:
        dlq_topics = [{"dlq_topic": f"dlq.{topic}", "last_at": 0}]
        row = {"incident_id": name, "original_topic": topic, "record_count": 3, "owner": owner, "first_at": at}
        return {**OURS, **row, "dlq_topics": dlq_topics}

    store(
        settings,
        "gold.dlq_incidents",
        incident("first", "connector old", "orders", FIRST - 9 * HOUR),
        incident("new", "connector new", "orders", FIRST - HOUR),
        incident("next", "connector new", "orders", FIRST),
        incident("streams", "kafka-streams on dlq.paid", "paid", FIRST),
        incident("before owners", None, "sent", FIRST - 9 * HOUR),
        incident("not new", "connector other", "sent", FIRST),
    )
    for topic in ("orders", "paid"):
        edge = {"group_id": "app", "topic": topic, "direction": "read", "is_current": True}
        store(settings, "gold.topology_edges", {**OURS, **edge})
    revision = {"group_id": "app", "revision": 2, "accepted_at": FIRST - HOUR}
    store(settings, "gold.topology_revisions", {**OURS, **revision})
    assert run(spark, settings, TABLE)[TABLE].status == "passed"
    rows = jvmless.rows(Warehouse(settings), TABLE, OURS)
    assert sorted((row["incident_id"], row["kind"], row["name"], row["sentence"]) for row in rows) == [
        ("next", "new_group", "connector new", "the first dead letter of connector new came 60 minutes before"),
        ("streams", "topology", "app", "revision 2 of the topology of app came 60 minutes before"),
    ]


def test_a_deployment_in_the_day_before_is_a_suspect_of_the_incidents_that_it_concerns(
    spark: SparkSession, empty_warehouse: Path, tmp_path: Path
) -> None:
    settings = warehouse_of(empty_warehouse, tmp_path)
    incident = {"original_topic": "orders", "record_count": 3, "first_at": FIRST}
    of_client = {"attribute_kind": "client", "attribute_name": "importer", "attribute_share": 1.0}
    of_sink = {"owner": "connector sink", "dlq_topics": [{"dlq_topic": "dlq.sink", "last_at": 0}]}
    store(
        settings,
        "gold.dlq_incidents",
        {**OURS, **incident, **of_client, "incident_id": "checkout", "consumer_group": "checkout"},
        {**OURS, **incident, **of_sink, "incident_id": "sink", "original_topic": "paid"},
    )
    edge = {"group_id": "pricing", "topic": "orders", "direction": "written", "is_current": True}
    store(settings, "gold.topology_edges", {**OURS, **edge})
    store(settings, "silver.producers", stated("shop", FIRST - 90 * HOUR))
    minutes = timedelta(minutes=1)

    def deployed(application: str | None, before: timedelta, what: str | None, **more: str) -> dict[str, Any]:
        return {**OURS, "application": application, "changed_at": FIRST - before, "what": what, **more}

    store(
        settings,
        "silver.changes",
        deployed("checkout", 6 * minutes, "1.14", commit="ab12cd3" + "0" * 33),
        deployed("checkout", 60 * minutes, "1.13"),
        deployed("importer", 60 * minutes, None, commit="ab12cd3"),
        deployed("pricing", 2 * HOUR, "2.0", environment="production"),
        deployed("shop", 3 * HOUR, "more retries for 'all'"),
        deployed("sink", 4 * HOUR, "1.0"),
        deployed(None, 5 * HOUR, "new disks"),
        deployed("elsewhere", HOUR, "3"),
        deployed("checkout", -2 * minutes, "1.15"),
        deployed("sink", 25 * HOUR, "0.9"),
        {**deployed(None, HOUR, "another cluster's"), "cluster": "another"},
    )
    assert run(spark, settings, TABLE)[TABLE].status == "passed"
    rows = sorted(jvmless.rows(Warehouse(settings), TABLE, OURS), key=lambda row: (row["incident_id"], row["rank"]))
    assert [(row["incident_id"], row["name"], row["score"], row["sentence"]) for row in rows] == [
        ("checkout", "checkout", 0.933033, "checkout 1.14 was deployed 6 minutes before (commit ab12cd3)"),
        ("checkout", "importer", 0.5, "importer was deployed 60 minutes before (commit ab12cd3)"),
        ("checkout", "pricing", 0.225, "pricing 2.0 was deployed to production 2 hours before"),
        ("checkout", "shop", 0.1125, "shop was deployed 3 hours before (\"more retries for 'all'\")"),
        ("checkout", "new disks", 0.015625, 'a change was deployed 5 hours before ("new disks")'),
        ("sink", "sink", 0.0625, "sink 1.0 was deployed 4 hours before"),
        ("sink", "new disks", 0.015625, 'a change was deployed 5 hours before ("new disks")'),
    ]
    assert {row["kind"] for row in rows} == {"deployment"}
    assert rows[0]["changed_at"] == FIRST - 6 * minutes
