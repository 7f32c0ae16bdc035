from __future__ import annotations

import re
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from pipelines.catalog import stages
from pipelines.commands import arguments, query, statements
from pipelines.commands import ask as questions
from pipelines.commands.generate import generate
from pipelines.commands.incidents import reading
from pipelines.run import contracts, runner
from pipelines.settings import LANDING_DIRECTORIES, ROOT, Settings, load
from pipelines.warehouse.tables import Warehouse
from tests.testing import sites
from tests.testing.builders import run_chain, warehouse_of
from tests.testing.deliveries import store

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

QUESTIONS = sorted((ROOT / "sql" / "questions").glob("*.sql"))
CAPTURES = ROOT / "tests" / "data" / "dlq"
WHERE: dict[str, arguments.Parameter] = {
    "topic": "orders",
    "partition": 0,
    "offset": 0,
}  # parameters of the one question that needs any
CAPTURED = datetime(2026, 11, 21, 3, tzinfo=UTC)
NOT_IN_CAPTURES = (
    "absent_messages",
    "blocked_tables",
    "control_markers",
    "dead_lettered_twice",
    "dead_lettered_yet_aborted",
    "failed_dlq_writes",
    "gate_history",
    "guarantees_not_in_effect",
    "header_collisions",
    "hours_that_do_not_add_up",  # without acknowledgements no hour lacks any
    "lost_messages",
    "misconfigured_dlqs",
    "missing_dlq_offsets",
    "open_transactions",
    "quarantine_reasons",
    "superseded_batches",
    "unexplained_dlq_gaps",
    "who_was_told",
)
SYSTEMIC = {  # messages that only occur in an incident
    "enrichment-dlq": "State store sessions is not open",
    "dlq-warehouse-sink": "Connection to the warehouse was refused",
    "inventory-dlt": "Listener failed; read timed out",
}

Ask = Callable[..., list[dict[str, Any]]]


@dataclass(frozen=True)
class Landed:
    """A warehouse made from landed files, and the generator's record of what is true about them."""

    settings: Settings
    truth: dict[str, Any]
    entries: list[dict[str, Any]]


def run(spark: SparkSession, settings: Settings, feed: str | None = None) -> None:
    stage_runs = runner.run(Warehouse(settings, spark), stages(feed))
    assert {stage_run.status for stage_run in stage_runs} <= {"passed", "idle"}


@pytest.fixture(scope="module")
def generated(spark: SparkSession, empty_warehouse: Path, tmp_path_factory: pytest.TempPathFactory) -> Landed:
    directory = tmp_path_factory.mktemp("generated")
    settings = warehouse_of(empty_warehouse, directory)
    truth = generate(12_000, 4, directory / "landing")
    run(spark, settings, "dlq")
    return Landed(settings, truth.counts(), list(truth.lines()))


@pytest.fixture(scope="module")
def captured(spark: SparkSession, empty_warehouse: Path, tmp_path_factory: pytest.TempPathFactory) -> Landed:
    """Captured dead letters."""
    directory = tmp_path_factory.mktemp("captured")
    settings = warehouse_of(empty_warehouse, directory)
    shutil.copytree(CAPTURES, directory / "landing" / "dlq")
    run_chain(spark, settings, "bronze.dlq_records", "silver.dlq_records")
    return Landed(settings, {}, [])


@pytest.fixture(scope="module")
def captured_feeds(spark: SparkSession, empty_warehouse: Path, tmp_path_factory: pytest.TempPathFactory) -> Landed:
    """All tables of captured dead letters and of a captured request log."""
    directory = tmp_path_factory.mktemp("captured-feeds")
    settings = warehouse_of(empty_warehouse, directory)
    shutil.copytree(CAPTURES, directory / "landing" / "dlq")
    shutil.copytree(CAPTURES.with_name("streams-requests"), directory / "landing" / "streams-requests")
    run(spark, settings)
    return Landed(settings, {}, [])


@pytest.fixture
def ask(spark: SparkSession) -> Ask:
    def asked(
        landed: Landed, question: str, now: str | None = None, **values: arguments.Parameter
    ) -> list[dict[str, Any]]:
        text = (ROOT / "sql" / "questions" / f"{question}.sql").read_text(encoding="utf-8")
        moment = datetime.fromisoformat(now) if now else CAPTURED
        return [
            row.asDict()
            for row in query.rows_of(Warehouse(landed.settings, spark), text, {"now": moment, **values}).collect()
        ]

    return asked


