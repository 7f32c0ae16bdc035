"""Damage that `afterlog repair` takes out: after the next run every table is as if nothing had happened."""

from __future__ import annotations

import json
import random
import shutil
from pathlib import Path
from typing import Any

import obstore
import pytest
from pyspark.sql import SparkSession
from typer.testing import CliRunner

from pipelines.cli import app
from pipelines.commands import doctor
from pipelines.commands.repair import AWAY, Repaired, repair
from pipelines.settings import Settings, load
from pipelines.stores import lock
from pipelines.warehouse import damage as damaged_files
from pipelines.warehouse import progress, rewriting
from pipelines.warehouse.tables import Warehouse
from tests.testing import s3
from tests.testing.builders import BROKEN, kip_1191, land, line, run, tables, warehouse_of

BRONZE, SILVER, SUMMARY = "bronze.dlq_records", "silver.dlq_records", "gold.dlq_summary"


@pytest.fixture(scope="module")
def made(empty_warehouse: Path, spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A warehouse of two runs, with accepted, refused and held rows."""
    place = tmp_path_factory.mktemp("made")
    settings = warehouse_of(empty_warehouse, place)
    for begin in (0, 100):
        rows = [line(number, headers=kip_1191(offset=number)) for number in range(begin, begin + 40)]
        refused = [line(begin + 50, headers=kip_1191(offset="x")), "no JSON"]
        held = [line(number, topic="dlq.held", headers=BROKEN) for number in range(begin, begin + 12)]
        land(settings, {f"{begin}.jsonl": [*rows, *refused], f"{begin}-held.jsonl": held})
        run(spark, settings)
    return place


@pytest.fixture
def settings(made: Path, tmp_path: Path) -> Settings:
    shutil.copytree(made / "warehouse", tmp_path / "warehouse")
    return load(warehouse=str(tmp_path / "warehouse"), landing=str(made / "landing"))


def known(settings: Settings) -> dict[str, Any]:
    """All rows, but for times of landing, which count as the times of lines that say none."""
    found = tables(settings)
    of_lines = [row for row in found["silver.dlq_refusals"] if row["first_stated_at"] is None]
    for row in of_lines:
        row |= {name: None for name in ("first_at", "last_at", "broken_rules")}
    return found


def data_files(settings: Settings, table: str) -> list[Path]:
    warehouse = Warehouse(settings)
    paths = warehouse.opened_table(table).get_add_actions()["path"].to_pylist()
    return [Path(warehouse.location(table), str(path)) for path in sorted(paths)]


def change(path: Path, chance: random.Random) -> None:
    """Change bytes of a file's pages, so that its size stays."""
    content = path.read_bytes()
    begin, length = len(content) // 10, len(content) // 4
    path.write_bytes(content[:begin] + chance.randbytes(length) + content[begin + length :])


def damage(path: Path, chance: random.Random) -> None:
    """Remove a file, empty it, or cut it off."""
    content = path.read_bytes()
    path.unlink()
    if chance.random() < 0.6:
        path.write_bytes(content[: chance.randrange(len(content))])


def repaired(settings: Settings, **how: Any) -> list[Repaired]:
    return list(repair(settings, **{"is_dry_run": False, "accepts_loss": False, **how}))


def errors(settings: Settings) -> set[str]:
    held = ("dlq.held", "of its scopes are held")
    found = (check for check in doctor.diagnose(settings) if check.state == "error")
    return {named.name for named in found if not any(text in named.finding for text in held)}


@pytest.mark.parametrize("seed", [1, *(pytest.param(seed, marks=pytest.mark.thorough) for seed in (2, 3))])
def test_the_next_run_makes_again_what_was_damaged(spark: SparkSession, settings: Settings, seed: int) -> None:
    whole = known(settings)
    before = errors(settings)
    chance = random.Random(seed)
    filled = [name for name in whole if whole[name] and name != "gold.replays"]
    must = (BRONZE, SILVER, "held.dlq_records", "quarantine.dlq_records", SUMMARY, "gold.dlq_incidents")
    hit = {*must, *chance.sample(filled, 3)}
    for table in hit:
        for path in data_files(settings, table)[:2]:
            damage(path, chance)
    if chance.random() < 0.7:
        Path(settings.warehouse, progress.file_of(SILVER)).write_text('{"cut')
    assert errors(settings) >= hit

    planned = repaired(settings, is_dry_run=True)
    assert errors(settings) >= hit
    done = repaired(settings)
    assert {stage_run.table for stage_run in done} >= hit
    assert [(item.table, item.rows) for item in planned if item.rows] == [
        (stage_run.table, stage_run.rows) for stage_run in done if stage_run.rows
    ]
    assert all(stage_run.is_done for stage_run in done)
    assert all("`afterlog run` makes them again" in stage_run.action for stage_run in done)
    assert repaired(settings) == []
    assert not errors(settings) & hit - before

    run(spark, settings)
    assert known(settings) == whole
    assert errors(settings) == before


def test_bytes_that_changed_are_found_by_reading(spark: SparkSession, settings: Settings) -> None:
    whole, before = known(settings), errors(settings)
    chance = random.Random(4)
    hit = {BRONZE, SILVER, "held.dlq_records", SUMMARY}
    for table in hit:
        change(data_files(settings, table)[0], chance)
    assert errors(settings) == before  # the doctor compares sizes

    assert {item.table for item in repaired(settings, is_dry_run=True)} == hit
    assert {item.table for item in repaired(settings)} == hit
    assert repaired(settings) == []
    run(spark, settings)
    assert known(settings) == whole


def test_all_is_read_while_others_write_and_only_damage_under_the_lock(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    change(data_files(settings, SUMMARY)[0], random.Random(4))
    held: dict[str, list[bool]] = {}
    unreadable = damaged_files.unreadable_files

    def noted(warehouse: Warehouse, table: str) -> list[str]:
        held.setdefault(table, []).append(lock.holder(settings.warehouse) is not None)
        return unreadable(warehouse, table)

    monkeypatch.setattr(damaged_files, "unreadable_files", noted)
    assert [item.table for item in repaired(settings)] == [SUMMARY]
    assert held.pop(SUMMARY) == [False, True]
    assert len(held) > 20
    assert {*map(tuple, held.values())} == {(False,)}


def test_objects_that_are_missing_cut_off_or_changed_are_taken_out(
    spark: SparkSession, made: Path, settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On an object store; the next run is that of a copy of its objects."""
    whole, chance = known(settings), random.Random(5)
    hit = {BRONZE: "gone", SILVER: "cut", "held.dlq_records": "changed", SUMMARY: "changed"}
    with s3.server("lakehouse") as variables:
        for name, value in variables.items():
            monkeypatch.setenv(name, value)
        bucket = s3.store("lakehouse", variables)
        s3.upload(made / "warehouse", bucket, "w")
        stored = load(warehouse="s3://lakehouse/w", landing=str(made / "landing"))
        for table, how in hit.items():
            file = data_files(settings, table)[0]
            key = f"w/{file.relative_to(settings.warehouse)}"
            if how == "gone":
                obstore.delete(bucket, key)
                continue
            if how == "cut":
                file.write_bytes(file.read_bytes()[:-9])
            else:
                change(file, chance)
            obstore.put(bucket, key, file.read_bytes())
        assert {found.table for found in repaired(stored, is_dry_run=True)} == {*hit}
        assert {found.table for found in repaired(stored)} == {*hit}
        assert repaired(stored) == []
        s3.download(bucket, tmp_path / "copied")
    copied = load(warehouse=str(tmp_path / "copied" / "w"), landing=settings.landing)
    run(spark, copied)
    assert known(copied) == whole


def test_a_killed_repair_is_completed_and_late_and_repeated_files_change_nothing_of_it(
    spark: SparkSession, made: Path, settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    undisturbed = load(warehouse=str(tmp_path / "undisturbed"), landing=str(tmp_path / "landing"))
    shutil.copytree(made / "warehouse", undisturbed.warehouse)
    shutil.copytree(made / "landing", undisturbed.landing)
    settings = load(warehouse=settings.warehouse, landing=undisturbed.landing)
    chance = random.Random(7)
    for table in (BRONZE, SILVER, "held.dlq_records", "gold.dlq_counts"):
        damage(data_files(settings, table)[0], chance)
    replace_files, commits = rewriting.replace_files, list[str]()

    def killed(warehouse: Warehouse, table: str, *given: Any, **more: Any) -> int:
        commits.append(table)
        if len(commits) == 2:
            raise KeyboardInterrupt
        return replace_files(warehouse, table, *given, **more)

    with monkeypatch.context() as patched:
        patched.setattr(rewriting, "replace_files", killed)
        with pytest.raises(KeyboardInterrupt):
            repaired(settings)
    assert {item.table for item in repaired(settings)} >= {*commits[1:]}
    assert repaired(settings) == []
    land(settings, {"late.jsonl": [line(number, headers=kip_1191(offset=number)) for number in range(60, 70)]})
    shutil.copy(settings.landing_of("dlq") / "0.jsonl", settings.landing_of("dlq") / "again.jsonl")
    for own in (settings, undisturbed):
        run(spark, own)
    assert known(settings) == known(undisturbed)


def test_a_checkpoint_that_is_damaged_is_moved_away(settings: Settings) -> None:
    warehouse = Warehouse(settings)
    whole = tables(settings)
    log = Path(warehouse.location(SILVER), "_delta_log")
    warehouse.opened_table(SILVER).create_checkpoint()
    (checkpoint,) = log.glob("*.checkpoint.parquet")
    checkpoint.write_bytes(checkpoint.read_bytes()[:100])
    (found,) = repaired(settings)
    assert (found.table, found.is_done) == (SILVER, True)
    assert not checkpoint.exists()
    assert Path(settings.warehouse, AWAY, SILVER, checkpoint.name).stat().st_size == 100
    assert tables(settings) == whole
    assert repaired(settings) == []


def test_what_no_stage_makes_again_stays_until_it_is_given_up(settings: Settings) -> None:
    table = "quality.stage_runs"
    for path in data_files(settings, table):
        path.unlink()
    (found,) = repaired(settings)
    assert (found.table, found.is_done) == (table, False)
    assert found.rows
    assert table in errors(settings)
    (given_up,) = repaired(settings, accepts_loss=True)
    assert (given_up.is_done, given_up.action) == (True, "They are gone.")
    assert table not in errors(settings)


def test_a_log_without_a_commit_is_told(settings: Settings) -> None:
    log = Path(Warehouse(settings).location(SUMMARY), "_delta_log")
    first, *_ = sorted(log.glob("*.json"))
    first.unlink()
    found = repaired(settings)
    assert [(item.table, item.is_done) for item in found] == [(SUMMARY, False)]
    assert found[0].finding.startswith("Commit 0 of its log is missing")


def test_the_command(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AFTERLOG_LANDING", settings.landing)
    data_files(settings, SUMMARY)[0].unlink()

    def said(*flags: str) -> tuple[int, str]:
        result = CliRunner().invoke(app, ["repair", "--warehouse", settings.warehouse, *flags])
        return result.exit_code, result.stdout

    code, text = said("--dry-run")
    assert (code, text.startswith(f"{SUMMARY}: 1 data file missing, cut off or changed, with")) == (0, True)
    assert "Would do: `afterlog run` makes them again from gold.dlq_counts" in text
    code, text = said("--format", "json")
    assert (code, json.loads(text)["table"]) == (0, SUMMARY)
    assert said() == (0, "Nothing to repair.\n")
    data_files(settings, "quality.stage_runs")[0].unlink()
    code, text = said()
    assert (code, "Not repaired. No stage makes them again" in text) == (1, True)
