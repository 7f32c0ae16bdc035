"""The rules that protect data, each on real Delta tables."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tomllib
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from pipelines.catalog import CATALOG, stages
from pipelines.columns.profiles import PROFILES, SHARE_GROUP, Profile
from pipelines.commands import query
from pipelines.commands.doctor import headers
from pipelines.errors import WriterBusy
from pipelines.run import contracts, idleness
from pipelines.run.readmit import readmit, stage_with_quarantine
from pipelines.settings import ROOT, Settings, load
from pipelines.stores import lock
from pipelines.warehouse import jvmless, progress
from pipelines.warehouse.quality import StageRun
from pipelines.warehouse.tables import Warehouse
from tests.testing.builders import (
    AT,
    BROKEN,
    CHAIN,
    HOUR,
    kip_1191,
    kip_1317,
    land,
    line,
    rows,
    run,
    run_chain,
    run_needed,
    tables,
    warehouse_of,
)

BRONZE, SILVER, COUNTS, GOLD = CHAIN
QUARANTINE, HELD = "quarantine.dlq_records", "held.dlq_records"
SUSPECTS, REFUSALS = "gold.incident_suspects", "silver.dlq_refusals"

FOREIGN = [("trace", b"1")]


@pytest.fixture(scope="module")
def ran(spark: SparkSession, empty_warehouse: Path, tmp_path_factory: pytest.TempPathFactory) -> Settings:
    """A warehouse after a run of all stages that accepts a row and quarantines one."""
    settings = warehouse_of(empty_warehouse, tmp_path_factory.mktemp("ran"))
    land(settings, {"a.jsonl": [line(0), line(200, topic="dlq.other", headers=BROKEN)]})
    run(spark, settings)
    return settings


@pytest.fixture
def after_a_run(ran: Settings, tmp_path: Path) -> Settings:
    """A copy of that warehouse, with its landing directory: a test that lands more needs another one."""
    return warehouse_of(Path(ran.warehouse), tmp_path / "copy").model_copy(update={"landing": ran.landing})


def offsets(spark: SparkSession, settings: Settings, table: str) -> list[int | None]:
    return sorted((row["dlq_offset"] for row in rows(spark, settings, table)), key=lambda offset: offset or -1)


def came(settings: Settings, table: str) -> dict[int | None, tuple[Any, str]]:
    """Return when each row came to a table, and in which run, by offset."""
    found = jvmless.rows(Warehouse(settings), table, {"cluster": settings.cluster})
    return {row["dlq_offset"]: (row["_ingested_at"], row["_run_id"]) for row in found}


def versions(settings: Settings) -> dict[str, int | None]:
    return {contract.table: Warehouse(settings).last_version(contract.table) for contract in contracts.contracts()}


def test_read_is_accepted_quarantined_and_duplicates(spark: SparkSession, settings: Settings) -> None:
    twice = line(1)
    land(settings, {"a.jsonl": [twice, line(2), line(3, headers=FOREIGN), '{"topic":'], "b.jsonl": [twice, "", "  "]})
    done = run_chain(spark, settings)

    bronze, silver, gold = done[BRONZE], done[SILVER], done[GOLD]
    assert (bronze.read, bronze.accepted, bronze.duplicates) == (5, 5, 0)
    assert (silver.read, silver.accepted, silver.quarantined, silver.duplicates) == (5, 2, 2, 1)
    assert offsets(spark, settings, SILVER) == [1, 2]
    violations = {row["dlq_offset"]: row["violations"] for row in rows(spark, settings, QUARANTINE)}
    assert violations == {3: ["header_profile.not_null"], None: ["error.readable"]}
    evidence = {row["dlq_offset"]: (row["raw"], row["headers"]) for row in rows(spark, settings, QUARANTINE)}
    assert evidence == {3: (None, [{"key": "trace", "value": b"1"}]), None: (b'{"topic":', None)}
    assert [row["record_count"] for row in rows(spark, settings, GOLD)] == [2]
    assert (gold.status, gold.read, gold.accepted, gold.written) == ("passed", 1, 1, 1)
    reported = Warehouse(settings, spark).read("quality.stage_runs").collect()
    assert {row["table"]: (row["read"], row["written"]) for row in reported if row["table"] in CHAIN} == {
        BRONZE: (5, 5),
        SILVER: (5, 2),
        COUNTS: (2, 1),
        GOLD: (1, 1),
    }
    assert {table: done[table].as_json()["written"] for table in CHAIN} == {
        BRONZE: 5,
        SILVER: 2,
        COUNTS: 1,
        GOLD: 1,
    }
    assert all(
        row["read"] == sum(row[name] for name in ("accepted", "quarantined", "duplicates", "skipped", "held"))
        for row in reported
    )


def test_small_files_are_merged_at_times_and_nobody_reads_anything_twice(
    spark: SparkSession, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pipelines.warehouse.commits.COMPACTED_EVERY", 3)
    for number in range(4):
        land(settings, {f"{number}.jsonl": [line(number), line(10 + number, headers=FOREIGN)]})
        # Versions 1, 2, 3, 5: the change feed that silver reads has the OPTIMIZE.
        done = run_chain(spark, settings, *((BRONZE, SILVER) if number == 3 else (BRONZE,)))
    assert (done[SILVER].read, done[SILVER].accepted, done[SILVER].quarantined) == (8, 4, 4)
    for number in (4, 5):
        land(settings, {f"{number}.jsonl": [line(number)]})
        done = run_chain(spark, settings, *(CHAIN if number == 5 else (BRONZE, SILVER)))
        assert [(done[table].read, done[table].duplicates) for table in (BRONZE, SILVER)] == [(1, 0)] * 2

    for table in (BRONZE, SILVER, GOLD, "quality.stage_runs"):
        place = Warehouse(settings).location(table)
        commits = DeltaTable(place).history()
        assert "OPTIMIZE" in {commit["operation"] for commit in commits} or table == GOLD  # a single file is not merged
        assert len(DeltaTable(place).file_uris()) <= 4, table
    assert offsets(spark, settings, SILVER) == list(range(6))
    assert offsets(spark, settings, QUARANTINE) == list(range(10, 14))
    before = versions(settings)
    assert {stage_run.status for stage_run in run_chain(spark, settings).values()} == {"idle"}
    assert versions(settings) == before


def test_run_without_new_input_commits_nothing(spark: SparkSession, after_a_run: Settings) -> None:
    before = versions(after_a_run)
    assert idleness.idle(Warehouse(after_a_run), stages("dlq"))

    done = run(spark, after_a_run)

    assert {stage_run.status for stage_run in done.values()} == {"idle"}
    assert versions(after_a_run) == before


def kcat(offset: int) -> str:
    headers: list[str] = []
    for name, value in kip_1191(offset=offset):
        headers += [name, (value or b"").decode()]
    return json.dumps(
        {
            "topic": "dlq.orders",
            "partition": 0,
            "offset": offset,
            "tstype": "create",
            "ts": AT,
            "broker": 1,
            "headers": headers,
            "key": "k",
            "payload": "\ufffd\u0000v",  # what another tool left of its bytes
        }
    )


def of_topic(spark: SparkSession, settings: Settings, table: str, topic: str) -> list[dict[str, Any]]:
    name = "topic" if table == BRONZE else "dlq_topic"
    return [row for row in rows(spark, settings, table) if row[name] == topic]


LOSSLESS = b"\xff\x00v"
LandedTwice = tuple[Settings, dict[str, StageRun], dict[str, StageRun]]


@pytest.fixture(scope="module")
def landed_twice(spark: SparkSession, empty_warehouse: Path, tmp_path_factory: pytest.TempPathFactory) -> LandedTwice:
    """A warehouse after two runs over topics of which each is a case of its own, and what both runs say."""
    settings = warehouse_of(empty_warehouse, tmp_path_factory.mktemp("landed-twice"))
    marker: dict[str, Any] = {"topic": "dlq.marker", "key": b"\0\0\0\1", "value": b"\0" * 6}
    files = {
        "grown.jsonl": [line(1, topic="dlq.grown")],
        "first.jsonl": [line(1, topic="dlq.conflict", value=b"first")],
        "lossy.jsonl": [kcat(1), kcat(2)],
        "lossless.jsonl": [line(2, value=LOSSLESS)],
        "marker.jsonl": [line(1, topic="dlq.marker"), line(2, **marker), line(3, timestamp=AT + HOUR, **marker)],
    }
    directory = land(settings, files)
    first = run_chain(spark, settings)
    with (directory / "grown.jsonl").open("a") as file:
        file.write(line(2, topic="dlq.grown") + "\n")
    files = {
        "late.jsonl": [line(3, topic="dlq.grown")],
        "other.jsonl": [line(1, topic="dlq.conflict", value=value) for value in (b"other", b"first")],
        "later.jsonl": [line(1, value=LOSSLESS)],
        "copy.jsonl": [kcat(2) + " "],
    }
    land(settings, files)
    os.utime(directory / "late.jsonl", (1, 1))
    assert not idleness.idle(Warehouse(settings), CATALOG)
    return settings, first, run_chain(spark, settings)


def test_grown_file_and_late_file_with_an_old_time_are_read(spark: SparkSession, landed_twice: LandedTwice) -> None:
    settings, _, second = landed_twice
    assert (second[BRONZE].read, second[BRONZE].accepted, second[BRONZE].duplicates) == (7, 6, 1)
    assert sorted(row["dlq_offset"] for row in of_topic(spark, settings, SILVER, "dlq.grown")) == [1, 2, 3]


def test_other_content_at_a_standing_grain_is_a_conflict(spark: SparkSession, landed_twice: LandedTwice) -> None:
    settings, _, second = landed_twice
    silver = second[SILVER]
    assert (silver.status, silver.accepted, silver.quarantined, silver.duplicates) == ("passed", 3, 1, 2)
    assert [row["value"] for row in of_topic(spark, settings, SILVER, "dlq.conflict")] == [b"first"]
    refused = of_topic(spark, settings, QUARANTINE, "dlq.conflict")
    assert [(row["value"], row["violations"]) for row in refused] == [(b"other", ["grain.conflict"])]


def test_lossless_record_wins_over_its_lossy_copy(spark: SparkSession, landed_twice: LandedTwice) -> None:
    settings, first, _ = landed_twice
    assert (first[SILVER].accepted, first[SILVER].quarantined, first[SILVER].duplicates) == (7, 0, 1)
    found = of_topic(spark, settings, SILVER, "dlq.orders")
    stand = {row["dlq_offset"]: (row["lossy_encoding"], row["value"]) for row in found}
    assert stand == {1: (False, LOSSLESS), 2: (False, LOSSLESS)}
    assert [row["record_count"] for row in of_topic(spark, settings, GOLD, "dlq.orders")] == [2]


def test_what_only_looks_like_a_control_marker_is_counted(spark: SparkSession, landed_twice: LandedTwice) -> None:
    settings, _, _ = landed_twice
    found = of_topic(spark, settings, SILVER, "dlq.marker")
    assert [row["control_marker_suspected"] for row in found].count(True) == 2
    assert sorted(row["record_count"] for row in of_topic(spark, settings, GOLD, "dlq.marker")) == [1, 2]


def test_broken_gate_holds_its_topic_and_what_comes_after(
    spark: SparkSession, after_a_run: Settings, tmp_path: Path
) -> None:
    settings = after_a_run.model_copy(update={"landing": str(tmp_path / "later")})
    foreign = [line(offset, headers=FOREIGN, value=b"secret-canary") for offset in range(100, 130)]
    land(settings, {"bad.jsonl": [line(1), *foreign]})
    before = tables(settings)

    broken = run(spark, settings)

    assert (broken[SILVER].status, broken[SILVER].read, broken[SILVER].held) == ("broken", 31, 31)
    assert broken[GOLD].status == "idle"
    after = tables(settings)
    assert {table for table in after if after[table] != before[table]} == {BRONZE, HELD, REFUSALS, SUSPECTS}
    suspects = rows(spark, settings, SUSPECTS)
    assert [(row["kind"], row["name"]) for row in suspects] == [("missing_headers", "dlq.orders")]
    assert "`afterlog run --accept silver.dlq_records:dlq.orders`" in (broken[SILVER].message or "")
    results = [row for row in rows(spark, settings, "quality.expectation_results") if not row["success"]]
    assert {(row["expectation"], row["failing"], row["candidates"]) for row in results} == {
        ("header_profile.not_null", 30, 31),
        ("row.no_violations", 30, 31),
    }
    assert {row["scope"] for row in results} == {None, "dlq.orders"}
    assert all(len(row["coordinates"]) == 20 for row in results)
    assert results[0]["coordinates"][0] == "dlq_topic=dlq.orders dlq_partition=0 dlq_offset=100"
    assert "secret-canary" not in str(results)
    blocked = progress.load(Warehouse(settings), SILVER)
    assert blocked is not None
    assert blocked.held.keys() == {"dlq.orders"}

    land(settings, {"later.jsonl": [line(2)]})
    again = run_chain(spark, settings, BRONZE, SILVER)
    assert (again[BRONZE].accepted, again[SILVER].status, again[SILVER].read) == (1, "broken", 32)
    assert offsets(spark, settings, SILVER) == [0]
    still = progress.load(Warehouse(settings), SILVER)
    assert still is not None
    assert (still.pending, still.held["dlq.orders"].since) == ({}, blocked.held["dlq.orders"].since)

    passed = run_chain(spark, settings.model_copy(update={"tolerance": 1.0}), BRONZE, SILVER)[SILVER]
    assert (passed.read, passed.accepted, passed.quarantined) == (32, 2, 30)
    assert offsets(spark, settings, SILVER) == [0, 1, 2]
    freed = progress.load(Warehouse(settings), SILVER)
    assert freed is not None
    assert freed.held == {}


OfTopics = tuple[Settings, dict[str, StageRun]]
OTHERS = [named for named in PROFILES if named.name not in SHARE_GROUP]


def lacking_few(profile: Profile) -> list[str]:
    """Dead letters of a profile; the first 12 of 400 lack a mandatory header."""
    named = {"int32": (1).to_bytes(4, "big"), "int64": (1).to_bytes(8, "big")}
    mandatory = [header for header in profile.headers if header.name in profile.mandatory]
    whole: list[tuple[str, bytes | str | None]] = [(each.name, named.get(each.encoding, b"1")) for each in mandatory]
    of = {each.field: each.name for each in mandatory}
    lacking = [header for header in whole if header[0] != of["original_offset"]]
    return [line(at, topic=f"dlq.{profile.name}", headers=lacking if at < 12 else whole) for at in range(400)]


@pytest.fixture(scope="module")
def of_topics(spark: SparkSession, empty_warehouse: Path, tmp_path_factory: pytest.TempPathFactory) -> OfTopics:
    """A warehouse after a run over topics of which each is a case of its own, and what the run says."""
    required = {"require": [{"topic": "dlq.pay*", "profile": "kip-1317"}]}
    settings = warehouse_of(empty_warehouse, tmp_path_factory.mktemp("topics"), dlq=required)
    rivals = [line(1, topic="dlq.rivals", value=f"v{i}".encode()) for i in range(5)]
    good = [line(offset, topic="dlq.payments", headers=kip_1317(original_offset=str(offset))) for offset in range(3)]
    suddenly = [line(offset, topic="dlq.payments") for offset in range(3, 20)]
    files = {
        "twice.jsonl": [line(offset, topic="dlq.twice") for offset in (1, 2, 1)],
        "rivals-a.jsonl": rivals[:2],
        "rivals-b.jsonl": rivals[2:],
        "rivals-c.jsonl": rivals,
        "few.jsonl": [line(offset, topic="dlq.few", headers=BROKEN) for offset in range(9)],
        "required.jsonl": [*good, *suddenly],
        **{f"{profile.name}.jsonl": lacking_few(profile) for profile in OTHERS},
    }
    land(settings, files)
    done = run_chain(spark, settings, BRONZE, SILVER)
    assert done[BRONZE].read == sum(map(len, files.values()))
    return settings, done


def counts_of(spark: SparkSession, settings: Settings, topic: str) -> tuple[int, ...]:
    """How many rows of a topic came in, are in quarantine, and are held."""
    return tuple(len(of_topic(spark, settings, table, topic)) for table in (SILVER, QUARANTINE, HELD))


def test_same_line_twice_in_one_file_is_one_row_of_bronze(spark: SparkSession, of_topics: OfTopics) -> None:
    settings, done = of_topics
    assert sorted(row["offset"] for row in of_topic(spark, settings, BRONZE, "dlq.twice")) == [1, 2]
    assert done[BRONZE].duplicates == 1


def test_within_a_batch_the_lowest_bronze_id_wins(spark: SparkSession, of_topics: OfTopics) -> None:
    settings, done = of_topics
    assert (*counts_of(spark, settings, "dlq.rivals"), done[SILVER].duplicates) == (1, 4, 0, 5)
    bronze_ids = [row["_bronze_id"] for row in of_topic(spark, settings, BRONZE, "dlq.rivals")]
    assert [row["_bronze_id"] for row in of_topic(spark, settings, SILVER, "dlq.rivals")] == [min(bronze_ids)]


def test_few_failures_never_break_a_gate(spark: SparkSession, of_topics: OfTopics) -> None:
    assert counts_of(spark, of_topics[0], "dlq.few") == (0, 9, 0)


@pytest.mark.parametrize("profile", OTHERS, ids=lambda named: named.name)
def test_a_few_records_that_lack_a_mandatory_header_break_no_gate(
    spark: SparkSession, of_topics: OfTopics, profile: Profile
) -> None:
    assert counts_of(spark, of_topics[0], f"dlq.{profile.name}") == (388, 12, 0)


def test_required_profile_breaks_with_its_hint(of_topics: OfTopics) -> None:
    silver = of_topics[1][SILVER]
    assert silver.status == "broken"
    assert silver.verdict is not None
    failed = {(outcome.scope, outcome.code): (outcome.failing, outcome.candidates) for outcome in silver.verdict.failed}
    assert failed["dlq.payments", "header_profile.required"] == (17, 20)
    assert "share.group.dlq.disposition.header.enable" in (silver.message or "")


def test_rows_leave_quarantine_if_they_are_accepted_again_or_readmitted(
    spark: SparkSession, settings: Settings
) -> None:
    required = load(
        warehouse=settings.warehouse,
        landing=settings.landing,
        dlq={"require": [{"topic": "dlq.*", "profile": "kip-1317"}]},
    )
    land(settings, {"a.jsonl": [line(1), line(2), line(3, headers=kip_1191(offset="+3")), "not JSON"]})
    run_chain(spark, required, BRONZE, SILVER)
    before = came(settings, QUARANTINE)
    assert before.keys() == {1, 2, 3, None}
    assert rows(spark, settings, SILVER) == []

    land(settings, {"c.jsonl": [line(1)]})
    accepted = run_chain(spark, settings)[SILVER]
    assert (accepted.accepted, offsets(spark, settings, SILVER)) == (1, [1])
    assert came(settings, QUARANTINE).keys() == {2, 3, None}

    with lock.writer(settings, "test"):
        done = readmit(Warehouse(settings, spark), stage_with_quarantine(QUARANTINE))
    assert (done.found, done.readmitted) == (3, 1)
    assert offsets(spark, settings, SILVER) == [1, 2]
    left = {row["dlq_offset"]: row["violations"] for row in rows(spark, settings, QUARANTINE)}
    assert left == {3: ["original_offset.decimal_int64"], None: ["error.readable"]}
    assert came(settings, QUARANTINE) == {offset: before[offset] for offset in left}
    assert [row["record_count"] for row in rows(spark, settings, GOLD)] == [1]

    land(settings, {"d.jsonl": [line(1)]})
    again = run_chain(spark, required)[SILVER]
    assert (again.quarantined, again.duplicates) == (0, 1)  # the table has this row
    assert came(settings, QUARANTINE).keys() == {3, None}
    assert [row["record_count"] for row in rows(spark, settings, GOLD)] == [2]


def own_headers(at: int, **changes: bytes) -> list[tuple[str, bytes | None]]:
    """Headers of a team's own code, which only a profile in the settings can decode."""
    values = {"topic": b"parcels", "partition": b"3", "offset": b"%d" % at} | changes
    return [*((f"x-original-{name}", value) for name, value in values.items()), ("x-error", b"secret")]