@pytest.mark.parametrize("question", QUESTIONS, ids=lambda path: path.stem)
def test_a_question_says_what_it_is_for(question: Path) -> None:
    text = question.read_text(encoding="utf-8")
    head = text[: re.search(r"^(?!--)", text, re.MULTILINE).start()]  # type: ignore[union-attr]
    body = "".join(re.split(r"--[^\n]*\n", text))
    parameters = re.search(r"-- Parameters: (.*)", head)

    assert re.match(r"-- Purpose: \w.*", head)
    assert f"-- Usage: afterlog ask {question.stem}" in head
    assert parameters
    for name in set(re.findall(r"(?<![:\w]):([a-z]\w*)", body)):
        assert f":{name}" in parameters[1]
        assert f"--param {name}=" in head
    feeds = re.search(r"^-- Feeds: (.*)\.$", head, re.MULTILINE)
    assert feeds
    assert set(feeds[1].split(", ")) <= {*LANDING_DIRECTORIES, "none"}
    if ":" not in body:
        assert parameters[1] == "none."


def answers(settings: Settings, question: Path) -> int:
    """How many rows a question has, as ``afterlog ask`` answers it; Spark answers the same (test_ask.py)."""
    text = question.read_text(encoding="utf-8")
    return len(list(questions.rows_without_jvm(Warehouse(settings), text, {"now": CAPTURED, **WHERE}).texts()))


@pytest.mark.parametrize("question", QUESTIONS, ids=lambda path: path.stem)
def test_a_question_can_be_asked_of_an_empty_warehouse(question: Path, empty_warehouse: Path) -> None:
    empty = load(warehouse=str(empty_warehouse), landing=str(empty_warehouse / "none"))
    assert answers(empty, question) == 0


OF_LETTERS_ALONE = (
    "control_markers",
    "dead_lettered_twice",
    "gate_history",
    "header_collisions",
    "missing_dlq_offsets",
)


@pytest.mark.parametrize("name", [*OF_LETTERS_ALONE, "quarantine_reasons"])
def test_captured_letters_raise_no_alarm(name: str, captured: Landed) -> None:
    assert name in NOT_IN_CAPTURES
    assert answers(captured.settings, ROOT / "sql" / "questions" / f"{name}.sql") == 0


@pytest.mark.thorough  # in test_ask.py each question has an answer, too
@pytest.mark.parametrize("question", QUESTIONS, ids=lambda path: path.stem)
def test_a_question_can_be_asked_of_captures(question: Path, captured_feeds: Landed) -> None:
    assert bool(answers(captured_feeds.settings, question)) == (question.stem not in NOT_IN_CAPTURES)


def test_what_is_new_in_the_last_hour(generated: Landed, ask: Ask) -> None:
    incident = next(i for i in generated.truth["incidents"] if i["dlq_topic"] in SYSTEMIC)

    rows = ask(generated, "new_in_the_last_hour", incident["to"])

    new = rows[0]
    assert new["first_at"].isoformat() >= incident["from"][:19]
    assert new["record_count"] == incident["records"]
    told = {
        incident.row["incident_id"]: incident
        for incident in reading.Incidents(Warehouse(generated.settings), datetime.now(UTC)).known
    }
    assert [row["dlq_topic"] for row in told[new["incident_id"]].row["dlq_topics"]] == [incident["dlq_topic"]]


def test_an_error_that_came_before_is_not_new_however_its_message_differs(
    empty_warehouse: Path, tmp_path: Path, ask: Ask
) -> None:
    landed = Landed(warehouse_of(empty_warehouse, tmp_path), {}, [])
    hour = timedelta(hours=1)
    incident = {"cluster": "default", "consumer_group": "g", "record_count": 2}
    began = {"again": (5, "a"), "first": (0.5, "a"), "new": (0.4, "b"), "old": (3, "c")}
    rows = [
        incident | {"incident_id": name, "fingerprint": error, "first_at": CAPTURED - age * hour, "last_at": CAPTURED}
        for name, (age, error) in began.items()
    ]
    store(landed.settings, "gold.dlq_incidents", *rows)
    asked = ask(landed, "new_in_the_last_hour", CAPTURED.isoformat())
    assert [row["incident_id"] for row in asked] == ["new"]
    (error,) = ask(landed, "errors_since_when", CAPTURED.isoformat())
    assert (error["incident_count"], error["record_count"]) == (4, 8)


