"""Shell completion: it offers no name that is special to a shell, and nothing if anything fails."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import typer

from pipelines.catalog import FEEDS, stages_of_type
from pipelines.cli import app
from pipelines.commands import completion, describe
from pipelines.jvm import session
from pipelines.settings import ROOT, Settings
from pipelines.stage import Summarise
from tests.testing.deliveries import store


def completed(line: str, shell: str = "bash", cwd: Path = ROOT, **variables: str) -> list[str]:
    """The command's answer to a shell that completes the last word of a line."""
    words = line.split(" ")
    asked = {
        "bash": {"COMP_WORDS": line, "COMP_CWORD": str(len(words) - 1)},
        "zsh": {"_TYPER_COMPLETE_ARGS": line},
        "fish": {"_TYPER_COMPLETE_ARGS": line, "_TYPER_COMPLETE_FISH_ACTION": "get-args"},
    }[shell]
    ran = subprocess.run(
        [sys.executable, "-m", "pipelines.start"],
        env=os.environ | {"PYTHONPATH": str(ROOT), "_AFTERLOG_COMPLETE": f"complete_{shell}"} | asked | variables,
        cwd=cwd,
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.stderr == ""
    return ran.stdout.split()


@pytest.fixture(scope="module")
def warehouse(tmp_path_factory: pytest.TempPathFactory) -> Settings:
    """A warehouse with groups, some of them with names that are special to a shell."""
    directory = tmp_path_factory.mktemp("completion")
    settings = Settings(warehouse=str(directory / "warehouse"), landing=str(directory / "landing"))
    for group in ("orders-app", "orders$(touch broken)", "orders`id`", "orders app", "orders*", "billing"):
        store(settings, describe.CURRENT, {"cluster": "default", "group_id": group})
    for name, count in (("7KQ2-MD4X", 3), ("7KQ3-0000", 0), ("8000-MD4X", 1)):
        store(settings, "gold.dlq_incidents", {"cluster": "default", "incident_id": name, "record_count": count})
    store(settings, describe.CURRENT, {"cluster": "other", "group_id": "orders-elsewhere"})
    return settings


def test_incidents_with_records(warehouse: Settings) -> None:
    named = {"AFTERLOG_WAREHOUSE": warehouse.warehouse}
    assert completed("afterlog incident 7KQ", **named) == ["7KQ2-MD4X"]


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_each_shell_completes_commands(shell: str) -> None:
    told = completed("afterlog d", shell)
    assert [name for name in ("describe", "doctor") if any(name in item for item in told)]
    assert not any("run" in item for item in told)


def test_tables_feeds_and_layers() -> None:
    assert completed("afterlog run --only gold.message_l") == ["gold.message_ledger"]
    assert completed("afterlog run --feed d") == sorted(feed for feed in FEEDS if feed.startswith("d"))
    assert completed("afterlog run --layer s") == ["silver"]
    assert completed("afterlog run --accept silver.t") == ["silver.topology_pushes", "silver.topology_statuses"]
    computed = [stage.table for stage in stages_of_type(Summarise)]
    assert completed("afterlog rebuild ") == sorted(computed)


def test_questions(tmp_path: Path) -> None:
    assert completed("afterlog ask top") == ["top_groups", "topology_changes", "topology_health"]
    assert completed("afterlog sql --file sql/questions/top_") == ["sql/questions/top_groups.sql"]
    assert completed("afterlog sql --file ", cwd=tmp_path)[0] == f"{ROOT}/sql/questions/absent_messages.sql"
    assert completed("afterlog sql --file elsewhere/") == []  # then the shell completes files itself


def test_groups_of_the_warehouse_that_is_named(warehouse: Settings) -> None:
    place = {"AFTERLOG_WAREHOUSE": warehouse.warehouse}
    assert completed("afterlog describe o", **place) == ["orders-app"]
    assert completed(f"afterlog describe --warehouse {warehouse.warehouse} o") == ["orders-app"]
    assert not any("billing" in item for item in completed("afterlog describe o", "zsh", **place))


@pytest.mark.parametrize(
    ("line", "variables"),
    [
        pytest.param("afterlog describe o", {"AFTERLOG_WAREHOUSE": "/nowhere"}, id="no warehouse"),
        pytest.param("afterlog describe o", {"AFTERLOG_WAREHOUSE": "s3://bucket/w"}, id="a network would be needed"),
        pytest.param("afterlog describe o", {"AFTERLOG_SETTINGS": "/nowhere.toml"}, id="no settings"),
        pytest.param("afterlog describe 'o", {"AFTERLOG_WAREHOUSE": "/nowhere"}, id="an open quote"),
        pytest.param("afterlog nothing o", {}, id="no such command"),
        pytest.param("afterlog describe o", {"COMP_CWORD": "many"}, id="a shell in disorder"),
    ],
)
def test_where_nothing_can_be_known_nothing_is_said(line: str, variables: dict[str, str]) -> None:
    assert [text for text in completed(line, **variables) if text.startswith("o")] == []


@pytest.mark.parametrize("known", [completion.incidents, completion.groups], ids=["incidents", "groups"])
def test_no_session_starts_while_somebody_types(known: completion.Completion, monkeypatch: pytest.MonkeyPatch) -> None:
    begun: list[Any] = []
    monkeypatch.setattr(session, "spark_session", lambda *given, **named: begun.append(given))
    context = typer.Context(typer.main.get_command(app))
    context.params = {"warehouse": "file:///nowhere"}
    assert known(context, "") == []
    assert begun == []
