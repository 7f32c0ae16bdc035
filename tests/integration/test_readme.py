"""What the README shows: its queries answer, its commands parse, its settings load, its line of JSON lands."""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import typer
from pyspark.sql import SparkSession

from pipelines.cli import app
from pipelines.commands import query
from pipelines.kafka.properties import properties
from pipelines.settings import ROOT, Settings, load
from pipelines.warehouse.tables import Warehouse
from tests.builders import land, line, rows, run

README = (ROOT / "README.md").read_text(encoding="utf-8")
COMMANDS = [
    shlex.split(found, comments=True)
    for found in re.findall(r"^(?:AFTERLOG_\S+ )*\.venv/bin/afterlog (.+)$", README, re.MULTILINE)
]


def test_the_readme_shows_commands() -> None:
    assert {command[0] for command in COMMANDS} >= {"run", "sql", "readmit", "report", "doctor", "generate", "broker"}


def parsed(words: Sequence[str]) -> dict[str, Any]:
    """The parameters of a command line, of a sub-command where its command has some."""
    command, rest = typer.main.get_command(app), list(words)
    while isinstance(command, typer.core.TyperGroup):
        command = command.commands[rest.pop(0)]
    return command.make_context(command.name, rest).params


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_commands_parse(command: list[str]) -> None:
    assert parsed(command)


def test_a_subcommand_that_is_not_there_is_found_out() -> None:
    with pytest.raises(KeyError, match="begin"):
        parsed(["broker", "begin"])
    with pytest.raises(Exception, match="--ports"):
        parsed(["broker", "start", "--ports", "9092"])


def test_queries_answer(spark: SparkSession, settings: Settings, capsys: pytest.CaptureFixture[str]) -> None:
    sample = re.search(r"```json\n(.+)\n```", README)
    assert sample
    land(settings, {"a.jsonl": [sample[1], line(5), line(6, headers=[])]})
    run(spark, settings)
    assert [row["dlq_offset"] for row in rows(spark, settings, "silver.dlq_records")] == [5]
    for command in COMMANDS:
        if command[0] != "sql":
            continue
        given = parsed(command)
        file = ROOT / given["file"] if given["file"] else None
        parameters = query.parameters_of(given["param"] or [])
        query.answer(Warehouse(settings, spark), query.text_of(given["query"], file), parameters, str(given["format"]))
        assert capsys.readouterr().out.strip(), command


def settings_of(block: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Settings:
    (tmp_path / "afterlog.toml").write_text(block)
    monkeypatch.setenv("AFTERLOG_SETTINGS", str(tmp_path / "afterlog.toml"))
    return load()


def test_settings_load(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    of_segments, of_profiles, of_topics = re.findall(r"```toml\n(.+?)```", README, re.DOTALL)
    assert settings_of(of_segments, tmp_path, monkeypatch).segments.cleanup_policy[0].policy == "delete"
    monkeypatch.setenv("AFTERLOG_LOCK__WAIT_SECONDS", "5")
    loaded = settings_of(of_profiles, tmp_path, monkeypatch)
    assert loaded.dlq.require[0].profile == "kip-1317"
    assert loaded.dlq.profile[0].name == "retry-library"
    assert loaded.lock.wait_seconds == 5

    monkeypatch.setenv("AFTERLOG_KAFKA__PASSWORD", "hush")
    loaded = settings_of(of_topics, tmp_path, monkeypatch)
    topics = loaded.topics_of("dlq")
    assert topics is not None
    assert re.fullmatch(topics.pattern, "dlq.orders")
    assert properties(loaded.kafka.model_copy(update={"ca_file": None})).keys() >= {
        "sasl.mechanism",
        "sasl.jaas.config",
    }
    for feed in (
        '[acknowledgements]\nsource = "kafka"\ntopic = "a"',
        '[streams_requests]\nsource = "kafka"\ntopic = "b"',
    ):
        assert settings_of(f"{of_topics}\n{feed}", tmp_path, monkeypatch)


def test_variables_of_shown_commands_are_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    shown = re.findall(r"^((?:AFTERLOG_\S+ )+)\.venv", README, re.MULTILINE)
    assert len(shown) >= 2
    for variables in shown:
        with monkeypatch.context() as patched:
            for variable in variables.split():
                name, _, value = variable.partition("=")
                patched.setenv(name, value)
            given = load().model_dump(exclude_unset=True)
        for variable in variables.split():
            place: Any = given
            for part in variable.partition("=")[0].removeprefix("AFTERLOG_").lower().split("__"):
                place = place[part]