def test_a_question_tells_the_verdicts_of_the_incidents(generated: Landed, ask: Ask) -> None:
    """The same verdict, severity and words as ``afterlog incident``; of those that went on, as known now."""
    tables = Warehouse(generated.settings)
    went_on = set()
    for now in (incident[end] for incident in generated.truth["incidents"] for end in ("from", "to")):
        at = datetime.fromisoformat(now)
        rows = {row["incident_id"]: row for row in ask(generated, "poison_pill_or_systemic", now)}
        told = {incident.row["incident_id"]: incident for incident in reading.Incidents(tables, at).known}
        recent = {name for name, item in told.items() if (item.known or item.row)["last_at"] > at - timedelta(days=1)}
        assert rows.keys() == recent
        for name, row in rows.items():
            known = told[name].known or told[name].row
            same = (
                "verdict",
                "severity",
                "severity_reasons",
                "sentence",
                "would_change",
                "offset_share",
                "record_count",
            )
            assert {column: row[column] for column in same} == {column: known[column] for column in same}
            assert row["is_as_known_now"] is (told[name].known is not None)
            went_on |= {row["is_as_known_now"]}
    assert went_on == {True, False}


def test_what_fails_everywhere_leads(generated: Landed, ask: Ask) -> None:
    for incident in generated.truth["incidents"]:
        if incident["dlq_topic"] in SYSTEMIC:
            rows = ask(generated, "poison_pill_or_systemic", incident["to"])
            assert rows[0]["verdict"] == "SYSTEMIC"


def test_poison_pills_are_dead_lettered_more_than_once(generated: Landed, ask: Ask) -> None:
    rows = ask(generated, "dead_lettered_twice")

    found = {
        (row["consumer_group"], row["original_topic"], row["original_partition"], row["original_offset"]): row["times"]
        for row in rows
    }
    pills = {
        (p["consumer_group"], p["original_topic"], p["original_partition"], p["original_offset"]): p["records"]
        for p in generated.truth["poison_pills"]
        if p["records"] > 1
    }
    assert pills
    assert found == pills
    assert all(len(row["dlq_coordinates"]) == row["times"] for row in rows)


def test_the_history_of_a_poison_pill(generated: Landed, ask: Ask) -> None:
    pill = max(generated.truth["poison_pills"], key=lambda p: int(p["records"]))
    where = {name: pill[f"original_{name}"] for name in ("topic", "partition", "offset")}

    rows = ask(generated, "source_record_history", **where)

    assert len(rows) == pill["records"]
    assert [row["routed_at"] for row in rows] == sorted(row["routed_at"] for row in rows)


def test_what_is_in_quarantine(generated: Landed, ask: Ask) -> None:
    rows = ask(generated, "quarantine_reasons")

    found: dict[str, int] = {}
    for row in rows:
        found[row["violation"]] = found.get(row["violation"], 0) + row["record_count"]
    assert found == generated.truth["violations"]


def test_the_question_about_quarantine_reads_every_table_of_rejected_rows() -> None:
    text = (ROOT / "sql" / "questions" / "quarantine_reasons.sql").read_text(encoding="utf-8")
    assert statements.statement_tables(text) == {
        contract.table for contract in contracts.contracts() if contract.table.startswith(("quarantine.", "held."))
    }


def test_payloads_that_were_not_copied(generated: Landed, ask: Ask) -> None:
    rows = {row["consumer_group"]: row for row in ask(generated, "payload_not_copied")}

    assert rows["billing-workers"]["likely_cause"] == "record copy is off"
    assert rows["billing-workers"]["without_payload_count"] == rows["billing-workers"]["record_count"]
    assert rows["orders-workers"]["likely_cause"].startswith("too large")
    others = sum(row["without_payload_count"] for group, row in rows.items() if group != "billing-workers")
    assert others == generated.truth["kinds"]["headers_only/accepted"]


