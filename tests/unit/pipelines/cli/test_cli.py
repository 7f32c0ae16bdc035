"""The command line in this process: the messages that come before any work."""

from __future__ import annotations

import inspect
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer.main
from rich.text import Text

from pipelines.cli import COMMANDS, answers, app, installed, main, register, report, runs, upkeep
from pipelines.jvm import jvm_log
from pipelines.settings import ROOT, Settings


def told(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    monkeypatch.setattr("sys.argv", ["afterlog", *words])
    with pytest.raises(SystemExit) as ended:
        main()
    return ended.value.code or 0, *capsys.readouterr()  # type: ignore[return-value]


def test_the_version_is_the_projects(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    (named,) = [line for line in (ROOT / "pyproject.toml").read_text().splitlines() if line.startswith("version = ")]
    version = named.split('"')[1]
    assert told(monkeypatch, capsys, "--version") == (0, f"afterlog {version}\n", "")


def test_every_command_of_a_family_is_in_the_command_line() -> None:
    families = (answers, installed, register, report, runs, upkeep)
    found = [command for family in families for _, command in inspect.getmembers(family, inspect.isfunction)]
    own = {command for command in found if command.__module__ in {family.__name__ for family in families}}
    assert {command for command in own if not command.__name__.startswith("_")} == {*COMMANDS}


def test_helps_show_all_of_their_words() -> None:
    def texts(command: Any) -> Iterator[str]:
        yield from filter(None, (command.help, *(getattr(option, "help", None) for option in command.params)))
        for name in getattr(command, "commands", {}):
            yield from texts(command.commands[name])

    shown = {text: Text.from_markup(text).plain for text in texts(typer.main.get_command(app))}
    assert len(shown) > 100
    assert [text for text, plain in shown.items() if plain != text] == []  # rich takes [retention] for a style


def test_what_is_generated_is_told_as_json(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    code, out, _ = told(monkeypatch, capsys, "generate", "--records", "50", "--out", f"{tmp_path}", "--format", "json")
    truth = json.loads(out)
    assert (code, truth["records"], sum(truth["outcomes"].values())) == (0, 50, 50)
    assert len(Path(truth["ledger"]).read_text().splitlines()) == 50
    assert json.loads(Path(truth["summary"]).read_text())["outcomes"] == truth["outcomes"]
    assert sum(len(file.read_text().splitlines()) for file in Path(truth["landed"]).iterdir()) == 50


@pytest.mark.parametrize(
    ("words", "meant"),
    [
        pytest.param(["rnu"], "run", id="a command"),
        pytest.param(["run", "--feed", "delivry"], "delivery", id="a feed"),
        pytest.param(["run", "--layer", "sliver"], "silver", id="a layer"),
        pytest.param(["run", "--only", "dlq_record"], "silver.dlq_records", id="a table"),
        pytest.param(["run", "--accept", "silver.dlq_record:dlq.a"], "silver.dlq_records", id="what is accepted"),
        pytest.param(["rebuild", "gold.dlq_sumary"], "gold.dlq_summary", id="what is rebuilt"),
        pytest.param(["readmit", "silver.dlq_record"], "silver.dlq_records", id="what is in quarantine"),
    ],
)
def test_it_is_told_what_may_be_meant(
    settings: Settings,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    words: list[str],
    meant: str,
) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    Path(settings.warehouse).mkdir()
    Path(settings.landing).mkdir()
    monkeypatch.setenv("AFTERLOG_WAREHOUSE", settings.warehouse)
    monkeypatch.setenv("AFTERLOG_LANDING", settings.landing)
    code, out, err = told(monkeypatch, capsys, *words)
    assert (code, out) == (2, "")
    assert "Did you mean" in err
    assert f"'{meant}'" in err


@pytest.mark.parametrize(
    ("master", "sentence"),
    [
        ("spark://h:7077", "The warehouse {warehouse} is a directory, which executors of spark://h:7077 may not reach"),
        ("spark//h:7077", "Spark knows no master 'spark//h:7077'"),
    ],
)
def test_a_master_that_cannot_do_the_work_is_refused_before_spark_starts(
    settings: Settings, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], master: str, sentence: str
) -> None:
    Path(settings.landing).mkdir()
    places = ("--warehouse", settings.warehouse, "--landing", settings.landing)
    code, out, err = told(monkeypatch, capsys, "run", "--master", master, *places)
    assert (code, out) == (2, "")
    assert sentence.format(warehouse=settings.warehouse) in err


@pytest.mark.parametrize("words", [["-v", "trace", "orders:0:1"], ["trace", "orders:0:1", "--verbose"]])
def test_what_spark_logs_can_be_asked_for_before_and_behind_the_command(
    words: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(jvm_log, "_to_terminal", False)
    told(monkeypatch, capsys, *words)
    assert jvm_log.is_shown()


@pytest.mark.parametrize(
    ("words", "what"),
    [
        pytest.param(
            ["alerts"],
            "alerts are sent",
            id="alerts",
        ),
        pytest.param(
            ["alerts", "send"],
            "alerts are sent",
            id="send",
        ),
        pytest.param(
            ["run", "--follow", "--metrics-port", "0"],
            "metrics are read",
            id="metrics",
        ),
    ],
)
def test_alerts_and_metrics_refuse_a_warehouse_that_only_spark_opens(
    words: list[str],
    what: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    file = tmp_path / "settings.toml"
    file.write_text('[[alerts.route]]\nname = "on-call"\nurl = "http://127.0.0.1:9/"\n')
    monkeypatch.setenv("AFTERLOG_SETTINGS", f"{file}")
    landing = tmp_path / "landing"
    landing.mkdir()
    places = ["--warehouse", "hdfs://name/w", "--landing", f"{landing}"]
    sentence = f"Only Spark opens hdfs://name/w, and {what} without it: name a warehouse in a directory or on an"
    assert told(monkeypatch, capsys, *words, *places) == (2, "", f"afterlog: {sentence} object store.\n")


@pytest.mark.parametrize("words", [["ask"], ["alerts"]], ids=str)  # one flushes what it prints, the other does not
def test_a_reader_that_leaves_ends_it_quietly(settings: Settings, words: list[str]) -> None:
    for place in (settings.warehouse, settings.landing):
        Path(place).mkdir(exist_ok=True)
    places = {"AFTERLOG_WAREHOUSE": settings.warehouse, "AFTERLOG_LANDING": settings.landing}
    command = [sys.executable, "-c", "from pipelines.cli import main; main()", *words]
    reading, writing = os.pipe()
    os.close(reading)
    with os.fdopen(writing, "w") as piped:
        ended = subprocess.run(
            command, stdout=piped, stderr=subprocess.PIPE, cwd=ROOT, env=os.environ | places, timeout=120
        )
    assert (ended.returncode, ended.stderr) == (0, b"")
