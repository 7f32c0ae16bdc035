"""Dead letters without a group: whom they belong to, in each answer; and warehouses from before it was known."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable, write_deltalake
from pyspark.sql import SparkSession

from expectations.contract import contract_of, later_columns
from expectations.owners import OWNER
from pipelines.alerts import news, routes
from pipelines.catalog import stages
from pipelines.commands import ask, show, trace
from pipelines.commands.incidents import front, listing, story
from pipelines.incidents.episodes import VERSION
from pipelines.metrics import families
from pipelines.replay import outcomes, rules, store
from pipelines.replay.accepted import REPLAYED
from pipelines.replay.candidates import Candidates
from pipelines.replay.choice import Choice
from pipelines.settings import Settings
from pipelines.settings.alerts import Route
from pipelines.site import pages, reading
from pipelines.warehouse import append, jvmless
from pipelines.warehouse.tables import Warehouse
from tests.testing.builders import AT, kip_1191, land, line, run_needed, warehouse_of
from tests.testing.deliveries import store as put

NOW = datetime.fromtimestamp(AT / 1000, UTC) + timedelta(minutes=30)
MINUTE = 60_000
JDBC, ELASTIC = "connector people-jdbc", "connector people-elastic"
NEEDED = ("gold.incident_suspects", "gold.blast_radius", "gold.dlq_summary", "gold.message_ledger")


def connect(name: str, offset: int) -> list[tuple[str, bytes | None]]:
    """Return the headers that Kafka Connect writes for a connector."""
    values = {
        "topic": "crm.people",
        "partition": "0",
        "offset": str(offset),
        "connector.name": name,
        "exception.class.name": "org.apache.kafka.connect.errors.DataException",
        "exception.message": "no such schema",
    }
    return [(f"__connect.errors.{key}", value.encode()) for key, value in values.items()]


def streams(offset: int) -> list[tuple[str, bytes | None]]:
    """Return the headers that Kafka Streams writes, which name no application."""
    values = {"topic": "orders", "partition": "0", "offset": str(offset), "message": "Offset rejected by client."}
    return [(f"__streams.errors.{key}", value.encode()) for key, value in values.items()]


def letters(name: str, numbers: Iterable[int]) -> list[str]:
    """Return dead letters of the same source records, each connector's in a DLQ topic of its own."""
    return [
        line(number, topic=f"dlq.{name}", timestamp=AT + number * MINUTE, headers=connect(name, 100 + number))
        for number in numbers
    ]


@pytest.fixture(scope="module")
def connectors(spark: SparkSession, empty_warehouse: Path, tmp_path_factory: pytest.TempPathFactory) -> Settings:
    """Two connectors that fail on the same records of one topic."""

    def made(place: Path) -> Settings:
        settings = warehouse_of(empty_warehouse, place)
        land(settings, {f"{name}.jsonl": letters(name, range(6)) for name in ("people-jdbc", "people-elastic")})
        assert {stage_run.status for stage_run in run_needed(spark, settings, *NEEDED).values()} <= {"passed", "idle"}
        return settings

    return made(tmp_path_factory.mktemp("connectors"))


def test_two_connectors_that_fail_on_one_topic_are_two_incidents(connectors: Settings) -> None:
    warehouse = Warehouse(connectors)
    told = listing.listed(warehouse, "json", at=NOW.isoformat()).result.splitlines()
    found = {row["owner"]: row for row in map(json.loads, told)}
    assert {owner: row["record_count"] for owner, row in found.items()} == {JDBC: 6, ELASTIC: 6}
    assert found[JDBC]["sentence"].startswith("Connector people-jdbc could not process 6 records of crm.people")
    only = listing.listed(warehouse, "json", group=JDBC, at=NOW.isoformat()).result
    assert [row["incident_id"] for row in map(json.loads, only.splitlines())] == [found[JDBC]["incident_id"]]

    top = front.top(warehouse, at=NOW.isoformat()).result
    assert f"{JDBC} on crm.people" in top
    assert f"{ELASTIC} on crm.people" in top
    assert "no group" not in top
    for owner, row in found.items():
        values = json.loads(story.one(warehouse, row["incident_id"], "json", at=NOW.isoformat()).result)
        assert {sample["dlq_topic"] for sample in values["samples"]} == {f"dlq.{owner.removeprefix('connector ')}"}
        assert not [suspect for suspect in values["suspects"] if suspect["kind"] == "new_group"]