def test_second_hops_lead_to_their_origin(captured: Landed, generated: Landed, ask: Ask) -> None:
    captured_hops = ask(captured, "second_hops")
    hops = ask(generated, "second_hops")

    assert {row["root_topic"] for row in captured_hops} == {"orders", "payments"}
    assert sum(row["record_count"] for row in captured_hops) == 215
    assert not any(row["without_first_hop_count"] or row["is_loop"] for row in captured_hops)
    loops = [row for row in hops if row["is_loop"]]
    assert {row["dlq_topic"] for row in loops} == {"dlq.loop"}
    assert {row["root_topic"] for row in hops if row["dlq_topic"] == "dlq.second-hop"} == {"orders"}
    assert (
        sum(row["record_count"] for row in hops if not row["is_loop"])
        == generated.truth["kinds"]["second_hop/accepted"]
    )


def test_suspected_control_markers_are_found_and_counted(generated: Landed, ask: Ask) -> None:
    found = ask(generated, "control_markers")
    volume = sum(row["record_count"] for row in ask(generated, "volume_by_hour", generated.truth["to"]))

    assert sum(row["suspected_count"] for row in found) == generated.truth["kinds"]["control_marker/accepted"]
    assert sum(row["marker_count"] for row in found) == 0  # no log landed that could prove control markers
    assert volume == generated.truth["outcomes"]["accepted"]


def test_rejected_or_retried_to_death(captured: Landed, ask: Ask) -> None:
    rows = {row["consumer_group"]: row for row in ask(captured, "rejected_or_retried_to_death")}

    assert sum(row["rejected"] + row["attempts_reached"] for row in rows.values()) == 916 + 534 + 57 + 56 + 215
    assert rows["audit-workers"]["most_deliveries"] == 2
    assert rows["billing-workers"]["told_by"] == ["message"]


def test_missing_offsets_are_those_of_unreadable_lines(generated: Landed, ask: Ask) -> None:
    rows = ask(generated, "missing_dlq_offsets")

    places = [(e["dlq_topic"], e["dlq_partition"], e["dlq_offset"]) for e in generated.entries]
    last = {place[:2]: place[2] for place in sorted(places)}
    first = {place[:2]: place[2] for place in sorted(places, reverse=True)}
    missing = {
        place
        for place, entry in zip(places, generated.entries, strict=True)
        if entry["violations"] == ["error.readable"] and first[place[:2]] < place[2] < last[place[:2]]
    }
    assert missing
    assert missing == {
        (row["dlq_topic"], row["dlq_partition"], offset)
        for row in rows
        for offset in range(row["first_missing_offset"], row["last_missing_offset"] + 1)
    }


def test_header_profiles_and_collisions(generated: Landed, ask: Ask) -> None:
    profiles = ask(generated, "header_profiles")
    collisions = ask(generated, "header_collisions")

    assert {row["profiles_of_topic"] for row in profiles} == {1}
    assert sum(row["record_count"] for row in profiles) == generated.truth["outcomes"]["accepted"]
    assert sum(row["record_count"] for row in collisions) == generated.truth["kinds"]["collision/accepted"]
    assert all("_dlq.errors.disposition" in row["user_header_names"] for row in collisions)


def test_nothing_is_blocked_and_the_gate_remembers(generated: Landed, ask: Ask) -> None:
    assert ask(generated, "blocked_tables") == []
    rules = {row["expectation"]: row for row in ask(generated, "gate_history")}

    expected = {code: count for code, count in generated.truth["violations"].items() if code != "grain.conflict"}
    assert {code: row["failing_rows"] for code, row in rules.items() if code in expected} == expected
    assert all(row["broken_count"] == 0 for row in rules.values())