def test_a_team_with_headers_of_its_own_pastes_the_proposed_profile(spark: SparkSession, settings: Settings) -> None:
    many = [line(offset, topic="dlq.parcels", headers=own_headers(offset)) for offset in range(20)]
    few = [line(offset, topic="dlq.few", headers=own_headers(offset)) for offset in range(3)]
    land(settings, {"a.jsonl": [*many, *few, line(7, topic="dlq.few", headers=own_headers(7, offset=b"+7"))]})
    required = load(
        warehouse=settings.warehouse,
        landing=settings.landing,
        dlq={"require": [{"topic": "dlq.*", "profile": "kip-1317"}]},
    )
    silver = run_chain(spark, required)[SILVER]
    assert (silver.status, silver.held, silver.quarantined) == ("broken", 20, 4)
    said, _, proposed = (silver.message or "").partition("Look at this guess before you put it into the settings:\n")
    assert 'headers named "x-error" (20), "x-original-offset" (20), ' in said
    assert "the profile my-profile lets 20 come in: 20 with topic, partition and offset" in said
    assert "secret" not in said + proposed
    check, near = headers.check_header_profiles(Warehouse(required))
    assert near.finding.startswith("The nearest profile is spring-cloud-stream: it lacks ")
    assert "the profile my-profile lets 23 come in: 23 with topic, partition and offset" in check.finding
    assert check.snippet == proposed

    dlq = tomllib.loads(proposed)["dlq"] | {"require": [{"topic": "dlq.parcels", "profile": "my-profile"}]}
    dlq["profile"].append(
        {"name": "placeless", "headers": [{"name": "x-message", "field": "error_message", "mandatory": True}]}
    )
    own = load(warehouse=settings.warehouse, landing=settings.landing, dlq=dlq)
    assert not idleness.idle(Warehouse(own), stages("dlq"))
    placeless = [line(offset, topic="dlq.c", headers=[("x-message", b"no")]) for offset in range(4)]
    land(settings, {"b.jsonl": [*placeless, line(1, topic="dlq.c", partition=1, headers=own_headers(1)[:1])]})
    silver = run_chain(spark, own)[SILVER]
    assert (silver.status, silver.held, silver.accepted, silver.quarantined) == ("passed", 0, 24, 1)
    accepted = {row["dlq_topic"]: row for row in rows(spark, settings, SILVER)}
    assert {topic: row["header_profile"] for topic, row in accepted.items()} == {
        "dlq.parcels": "my-profile",
        "dlq.c": "placeless",
    }

    with lock.writer(own, "test"):
        done = readmit(Warehouse(own, spark), stage_with_quarantine(QUARANTINE))
    assert (done.found, done.readmitted) == (5, 3)
    left = {row["dlq_topic"]: (row["violations"], row["missing_fields"]) for row in rows(spark, own, QUARANTINE)}
    assert left == {
        "dlq.few": (["original_offset.decimal_int64"], []),
        "dlq.c": (["header_profile.mandatory"], ["original_partition", "original_offset", "error_message"]),
    }
    (check,) = headers.check_header_profiles(Warehouse(own))
    assert check.finding == (
        "The nearest profile is my-profile: it lacks x-original-partition, x-original-offset, x-error (1 record)."
    )

    done_of_ledger = run_needed(spark, own, "gold.message_ledger", GOLD, "gold.dlq_incidents")
    assert {stage_run.status for stage_run in done_of_ledger.values()} <= {"passed", "idle"}
    places = {(row["topic"], row["partition"], row["offset"]) for row in rows(spark, own, "gold.message_ledger")}
    assert places == {("parcels", 3, offset) for offset in range(20)}
    assert sum(row["record_count"] for row in rows(spark, own, GOLD)) == 27
    now = datetime.fromtimestamp((AT + HOUR) / 1000, UTC)
    asked = (ROOT / "sql" / "questions" / "poison_pill_or_systemic.sql").read_text(encoding="utf-8")
    verdicts = {
        (*row["dlq_topics"], row["verdict"])
        for row in query.rows_of(Warehouse(own, spark), asked, {"now": now}).collect()
    }
    assert verdicts == {(topic, "KEY_LOCAL") for topic in ("dlq.parcels", "dlq.few", "dlq.c")}  # all have one key


