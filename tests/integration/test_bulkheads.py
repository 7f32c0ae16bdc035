"""The gate judges each topic alone: it holds a topic that breaks its contract, and all others flow on."""

from __future__ import annotations

import contextlib
import json
import shutil
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from expectations import suite
from expectations.text import visible
from pipelines import cli
from pipelines.catalog import stages
from pipelines.commands import arguments, doctor, query, trace
from pipelines.errors import UsageError
from pipelines.run import freshness, idleness, runner, sessions
from pipelines.run.readmit import readmit, stage_with_quarantine
from pipelines.settings import Gate, Settings, load
from pipelines.site import report
from pipelines.steps import held
from pipelines.steps.held import Acceptance
from pipelines.steps.split import SplitBatch
from pipelines.stores import lock
from pipelines.warehouse import progress
from pipelines.warehouse.tables import Warehouse
from tests.testing.builders import BROKEN, CHAIN, land, line, rows, tables, warehouse_of
from tests.testing.bulkheads import (
    BRONZE,
    FOREIGN,
    GOLD,
    HELD,
    OF_LETTERS,
    OF_PUSHES,
    PUSHES,
    SILVER,
    Killed,
    bad,
    counts,
    failing,
    good,
    places,
    run,
)
from tests.testing.requests import push


def test_a_topic_that_breaks_its_contract_is_held_while_others_flow_to_gold(
    spark: SparkSession, settings: Settings
) -> None:
    land(settings, {"a.jsonl": [*good("dlq.a", *range(40)), *bad("dlq.b", *range(20)), *good("dlq.b", 20)]})
    done = run(spark, settings, tables=CHAIN)
    assert [counts(ran) for ran in done[SILVER]] == [("broken", 61, 40, 0, 0, 21)]
    assert [row["record_count"] for row in rows(spark, settings, GOLD)] == [40]
    assert places(spark, settings, HELD) == [("dlq.b", offset) for offset in range(21)]
    assert failing(done[SILVER][0])["dlq.b", "original_topic.not_null"] == (20, 21)

    assert idleness.idle(Warehouse(settings), [stage for stage in stages("dlq") if stage.table in CHAIN])
    land(settings, {"b.jsonl": [*good("dlq.a", 40), *good("dlq.b", 21), *bad("dlq.c", 1)]})
    done = run(spark, settings)
    assert [counts(ran) for ran in done[SILVER]] == [("broken", 24, 1, 1, 0, 22)]
    assert places(spark, settings, HELD) == [("dlq.b", offset) for offset in range(22)]
    land(settings, {"c.jsonl": good("dlq.a", 41)})
    assert [counts(ran)[:3] for ran in run(spark, settings)[SILVER]] == [("passed", 1, 1), ("held", 0, 0)]

    done = run(spark, settings, f"{SILVER}:dlq.b")
    assert [counts(ran) for ran in done[SILVER]] == [("passed", 22, 2, 20, 0, 0)]
    assert done[SILVER][0].message == "accepted once: dlq.b"
    assert places(spark, settings, HELD) == []
    known = progress.load(Warehouse(settings), SILVER)
    assert known is not None
    assert (known.held, known.pending, known.decided) == ({}, {}, None)
    reported = Warehouse(settings, spark).read("quality.stage_runs").where(f"table = '{SILVER}'").collect()
    assert [row["read"] for row in reported] == [
        sum(row[name] for name in ("accepted", "quarantined", "duplicates", "skipped", "held")) for row in reported
    ]


def test_rows_that_an_earlier_progress_does_not_know_to_be_held_are_judged_again(
    spark: SparkSession, settings: Settings
) -> None:
    state = Path(settings.warehouse) / "_progress" / f"{SILVER}.json"
    land(settings, {"a.jsonl": good("dlq.a", 1)})
    run(spark, settings)
    before = state.read_text()
    land(settings, {"b.jsonl": bad("dlq.b", *range(12))})
    run(spark, settings)
    assert len(places(spark, settings, HELD)) == 12
    state.write_text(before)

    land(settings, {"c.jsonl": good("dlq.b", *range(100, 400))})
    done = run(spark, settings)
    assert [counts(ran) for ran in done[SILVER]] == [("passed", 312, 300, 12, 0, 0)]
    assert places(spark, settings, HELD) == []

    land(settings, {"d.jsonl": bad("dlq.b", *range(500, 550))})
    assert [counts(ran) for ran in run(spark, settings)[SILVER]] == [("broken", 50, 0, 0, 0, 50)]


