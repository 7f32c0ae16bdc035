"""A warehouse after all features ran is lost and restored: it equals an undisturbed one, and so does its next run."""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from typer.testing import CliRunner

from pipelines.alerts import sender
from pipelines.backup import backup
from pipelines.cli import app
from pipelines.commands.maintain import maintain
from pipelines.commands.stored import STORED
from pipelines.errors import EnvironmentLacking
from pipelines.replay import actions as replays
from pipelines.replay import store
from pipelines.replay.candidates import Candidates
from pipelines.replay.choice import Choice
from pipelines.replay.journal import Journal
from pipelines.replay.judge import Options
from pipelines.replay.model import Replayed, Target
from pipelines.restore import restore
from pipelines.settings import Replay, Settings
from pipelines.stores import locations, restored
from pipelines.warehouse import actions, alert_log, backups, jvmless
from pipelines.warehouse.tables import Warehouse
from tests.integration.killed import __file__ as killed_script
from tests.testing import s3
from tests.testing.builders import BROKEN, land, line, rows, run, run_chain, tables, warehouse_of
from tests.testing.receiver import receiving
from tests.testing.replays import no_rules

BUCKET = "lakehouse"
LONG_AGO = time.time() - 40 * 86_400
said: list[str] = []


def contents(spark: SparkSession, settings: Settings) -> dict[str, Any]:
    """All rows of all tables with files, alerts, and what waits."""
    warehouse = Warehouse(settings)
    found: dict[str, Any] = {
        table: rows(spark, settings, table) for table in STORED if warehouse.last_version(table) is not None
    }
    found["versions"] = {table: warehouse.last_version(table) for table in STORED}
    found["alerts"] = alert_log.alerts(warehouse)
    found["actions"] = actions.actions(warehouse)
    for name in warehouse.store.names("_progress"):
        if name != "follow.json":
            found[name] = warehouse.store.read(f"_progress/{name}")
    return found


@pytest.fixture(scope="module")
def of_all_features(
    spark: SparkSession, all_features: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Settings]:
    """A warehouse with rows of dead letters and acknowledgements, held and quarantined ones, a plan that ran in part,
    alerts and actions.
    """
    place = tmp_path_factory.mktemp("all-features")
    with receiving() as receiver:
        settings = warehouse_of(
            all_features / "warehouse",
            place,
            alerts={"route": [{"name": "all", "url": receiver.address}]},
            replay=Replay(rules=no_rules(place)).model_dump(),
        )
        shutil.copytree(all_features / "landing", settings.landing)
        shutil.rmtree(Path(settings.warehouse, "_alerts"))  # of a route that this warehouse does not have
        assert rows(spark, settings, "held.dlq_records")
        assert rows(spark, settings, "quarantine.dlq_records")
        warehouse = Warehouse(settings)
        draft = replays.drawn(warehouse, Choice(where="original_topic IS NOT NULL"), Options(), dry_run=True)
        assert store.keep(warehouse, draft)
        done, *waiting = draft.plan.records
        with Journal.of(settings) as journal:
            journal.begin(draft.plan.plan_id, "a killed one")
            journal.claim(draft.plan.plan_id, [done, *waiting[:2]], again=False)
            journal.confirm(draft.plan.plan_id, [done], 1, 0)
        target = Target(done.topic, "AAAAAAAAAAAAAAAAAAAAAQ", (7,))  # a dry run asks no cluster
        written = store.Replays(warehouse, replace(draft.plan, targets=(target,)))
        written.add([Replayed(done, 0, 7, int(datetime.now(UTC).timestamp() * 1000))])
        written.flush()
        store.discard(warehouse, Candidates(warehouse).chosen(Choice(where="true"), 10_000)[-1:], "given up")
        (incident, *_) = jvmless.rows(warehouse, "gold.dlq_incidents", {"cluster": settings.cluster})
        actions.act(warehouse, incident["incident_id"], actions.NOTE, note="a note")
        sender.send(settings)
        assert receiver.got
        assert alert_log.alerts(warehouse)
        yield settings


def lost(settings: Settings) -> None:
    shutil.rmtree(settings.warehouse)