def test_the_gate_says_which_profile_comes_nearest_and_what_records_lack(
    spark: SparkSession, settings: Settings
) -> None:
    lacking = [
        ("kafka_original-topic", b"orders"),
        ("kafka_original-partition", b"\0\0\0\3"),
        ("retry_topic-attempts", b"\2"),
    ]
    land(settings, {"a.jsonl": [line(offset, topic="dlq.orders", headers=lacking) for offset in range(12)]})
    silver = run_chain(spark, settings, BRONZE, SILVER)[SILVER]
    assert (silver.status, silver.held) == ("broken", 12)
    assert (silver.message or "").count("The nearest profile is ") == 1
    assert "The nearest profile is spring-retry-topic: it lacks kafka_original-offset (12 records)." in (
        silver.message or ""
    )


@pytest.mark.parametrize("table", [BRONZE, SILVER, GOLD])
def test_lost_progress_leads_to_one_announced_full_read(
    spark: SparkSession, after_a_run: Settings, table: str, caplog: pytest.LogCaptureFixture
) -> None:
    before = tables(after_a_run)
    (Path(after_a_run.warehouse) / "_progress" / f"{table}.json").unlink()

    again = run_chain(spark, after_a_run)[table]

    assert again.read == 2 if table != GOLD else again.read == 1
    assert tables(after_a_run) == before
    assert table in caplog.text or table == BRONZE


