"""Lines that cannot be read are told with their reason; a file of which none can be read never passes in silence."""

from __future__ import annotations

from dataclasses import replace

import pytest
from pyspark.sql import SparkSession

from pipelines import cli
from pipelines.catalog import stages
from pipelines.commands import doctor
from pipelines.run import once, runner
from pipelines.settings import Settings
from pipelines.site import report
from pipelines.sources import what_lands
from pipelines.steps import held
from pipelines.steps.held import Acceptance
from pipelines.stores import lock
from pipelines.warehouse.quality import StageRun
from pipelines.warehouse.tables import Warehouse
from tests.testing.builders import land, line
from tests.testing.deliveries import producer
from tests.testing.requests import exchange, push

LETTERS, PRODUCERS, PUSHES = "silver.dlq_records", "silver.producers", "silver.topology_pushes"
NO_OBJECT, NO_JSON = "the line is not a JSON object", "the line is not valid JSON"


def run(spark: SparkSession, settings: Settings, *accept: str) -> dict[str, StageRun]:
    """Run the stages of three feeds' tables once; return what each table's last batch did."""
    tables = (LETTERS, PRODUCERS, PUSHES)
    chosen = [stage for stage in stages() if stage.table in (*tables, *(f"bronze{table[6:]}" for table in tables))]
    chosen = [stage for stage in stages() if stage.table == "bronze.streams_requests" or stage in chosen]
    with lock.writer(settings, "test"):
        ran = runner.run(Warehouse(settings, spark), chosen, accepted=Acceptance.of(accept, chosen))
    return {item.table: item for item in ran}


def counts(stage_run: StageRun) -> tuple[str, int, int, int]:
    return stage_run.status, stage_run.accepted, stage_run.quarantined, stage_run.held


def test_a_file_of_which_no_line_can_be_read_breaks_the_gate_however_small(
    spark: SparkSession, settings: Settings
) -> None:
    mixed = [*(line(offset) for offset in range(30)), '{"topic": 1', "2026-11-21 a log", "of text"]
    land(settings, {"orders.txt": ["a,b"], "mixed.jsonl": mixed})
    land(settings, {"whole.txt": ["text"], "mixed.jsonl": [producer(), "other text"]}, "producers")
    other = exchange("FETCH", 3, {}, {})
    land(
        settings, {"mixed.log": [push(1), push(2)[:-50], other], "cut.log": [push(2)[:-40], other]}, "streams-requests"
    )

    done = run(spark, settings)

    letters, producers, pushes = done[LETTERS], done[PRODUCERS], done[PUSHES]
    assert counts(letters) == ("broken", 30, 3, 1)
    reason, *lines = (letters.message or "").split("\n")
    assert f"1 line cannot be read (orders.txt line 1 (1 line): {NO_OBJECT})." in reason
    assert lines[0].startswith("No line of it can be read.")
    assert len(lines) <= 4
    # The lines that go to quarantine are told apart from those that are held.
    others = f"mixed.jsonl lines 32-33 (2 lines): {NO_OBJECT}; mixed.jsonl line 31 (1 line): {NO_JSON}"
    assert f"3 lines cannot be read: {others}. {what_lands.sentence('dlq')}" in (letters.message or "")
    assert f"afterlog run --accept {LETTERS}:file:orders.txt" in (letters.message or "")
    assert counts(producers) == ("broken", 1, 2, 0)
    assert f"The gate of {PRODUCERS} broke: no line of whole.txt can be read. 2 lines cannot be read: " in (
        producers.message or ""
    )
    assert "whole.txt line 1 (1 line): " in (producers.message or "")
    assert f"afterlog readmit {PRODUCERS}" in (producers.message or "")
    assert counts(pushes) == ("broken", 1, 2, 0)
    assert "no line of cut.log can be read." in (pushes.message or "")
    assert all(
        stage_run.verdict is not None and not stage_run.verdict.success for stage_run in (letters, producers, pushes)
    )
    assert [stage_run.refused for stage_run in (letters, producers, pushes)] == [False, True, True]
    # What is in quarantine waits for nobody: the next run has nothing to do there. What is held still is.
    assert {
        table: stage_run.status for table, stage_run in run(spark, settings).items() if stage_run.status != "idle"
    } == {LETTERS: "held"}

    found = {check.name: check for check in doctor.diagnose(settings) if check.state == "error"}
    assert others in found["quarantine.dlq_records"].finding
    assert "orders.txt line 1 (1 line)" in found[LETTERS].finding
    assert what_lands.sentence("producers") in found["quarantine.producers"].finding
    page = report.build(Warehouse(settings)).with_name("quality.html").read_text()
    assert f"<li>mixed.jsonl lines 32-33 (2 lines): {NO_OBJECT}</li>" in page
    assert f"<li>orders.txt line 1 (1 line): {NO_OBJECT}</li>" in page
    assert f"The gate of {PRODUCERS} broke: no line of whole.txt can be read." in page

    # A held file blocks no other one, and is judged again with its next lines, also if all of these can be read.
    land(settings, {"orders.txt": ["a,b", line(99)], "new.jsonl": [line(100)]})
    letters = run(spark, settings)[LETTERS]
    assert counts(letters) == ("passed", 2, 1, 0)
    assert (letters.warns, letters.message) == (
        True,
        f"1 line cannot be read: orders.txt line 1 (1 line): {NO_OBJECT}. {what_lands.sentence('dlq')}",
    )


def test_an_unreadable_file_can_be_accepted_and_tolerated(spark: SparkSession, settings: Settings) -> None:
    land(settings, {"a.txt": ["a"], "b.txt": ["b"]})
    land(settings, {"whole.txt": ["text"]}, "producers")
    done = run(spark, settings, f"{LETTERS}:file:a.txt", PRODUCERS)
    assert counts(done[PRODUCERS]) == ("passed", 0, 1, 0)
    assert counts(done[LETTERS]) == ("broken", 0, 1, 1)
    known = held.own(Warehouse(settings), LETTERS)
    assert known is not None
    assert known.held.keys() == {"file:b.txt"}
    done = run(spark, settings.model_copy(update={"tolerance": 1.0}))
    assert counts(done[LETTERS]) == ("passed", 0, 1, 0)


@pytest.mark.parametrize("feed", ["dlq", "producers"])
def test_the_command_ends_with_1_and_says_why(
    feed: str,
    spark: SparkSession,
    settings: Settings,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    land(settings, {"whole.csv": ["a,b"]}, feed)
    ran = list(run(spark, settings).values())
    if feed == "producers":  # a later batch of the run does not make good what is in quarantine
        ran.append(replace(ran[0], table=PRODUCERS, status="passed"))
    monkeypatch.setattr(once, "run_once", lambda *arguments: (ran, None))
    where = ("--warehouse", settings.warehouse, "--landing", settings.landing)
    assert cli.app(["run", *where], standalone_mode=False) == 1
    assert f"whole.csv line 1 (1 line): {NO_OBJECT}" in capsys.readouterr().out