def test_commands_name_the_connector(connectors: Settings) -> None:
    warehouse = Warehouse(connectors)
    assert f"belongs to       {JDBC}" in show.answer(warehouse, "dlq.people-jdbc:0:0").result
    story = trace.answer(warehouse, "crm.people:0:100").result
    assert f"to dlq.people-jdbc:0:0 by {JDBC}" in story
    assert f"to dlq.people-elastic:0:0 by {ELASTIC}" in story
    (message,) = jvmless.rows(
        warehouse, "gold.message_ledger", {"cluster": "default", "topic": "crm.people", "offset": 100}
    )
    assert (message["dead_lettered_count"], message["dead_lettered_again_count"]) == (2, 0)


@pytest.mark.parametrize(
    "question", ["top_groups", "new_in_the_last_hour", "poison_pill_or_systemic", "incidents_of_the_day"]
)
def test_questions_name_the_connectors(connectors: Settings, question: str) -> None:
    rows = ask.rows_without_jvm(Warehouse(connectors), ask.find(question).text, {"now": NOW})
    found = {row["owner"]: row["record_count"] for row in map(json.loads, rows.objects())}
    assert found == {JDBC: 6, ELASTIC: 6}


def test_pages_name_the_connectors(connectors: Settings) -> None:
    content = reading.gather(Warehouse(connectors), now=NOW)
    assert {group.name: (group.records, group.is_group, len(group.incidents)) for group in content.groups} == {
        JDBC: (6, False, 1),
        ELASTIC: (6, False, 1),
    }
    assert {incident.where for incident in content.incidents} == {f"{JDBC} on crm.people", f"{ELASTIC} on crm.people"}
    assert all(len(incident.samples) == 3 for incident in content.incidents)
    made = {page.path: page.text() for page in pages.pages(content)}
    assert not [path for path, text in made.items() if ">no group<" in text or "no group on" in text]
    (page,) = [text for path, text in made.items() if path.startswith("groups/connector-people-jdbc")]
    assert "Writer that names no group" in page
    assert JDBC in made["index.html"]


def test_alerts_name_the_connector_and_routes_choose_it(connectors: Settings) -> None:
    seen = [incident.news for incident in news.snapshot(Warehouse(connectors), NOW).incidents or ()]
    assert {item.owner for item in seen} == {JDBC, ELASTIC}
    (jdbc,) = [item for item in seen if item.owner == JDBC]
    assert f"{JDBC} on crm.people" in jdbc.title
    for group, wanted in (("connector *", True), ("*-jdbc", True), ("*", True), ("people-jdbc", False)):
        route = Route(name="r", kind="json", url_env="X", severity="low", group=group)
        assert routes.wants(route, jdbc) is wanted
        assert routes.wants(route, replace(jdbc, owner=None)) is (group == "*")


def test_metrics_have_the_owner(connectors: Settings) -> None:
    (family,) = [
        incident
        for incident in families._incidents(Warehouse(connectors), NOW)
        if incident.name == "afterlog_dead_letters"
    ]
    assert {(sample.labels["consumer_group"], sample.labels["owner"], sample.value) for sample in family.samples} == {
        ("", JDBC, 6.0),
        ("", ELASTIC, 6.0),
    }


def test_replays_choose_by_the_owner(connectors: Settings) -> None:
    warehouse = Warehouse(connectors)
    rule = rules.Rule(name="jdbc", group="*people-jdbc", then="REPLAY")
    chosen = Candidates(warehouse, rules.Rules((rule,))).chosen(Choice(by_rules=True), 100)
    assert {candidate.row["dlq_topic"] for candidate in chosen} == {"dlq.people-jdbc"}
    assert len(chosen) == 6
    (incident,) = [row for row in Candidates(warehouse).incidents if row["owner"] == ELASTIC]
    of_incident = Candidates(warehouse).chosen(Choice(incident=incident["incident_id"]), 100)
    assert [candidate.row["dlq_topic"] for candidate in of_incident] == ["dlq.people-elastic"] * 6
    assert {candidate.incident_id for candidate in of_incident} == {incident["incident_id"]}


