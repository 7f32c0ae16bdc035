"""The documents are right: queries answer, commands parse, settings load, JSON lands, links and paths resolve."""

from __future__ import annotations

import re
import shlex
import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import typer
from pyspark.sql import SparkSession

from pipelines.cli import app
from pipelines.commands import arguments, ask, query
from pipelines.kafka.properties import properties
from pipelines.settings import ROOT, Settings, load
from pipelines.settings.layers import fields_of
from pipelines.warehouse.tables import Warehouse
from tests.testing.builders import land, line, rows, run_chain

DECISIONS = sorted((ROOT / "docs" / "decisions").glob("[0-9]*.md"))
DOCUMENTS = {
    path.relative_to(ROOT).as_posix(): path.read_text(encoding="utf-8")
    for path in (*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *ROOT.glob("*/README.md"))
}
COMMANDS = [
    pytest.param(shlex.split(found, comments=True), id=f"{name}: {found}")
    for name, text in DOCUMENTS.items()
    for found in re.findall(r"^(?:AFTERLOG_\S+ )*(?:\.venv/bin/)?afterlog (.+)$", text, re.MULTILINE)
]
PLACES = ("bench", "conf", "dags", "demo", "docs", "examples", "expectations", "local", "pipelines", "sql", "tests")


def shown(name: str, language: str) -> list[str]:
    """The code blocks of a language in a document, also those within lists."""
    found = re.findall(rf"^( *)```{language}\n(.+?)^ *```$", DOCUMENTS[name], re.DOTALL | re.MULTILINE)
    return [re.sub(rf"^{indent}", "", block, flags=re.MULTILINE) for indent, block in found]


