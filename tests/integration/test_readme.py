"""What the README shows: its queries answer, its commands parse, its settings load, its line of JSON lands."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
import typer
from pyspark.sql import SparkSession

from pipelines import query
from pipelines.cli import app
from pipelines.settings import ROOT, Settings, load
from tests.builders import land, line, rows, run

README = (ROOT / "README.md").read_text(encoding="utf-8")
COMMANDS = [
    shlex.split(found, comments=True)
    for found in re.findall(r"^(?:AFTERLOG_\S+ )?\.venv/bin/afterlog (.+)$", README, re.MULTILINE)
]


def test_the_readme_shows_commands() -> None:
    assert {command[0] for command in COMMANDS} >= {"run", "sql", "requeue", "report", "doctor", "generate"}


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_commands_parse(command: list[str]) -> None:
    group = typer.main.get_command(app)
    assert isinstance(group, typer.core.TyperGroup)
    subcommand = group.commands[command[0]]
    assert subcommand.make_context(command[0], list(command[1:])).params


def test_queries_answer(spark: SparkSession, settings: Settings, capsys: pytest.CaptureFixture[str]) -> None:
    sample = re.search(r"```json\n(.+)\n```", README)
    assert sample
    land(settings, {"a.jsonl": [sample[1], line(5), line(6, headers=[])]})
    run(spark, settings)
    assert [row["dlq_offset"] for row in rows(spark, settings, "silver.dlq_records")] == [5]
    for command in COMMANDS:
        if command[0] != "sql":
            continue
        context = typer.main.get_command(app).commands["sql"].make_context("sql", list(command[1:]))  # type: ignore[attr-defined]
        given = context.params
        file = ROOT / given["file"] if given["file"] else None
        parameters = query.parameters_of(given["param"] or [])
        query.answer(spark, settings, query.text_of(given["query"], file), parameters, str(given["format"]))
        assert capsys.readouterr().out.strip(), command


def test_settings_load(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = re.search(r"```toml\n(.+?)```", README, re.DOTALL)
    assert settings
    (tmp_path / "afterlog.toml").write_text(settings[1])
    monkeypatch.setenv("AFTERLOG_SETTINGS", str(tmp_path / "afterlog.toml"))
    monkeypatch.setenv("AFTERLOG_LOCK__WAIT_SECONDS", "5")
    loaded = load()
    assert loaded.dlq.require[0].profile == "kip-1317"
    assert loaded.lock.wait_seconds == 5