def test_a_lost_warehouse_comes_back_with_all_tables_and_runs_on(
    spark: SparkSession, of_all_features: Settings, tmp_path: Path
) -> None:
    settings, undisturbed = (
        of_all_features.model_copy(update={"warehouse": str(tmp_path / name), "landing": str(tmp_path / "landing")})
        for name in ("warehouse", "undisturbed")
    )
    for values in (settings, undisturbed):
        shutil.copytree(of_all_features.warehouse, values.warehouse)
    shutil.copytree(of_all_features.landing, settings.landing)
    before = contents(spark, settings)
    place = ["--warehouse", settings.warehouse]
    told = CliRunner().invoke(app, ["backup", str(tmp_path / "backups"), "--format", "json", *place])
    made = json.loads(told.stdout)
    assert made["tables"] == len([version for version in before["versions"].values() if version is not None])
    assert contents(spark, settings) == before

    land(settings, {"since.jsonl": [line(offset, topic="dlq.since") for offset in range(5)]})
    run(spark, settings)  # the warehouse goes on, and is lost
    lost(settings)
    back = CliRunner().invoke(app, ["restore", str(tmp_path / "backups"), *place])
    assert back.exit_code == 0, back.output
    assert made["backup"] in back.stdout
    assert "alerts may be sent again" in back.stderr
    assert contents(spark, settings) == before
    doctor = CliRunner().invoke(app, ["doctor", "--format", "json", *place, "--landing", settings.landing])
    findings = [row["finding"] for row in map(json.loads, doctor.stdout.splitlines()) if row["name"] == "backups"]
    assert [finding.split(" ")[0] for finding in findings] == ["Restored", "The"]

    for values in (settings, undisturbed):
        run(spark, values)
    assert tables(settings) == tables(undisturbed)
    assert len([row for row in rows(spark, settings, "silver.dlq_records") if row["dlq_topic"] == "dlq.since"]) == 5