def test_an_offset_of_the_connectors_group_tells_that_a_replay_was_delivered(
    connectors: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copytree(connectors.warehouse, tmp_path / "warehouse")
    kafka = connectors.kafka.model_copy(update={"bootstrap_servers": "nowhere:9092"})
    settings = connectors.model_copy(update={"warehouse": str(tmp_path / "warehouse"), "kafka": kafka})
    asked: dict[str, Any] = {}

    def committed(_: Settings, wanted: dict[str, set[tuple[str, int]]]) -> dict[tuple[str, str, int], int]:
        asked.update(wanted)
        return {("connect-people-jdbc", "crm.people", 0): 1000}

    monkeypatch.setattr(outcomes.groups, "committed", committed)
    monkeypatch.setattr(outcomes.client, "admin", lambda _: None)
    monkeypatch.setattr(outcomes.targets, "describe_ids", lambda *_: {})
    for number, name in enumerate(("people-jdbc", "people-elastic")):
        letter = {"dlq_topic": f"dlq.{name}", "dlq_topic_id": None, "dlq_partition": 0, "dlq_offset": 0}
        source = {"original_topic": "crm.people", "original_partition": 0, "original_offset": 100}
        target = {"target_topic": "crm.people", "target_topic_id": None, "target_partition": 0}
        known = {"cluster": "default", "plan_id": "AAAA-AAAA", "consumer_group": None, "attempt": 1}
        row = {**known, **letter, **source, **target, "target_offset": 500 + number, "replayed_at": NOW}
        append.append(Warehouse(settings), contract_of(REPLAYED), [row])
    outcomes.refresh(Warehouse(settings))
    assert asked == {"connect-people-jdbc": {("crm.people", 0)}, "connect-people-elastic": {("crm.people", 0)}}
    found = {row["dlq_topic"]: row["outcome"] for row in store.outcomes(Warehouse(settings))}
    assert found == {"dlq.people-jdbc": "DELIVERED", "dlq.people-elastic": "UNKNOWN"}


# --- warehouses from before the column ------------------------------------------------------------------------------


def aged(settings: Settings) -> Warehouse:
    """Make the empty tables anew as they were before the column `owner`."""
    warehouse = Warehouse(settings)
    for stage in stages():
        contract = contract_of(stage.table)
        if later := later_columns(stage.table):
            shutil.rmtree(warehouse.location(stage.table))
            stored = tuple(column for column in contract.columns if column not in later)
            warehouse.ensure(replace(contract, columns=stored, grain=tuple({*contract.grain} - {OWNER})))
    return warehouse


def put_old(settings: Settings, table: str, *rows: dict[str, Any]) -> None:
    """Append rows to a table that has no column `owner`."""
    other = settings.model_copy(update={"warehouse": f"{settings.warehouse}-of-today"})
    put(other, table, *rows)
    made = (
        DeltaTable(Warehouse(other).location(table))
        .to_pyarrow_table()
        .drop_columns([column.name for column in later_columns(table)])
    )
    write_deltalake(Warehouse(settings).location(table), made, mode="append")
    shutil.rmtree(other.warehouse)


def old(number: int, group: str | None) -> dict[str, Any]:
    """A row of silver.dlq_records as a version without the column wrote it."""
    at = datetime.fromtimestamp(AT / 1000, UTC) + timedelta(minutes=number)
    return {
        "_source": "old.jsonl",
        "_bronze_id": f"{number:03}{group or ''}".ljust(64, "0"),
        "_ingested_at": at,
        "cluster": "default",
        "dlq_topic": "dlq.orders" if group else "dlq.streams",
        "dlq_partition": 0,
        "dlq_offset": number,
        "header_profile": "kip-1191" if group else "kafka-streams",
        "consumer_group": group,
        "disposition": "CLIENT_REJECTED" if group else None,
        "disposition_source": "message" if group else "unknown",
        "original_topic": "orders",
        "original_partition": 0,
        "original_offset": number,
        "error_message": "Offset rejected by client.",
        "routed_at": at,
        "routed_at_source": "kafka",
        "payload_copied": True,
        "control_marker_suspected": False,
        "fingerprint_version": 1,
    }


def test_an_old_warehouse_goes_on_without_a_rebuild_and_its_incidents_keep_their_ids(
    spark: SparkSession, empty_warehouse: Path, tmp_path: Path
) -> None:
    settings = warehouse_of(empty_warehouse, tmp_path)
    warehouse = aged(settings)
    put_old(settings, "silver.dlq_records", *(old(number, group) for number in range(3) for group in ("g", None)))

    def told() -> dict[tuple[str | None, str | None, int], tuple[str, str, int]]:
        rows = jvmless.rows(warehouse, "gold.dlq_incidents", {"cluster": "default"})
        names = ("fingerprint", "incident_id", "record_count")
        whose = ("consumer_group", "owner", "algorithm_version")
        return {tuple(row[name] for name in whose): tuple(row[name] for name in names) for row in rows}  # type: ignore[misc]

    def run(*tables: str) -> None:
        done = run_needed(spark, settings, *tables)
        assert {stage_run.status for stage_run in done.values()} <= {"passed", "idle"}, done

    run(*NEEDED)
    before = told()
    assert {key: (found[0], found[2]) for key, found in before.items()} == {
        ("g", "g", 1): ("810746a0d03fbcd2", 3),
        (None, None, 1): ("e99cd36c1b75b1c9", 3),
    }
    at = AT + 3 * MINUTE
    new = [line(3, timestamp=at, headers=kip_1191(offset=3, group="g"))]
    new += [line(3, topic="dlq.streams", timestamp=at, headers=streams(3))]
    land(settings, {"new.jsonl": new})
    run(*NEEDED)
    after = told()
    assert after.pop((None, "kafka-streams on dlq.streams", VERSION))[2] == 1
    assert after.pop(("g", "g", VERSION))[2] == 1
    assert after == before
    summary = jvmless.rows(warehouse, "gold.dlq_summary", {"cluster": "default"})
    assert sorted((row["owner"] or "", row["record_count"]) for row in summary) == [
        ("", 3),
        ("g", 4),
        ("kafka-streams on dlq.streams", 1),
    ]
    ledger = jvmless.rows(warehouse, "gold.message_ledger", {"cluster": "default"})
    assert sum(row["dead_lettered_again_count"] for row in ledger) == 0


def test_an_old_warehouse_answers_before_its_next_run(
    empty_warehouse: Path, tmp_path: Path, spark: SparkSession
) -> None:
    from tests.testing.sites import hour, incident

    settings = warehouse_of(empty_warehouse, tmp_path)
    warehouse = aged(settings)
    at = datetime.fromtimestamp(AT / 1000, UTC)
    put_old(settings, "silver.dlq_records", old(0, "g"), old(0, None))
    put_old(settings, "gold.dlq_summary", hour(at, 1, consumer_group="g"), hour(at, 1, consumer_group=None))
    put_old(
        settings,
        "gold.dlq_incidents",
        *(incident(n, consumer_group=who, last_at=at) for n, who in ((1, "g"), (2, None))),
    )
    listed = listing.listed(warehouse, "json", at=NOW.isoformat()).result.splitlines()
    assert {json.loads(line)["owner"] for line in listed} == {"g", None}
    text = front.top(warehouse, at=NOW.isoformat()).result
    assert "g on orders" in text
    assert "no group on orders" in text
    rows = ask.rows_without_jvm(warehouse, ask.find("top_groups").text, {"now": NOW})
    assert {json.loads(row)["owner"] for row in rows.objects()} == {None, "g"}
    content = reading.gather(warehouse, now=NOW)
    assert {group.name: group.records for group in content.groups} == {"g": 1, None: 1}
    assert not content.light.reasons or "cannot be read" not in " ".join(content.light.reasons)
    assert "group            g" in show.answer(warehouse, "dlq.orders:0:0").result
    assert Warehouse(settings, spark).read("silver.dlq_records").columns == [
        named.name for named in contract_of("silver.dlq_records").stored
    ]
    chosen = Candidates(warehouse).chosen(Choice(where="true"), 10)
    assert [candidate.row["owner"] for candidate in chosen] == [None, None]