@pytest.mark.thorough
def test_an_expectation_that_answers_no_about_scopes_holds_those_with_failing_rows(
    spark: SparkSession, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    land(settings, {"a.jsonl": [*good("dlq.a", 1, 2), *good("dlq.b", 1), *bad("dlq.a", 3)]})
    with monkeypatch.context() as patched:
        no = {"success": False, "result": {}}
        patched.setattr(suite.ExpectColumnPairValuesAToBeGreaterThanB, "_validate", lambda *_, **named: no)
        assert [ran.status for ran in run(spark, settings)[SILVER]] == ["broken"]
    assert places(spark, settings, SILVER) == [("dlq.b", 1)]
    assert places(spark, settings, HELD) == [("dlq.a", 1), ("dlq.a", 2), ("dlq.a", 3)]
    state = Path(settings.warehouse) / "_progress" / f"{SILVER}.json"
    state.unlink()  # judge all rows again
    assert [ran.status for ran in run(spark, settings)[SILVER]] == ["passed"]
    assert (len(places(spark, settings, SILVER)), places(spark, settings, HELD)) == (3, [])


def test_a_share_is_of_the_rows_that_a_rule_speaks_about(spark: SparkSession, settings: Settings) -> None:
    required = load(
        warehouse=settings.warehouse,
        landing=settings.landing,
        dlq={"require": [{"topic": "dlq.pay", "profile": "kip-1317"}]},
    )
    land(settings, {"a.jsonl": [*good("dlq.pay", *range(49)), *good("dlq.other", *range(951))]})
    (done,) = run(spark, required)[SILVER]
    assert counts(done) == ("broken", 1000, 951, 0, 0, 49)
    assert failing(done)["dlq.pay", "header_profile.required"] == (49, 49)
    assert done.verdict is not None
    found = {
        outcome.code: (outcome.failing, outcome.candidates)
        for outcome in done.verdict.outcomes
        if outcome.scope is None
    }
    assert found["header_profile.required"] == (49, 49)
    assert found["row.no_violations"] == (49, 1000)

    (done,) = run(spark, settings)[SILVER]  # settings changed, so it is judged again
    assert counts(done) == ("passed", 49, 49, 0, 0, 0)


@pytest.mark.thorough
def test_lines_without_a_topic_are_of_the_scope_of_their_file(spark: SparkSession, settings: Settings) -> None:
    unreadable = ["{" + "x" * index for index in range(20)]
    few = [f"no JSON {place}" for place in range(12)]
    hostile = "<i>${few}\x1b.jsonl"
    land(settings, {hostile: [*few, *good("dlq.a", *range(300))], "many.jsonl": unreadable})
    (done,) = run(spark, settings)[SILVER]
    assert counts(done) == ("broken", 332, 300, 12, 0, 20)
    where = "many.jsonl lines 1-20 (20 lines): the line is not valid JSON"
    assert f"20 lines cannot be read ({where})" in (done.message or "")
    page = report.build(Warehouse(settings)).with_name("quality.html")
    docs = "".join(file.read_text() for file in (page.parent / report.DATA_DOCS).rglob("*.html"))
    assert f"<code>{where}</code>" in page.read_text()
    assert "Held: 20 rows of file:many.jsonl" in page.read_text()
    assert f"file:many.jsonl: error.readable: 20 lines cannot be read: {where}" in docs
    few_of = "&lt;i&gt;&#36;{few}\\u001b.jsonl lines 1-12 (12 lines): the line is not a JSON object"
    assert f"32 lines cannot be read: {where}; {few_of}" in docs
    assert "<i>" not in docs
    reasons = arguments.text_of(None, Path("sql/questions/quarantine_reasons.sql"))
    found = [
        (row["state"], row["record_count"]) for row in query.rows_of(Warehouse(settings, spark), reasons, {}).collect()
    ]
    assert sorted(found) == [("held", 20), ("quarantine", 12)]
    known = progress.load(Warehouse(settings), SILVER)
    assert known is not None
    assert known.held.keys() == {"file:many.jsonl"}

    land(settings, {"many.jsonl": [*unreadable, "[", *good("dlq.b", *range(380))]})
    (done,) = [ran for ran in run(spark, settings)[SILVER] if ran.read]
    assert counts(done) == ("broken", 401, 380, 0, 0, 21)  # 21 of 401 lines
    land(settings, {"many.jsonl": [*unreadable, "[", *good("dlq.b", *range(440)), "]"]})
    (done,) = [ran for ran in run(spark, settings)[SILVER] if ran.read]
    assert counts(done) == ("passed", 82, 60, 22, 0, 0)  # 22 of 462 lines


@pytest.mark.thorough
def test_small_batches_add_up_until_they_are_accepted(spark: SparkSession, settings: Settings) -> None:
    def cycle(number: int, *lines: str, accept: tuple[str, ...] = ()) -> tuple[Any, ...]:
        land(settings, {f"{number}.jsonl": [*lines, *good("dlq.fine", *range(1000 * number, 1000 * number + 600))]})
        done = counts([ran for ran in run(spark, settings, *accept)[SILVER] if ran.read][-1])
        return done[0], held_of()

    def held_of() -> set[str]:
        return {topic for topic, _ in places(spark, settings, HELD)}

    few = [line for topic in ("dlq.a", "dlq.b", "dlq.c") for line in bad(topic, *range(9))]
    assert cycle(1, *few) == ("passed", set())
    more = [*good("dlq.b", *range(100, 400)), *good("dlq.c", *range(100, 1095))]  # 300 and 995: nothing fails here
    assert cycle(2, *bad("dlq.a", *range(10, 19)), *more) == ("broken", {"dlq.a"})  # 18 of 18
    accept = (f"{SILVER}:dlq.a",)
    last = bad("dlq.c", *range(10, 19))  # the last bad batch is too far back
    assert cycle(3, *bad("dlq.b", *range(10, 19)), *last, accept=accept) == ("broken", {"dlq.b"})  # 18 of 318
    assert cycle(4, *bad("dlq.a", *range(20, 29))) == ("passed", {"dlq.b"})  # the count began anew


def test_with_no_tolerance_one_failing_row_breaks_the_gate(spark: SparkSession, settings: Settings) -> None:
    strict = settings.model_copy(update={"gates": {SILVER: Gate(tolerance=0.0)}})
    land(settings, {"a.jsonl": [*good("dlq.a", *range(99)), *bad("dlq.a", 99), *good("dlq.b", 1)]})
    assert [counts(ran) for ran in run(spark, strict)[SILVER]] == [("broken", 101, 1, 0, 0, 100)]


@pytest.mark.thorough
def test_a_batch_may_break_a_rule_that_no_scope_does(spark: SparkSession, settings: Settings) -> None:
    lines = [line for topic in "abcdefghijkl" for line in bad(f"dlq.{topic}", 1)]
    land(settings, {"a.jsonl": [*lines, *good("dlq.fine", *range(20))]})
    done = run(spark, settings)[SILVER]
    assert [counts(ran) for ran in done] == [("broken", 32, 20, 0, 0, 12)]
    assert "12 rows of 12 scopes are held" in (done[0].message or "")
    done = run(spark, settings, SILVER)[SILVER]
    assert [counts(ran) for ran in done] == [("passed", 12, 0, 12, 0, 0)]


@pytest.mark.thorough
def test_versions_of_a_record_among_held_and_later_rows_are_decided_as_in_one_batch(
    spark: SparkSession, settings: Settings, empty_warehouse: Path, tmp_path: Path
) -> None:
    first = [*bad("dlq.a", *range(20)), line(50, topic="dlq.a", value=b"one"), *good("dlq.b", 1)]
    second = [line(50, topic="dlq.a", value=b"two"), *bad("dlq.a", 3), *good("dlq.a", 51)]
    land(settings, {"a.jsonl": first})
    run(spark, settings)
    land(settings, {"b.jsonl": second, "again.jsonl": first})
    (done,) = run(spark, settings)[SILVER]
    assert counts(done) == ("broken", 46, 0, 0, 1, 45)
    (done,) = run(spark, settings, f"{SILVER}:dlq.a")[SILVER]

    whole = warehouse_of(empty_warehouse, tmp_path / "whole")
    land(whole, {"a.jsonl": first, "b.jsonl": second, "again.jsonl": first})
    (at_once,) = run(spark, whole, SILVER)[SILVER]
    assert at_once.message == "accepted once: dlq.a"
    assert tables(settings) == tables(whole)


def test_a_table_without_scopes_is_held_as_a_whole(spark: SparkSession, settings: Settings) -> None:
    land(settings, {"a.log": [push(second, error=999) for second in range(12)]}, "streams-requests")
    done = run(spark, settings, tables=[stage.table for stage in stages("topology")])
    assert (done[PUSHES][0].status, done[PUSHES][0].held, done[PUSHES][0].accepted) == ("broken", 12, 0)
    assert "which keeps no row out of the table" in (done[PUSHES][0].message or "")
    assert {ran.status for table, runs in done.items() for ran in runs if table != PUSHES} <= {"passed", "idle"}
    reported = Warehouse(settings).last_version("quality.stage_runs")
    assert idleness.idle(Warehouse(settings), stages("topology"))
    assert [ran.status for ran in run(spark, settings, tables=OF_PUSHES)[PUSHES]] == ["held"]
    assert Warehouse(settings).last_version("quality.stage_runs") == reported

    land(settings, {"b.log": [push(100)]}, "streams-requests")
    done = run(spark, settings, tables=OF_PUSHES)
    assert [(ran.status, ran.held) for ran in done[PUSHES]] == [("broken", 13)]
    done = run(spark, settings, PUSHES, tables=OF_PUSHES)
    assert [(ran.status, ran.accepted, ran.held) for ran in done[PUSHES]] == [("passed", 13, 0)]


def test_a_batch_that_grew_and_was_not_judged_does_not_rest(
    spark: SparkSession, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    def killed(*_: Any, **named: Any) -> Any:
        raise Killed

    land(settings, {"a.log": [push(second, error=999) for second in range(12)]}, "streams-requests")
    run(spark, settings, tables=OF_PUSHES)
    land(settings, {"b.log": [push(100 + second) for second in range(300)]}, "streams-requests")
    with monkeypatch.context() as patched:
        patched.setattr(suite, "gate", killed)
        with pytest.raises(Killed):
            run(spark, settings, tables=OF_PUSHES)
    assert not idleness.idle(Warehouse(settings), stages("topology"))
    done = run(spark, settings, tables=OF_PUSHES)
    assert [(ran.status, ran.accepted, ran.held) for ran in done[PUSHES]] == [("passed", 312, 0)]


@pytest.mark.thorough
def test_what_was_held_before_a_kill_and_passes_with_later_rows_is_no_failure(
    spark: SparkSession, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    def killed(*_: Any) -> Any:
        raise Killed

    land(settings, {"a.jsonl": bad("dlq.b", *range(12))})
    with monkeypatch.context() as patched:
        patched.setattr(held, "hold", killed)
        with pytest.raises(Killed):
            run(spark, settings)
    land(settings, {"b.jsonl": good("dlq.b", *range(100, 400))})
    monkeypatch.setattr(sessions, "session", lambda *_, **named: contextlib.nullcontext(spark))
    where = ("--warehouse", settings.warehouse, "--landing", settings.landing)
    assert not cli.app(["run", "--feed", "dlq", *where], standalone_mode=False)
    assert len(places(spark, settings, SILVER)) == 300
    assert places(spark, settings, HELD) == []


def killed_under_an_own_profile(spark: SparkSession, settings: Settings, monkeypatch: pytest.MonkeyPatch) -> Settings:
    """Kill a run after the gate's decision, by settings with one more header profile; return these settings."""

    def killed(*_: Any) -> Any:
        raise Killed

    own = {"name": "own", "headers": [{"name": "trace", "field": "error_message", "mandatory": True}]}
    taught = load(warehouse=settings.warehouse, landing=settings.landing, dlq={"profile": [own]})
    with monkeypatch.context() as patched:
        patched.setattr(SplitBatch, "write", killed)
        with pytest.raises(Killed):
            run(spark, taught)
    return taught


def test_a_batch_is_judged_anew_where_settings_changed_between_a_kill_and_the_rerun(
    spark: SparkSession, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines = [*(f"no JSON {place}" for place in range(20)), *good("dlq.a", *range(100))]
    land(settings, {"a.jsonl": lines, "b.jsonl": bad("dlq.b", *range(12))})
    taught = killed_under_an_own_profile(spark, settings, monkeypatch)
    done = run(spark, settings)
    assert [counts(ran) for ran in done[SILVER]] == [("broken", 132, 100, 0, 0, 32)]
    assert failing(done[SILVER][0])["dlq.b", "original_topic.not_null"] == (12, 12)
    known = progress.load(Warehouse(settings), SILVER)
    assert known is not None
    waiting = {name: (waiting.rows, waiting.others) for name, waiting in known.held.items()}
    assert waiting == {"dlq.b": (12, 0), "file:a.jsonl": (20, 100)}  # the other lines of a file count once
    done = run(spark, taught)
    assert [counts(ran) for ran in done[SILVER]] == [("broken", 32, 12, 0, 0, 20)]
    assert len(places(spark, settings, SILVER)) == 112
    assert {row["scope"] for row in rows(spark, settings, HELD)} == {"file:a.jsonl"}


@pytest.mark.thorough
def test_lost_progress_reads_what_is_held_again_and_loses_and_doubles_nothing(
    spark: SparkSession, settings: Settings
) -> None:
    land(settings, {"a.jsonl": [*good("dlq.a", *range(5)), *bad("dlq.b", *range(20))]})
    run(spark, settings)
    before = tables(settings)
    state = Path(settings.warehouse) / "_progress" / f"{SILVER}.json"
    state.unlink()
    (done,) = run(spark, settings)[SILVER]
    assert counts(done) == ("broken", 25, 0, 0, 5, 20)
    assert tables(settings) == before
    shutil.rmtree(Warehouse(settings).location(HELD))
    (done,) = run(spark, settings)[SILVER]
    assert counts(done) == ("broken", 25, 0, 0, 5, 20)
    assert tables(settings) == before


@pytest.mark.thorough
def test_readmit_works_beside_what_is_held(spark: SparkSession, settings: Settings) -> None:
    required = load(
        warehouse=settings.warehouse,
        landing=settings.landing,
        dlq={"require": [{"topic": "dlq.*", "profile": "kip-1317"}]},
    )
    land(settings, {"a.jsonl": [*good("dlq.a", *range(5)), *good("dlq.b", *range(20))]})
    (done,) = run(spark, required)[SILVER]
    assert counts(done) == ("broken", 25, 0, 5, 0, 20)
    with lock.writer(settings, "test"):
        assert readmit(Warehouse(settings, spark), stage_with_quarantine(SILVER)).readmitted == 5
    assert places(spark, settings, SILVER) == [("dlq.a", offset) for offset in range(5)]
    assert len(places(spark, settings, HELD)) == 20
    assert [counts(ran) for ran in run(spark, settings)[SILVER]] == [("passed", 20, 20, 0, 0, 0)]


@pytest.fixture(scope="module")
def both_held(spark: SparkSession, empty_warehouse: Path, tmp_path_factory: pytest.TempPathFactory) -> Settings:
    """A warehouse in which rows of two clusters' topics of the same name are held, those of "default" longer."""
    first = warehouse_of(empty_warehouse, tmp_path_factory.mktemp("both-held"))
    second = of_second(first)
    land(first, {"a.jsonl": bad("dlq.a", *range(9))})
    assert [counts(ran) for ran in run(spark, first)[SILVER]] == [("passed", 9, 0, 9, 0, 0)]
    land(first, {"b.jsonl": bad("dlq.a", *range(9, 20))})
    assert [counts(ran) for ran in run(spark, first)[SILVER]] == [("broken", 11, 0, 0, 0, 11)]
    land(second, {"a.jsonl": [*bad("dlq.a", *range(9)), *good("dlq.a", *range(9, 15))]})  # too many with the first's
    assert [counts(ran) for ran in run(spark, second)[SILVER]] == [("passed", 15, 6, 9, 0, 0)]
    assert idleness.idle(Warehouse(second), stages("dlq")[:2])
    assert [held.of_table(Warehouse(where), stages("dlq")[1]) is None for where in (first, second)] == [False, True]

    land(second, {"b.jsonl": bad("dlq.a", *range(20, 31))})
    (done,) = run(spark, second)[SILVER]
    assert counts(done) == ("broken", 11, 0, 0, 0, 11)
    assert f"--accept {SILVER}:cluster:second/dlq.a" in (done.message or "")
    return first


def of_second(settings: Settings) -> Settings:
    """Settings of another cluster in the same warehouse."""
    return settings.model_copy(update={"cluster": "second", "landing": f"{settings.landing}-of-second"})


def test_topics_of_the_same_name_in_two_clusters_are_judged_apart(
    spark: SparkSession, both_held: Settings, tmp_path: Path
) -> None:
    settings = warehouse_of(Path(both_held.warehouse), tmp_path / "copy")
    assert {row["scope"]: row["cluster"] for row in rows(spark, settings, HELD)} == {
        "dlq.a": "default",
        "cluster:second/dlq.a": "second",
    }
    (done,) = run(spark, of_second(settings), SILVER)[SILVER]
    assert counts(done) == ("passed", 11, 0, 11, 0, 0)
    assert done.message == "accepted once: cluster:second/dlq.a"
    known = progress.load(Warehouse(settings), SILVER)
    assert known is not None
    assert known.held.keys() == {"dlq.a"}


@pytest.mark.thorough
def test_rows_of_two_clusters_that_are_held_together_part(
    spark: SparkSession, both_held: Settings, tmp_path: Path
) -> None:
    settings = warehouse_of(Path(both_held.warehouse), tmp_path / "copy")
    Warehouse(settings).opened_table(HELD).update({"scope": "'dlq.a'"})  # as before scopes were of clusters
    state = Path(settings.warehouse) / "_progress" / f"{SILVER}.json"
    known = json.loads(state.read_text())
    assert known.pop("home") == "default"
    known["held"] = {"dlq.a": known["held"]["dlq.a"] | {"rows": 22, "under": "before"}}
    state.write_text(json.dumps(known))

    assert [counts(ran) for ran in run(spark, settings)[SILVER]] == [("broken", 22, 0, 0, 0, 22)]
    apart = Counter((row["scope"], row["cluster"]) for row in rows(spark, settings, HELD))
    assert apart == {("dlq.a", "default"): 11, ("cluster:second/dlq.a", "second"): 11}
    assert [ran.status for ran in run(spark, settings)[SILVER]] == ["held"]
    (done,) = run(spark, of_second(settings).model_copy(update={"tolerance": 1.0}))[SILVER]
    assert counts(done) == ("passed", 11, 0, 11, 0, 0)
    assert {row["cluster"] for row in rows(spark, settings, HELD)} == {"default"}


@pytest.mark.thorough
def test_held_rows_that_settings_read_otherwise_say_what_they_break_now(
    spark: SparkSession, settings: Settings
) -> None:
    own = {"x-topic": "original_topic", "x-offset": "original_offset"}
    headers = [{"name": name, "field": field, "mandatory": True} for name, field in own.items()]
    taught = load(
        warehouse=settings.warehouse,
        landing=settings.landing,
        dlq={"profile": [{"name": "ours", "headers": headers}]},
    )
    offsets = [b"none", *(b"%d" % offset for offset in range(1, 9)), *[b"none"] * 11]
    lines = [
        line(index, topic="dlq.b", headers=[*BROKEN, ("x-topic", b"orders"), ("x-offset", offset)])
        for index, offset in enumerate(offsets)
    ]
    land(settings, {"a.jsonl": [*good("dlq.a", 1), *lines]})
    run(spark, settings)
    found = rows(spark, settings, HELD)
    assert {(row["header_profile"], *row["violations"]) for row in found} == {("kip-1191", "original_topic.not_null")}

    (done,) = run(spark, taught)[SILVER]
    assert counts(done) == ("broken", 20, 0, 0, 0, 20)
    found = rows(spark, settings, HELD)
    broken = [row["dlq_offset"] for row in found if row["violations"] == ["original_offset.decimal_int64"]]
    assert sorted(broken) == [0, *range(9, 20)]
    assert {(row["header_profile"], row["original_topic"]) for row in found} == {("ours", "orders")}
    assert sorted(row["original_offset"] for row in found if not row["violations"]) == [*range(1, 9)]
    (done,) = run(spark, taught, f"{SILVER}:dlq.b")[SILVER]
    assert counts(done) == ("passed", 20, 8, 12, 0, 0)


@pytest.mark.thorough
def test_hostile_topics_are_scopes_that_can_be_named(spark: SparkSession, settings: Settings) -> None:
    hostile = ["file:a.jsonl", "*", "a\nb\x1b[31m", "x" * 5_000, "'; DROP TABLE x --", "a'b\\", "\u202e", "topic:a"]
    lines = [line for topic in hostile for line in bad(topic, *range(11))]
    land(settings, {"a.jsonl": [*lines, *good("dlq.a", 1)]})
    (done,) = run(spark, settings)[SILVER]
    assert counts(done) == ("broken", 89, 1, 0, 0, 88)
    assert (done.message or "").isprintable()
    known = progress.load(Warehouse(settings), SILVER)
    assert known is not None
    assert len(known.held) == len(hostile)
    assert not known.held.keys() & {"file:a.jsonl", "*"}
    assert max(map(len, known.held)) < 400
    for number, name in enumerate(list(known.held), 1):
        (done, *rest) = run(spark, settings, f"{SILVER}:{visible(name)}")[SILVER]
        assert (done.status, done.read, done.quarantined) == ("passed", 11, 11), name
        assert bool(rest) == (number < len(hostile))


@pytest.mark.thorough
def test_a_warehouse_by_uri_holds_and_accepts_the_same(spark: SparkSession, settings: Settings, tmp_path: Path) -> None:
    remote = settings.model_copy(update={"warehouse": (tmp_path / "remote").as_uri()})
    land(settings, {"a.jsonl": [*good("dlq.a", *range(5)), *bad("dlq.b", *range(20))]})
    steps: tuple[tuple[dict[str, list[str]], tuple[str, ...]], ...] = (
        ({}, ()),
        ({"b.jsonl": [*good("dlq.b", 30), *bad("dlq.b", 3)]}, ()),
        ({"c.jsonl": good("dlq.a", 9)}, (f"{SILVER}:dlq.b",)),
    )
    for files, accept in steps:
        land(settings, files)
        both = [[counts(ran) for ran in run(spark, where, *accept)[SILVER]] for where in (settings, remote)]
        assert both[0] == both[1]
    assert tables(settings.model_copy(update={"warehouse": str(tmp_path / "remote")})) == tables(settings)


@pytest.mark.thorough
def test_held_offsets_are_no_gaps_and_trace_shows_them(spark: SparkSession, settings: Settings) -> None:
    land(settings, {"a.jsonl": good("dlq.a", 0, 30)})
    run(spark, settings, tables=(BRONZE, SILVER, *OF_LETTERS))
    gaps = [(row["first_offset"], row["last_offset"]) for row in rows(spark, settings, "silver.dlq_gaps")]
    assert gaps == [(1, 29)]
    land(settings, {"b.jsonl": bad("dlq.a", *range(1, 30))})
    run(spark, settings, tables=(BRONZE, SILVER, *OF_LETTERS))
    assert rows(spark, settings, "silver.dlq_gaps") == []
    held = [row for row in rows(spark, settings, "silver.dead_letters") if row["is_held"]]
    assert len(held) == 29
    assert not [row for row in held if row["is_counted"] or row["is_accepted"]]
    answer = trace.answer(Warehouse(settings), "dlq.a:0:7")
    assert answer.exit_code == 0
    run(spark, settings, f"{SILVER}:dlq.a", tables=(SILVER, OF_LETTERS[0]))
    assert not [row for row in rows(spark, settings, "silver.dead_letters") if row["is_held"]]


@pytest.mark.thorough
def test_a_thousand_topics_cost_as_many_jobs_as_one(spark: SparkSession, empty_warehouse: Path, tmp_path: Path) -> None:
    jobs = []
    for topics in (1, 1000):
        own = warehouse_of(empty_warehouse, tmp_path / str(topics))
        names = [f"dlq.t{number % topics}" for number in range(1000)]
        lines = [line(offset, topic=name, headers=FOREIGN) for offset, name in enumerate(names)]
        land(own, {f"{topics}.jsonl": lines})
        with lock.writer(own, "test"):
            runner.run(Warehouse(own, spark), stages(only=BRONZE))
            group = f"{topics} topics"
            spark.sparkContext.setJobGroup(group, group)
            (done,) = runner.run(Warehouse(own, spark), stages(only=SILVER))
            spark.sparkContext.setLocalProperty("spark.jobGroup.id", None)
        assert (done.status, done.held) == ("broken", 1000)
        jobs.append(len(spark.sparkContext.statusTracker().getJobIdsForGroup(group)))
    assert jobs[1] <= jobs[0] + 3  # Spark runs a few jobs more, as it decides at run time


def test_without_news_a_run_needs_no_session_and_ends_with_1(
    spark: SparkSession, settings: Settings, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def afterlog(*arguments: str) -> tuple[int, str, str]:
        where = ("--warehouse", settings.warehouse, "--landing", settings.landing)
        code = cli.app([*arguments, *where], standalone_mode=False)
        return (code, *capsys.readouterr())

    land(settings, {"a.jsonl": [*good("dlq.a", 1), *bad("dlq.b", *range(20))]})
    run(spark, settings)
    monkeypatch.setattr(sessions, "session", None)  # no session is needed
    code, out, err = afterlog("run", "--only", SILVER, "--format", "json")
    assert code == 1
    held = [table for table in json.loads(out)["tables"] if table["table"] == SILVER]
    assert [(scope["status"], scope["read"], scope["held"]) for scope in held] == [("held", 0, 0)]
    assert "20 rows of dlq.b are held since " in err
    code, _, _ = afterlog("run", "--feed", "collect")
    assert not code
    before = tables(settings)
    assert [ran.status for ran in run(spark, settings)[SILVER]] == ["held"]
    assert tables(settings) == before
    only = stages(only=SILVER)
    assert idleness.idle(Warehouse(settings), only)
    assert not idleness.idle(Warehouse(settings), only, Acceptance.of([SILVER], only))
    assert not idleness.idle(Warehouse(settings.model_copy(update={"tolerance": 1.0})), only)
    for wrong in ("silver.nothing:x", "gold.dlq_summary", "silver.topology_pushes", f"{SILVER}:"):
        with pytest.raises(UsageError):
            afterlog("run", "--feed", "dlq", "--accept", wrong)
    with pytest.raises(UsageError):
        afterlog("run", "--follow", "--accept", SILVER)

    (late,) = [entry for entry in freshness.freshness(Warehouse(settings)) if entry.table == SILVER]
    assert late.held_scopes == ("dlq.b",)
    assert late.blocked_since is not None
    found = [check for check in doctor.diagnose(settings) if check.name == SILVER]
    assert [check.state for check in found] == ["error"]
    page = report.build(Warehouse(settings)).with_name("quality.html").read_text()
    assert f"{SILVER} holds rows since" in page
    assert '<dt>held</dt><dd class="warn">20</dd>' in page
    scopes = query.rows_of(
        Warehouse(settings, spark), f"SELECT held_scopes FROM quality.freshness WHERE table = '{SILVER}'", {}
    )
    assert [row["held_scopes"] for row in scopes.collect()] == [["dlq.b"]]
