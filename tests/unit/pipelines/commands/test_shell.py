"""The shell: what ends a statement, what Tab offers, and what history keeps."""

from __future__ import annotations

import io
import stat
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from prompt_toolkit.buffer import Buffer
from prompt_toolkit.document import Document
from prompt_toolkit.history import InMemoryHistory
from prompt_toolkit.input import create_pipe_input
from prompt_toolkit.output import DummyOutput

from pipelines.commands import shell, statements, stored
from pipelines.errors import UsageError

CTRL_C, CTRL_D, ENTER, ALT_ENTER = "\x03", "\x04", "\r", "\x1b\r"


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return tmp_path / "state" / "afterlog"


@pytest.fixture
def typed() -> Callable[..., list[str]]:
    def answered(*keys: str, fails: Sequence[str] = ()) -> list[str]:
        answers: list[str] = []

        def answer(text: str) -> int:
            answers.append(text)
            if text in fails:
                raise KeyboardInterrupt
            return 0

        with create_pipe_input() as given:
            given.send_text("".join(keys))
            session = shell.session(input=given, output=DummyOutput())
            shell.loop(session, answer, lambda: answers.append("stopped"))
        return answers

    return answered


@pytest.mark.parametrize(
    ("text", "found", "rest"),
    [
        pytest.param("select 1", [], "select 1", id="no end"),
        pytest.param("select 1; select 2;\n", ["select 1", "select 2"], "\n", id="two"),
        pytest.param(
            "select ';', \";\", `;` -- ;\n/* ; */; x", ["select ';', \";\", `;` -- ;\n/* ; */"], " x", id="text"
        ),
        pytest.param("; ;-- a\n;", [], "", id="nothing"),
        pytest.param("select 'a; select 2;", [], "select 'a; select 2;", id="an open literal"),
        pytest.param("select /* a; select 2;", [], "select /* a; select 2;", id="an open comment"),
    ],
)
def test_a_semicolon_ends_a_statement(text: str, found: list[str], rest: str) -> None:
    assert statements.statements(text) == (found, rest)


def test_one_line_or_a_semicolon_ends_what_is_typed(typed: Callable[..., list[str]]) -> None:
    assert typed("select 1", ENTER, "\\q", ENTER) == ["select 1"]
    assert typed("select 1; select 2;", ENTER, CTRL_D) == ["select 1", "select 2"]
    assert typed("select (1", ENTER, "+ 2", ENTER, ");", ENTER, CTRL_D) == ["select (1\n+ 2\n)"]
    assert typed("select 1", ALT_ENTER, "as a", ENTER, "-- ;", ENTER, ";", ENTER, "quit", ENTER) == [
        "select 1\nas a\n-- ;"
    ]
    assert typed(ENTER, "-- nothing", ENTER, CTRL_D) == []


def test_ctrl_c_clears_the_line_or_stops_the_statement(typed: Callable[..., list[str]]) -> None:
    assert typed("select 1", CTRL_C, "select 2", ENTER, CTRL_D) == ["select 2"]
    assert typed("slow", ENTER, "select 2", ENTER, CTRL_D, fails=["slow"]) == ["slow", "stopped", "select 2"]


def test_history_outlives_the_shell_and_is_the_users_alone(typed: Callable[..., list[str]], state: Path) -> None:
    state.mkdir(parents=True)
    (state / "sql_history").touch(mode=0o644)
    typed("select 1\u202e", ENTER, CTRL_D)
    assert stat.S_IMODE((state / "sql_history").stat().st_mode) == 0o600
    assert list(shell.history().load_history_strings()) == ["select 1\u202e"]


def test_a_state_directory_that_cannot_be_written(state: Path) -> None:
    state.parent.write_text("no directory")
    assert isinstance(shell.history(), InMemoryHistory)


def offered(text: str) -> list[str]:
    before, _, behind = text.partition("|")
    return [completion.text for completion in shell.completions(Document(before + behind, len(before)))]


@pytest.mark.parametrize(
    ("text", "names"),
    [
        pytest.param("sel", ["select"], id="keyword"),
        pytest.param("SEL", ["SELECT"], id="keyword as it is typed"),
        pytest.param("select * from gold.dlq_s", ["gold.dlq_summary"], id="table"),
        pytest.param("select dispo| from silver.dlq_records", ["disposition", "disposition_source"], id="column"),
        pytest.param(
            "select r.dispo| from silver.dlq_records as r", ["r.disposition", "r.disposition_source"], id="alias"
        ),
        pytest.param(
            "select dlq_records.dispo| from silver.dlq_records",
            ["dlq_records.disposition", "dlq_records.disposition_source"],
            id="name",
        ),
        pytest.param("select * from quality.fresh", ["quality.freshness"], id="freshness"),
        pytest.param("select 'sel", [], id="within a literal"),
        pytest.param("select 1 -- sel", [], id="within a comment"),
        pytest.param("select 1 /* sel", [], id="within a long comment"),
        pytest.param("select ", [], id="nothing typed"),
        pytest.param("select nothing.here.at", [], id="unknown"),
    ],
)
def test_tab_offers_keywords_tables_and_columns(text: str, names: list[str]) -> None:
    assert offered(text) == names


def test_tab_completes_in_the_shell() -> None:
    with create_pipe_input() as given:
        session = shell.session(input=given, output=DummyOutput())

        def ends(buffer: Buffer) -> None:
            if buffer.text.endswith("gold.dlq_summary"):
                given.send_text(ENTER)

        session.default_buffer.on_text_changed += ends
        given.send_text("select * from gold.dlq_s\t")
        assert session.prompt() == "select * from gold.dlq_summary"


def test_columns_are_those_of_every_table() -> None:
    assert set(shell.columns()) == set(stored.TABLES)
    assert all(shell.columns().values())


def test_statements_are_answered_as_they_come() -> None:
    answers: list[str] = []
    lines = io.StringIO("select 1; select\n2;\nwrong;select 3")

    def answer(text: str) -> int:
        answers.append(text)
        return 2 if text == "wrong" else 0

    assert shell.read(lines, answer) == 2
    assert answers == ["select 1", "select\n2", "wrong", "select 3"]
    with pytest.raises(UsageError):
        shell.read(io.StringIO("-- nothing"), answer)
