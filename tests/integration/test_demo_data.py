"""The demo's records through the pipeline: the counts that demo/README.md promises."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from bench.incidents import score
from local.bundled import land, land_week
from local.week import END, week
from pipelines.catalog import stages
from pipelines.commands import query
from pipelines.run.runner import run
from pipelines.settings import ROOT, Settings
from pipelines.warehouse.tables import Warehouse

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


FED = (  # questions without an answer in the captures alone
    "absent_messages",
    "dead_lettered_twice",
    "dead_lettered_yet_aborted",
    "header_collisions",
    "superseded_batches",
)


@pytest.mark.thorough
def test_the_week_of_the_demo_is_found_as_it_happened(spark: SparkSession, settings: Settings) -> None:
    land_week(settings, END)
    done = run(Warehouse(settings, spark), stages())
    assert {stage_run.status for stage_run in done} <= {"passed", "idle"}
    found = score(Warehouse(settings), week())
    assert (found.misses, found.shares) == ([], {"incidents": 1.0, "verdicts": 1.0, "suspects": 1.0})
    assert found.suspects.total() == 2
    suspects = Warehouse(settings, spark).read("gold.incident_suspects").where("kind = 'deployment'").collect()
    assert {row["name"] for row in suspects} == {"order-enrichment", "pricing"}


@pytest.mark.thorough
def test_dead_letters_of_the_demo_show_every_profile_fill_the_quarantine_and_meet_their_acknowledgements(
    spark: SparkSession, settings: Settings
) -> None:
    land(settings)
    bronze, silver, *gold = run(Warehouse(settings, spark), stages("dlq"))
    assert (bronze.read, bronze.accepted, bronze.duplicates) == (1937, 1937, 0)
    assert (silver.status, silver.read, silver.accepted, silver.quarantined, silver.duplicates) == (
        "passed",
        1937,
        1918,
        16,
        3,
    )
    assert {stage_run.status for stage_run in gold} == {"passed"}
    quarantine = Warehouse(settings, spark).read("quarantine.dlq_records")
    assert quarantine.where("array_contains(violations, 'grain.conflict')").count() == 1
    accepted = Warehouse(settings, spark).read("silver.dlq_records")
    assert {row[0] for row in accepted.select("header_profile").distinct().collect()} == {
        "kip-1317",
        "kip-1191",
        "kafka-streams",
        "kafka-connect",
        "spring-kafka",
    }
    assert accepted.where("control_marker_suspected").count() > 0

    done = {stage_run.table: stage_run for stage_run in run(Warehouse(settings, spark), stages("delivery"))}
    idle = {"gold.dlq_counts", "gold.dlq_summary", "silver.dlq_errors", "silver.dlq_episodes", "gold.dlq_incidents"}
    idle |= {"gold.blast_radius"}
    assert {table for table, stage_run in done.items() if stage_run.status != "passed"} <= idle
    ledger = Warehouse(settings, spark).read("gold.message_ledger").groupBy("outcome").count().collect()
    assert {row["outcome"]: row["count"] for row in ledger} == {
        "DEAD_LETTERED": 1498,
        "ACKNOWLEDGED": 386,
        "ABSENT": 1,
        "FAILED": 13,
        "LOST": 2,
        "ABORTED": 2,
        "UNKNOWN": 2,
    }
    for question in FED:
        text = (ROOT / "sql" / "questions" / f"{question}.sql").read_text(encoding="utf-8")
        assert query.rows_of(Warehouse(settings, spark), text, {}).take(1), question
    guarantees = Warehouse(settings, spark).read("gold.delivery_guarantees").groupBy("verdict").count().collect()
    assert {row["verdict"]: row["count"] for row in guarantees} == {
        "OK": 2,
        "WOULD_FAIL": 1,
        "SILENTLY_OFF": 1,
        "DUPLICATES_POSSIBLE": 1,
    }


@pytest.mark.thorough
def test_request_logs_of_the_demo_fill_the_quarantine_and_show_what_pushes_suffer(
    spark: SparkSession, settings: Settings
) -> None:
    land(settings)
    done = {stage_run.table: stage_run for stage_run in run(Warehouse(settings, spark), stages("topology"))}
    not_passed = {table: stage_run.status for table, stage_run in done.items() if stage_run.status != "passed"}
    assert not_passed == {"gold.blast_radius": "idle"}  # without incidents
    bronze, pushes = done["bronze.streams_requests"], done["silver.topology_pushes"]
    assert (bronze.read, bronze.accepted, bronze.duplicates, bronze.skipped) == (277, 146, 0, 131)
    assert (pushes.read, pushes.accepted, pushes.quarantined, pushes.skipped) == (146, 53, 2, 91)
    assert pushes.verdict is not None
    judged = {outcome.code: outcome for outcome in pushes.verdict.outcomes}
    assert judged["error_code.of_the_api"].failing == 1
    quarantine = Warehouse(settings, spark).read("quarantine.topology_pushes")
    why = quarantine.select("_bronze_id", "violations").join(
        Warehouse(settings, spark).read("bronze.streams_requests"), "_bronze_id", how="inner"
    )
    assert sorted((row["_source"], row["violations"], row["error"]) for row in why.collect()) == [
        ("demo-planted-requests.log", ["error.readable"], error)
        for error in (
            "the JSON of the request is cut off or not valid",
            "the line is not a completed request with its JSON: cut off, or logged at TRACE",
        )
    ]
    current = Warehouse(settings, spark).read("gold.topology_current")
    health = current.groupBy("health").count()
    assert {row["health"]: row["count"] for row in health.collect()} == {
        "OK": 14,
        "REJECTED": 7,
        "LOST": 2,
        "PLUGIN_ERROR": 2,
        "DELETED": 1,
    }
    planted = current.where("group_id IN ('refunds-app', 'invoices-app', 'payments-app')")
    assert sorted((row["group_id"], row["health"], row["sentence"]) for row in planted.collect()) == [
        (
            "invoices-app",
            "REJECTED",
            "The last push was refused at 2026-11-21 02:50:11 UTC with 199: "
            "The description is larger than this cluster stores.",
        ),
        ("refunds-app", "OK", "The description is stored, but malformed: dangling_successor."),
    ]
    revisions = Warehouse(settings, spark).read("gold.topology_revisions").where("revision = 1")
    assert {"orders-app", "wordcount-app"} <= {row["group_id"] for row in revisions.select("group_id").collect()}