def test_restored_progress_reads_again_without_a_change(spark: SparkSession, settings: Settings) -> None:
    state = Path(settings.warehouse) / "_progress"
    land(settings, {"a.jsonl": [line(1)]})
    run_chain(spark, settings)
    shutil.copytree(state, state.with_name("backup"))
    land(settings, {"b.jsonl": [line(2), line(3, headers=FOREIGN)]})
    run_chain(spark, settings)
    before = tables(settings)
    shutil.rmtree(state)
    shutil.move(state.with_name("backup"), state)

    again = run_chain(spark, settings)

    assert (again[BRONZE].read, again[BRONZE].accepted) == (2, 0)
    assert (again[SILVER].accepted, again[SILVER].quarantined, again[SILVER].duplicates) == (0, 0, 2)
    assert tables(settings) == before


@pytest.mark.parametrize("table", [SILVER, QUARANTINE])
def test_recreated_table_is_filled_again(
    table: str, spark: SparkSession, after_a_run: Settings, caplog: pytest.LogCaptureFixture
) -> None:
    before = tables(after_a_run)
    assert before[table]
    shutil.rmtree(Warehouse(after_a_run).location(table))
    assert not idleness.idle(Warehouse(after_a_run), stages("dlq"))

    run_chain(spark, after_a_run)

    assert tables(after_a_run) == before
    assert "reading all again" in caplog.text