def anchors(text: str) -> set[str]:
    """The anchors that GitHub makes from the headings of a document."""
    headings = re.findall(r"^#+ (.+)$", re.sub(r"^```.*?^```$", "", text, flags=re.DOTALL | re.MULTILINE), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_a_word_of_the_glossary_has_one_meaning_and_a_home_in_the_code() -> None:
    glossary = DOCUMENTS["docs/glossary.md"]
    rows = [row for row in glossary.splitlines() if row.startswith("| **")]
    words = [re.findall(r"^\| \*\*(.+?)\*\* \|", row)[0] for row in rows]
    assert len(words) > 30
    assert len(set(words)) == len(words)
    assert len(glossary.splitlines()) <= 40
    for word, row in zip(words, rows, strict=True):
        (path, name), *more = re.findall(r"`(\S+\.py)` `(\w+)`", row)
        defined = rf"^ *(?:class|def) {name}\b|^ *{name}(?:: .*)? = |^    {name}: |\"{name}\""
        assert not more
        assert re.search(defined, (ROOT / path).read_text(encoding="utf-8"), re.MULTILINE), row
        used = [text for other, text in DOCUMENTS.items() if other != "docs/glossary.md"]
        assert any(re.search(rf"\b{word}", text, re.IGNORECASE) for text in used), word


def test_the_documents_show_commands() -> None:
    words = {command.values[0][0] for command in COMMANDS}
    assert words >= {
        "run",
        "ask",
        "sql",
        "readmit",
        "rebuild",
        "report",
        "doctor",
        "generate",
        "broker",
        "describe",
        "trace",
        "show",
    }
    assert {"README.md", "docs/ask.md", "docs/deploy.md", "docs/feeds.md", "docs/kafka.md", "docs/operate.md"} <= {
        str(command.id).partition(":")[0] for command in COMMANDS
    }


def parsed(words: Sequence[str]) -> dict[str, Any]:
    """The parameters of a command line, or of its sub-command if the command has any."""
    command, rest = typer.main.get_command(app), list(words)
    if rest[0] == "--config":  # of all commands, so that it stands before them
        del rest[:2]
    while isinstance(command, typer.core.TyperGroup) and (rest or not command.invoke_without_command):
        command = command.commands[rest.pop(0)]
    return command.make_context(command.name, rest).params


@pytest.mark.parametrize("command", COMMANDS)
def test_commands_parse(command: list[str]) -> None:
    assert parsed(command)


def test_a_subcommand_that_is_not_there_is_found_out() -> None:
    with pytest.raises(KeyError, match="begin"):
        parsed(["broker", "begin"])
    with pytest.raises(Exception, match="--ports"):
        parsed(["broker", "start", "--ports", "9092"])


@pytest.mark.parametrize("name", DOCUMENTS)
def test_commands_within_sentences_exist(name: str) -> None:
    command = typer.main.get_command(app)
    assert isinstance(command, typer.core.TyperGroup)
    assert set(re.findall(r"`afterlog ([a-z]\S*?)[ `]", DOCUMENTS[name])) <= command.commands.keys()


def test_queries_answer(spark: SparkSession, settings: Settings, capsys: pytest.CaptureFixture[str]) -> None:
    sample, *_ = shown("docs/feeds.md", "json")  # the others are changes: see tests/tables/silver/test_changes.py
    land(settings, {"a.jsonl": [sample.strip(), line(5), line(6, headers=[])]})
    run_chain(spark, settings, "bronze.dlq_records", "silver.dlq_records")
    assert [row["dlq_offset"] for row in rows(spark, settings, "silver.dlq_records")] == [5]
    queries = {tuple(command.values[0]) for command in COMMANDS if command.values[0][0] == "sql"}
    assert len(queries) >= 4
    for command in sorted(queries):
        given = parsed(command)
        file = ROOT / given["file"] if given["file"] else None
        parameters = arguments.parameters_of(given["param"] or [])
        query.answer(
            Warehouse(settings, spark), arguments.text_of(given["query"], file), parameters, str(given["format"])
        )
        assert capsys.readouterr().out.strip(), command
    questions = {tuple(command.values[0]) for command in COMMANDS if command.values[0][0] == "ask"}
    assert len(questions) >= 8
    for command in sorted(questions):
        given = parsed(command)
        if given["question"]:
            question, parameters = ask.find(given["question"]), arguments.parameters_of(given["param"] or [])
            if ask.answer_without_jvm(Warehouse(settings), question, parameters, str(given["format"])) is None:
                query.answer(Warehouse(settings, spark), question.text, parameters, str(given["format"]))


def settings_of(block: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Settings:
    (tmp_path / "afterlog.toml").write_text(block)
    monkeypatch.setenv("AFTERLOG_SETTINGS", str(tmp_path / "afterlog.toml"))
    return load()


def test_settings_load(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    of_profiles, of_segments = shown("docs/feeds.md", "toml")
    of_topics, of_clusters = shown("docs/kafka.md", "toml")
    of_schemas, of_masks, of_landing = shown("docs/settings.md", "toml")
    for_pages = [settings_of(block, tmp_path, monkeypatch).report for block in shown("docs/page.md", "toml")]
    assert [(page.publish is None, page.url is None) for page in for_pages] == [(True, False), (False, True)]
    assert [schema.is_avro for schema in settings_of(of_schemas, tmp_path, monkeypatch).schemas] == [True, False]
    assert len(settings_of(of_masks, tmp_path, monkeypatch).privacy) == 4
    assert [item.at for item in settings_of(of_landing, tmp_path, monkeypatch).privacy] == ["landing"]
    assert settings_of(of_segments, tmp_path, monkeypatch).segments.cleanup_policy[0].policy == "delete"
    assert "`AFTERLOG_LOCK__WAIT_SECONDS=5`" in DOCUMENTS["docs/settings.md"]
    monkeypatch.setenv("AFTERLOG_LOCK__WAIT_SECONDS", "5")
    loaded = settings_of(of_profiles, tmp_path, monkeypatch)
    assert loaded.dlq.require[0].profile == "kip-1317"
    assert loaded.dlq.profile[0].name == "retry-library"
    assert loaded.lock.wait_seconds == 5

    monkeypatch.setenv("AFTERLOG_KAFKA__PASSWORD", "hush")
    loaded = settings_of(of_topics, tmp_path, monkeypatch)
    topics = loaded.topics_of("dlq")
    assert topics is not None
    each = settings_of(of_clusters, tmp_path, monkeypatch).of_clusters()
    assert [(item.cluster, item.kafka.username, item.kafka.password) for item in each] == [
        ("eu", "afterlog-eu", None),
        ("us-1", "afterlog-us", None),
    ]
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


@pytest.mark.parametrize("name", [name for name, text in DOCUMENTS.items() if "```toml" in text])
def test_all_settings_that_documents_show_load(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for block in shown(name, "toml"):
        settings_of(block, tmp_path, monkeypatch)


def test_every_setting_is_in_the_table_of_settings() -> None:
    table = re.findall(r"^\| (`.+?) \|", DOCUMENTS["docs/settings.md"], re.MULTILINE)
    assert sorted(re.findall(r"`\[?(\w+)\]?`", " ".join(table))) == sorted(fields_of(Settings))


def test_variables_of_shown_commands_are_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    text = "\n".join(DOCUMENTS.values())
    variables_shown = re.findall(r"^((?:AFTERLOG_\S+ )+)\.venv", text, re.MULTILINE)
    assert len(variables_shown) >= 2
    for variables in variables_shown:
        with monkeypatch.context() as patched:
            for variable in variables.split():
                name, _, value = variable.partition("=")
                patched.setenv(name, value)
            given = load().model_dump(exclude_unset=True)
        for variable in variables.split():
            place: Any = given
            for part in variable.partition("=")[0].removeprefix("AFTERLOG_").lower().split("__"):
                place = place[part]


@pytest.mark.parametrize("name", DOCUMENTS)
def test_links_between_documents_resolve(name: str) -> None:
    for link in re.findall(r"\]\(([^)\s]+)\)", DOCUMENTS[name]):
        if link.startswith("https://"):
            continue
        path, _, anchor = link.partition("#")
        target = ((ROOT / name).parent / path).resolve() if path else ROOT / name
        assert target.exists(), link
        if anchor:
            assert anchor in anchors(target.read_text(encoding="utf-8")), link


@pytest.mark.parametrize("name", DOCUMENTS)
def test_files_that_documents_name_exist(name: str) -> None:
    for path in re.findall(rf"`((?:{'|'.join(PLACES)})/[^`\s]*)`", DOCUMENTS[name]):
        if not re.search(r"[<*]", path):
            assert (ROOT / path).exists() or ((ROOT / name).parent / path).exists(), path


def test_the_map_names_every_room_in_the_order_of_imports() -> None:
    rows = re.findall(r"^\| ((?:`[\w./]+` ?)+)\| ", DOCUMENTS["ARCHITECTURE.md"], re.MULTILINE)
    named = [
        room.removesuffix(".py").strip("/").replace("/", ".") for row in rows for room in re.findall(r"`(.+?)`", row)
    ]
    assert {f"pipelines.{path.parent.name}" for path in (ROOT / "pipelines").glob("*/__init__.py")} <= set(named)
    contract = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["importlinter"][
        "contracts"
    ][0]
    heights = {room: height for height, layer in enumerate(reversed(contract["layers"])) for room in layer.split(" | ")}
    assert heights.keys() & set(named) >= {"expectations", "pipelines.warehouse", "pipelines.cli", "dags"}
    listed = [heights[room] for room in named if room in heights]
    assert listed == sorted(listed)


def test_the_index_names_every_decision_with_its_title() -> None:
    named = re.findall(r"^- \[(\d{4})\]\((.+?)\) (.+)$", DOCUMENTS["docs/decisions/README.md"], re.MULTILINE)
    assert [(file[:4], file, title) for _, file, title in named] == [
        (path.name[:4], path.name, path.read_text(encoding="utf-8").partition("\n")[0].removeprefix("# "))
        for path in DECISIONS
    ]
    assert [number for number, _, _ in named] == [f"{place:04}" for place in range(1, len(DECISIONS) + 1)]


@pytest.mark.parametrize("path", DECISIONS, ids=lambda path: path.stem)
def test_a_decision_has_context_decision_and_consequence(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert re.findall(r"^#+ (.+)$", text, re.MULTILINE)[1:] == ["Context", "Decision", "Consequence"]
    prose = [line for line in text.splitlines() if line and not line.startswith("|")]
    assert len(prose) <= 50


def test_documents_stay_short() -> None:
    assert len(DOCUMENTS["ARCHITECTURE.md"].splitlines()) <= 150
    assert len(DOCUMENTS["README.md"].splitlines()) <= 170


def test_what_recipes_name_is_there() -> None:
    text = DOCUMENTS["docs/recipes.md"]
    code = [path for place in (*PLACES, "") for path in (ROOT / place).glob("**/*.py" if place else "*.py")]
    files = {path.name for path in code}
    for name in re.findall(r"`(?:[\w/]+/)?(\w+\.py)`", text):
        assert name in files, name
    source = "".join(path.read_text(encoding="utf-8") for path in code if path.parts[len(ROOT.parts)] != "bench")
    for name in re.findall(r"`(_?[A-Z]{3,}(?:_[A-Z]+)*|[A-Z][a-z]+[A-Z]\w+)`", text):
        assert re.search(rf"\b{name}\b", source), name