def test_it_comes_back_on_s3(
    spark: SparkSession, of_all_features: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = contents(spark, of_all_features)
    with s3.server(BUCKET) as variables:
        for name, value in variables.items():
            monkeypatch.setenv(name, value)
        monkeypatch.delenv("AWS_PROFILE", raising=False)
        backup(of_all_features, f"s3://{BUCKET}/backups", None, False, said.append)
        there = of_all_features.model_copy(update={"warehouse": f"s3://{BUCKET}/warehouse"})
        restore(there, f"s3://{BUCKET}/backups", None)
        assert contents(spark, there) == before


def test_a_plan_of_a_restored_warehouse_says_what_it_does_not_know(of_all_features: Settings, tmp_path: Path) -> None:
    settings = of_all_features.model_copy(update={"warehouse": str(tmp_path / "warehouse")})
    shutil.copytree(of_all_features.warehouse, settings.warehouse)
    choice = Choice(where="original_topic IS NOT NULL")
    assert replays.plan(Warehouse(settings), choice, Options(), dry_run=True).remarks == ()
    backup(settings, str(tmp_path / "backups"), None, False, said.append)
    lost(settings)
    restore(settings, str(tmp_path / "backups"), None)
    (remark,) = replays.plan(Warehouse(settings), choice, Options(), dry_run=True).remarks
    assert "was restored" in remark
    with Journal.of(settings) as journal:
        for plan in store.plans(Warehouse(settings)):
            known = journal.status(plan["plan_id"])
            assert known is not None
            assert not known.since_planned
            assert journal.since > plan["created_at"]


@pytest.mark.parametrize("seed", [10, *(pytest.param(seed, marks=pytest.mark.thorough) for seed in (3, 6, 13))])
def test_any_history_equals_the_undisturbed_one(
    spark: SparkSession, settings: Settings, tmp_path: Path, seed: int
) -> None:
    drawn = random.Random(seed)
    settings = settings.model_copy(update={"tolerance": 1.0})
    undisturbed = settings.model_copy(update={"warehouse": str(tmp_path / "undisturbed")})
    shutil.copytree(settings.warehouse, undisturbed.warehouse)
    place = str(tmp_path / "backups")
    made, offset = 0, 0
    for number, what in enumerate(drawn.choices(["run", "maintain", "backup", "lose"], [4, 1, 2, 3], k=9)):
        if what == "run":
            lines = [line(offset + at, headers=drawn.choice((None, None, BROKEN))) for at in range(4)]
            land(settings, {f"{number}.jsonl": [*lines, lines[0], line(max(offset - 3, 0), value=b"other")]})
            offset += 4
            run_chain(spark, settings)
            run_chain(spark, undisturbed)
        elif what == "maintain":
            for path in Path(settings.warehouse).rglob("*.parquet"):
                os.utime(path, (LONG_AGO, LONG_AGO))
            list(maintain(settings, 0, False, said.append))
        elif what == "backup" or not made:
            backup(settings, place, drawn.choice((None, 2)), False, said.append)
            made += 1
        else:
            lost(settings)
            restore(settings, place, drawn.choice(backups.known(locations.of(place))))
    for item in (settings, undisturbed):
        run_chain(spark, item)
    assert tables(settings) == tables(undisturbed)


def killed(point: str, *command: str) -> None:
    ended = subprocess.run(
        [sys.executable, killed_script, point, *command],
        env=os.environ | {"PYTHONPATH": str(Path(killed_script).parents[2])},
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert ended.returncode == -signal.SIGKILL, ended.stderr[-2000:]


@pytest.fixture(scope="module")
def small(spark: SparkSession, empty_warehouse: Path, tmp_path_factory: pytest.TempPathFactory) -> Settings:
    settings = warehouse_of(empty_warehouse, tmp_path_factory.mktemp("small"))
    land(settings, {"a.jsonl": [line(number) for number in range(5)]})
    run_chain(spark, settings)
    backup(settings, f"{settings.warehouse}-backups", None, False, said.append)
    land(settings, {"b.jsonl": [line(number) for number in range(5, 9)]})
    run_chain(spark, settings)
    return settings


@pytest.mark.parametrize(
    "point",
    [
        pytest.param("backup, while files are copied", marks=pytest.mark.thorough),
        pytest.param("backup, before its manifest", marks=pytest.mark.thorough),
        pytest.param("backup, after its manifest", marks=pytest.mark.thorough),
        pytest.param("backup, before an older one goes", marks=pytest.mark.thorough),
        "backup, before files of an older one go",
    ],
)
def test_a_killed_backup_is_made_by_the_next(spark: SparkSession, small: Settings, tmp_path: Path, point: str) -> None:
    place = tmp_path / "backups"
    shutil.copytree(f"{small.warehouse}-backups", place)
    before = contents(spark, small)
    command = ["backup", str(place), "--keep", "1", "--warehouse", small.warehouse]
    killed(point, *command)
    for name in backups.known(locations.of(str(place))):
        assert not backups.damaged(locations.of(str(place)), backups.read(locations.of(str(place)), name).files)
    assert CliRunner().invoke(app, command).exit_code == 0
    (name,) = backups.known(locations.of(str(place)))
    assert not backups.unnamed(locations.of(str(place)), [backups.read(locations.of(str(place)), name)])
    back = small.model_copy(update={"warehouse": str(tmp_path / "back")})
    restore(back, str(place), None)
    assert contents(spark, back) == before


@pytest.mark.parametrize(
    "point",
    [
        pytest.param("restore, after its mark", marks=pytest.mark.thorough),
        pytest.param("restore, while files are written", marks=pytest.mark.thorough),
        "restore, before commits are written",
        pytest.param("restore, before it is whole", marks=pytest.mark.thorough),
    ],
)
def test_a_killed_restore_is_gone_on_with(spark: SparkSession, small: Settings, tmp_path: Path, point: str) -> None:
    place, back = tmp_path / "backups", small.model_copy(update={"warehouse": str(tmp_path / "back")})
    backup(small, str(place), None, False, said.append)
    command = ["restore", str(place), "--warehouse", back.warehouse]
    killed(point, *command)
    with pytest.raises(EnvironmentLacking, match="Only a part"):
        restored.refuse_half(locations.of(back.warehouse))
    at = ["--warehouse", back.warehouse, "--landing", back.landing]
    for refused in (["run"], ["top"], ["incidents"], ["sql", "SELECT 1"], ["maintain"], ["backup", str(place)]):
        where = at if refused[0] in ("run", "top", "incidents", "sql") else at[:2]
        told = CliRunner().invoke(app, [*refused, *where])
        assert isinstance(told.exception, EnvironmentLacking), refused
        assert str(place) in str(told.exception)
    doctor = CliRunner().invoke(app, ["doctor", "--format", "json", *at])
    findings = {row["name"]: row for row in map(json.loads, doctor.stdout.splitlines())}
    assert (doctor.exit_code, findings["backups"]["state"]) == (3, "error")
    assert "tables" not in findings
    done = CliRunner().invoke(app, [*command, "--format", "json"])
    assert done.exit_code == 0, done.output
    assert contents(spark, back) == contents(spark, small)