def test_gold_refreshes_affected_hours_only(spark: SparkSession, settings: Settings) -> None:
    land(settings, {"a.jsonl": [line(1), line(2, timestamp=AT + HOUR), line(3, timestamp=-1)]})
    run_chain(spark, settings)
    spark.sql(f"UPDATE delta.`{Warehouse(settings).location(GOLD)}` SET record_count = 1000")
    land(settings, {"b.jsonl": [line(4, timestamp=AT + HOUR + 1)]})

    run_chain(spark, settings)

    counts = {row["hour"] and row["hour"].hour: row["record_count"] for row in rows(spark, settings, GOLD)}
    assert counts == {None: 1000, 2: 1000, 3: 2}


def test_second_writer_waits_and_then_names_the_holder(settings: Settings) -> None:
    impatient = settings.model_copy(update={"lock": settings.lock.model_copy(update={"wait_seconds": 0.3})})
    script = (
        "import sys, time; from pipelines.stores import lock; from pipelines.settings import load\n"
        "with lock.writer(load(warehouse=sys.argv[1]), 'the first one'): print('held', flush=True); time.sleep(60)"
    )
    first = subprocess.Popen([sys.executable, "-c", script, settings.warehouse], stdout=subprocess.PIPE, text=True)
    try:
        assert first.stdout is not None
        assert first.stdout.readline() == "held\n"
        assert f"process {first.pid}" in (lock.holder(settings.warehouse) or "")
        with (
            pytest.raises(WriterBusy, match=rf"process {first.pid} on .* \(the first one\)"),
            lock.writer(impatient, "x"),
        ):
            pass
    finally:
        first.kill()
        first.wait()
    with lock.writer(impatient, "the second one"):
        assert "the second one" in (lock.holder(settings.warehouse) or "")
    assert lock.holder(settings.warehouse) is None


@pytest.mark.thorough
def test_warehouse_by_uri_gives_the_same_tables(spark: SparkSession, settings: Settings, tmp_path: Path) -> None:
    shutil.copytree(settings.warehouse, tmp_path / "remote")  # test_uri_warehouses.py creates tables at a URI
    land(settings, {"a.jsonl": [line(1), line(2, headers=FOREIGN)], "b.jsonl": [line(1), line(3)]})
    run_chain(spark, settings)
    remote = settings.model_copy(update={"warehouse": (tmp_path / "remote").as_uri()})

    run_chain(spark, remote)
    land(settings, {"c.jsonl": [line(4), line(1, value=b"other")]})
    run_chain(spark, remote)
    again = run_chain(spark, remote)
    run_chain(spark, settings)

    assert {stage_run.status for stage_run in again.values()} == {"idle"}
    assert tables(settings.model_copy(update={"warehouse": str(tmp_path / "remote")})) == tables(settings)
