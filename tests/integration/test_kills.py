"""Processes of commands that change a warehouse, killed with -9 at random moments: a rerun ends as if nothing was."""

from __future__ import annotations

import json
import os
import random
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from local.kept_warehouse import KEPT, unpack
from pipelines.backup import backup
from pipelines.commands.migrate import migrated
from pipelines.restore import restore
from pipelines.run.contracts import contracts
from pipelines.settings import Settings, load
from pipelines.stores import restored
from pipelines.warehouse import schema_mark
from pipelines.warehouse.tables import Warehouse
from tests.testing.builders import land as landed
from tests.testing.builders import line, tables, warehouse_of
from tests.testing.builders import run as run_stages

SEEDS = (1, 2)
KILLS = 2
DAMAGED = ("silver.dlq_records", "gold.dlq_counts", "bronze.dlq_records")
SCRIPT = """
import secrets, sys
if sys.argv[1] == "erase":  # what takes the place of erased content is random
    secrets.token_hex = lambda size=16: "0f" * size
from pipelines.cli import main
main()
"""
LONG_AGO = time.time() - 40 * 86_400


def of(place: Path) -> Settings:
    return load(warehouse=str(place / "warehouse"), landing=str(place / "landing"))


def process(place: Path, command: str) -> subprocess.Popen[str]:
    paths = {"WAREHOUSE": str(place / "warehouse"), "LANDING": str(place / "landing")}
    return subprocess.Popen(
        [sys.executable, "-c", SCRIPT, *command.format(place).split()],
        env=os.environ | {f"AFTERLOG_{name}": value for name, value in paths.items()},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def ended(place: Path, command: str) -> None:
    started = process(place, command)
    said, _ = started.communicate(timeout=300)
    assert started.returncode == 0, said


@pytest.fixture(scope="module")
def made(spark: SparkSession, empty_warehouse: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A warehouse of three runs."""
    place = tmp_path_factory.mktemp("made")
    settings = warehouse_of(empty_warehouse, place)
    for batch in range(3):
        lines = [line(10 * batch + offset, key=b"a person" if offset == 3 else b"k") for offset in range(10)]
        landed(settings, {f"{batch}.jsonl": lines})
        run_stages(spark, settings)
    return place


def copied(made: Path, place: Path) -> None:
    shutil.copytree(made, place)


def damaged(made: Path, place: Path) -> None:
    copied(made, place)
    warehouse = Warehouse(of(place))
    for table in DAMAGED:
        path, *_ = sorted(warehouse.opened_table(table).get_add_actions()["path"].to_pylist())
        Path(warehouse.location(table), str(path)).write_bytes(b"PAR1")


def aged(made: Path, place: Path) -> None:
    """Let all versions but the last be old, and leave what crashed writers do."""
    copied(made, place)
    for log in Path(of(place).warehouse).glob("*/*/_delta_log/*.json"):
        lines = [json.loads(action) for action in log.read_text(encoding="utf-8").splitlines()]
        for action in lines:
            if "remove" in action:
                action["remove"]["deletionTimestamp"] -= 40 * 86_400_000
        log.write_text("\n".join(map(json.dumps, lines)), encoding="utf-8")
    for table in DAMAGED:
        for number in range(10):
            left = Path(Warehouse(of(place)).location(table), f"left-{number}.parquet")
            left.write_bytes(b"half")
            os.utime(left, (LONG_AGO, LONG_AGO))


def backed_up(made: Path, place: Path) -> None:
    copied(made, place)
    backup(of(place), str(place / "backups"), None, False, lambda said: None)
    shutil.rmtree(of(place).warehouse)


def of_an_earlier_version(made: Path, place: Path) -> None:
    place.mkdir()
    unpack(min(KEPT.glob("*.tar.xz")), place)


def rows(place: Path) -> Any:
    return tables(of(place))


def rows_and_files(place: Path) -> Any:
    root = Path(of(place).warehouse)
    return rows(place), {str(path.relative_to(root)) for path in root.rglob("*.parquet")}


def rows_of_the_backup(place: Path) -> Any:
    back = of(place).model_copy(update={"warehouse": str(place / "back")})
    restore(back, str(place / "backups"), None)
    found = tables(back)
    shutil.rmtree(back.warehouse)
    return found


def is_restored(place: Path) -> bool:
    mark = restored.found(Warehouse(of(place)).store)
    return mark is not None and not mark.is_half


def rows_of_a_whole_one(place: Path) -> Any:
    assert is_restored(place)
    return rows(place)


def schemas(place: Path) -> Any:
    warehouse = Warehouse(of(place))
    assert not [*migrated(of(place), is_dry_run=True)]
    names = [contract.table for contract in contracts() if warehouse.exists(contract.table)]
    opened = {name: warehouse.opened_table(name) for name in names}
    return {
        name: (schema_mark.of(item.metadata().configuration), [field.name for field in item.schema().fields])
        for name, item in opened.items()
    }


Prepare, State = Callable[[Path, Path], None], Callable[[Path], Any]
COMMANDS: dict[str, tuple[Prepare, State]] = {
    "repair": (damaged, rows),
    "backup {}/backups --keep 1": (copied, rows_of_the_backup),
    "restore {}/backups": (backed_up, rows_of_a_whole_one),
    "erase --where offset_is_3 --yes": (copied, rows),
    "migrate": (of_an_earlier_version, schemas),
    "maintain": (aged, rows_and_files),
}


@pytest.mark.thorough
@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command.partition(" ")[0])
def test_a_command_that_was_killed_is_completed_by_the_next(
    made: Path, tmp_path: Path, command: str, seed: int
) -> None:
    prepare, state = COMMANDS[command]
    command = command.replace("offset_is_3", "dlq_offset=3")
    prepare(made, tmp_path / "whole")
    began = time.monotonic()
    ended(tmp_path / "whole", command)
    seconds = time.monotonic() - began
    expected, moments, died = state(tmp_path / "whole"), random.Random(seed), 0

    prepare(made, tmp_path / "killed")
    for _ in range(KILLS):
        started = process(tmp_path / "killed", command)
        try:
            started.wait(timeout=seconds * moments.uniform(0.3, 1.0))
        except subprocess.TimeoutExpired:
            started.kill()
            died += 1
        started.communicate()
        if is_restored(tmp_path / "killed"):  # it would refuse to begin again
            break
    else:
        ended(tmp_path / "killed", command)
    assert state(tmp_path / "killed") == expected, f"after {died} kills"
