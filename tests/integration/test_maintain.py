"""`afterlog maintain` beside runs: a stage that is behind reads on, a rerun goes on with what a killed one left."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path

import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession
from typer.testing import CliRunner

from pipelines.cli import app
from pipelines.commands.maintain import Maintained, maintain
from pipelines.settings import Settings
from pipelines.stores import lock
from pipelines.stores.base import Store
from pipelines.warehouse import rewriting
from pipelines.warehouse.tables import Warehouse
from tests.testing.builders import CHAIN, land, line, rows, run_chain, warehouse_of

BRONZE, SILVER, GOLD = "bronze.dlq_records", "silver.dlq_records", "gold.dlq_summary"
LONG_AGO = time.time() - 40 * 86_400


def contents(spark: SparkSession, settings: Settings) -> dict[str, list[dict[str, object]]]:
    return {table: rows(spark, settings, table) for table in CHAIN}


def files(settings: Settings) -> set[str]:
    return {str(path) for path in Path(settings.warehouse).rglob("*.parquet")}


def maintained(settings: Settings) -> dict[str, Maintained]:
    return {maintained_table.table: maintained_table for maintained_table in maintain(settings, 0, False, said.append)}


said: list[str] = []


@pytest.fixture(autouse=True)
def nothing_said() -> None:
    said.clear()


@pytest.fixture(scope="module")
def ran_twice(spark: SparkSession, empty_warehouse: Path, tmp_path_factory: pytest.TempPathFactory) -> Settings:
    """A warehouse after two runs, of a record each."""
    settings = warehouse_of(empty_warehouse, tmp_path_factory.mktemp("twice"))
    for number in range(2):
        land(settings, {f"{number}.jsonl": [line(number)]})
        run_chain(spark, settings)
    return settings


@pytest.fixture
def after_two_runs(ran_twice: Settings, tmp_path: Path) -> Settings:
    """A copy of that warehouse, with a landing directory of its own."""
    return warehouse_of(Path(ran_twice.warehouse), tmp_path / "copy")


def test_a_stage_that_is_behind_reads_on(spark: SparkSession, after_two_runs: Settings) -> None:
    settings = after_two_runs
    land(settings, {"2.jsonl": [line(2)]})
    run_chain(spark, settings)
    land(settings, {"late.jsonl": [line(10), line(11)]})
    run_chain(spark, settings, BRONZE)
    DeltaTable(Warehouse(settings).location(BRONZE)).optimize.compact()
    for path in files(settings):
        os.utime(path, (LONG_AGO, LONG_AGO))
    before, old = contents(spark, settings), files(settings)

    done = maintained(settings)

    assert (done[BRONZE].files, done[BRONZE].kept_for) == (3, (SILVER,))  # the file of the last batch is not read yet
    assert said == [f"{BRONZE} keeps files that these have still to read: {SILVER}."]
    assert done[GOLD].files >= 2
    assert sum(stage_run.files for stage_run in done.values()) == len(old) - len(files(settings))
    assert contents(spark, settings) == before
    run_chain(spark, settings)
    assert [row["dlq_offset"] for row in rows(spark, settings, SILVER)] == [0, 1, 2, 10, 11]


def test_a_killed_one_is_gone_on_with(
    spark: SparkSession, after_two_runs: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = after_two_runs
    before = contents(spark, settings)
    kind = type(Warehouse(settings).store)
    remove, removed = kind.remove, []

    def killed(store: Store, name: str) -> None:
        if len(removed) == 2:
            raise KeyboardInterrupt
        removed.append(name)
        remove(store, name)

    with monkeypatch.context() as patched:
        patched.setattr(kind, "remove", killed)
        with pytest.raises(KeyboardInterrupt):
            maintained(settings)
    assert len(removed) == 2
    assert sum(maintained_table.files for maintained_table in maintained(settings).values()) > 0
    assert not any(maintained_table.files for maintained_table in maintained(settings).values())
    assert contents(spark, settings) == before


def test_the_command_says_what_would_go_and_waits_for_a_writer(
    after_two_runs: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = after_two_runs
    log = Path(Warehouse(settings).location(GOLD), "_delta_log")
    for path in log.glob("*.json"):  # the versions become ten days old
        commit = path.read_text(encoding="utf-8").splitlines()
        aged = [json.loads(action) for action in commit]
        for action in aged:
            if "remove" in action:
                action["remove"]["deletionTimestamp"] -= 10 * 86_400_000
        path.write_text("\n".join(map(json.dumps, aged)), encoding="utf-8")
    place = ["--warehouse", settings.warehouse]
    old = files(settings)

    would = CliRunner().invoke(app, ["maintain", "--dry-run", "--format", "json", *place])
    told = json.loads(would.stdout)["tables"]
    assert {row["table"] for row in told if row["files"]} == {GOLD}
    assert files(settings) == old
    monkeypatch.setenv("AFTERLOG_LOCK__WAIT_SECONDS", "0.1")
    with lock.writer(settings, "the test"):
        assert CliRunner().invoke(app, ["maintain", *place]).exit_code != 0
    assert files(settings) == old

    went = CliRunner().invoke(app, ["maintain", *place])
    (gone,) = [row for row in told if row["files"]]
    assert f"{gone['files']} file" in went.stdout
    assert len(old - files(settings)) == gone["files"]
    assert CliRunner().invoke(app, ["maintain", "--older-than", "6", *place]).exit_code != 0


def test_stats_count_what_is_there_and_what_would_go(spark: SparkSession, settings: Settings) -> None:
    land(settings, {"a.jsonl": [line(number) for number in range(7)]})
    run_chain(spark, settings)
    log = Path(Warehouse(settings).location(SILVER), "_delta_log")
    for version, path in enumerate(sorted(log.glob("*.json"))):
        at = time.time() - (4 - version) * 86_400  # created four days ago
        os.utime(path, (at, at))
    told = CliRunner().invoke(app, ["stats", "--format", "json", "--warehouse", settings.warehouse])
    found = {row["table"]: row for row in map(json.loads, told.stdout.splitlines())}
    assert found[SILVER]["rows"] == 7
    assert found[SILVER]["bytes"] == Warehouse(settings).size(SILVER)
    assert found[SILVER]["rows_a_day"] == pytest.approx(7 / 4, rel=0.01)
    assert (found[BRONZE]["rows"], found[BRONZE]["rows_a_day"]) == (7, None)  # it is younger than a day
    assert [row["bytes"] + row["log_bytes"] for row in found.values()] == sorted(
        (row["bytes"] + row["log_bytes"] for row in found.values()), reverse=True
    )


def test_a_log_stays_short_however_many_runs_commit(settings: Settings) -> None:
    warehouse, lengths = Warehouse(settings), []
    log = Path(warehouse.location(SILVER), "_delta_log")
    for _ in range(30):
        for path in log.iterdir():  # a day goes by
            at = path.stat().st_mtime - 86_400
            os.utime(path, (at, at))
        for _ in range(3):
            rewriting.replace_files(warehouse, SILVER, warehouse.last_version(SILVER) or 0, {}, [], "TEST")
        went = {tended.table: tended for tended in maintain(settings, 7, False, said.append)}
        lengths.append(len(list(log.iterdir())))
    assert max(lengths[15:]) <= max(lengths[:15]) <= 3 * (7 + 1 + 2 * 10 / 3) + 5
    assert went[SILVER].log_files > 0
    assert warehouse.opened_table(SILVER).version() == 90
    assert warehouse.table_id(SILVER) == warehouse.state(SILVER)[0]
