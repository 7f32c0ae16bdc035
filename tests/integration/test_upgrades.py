"""Warehouses that releases have left, and what this version does with them; one of a later version is refused."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from typer.testing import CliRunner

from local.kept_warehouse import KEPT, unpack
from pipelines.catalog import CATALOG, SCHEMA, stages
from pipelines.cli import app
from pipelines.commands.migrate import migrated
from pipelines.errors import UsageError
from pipelines.run import contracts, idleness, runner
from pipelines.settings import ROOT, Settings, load
from pipelines.steps import migrate
from pipelines.stores import lock
from pipelines.stores.base import Store
from pipelines.warehouse import schema_mark
from pipelines.warehouse.tables import Warehouse
from tests.testing.builders import rows

ARCHIVES = sorted(KEPT.glob("*.tar.xz"))
COUNTED = ("silver.dlq_records", "gold.dlq_summary", "gold.dlq_incidents", "gold.message_ledger", "gold.reconciliation")
COMMANDS = (
    ["ask", "volume_by_hour"],
    ["sql", "SELECT count(*) FROM gold.dlq_summary"],
    ["top"],
    ["stats"],
    ["maintain"],
    ["migrate"],
    ["run"],
    ["rebuild", "gold.dlq_summary"],
    ["readmit", "silver.dlq_records"],
)


@pytest.fixture(params=ARCHIVES, ids=lambda archive: archive.name.removesuffix(".tar.xz"))
def kept(request: pytest.FixtureRequest, tmp_path: Path) -> Settings:
    unpack(request.param, tmp_path)
    return load(warehouse=str(tmp_path / "warehouse"), landing=str(tmp_path / "landing"), tolerance=1.0)


def marks(settings: Settings) -> dict[str, int]:
    warehouse = Warehouse(settings)
    tables = [contract.table for contract in contracts.contracts() if warehouse.exists(contract.table)]
    return {table: schema_mark.of(warehouse.opened_table(table).metadata().configuration) for table in tables}


def idle(settings: Settings) -> bool:
    with lock.writer(settings, "test"):
        return idleness.idle(Warehouse(settings), CATALOG)


def as_before(spark: SparkSession, settings: Settings, before: dict[str, list[dict[str, Any]]]) -> dict[str, Any]:
    """Return the rows of tables in the columns that they had; later columns are null in them."""
    found = {}
    for table, was in before.items():
        names, there = {*was[0]}, rows(spark, settings, table)
        assert {value for row in there for name, value in row.items() if name not in names} <= {None}
        found[table] = sorted(({name: row[name] for name in row if name in names} for row in there), key=repr)
    return found


def asked(settings: Settings) -> str:
    """Return what a process of its own answers, which would end the session of the tests if it needed one."""
    words = ["ask", "volume_by_hour", "--param", "now=2026-11-21T06:00Z", "--format", "json"]
    command = [sys.executable, "-m", "afterlog", *words, "--warehouse", settings.warehouse]
    ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert ended.returncode == 0, ended.stderr
    return ended.stdout


def command(settings: Settings, *arguments: str) -> tuple[int, str, str]:
    ended = CliRunner().invoke(app, [*arguments, "--warehouse", settings.warehouse])
    return ended.exit_code, ended.stdout, ended.stderr


def test_a_warehouse_of_each_release_is_kept() -> None:
    assert ARCHIVES
    assert all(archive.stat().st_size < 1 << 20 for archive in ARCHIVES)


def test_a_kept_warehouse_is_opened_migrated_run_and_asked(spark: SparkSession, kept: Settings) -> None:
    before = {table: rows(spark, kept, table) for table in COUNTED}
    assert all(before.values())
    answer = asked(kept)
    assert answer
    needed = [migration.table for migration in migrated(kept, is_dry_run=True)]
    assert set(marks(kept).values()) <= {0, *range(SCHEMA + 1)}
    files = {path for path in Path(kept.warehouse).rglob("*.parquet")}

    code, out, _ = command(kept, "migrate", "--format", "json")
    assert code == 0
    assert [json.loads(text)["table"] for text in out.splitlines()] == needed
    assert set(marks(kept).values()) == {SCHEMA}
    assert {path for path in Path(kept.warehouse).rglob("*.parquet")} == files
    assert command(kept, "migrate")[1] == f"0 tables got schema {SCHEMA}.\n"
    assert as_before(spark, kept, before) == before
    assert asked(kept) == answer

    with lock.writer(kept, "test"):
        done = runner.run(Warehouse(kept, spark), CATALOG)
    assert {stage_run.status for stage_run in done} <= {"passed", "idle", "held"}
    assert as_before(spark, kept, before) == before
    assert idle(kept)


def test_a_run_migrates_before_its_stages(spark: SparkSession, kept: Settings) -> None:
    lagged = migrate.lags(Warehouse(kept))
    with lock.writer(kept, "test"):
        runner.run(Warehouse(kept, spark), stages("collect"))
    assert set(marks(kept).values()) == {SCHEMA} or not lagged
    assert not migrate.lags(Warehouse(kept))


def test_a_killed_migration_is_gone_on_with(kept: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    needed = [migration.table for migration in migrated(kept, is_dry_run=True)]
    if not needed:
        pytest.skip("this release has the present schema")
    kind, seen = type(Warehouse(kept).store), [0]
    checked = kind.checked

    def killed(store: Store) -> str:
        seen[0] += 1
        if seen[0] == 6:
            raise KeyboardInterrupt
        return checked(store)

    with monkeypatch.context() as patched:
        patched.setattr(kind, "checked", killed)
        with pytest.raises(KeyboardInterrupt):
            list(migrated(kept, is_dry_run=False))
    assert {*marks(kept).values()} == {0, SCHEMA}
    assert migrate.lags(Warehouse(kept))
    left = [migration.table for migration in migrated(kept, is_dry_run=False)]
    assert left == needed[-len(left) :]
    assert 0 < len(left) < len(needed)
    assert {*marks(kept).values()} == {SCHEMA}


@pytest.mark.parametrize("arguments", COMMANDS, ids=lambda arguments: arguments[0])
def test_a_warehouse_of_a_later_version_is_refused(arguments: list[str], settings: Settings) -> None:
    warehouse = Warehouse(settings)
    for contract in contracts.contracts():
        opened = warehouse._opened(contract.table, None)
        opened.alter.set_table_properties({schema_mark.PROPERTY: str(SCHEMA + 1)}, raise_if_not_exists=False)
    before = {path: path.stat().st_mtime_ns for path in Path(settings.warehouse).rglob("*.json")}
    ended = CliRunner().invoke(app, [*arguments, "--warehouse", settings.warehouse])
    assert ended.stdout == ""
    is_raised = isinstance(ended.exception, UsageError)  # the start of the command prints it
    assert (UsageError.exit_code if is_raised else ended.exit_code) == 2
    said = str(ended.exception) if is_raised else ended.stderr
    assert f"(schema {SCHEMA + 1}; this version knows {SCHEMA}): upgrade" in said
    logs = {path: at for path, at in before.items() if "_delta_log" in path.parts}
    assert {path: path.stat().st_mtime_ns for path in logs} == logs