def test_equal_names_of_two_clusters_are_told_apart(
    spark: SparkSession, empty_warehouse: Path, tmp_path: Path, ask: Ask
) -> None:
    landed = Landed(warehouse_of(empty_warehouse, tmp_path), {}, [])
    letter = {"dlq_partition": 0, "dlq_offset": 7, "original_partition": 0, "original_offset": 7}
    letter |= {"consumer_group": "workers", "header_profile": "kip-1191", "error_message": "no", "routed_at": CAPTURED}
    refused = letter | {"_source": "a.jsonl", "violations": ["error.readable"], "_ingested_at": CAPTURED}
    to_a_dlq = letter | {"cluster": "default", "dlq_topic": "payments", "original_topic": "orders"}
    from_a_source = letter | {"cluster": "second", "dlq_topic": "dlq.payments", "original_topic": "payments"}
    store(landed.settings, "silver.dlq_records", to_a_dlq, from_a_source)
    told = {"record_count": 1, "consumer_group": "workers", "first_at": CAPTURED, "last_at": CAPTURED}
    for cluster, topic in (("default", "payments"), ("second", "dlq.payments")):
        incident = {"cluster": cluster, "incident_id": topic, "dlq_topics": [{"dlq_topic": topic}]}
        store(landed.settings, "gold.dlq_incidents", incident | told)
    store(landed.settings, "quarantine.dlq_records", *({**refused, "cluster": name} for name in ("default", "second")))

    assert ask(landed, "second_hops") == []  # `payments` is a DLQ topic of the other cluster only
    errors = [(row["cluster"], row["record_count"], row["dlq_topics"]) for row in ask(landed, "errors_since_when")]
    assert errors == [("default", 1, ["payments"]), ("second", 1, ["dlq.payments"])]
    store(landed.settings, "quarantine.changes", {"violations": ["changed_at.not_null"], "cluster": "second"})
    reasons = [(row["cluster"], row["table"], row["record_count"]) for row in ask(landed, "quarantine_reasons")]
    of_letters = [(cluster, "silver.dlq_records", 1) for cluster in ("default", "second")]
    assert sorted(reasons) == sorted([*of_letters, ("second", "silver.changes", 1)])


def test_applications_that_were_deleted_feed_none(empty_warehouse: Path, tmp_path: Path, ask: Ask) -> None:
    landed = Landed(warehouse_of(empty_warehouse, tmp_path), {}, [])
    chain = (("first", "orders", "paid"), ("second", "paid", "shipped"), ("third", "shipped", "orders"))
    for cluster in ("default", "second"):
        for name, source, sink in chain:
            health = "DELETED" if (cluster, name) == ("default", "third") else "OK"
            for table, rows in sites.rows_of_application(name, source, sink, health=health).items():
                store(landed.settings, table, *(row | {"cluster": cluster} for row in rows))

    feeding = ask(landed, "applications_by_topic")
    found = [(row["cluster"], row["from_group"], row["topic"], row["to_group"]) for row in feeding]
    alive = [("first", "paid", "second"), ("second", "shipped", "third"), ("third", "orders", "first")]
    assert found == [("default", *alive[0]), *(("second", *item) for item in alive)]


def test_records_of_files_and_of_their_topic_are_of_one_log(
    spark: SparkSession, empty_warehouse: Path, tmp_path: Path, ask: Ask
) -> None:
    landed = Landed(warehouse_of(empty_warehouse, tmp_path), {}, [])

    def letters(topic_id: str | None, *offsets: int) -> list[dict[str, Any]]:
        topic = {"cluster": "default", "dlq_topic": "dlq.a", "dlq_topic_id": topic_id, "dlq_partition": 0}
        return [topic | {"dlq_offset": offset, "_bronze_id": f"{topic_id}-{offset}"} for offset in offsets]

    store(landed.settings, "silver.dlq_records", *letters(None, 0, 6), *letters("x", 2, 4))
    store(landed.settings, "quarantine.dlq_records", *letters(None, 1, 5), *letters("x", 1, 5))

    rows = ask(landed, "missing_dlq_offsets")
    assert [(row["dlq_topic_id"], row["first_missing_offset"], row["missing_count"]) for row in rows] == [("x", 3, 1)]


def test_a_second_hop_counts_once_if_the_place_of_its_first_hop_holds_several_records(
    spark: SparkSession, empty_warehouse: Path, tmp_path: Path, ask: Ask
) -> None:
    landed = Landed(warehouse_of(empty_warehouse, tmp_path), {}, [])
    letter = {"cluster": "default", "dlq_partition": 0, "dlq_offset": 7, "original_partition": 0, "original_offset": 7}
    second = letter | {"dlq_topic": "dlq.b", "original_topic": "dlq.a", "routed_at": CAPTURED, "_bronze_id": "second"}
    first = [
        letter
        | {"dlq_topic": "dlq.a", "dlq_topic_id": topic_id, "original_topic": topic, "_bronze_id": topic}
        | {"routed_at": CAPTURED.replace(hour=hour)}
        for topic_id, topic, hour in ((None, "orders", 1), ("x", "payments", 2), ("y", "returns", 0))
    ]
    store(landed.settings, "silver.dlq_records", second, *first)

    rows = ask(landed, "second_hops")
    assert [(row["root_topic"], row["record_count"]) for row in rows] == [("payments", 1)]
