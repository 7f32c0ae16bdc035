"""`afterlog rebuild` is the way out if facts broke, which only a defect of Afterlog can cause."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from delta.tables import DeltaTable
from pyspark.sql import SparkSession

from expectations.contract import contract_of
from pipelines import cli
from pipelines.catalog import stages, stages_of_type
from pipelines.commands import doctor
from pipelines.errors import UsageError
from pipelines.run import idleness, runner, sessions, summaries
from pipelines.settings import Settings, load
from pipelines.stage import Summarise
from pipelines.steps import summarise
from pipelines.stores import lock
from pipelines.warehouse import progress, quality
from pipelines.warehouse.quality import StageRun
from pipelines.warehouse.tables import Warehouse
from tests.testing.builders import kip_1191, land, line, needed_by, run, run_chain, tables, warehouse_of
from tests.testing.requests import heartbeat, passing, push

GOLD, LETTERS, LEDGER = "gold.dlq_summary", "silver.dead_letters", "gold.message_ledger"
MADE = needed_by(GOLD, "gold.reconciliation", "gold.delivery_guarantees")


def go(spark: SparkSession, settings: Settings, layer: str | None = None) -> dict[str, StageRun]:
    """Run the stages that make counts and outcomes, or those of a layer, once."""
    chosen = [stage for stage in MADE if layer in (None, stage.layer)]
    with lock.writer(settings, "test"):
        return {stage_run.table: stage_run for stage_run in runner.run(Warehouse(settings, spark), chosen)}


def first(settings: Settings) -> None:
    land(settings, {"a.jsonl": [line(offset) for offset in range(3)]})


def second(settings: Settings) -> None:
    letter = kip_1191(topic="payments", offset=9)
    land(settings, {"b.jsonl": [*(line(offset) for offset in range(3, 5)), line(7, topic="dlq.b", headers=letter)]})


@pytest.fixture(scope="module")
def ran_once(spark: SparkSession, empty_warehouse: Path, tmp_path_factory: pytest.TempPathFactory) -> Settings:
    """A warehouse after a run without a failure."""
    settings = warehouse_of(empty_warehouse, tmp_path_factory.mktemp("once"))
    first(settings)
    go(spark, settings)
    return settings


@pytest.fixture(scope="module")
def ran(spark: SparkSession, ran_once: Settings, tmp_path_factory: pytest.TempPathFactory) -> Settings:
    """A warehouse after two runs without a failure."""
    settings = warehouse_of(Path(ran_once.warehouse), tmp_path_factory.mktemp("ran"))
    second(settings)
    go(spark, settings)
    return settings


@pytest.fixture
def after_a_run(ran_once: Settings, tmp_path: Path) -> Settings:
    """A copy of the warehouse after the first run, and a landing directory for the second."""
    return warehouse_of(Path(ran_once.warehouse), tmp_path / "copy")


def defect(monkeypatch: pytest.MonkeyPatch, table: str) -> Any:
    """Return a context in which the SELECT of a table gives every row twice."""
    select_of = summarise.select_of

    def twice(of: str) -> str:
        text = select_of(of)
        return f"WITH once AS ({text}) SELECT * FROM once UNION ALL SELECT * FROM once" if of == table else text

    patched = pytest.MonkeyPatch()

    @contextmanager
    def lasting() -> Iterator[None]:
        patched.setattr(summarise, "select_of", twice)
        yield
        patched.undo()

    return lasting()


def by_command(
    spark: SparkSession,
    settings: Settings,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    *words: str,
) -> tuple[int, str, str]:
    """Run the command line in this process and its session; return exit code, output and log."""

    @contextmanager
    def session(*_: Any, **__: Any) -> Iterator[SparkSession]:
        yield spark

    monkeypatch.setattr(sessions, "session", session)
    places = ["--warehouse", settings.warehouse, "--landing", settings.landing]
    monkeypatch.setattr(sys, "argv", ["afterlog", *words, *places])
    with pytest.raises(SystemExit) as ended:
        cli.main()
    said = capsys.readouterr()
    assert isinstance(ended.value.code, int | None)
    return ended.value.code or 0, said.out, said.err


def test_facts_that_a_defect_broke_have_a_way_out(
    spark: SparkSession,
    after_a_run: Settings,
    ran: Settings,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    settings = after_a_run
    second(settings)
    with defect(monkeypatch, LETTERS):
        done = go(spark, settings)
    assert (done[LETTERS].status, done[LEDGER].status) == ("broken", "waiting")
    assert f"`afterlog rebuild {LETTERS}`" in (done[LETTERS].message or "")
    assert done[GOLD].status == "passed"

    found = {check.name: check for check in doctor.diagnose(settings)}
    for table in (LETTERS, "silver.dlq_hops", "silver.dlq_gaps", LEDGER, "gold.message_counts", "gold.reconciliation"):
        assert (found[table].state, f"`afterlog rebuild {LETTERS}`" in (found[table].remedy or "")) == ("error", True)
    assert doctor.exit_code(found.values()) == 1

    # A layer that runs alone also waits, although it has no new input.
    assert not idleness.idle(Warehouse(settings), stages("delivery", layer="gold"))
    alone = go(spark, settings, layer="gold")
    assert (alone[LEDGER].status, alone["gold.delivery_guarantees"].status) == ("waiting", "idle")
    code, _, _ = by_command(spark, settings, monkeypatch, capsys, "run", "--feed", "delivery", "--layer", "gold")
    assert code == 1
    before = dict(tables(settings))

    code, out, err = by_command(spark, settings, monkeypatch, capsys, "rebuild", LETTERS, "--format", "json")
    (told,) = json.loads(out)["tables"]
    assert (code, told["status"], told["read"], told["written"]) == (0, "passed", 6, 6)
    assert "is computed again from all of silver.dlq_records" in err
    assert before != tables(settings)
    done = go(spark, settings)
    assert {stage_run.status for stage_run in done.values()} <= {"passed", "idle"}
    assert tables(settings) == tables(ran)
    assert [check for check in doctor.diagnose(settings) if check.state == "error"] == []
    assert {stage_run.status for stage_run in go(spark, settings).values()} == {"idle"}


@pytest.fixture(params=["DuckDB", "Spark"])
def engine(request: pytest.FixtureRequest) -> None:
    """Let each engine make the refreshes."""
    if request.param == "Spark":
        request.getfixturevalue("by_spark_alone")


def test_tables_of_empty_inputs_are_empty(
    spark: SparkSession, empty_warehouse: Path, ran_once: Settings, tmp_path: Path
) -> None:
    """DuckDB makes all of them but silver.topology_nodes, which Spark makes."""
    settings = warehouse_of(empty_warehouse, tmp_path)
    with lock.writer(settings, "test"):
        made = [summaries.rebuild(Warehouse(settings, spark), stage) for stage in stages_of_type(Summarise)]
    assert {stage_run.status for stage_run in made} == {"idle"}
    assert {stage_run.status for stage_run in go(spark, settings).values()} == {"idle"}
    first(settings)
    go(spark, settings)
    assert tables(settings) == tables(ran_once)


@pytest.mark.usefixtures("engine")
def test_rows_go_with_the_inputs_that_they_were_made_from(spark: SparkSession, after_a_run: Settings) -> None:
    (stage,) = stages(only="gold.dlq_counts")
    assert isinstance(stage, Summarise)
    warehouse = Warehouse(after_a_run, spark)
    for table in stage.inputs:
        shutil.rmtree(warehouse.location(table))
    with lock.writer(after_a_run, "test"):
        assert summaries.rebuild(warehouse, stage).status == "passed"
    assert warehouse.read(stage.table).count() == 0


@pytest.mark.thorough
def test_a_defect_that_stays_can_be_written_as_it_is(
    spark: SparkSession,
    settings: Settings,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    first(settings)
    with defect(monkeypatch, GOLD):
        assert go(spark, settings)[GOLD].status == "broken"
        code, out, _ = by_command(spark, settings, monkeypatch, capsys, "rebuild", GOLD, "--format", "json")
        (told,) = json.loads(out)["tables"]
        assert (code, told["status"]) == (1, "broken")
        assert f"`afterlog rebuild {GOLD} --accept`" in told["message"]
        code, out, _ = by_command(spark, settings, monkeypatch, capsys, "rebuild", GOLD, "--accept", "--format", "json")
        (told,) = json.loads(out)["tables"]
        assert (code, told["status"], told["written"]) == (0, "passed", 2)
        assert "grain.repeated is 1" in told["message"]
    known = progress.load(Warehouse(settings), GOLD)
    assert known is not None
    assert (known.pending, known.blocked_since) == ({}, None)
    failed = Warehouse(settings, spark).read("quality.expectation_results").where("NOT success")
    assert {row["expectation"] for row in failed.collect()} >= {"grain.repeated"}


@pytest.mark.parametrize("table", ["bronze.dlq_records", "silver.dlq_records", "quarantine.dlq_records", "gold.x"])
def test_tables_that_are_not_computed_from_others_are_refused(
    spark: SparkSession,
    settings: Settings,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    table: str,
) -> None:
    code, out, err = by_command(spark, settings, monkeypatch, capsys, "rebuild", table)
    assert (code, out) == (2, "")
    assert table in err
    assert any(stage.table in err for stage in stages_of_type(Summarise))


def of_replacing(*_: Any) -> bool:
    return True


POINTS: dict[str, tuple[Any, str, bool, Callable[..., bool]]] = {
    "before its batch is fixed": (progress, "save", True, lambda place, table, known: bool(known.pending)),
    "after its batch is fixed": (progress, "save", False, lambda place, table, known: bool(known.pending)),
    "before the commit": (Warehouse, "replace_groups", True, of_replacing),
    "after the commit": (Warehouse, "replace_groups", False, of_replacing),
    "before its progress": (progress, "save", True, lambda place, table, known: not known.pending),
    "after its progress": (progress, "save", False, lambda place, table, known: not known.pending),
}

LEAST_POINTS = ("after its batch is fixed", "after the commit", "before its progress")


class Killed(BaseException):
    """Stands for a process that is killed."""


@pytest.mark.parametrize("by", ["run", pytest.param("rebuild", marks=pytest.mark.thorough)])
@pytest.mark.parametrize(
    "point",
    [point if point in LEAST_POINTS else pytest.param(point, marks=pytest.mark.thorough) for point in POINTS],
)
def test_a_rebuild_that_is_killed_is_ended_by_the_next_run_or_rebuild(
    spark: SparkSession, ran: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, point: str, by: str
) -> None:
    settings = warehouse_of(Path(ran.warehouse), tmp_path).model_copy(update={"landing": ran.landing})
    expected = tables(ran)[GOLD]
    if point not in ("before its batch is fixed",):
        DeltaTable.forPath(spark, Warehouse(settings).location(GOLD)).delete()
    module, name, is_before, when = POINTS[point]
    function = getattr(module, name)

    def dying(*arguments: Any, **named: Any) -> Any:
        if is_before and when(*arguments):
            raise Killed
        result = function(*arguments, **named)
        if when(*arguments):
            raise Killed
        return result

    with monkeypatch.context() as patched:
        patched.setattr(module, name, dying)
        with pytest.raises(Killed):
            summaries.rebuild(Warehouse(settings, spark), stages(only=GOLD)[0])
    if by == "run":
        with lock.writer(settings, "test"):
            runner.run(Warehouse(settings, spark), stages(only=GOLD))
    else:
        summaries.rebuild(Warehouse(settings, spark), stages(only=GOLD)[0])
    assert tables(settings)[GOLD] == expected
    known = progress.load(Warehouse(settings), GOLD)
    assert known is not None
    assert not known.pending
    assert {stage_run.status for stage_run in runner.run(Warehouse(settings, spark), stages(only=GOLD))} == {"idle"}


def test_what_is_made_from_a_table_follows_it(spark: SparkSession, ran: Settings, tmp_path: Path) -> None:
    settings = warehouse_of(Path(ran.warehouse), tmp_path).model_copy(update={"landing": ran.landing})
    expected = tables(ran)
    DeltaTable.forPath(spark, Warehouse(settings).location(LETTERS)).delete("dlq_offset = 1")
    go(spark, settings)
    assert tables(settings) != expected
    assert summaries.rebuild(Warehouse(settings, spark), stages(only=LETTERS)[0]).written == 6
    go(spark, settings)
    assert tables(settings) == expected


def test_rows_that_no_input_gives_any_more_go(spark: SparkSession, ran: Settings, tmp_path: Path) -> None:
    settings = warehouse_of(Path(ran.warehouse), tmp_path).model_copy(update={"landing": ran.landing})
    DeltaTable.forPath(spark, Warehouse(settings).location("gold.dlq_counts")).delete()
    done = summaries.rebuild(Warehouse(settings, spark), stages(only=GOLD)[0])
    assert (done.status, done.read, done.written) == ("passed", 0, 0)
    assert tables(settings)[GOLD] == []


def test_columns_of_an_earlier_version_are_replaced(spark: SparkSession, after_a_run: Settings) -> None:
    settings = after_a_run
    contract = contract_of(GOLD)
    rows = Warehouse(settings, spark).read(GOLD).drop("most_deliveries")
    place = Warehouse(settings).location(GOLD)
    rows.write.format("delta").mode("overwrite").option("overwriteSchema", "true").save(place)
    second(settings)
    with pytest.raises(UsageError, match=f"`afterlog rebuild {GOLD}`"):
        run_chain(spark, settings)
    assert summaries.rebuild(Warehouse(settings, spark), stages(only=GOLD)[0]).status == "passed"
    found = Warehouse(settings, spark).read(GOLD).schema
    assert [(field.name, field.metadata.get("comment")) for field in found] == [
        (column.name, column.comment) for column in contract.stored
    ]
    assert quality.waiting(Warehouse(settings)) is False


def test_a_rebuild_applies_a_changed_setting_to_all_groups(
    spark: SparkSession, empty_warehouse: Path, tmp_path: Path
) -> None:
    """As docs/settings.md says, a run computes only groups with news by it."""
    table = "gold.topology_current"
    chain = ("bronze.streams_requests", "silver.topology_pushes", "silver.group_heartbeats")
    chain += ("gold.topology_revisions", table)
    lines = [push(0, member="m1"), push(1, member="m2", topology=passing("in", "elsewhere"))]
    lines += [heartbeat(2, member="m1"), heartbeat(300, member="m2")]
    found = []
    for name, seconds in (("short", 60.0), ("long", 3600.0)):
        settings = warehouse_of(empty_warehouse, tmp_path / name, streams_requests={"silent_after_seconds": seconds})
        land(settings, {"a.log": lines}, "streams-requests")
        run(spark, settings, *chain, feed="topology")
        found.append(tables(settings)[table])
    short, long = found
    assert short != long

    place = {"warehouse": str(tmp_path / "short" / "warehouse"), "landing": str(tmp_path / "short" / "landing")}
    changed = load(**place, streams_requests={"silent_after_seconds": 3600.0})
    run(spark, changed, *chain, feed="topology")
    assert tables(changed)[table] == short
    assert summaries.rebuild(Warehouse(changed, spark), stages(only=table)[0]).status == "passed"
    assert tables(changed)[table] == long
