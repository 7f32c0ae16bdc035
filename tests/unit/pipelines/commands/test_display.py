"""What a run shows while it works, on a real terminal and without one."""

from __future__ import annotations

import io
import os
import pty
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from pipelines.commands import display
from pipelines.jvm import jvm_log
from pipelines.moments import now
from pipelines.run import interrupt
from pipelines.settings import ROOT
from pipelines.warehouse.quality import StageRun


def ran(table: str, status: str = "passed", **counts: Any) -> StageRun:
    return StageRun("r", table, status, now(), now(), **counts)


class Terminal(NamedTuple):
    """A terminal for standard error, and all that was written to it."""

    stream: io.TextIOWrapper
    written: Callable[[], str]


@contextmanager
def terminal() -> Iterator[Terminal]:
    outer, inner = pty.openpty()
    os.set_blocking(outer, False)
    text = bytearray()

    def written() -> str:
        try:
            while more := os.read(outer, 65536):
                text.extend(more)
        except BlockingIOError:
            pass
        return text.decode()

    with os.fdopen(inner, "w") as stream:
        yield Terminal(stream, written)
    os.close(outer)


def until(holds: Callable[[], bool]) -> None:
    end = time.monotonic() + 10
    while not holds():
        assert time.monotonic() < end
        time.sleep(0.02)


@pytest.fixture
def attach(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[], Terminal]]:
    """Return a function that makes standard error a terminal; call it in the test, after pytest set its own."""
    monkeypatch.setenv("TERM", "xterm")
    with terminal() as shown:

        def attached() -> Terminal:
            monkeypatch.setattr(sys, "stderr", shown.stream)
            return shown

        yield attached


def test_a_terminal_shows_at_once_what_is_done_and_keeps_nothing_of_it(attach: Callable[[], Terminal]) -> None:
    on_terminal = attach()
    began = time.monotonic()
    with display.Display("Looking for what is new.") as watch:
        until(lambda: "Looking for what is new, 0 s" in on_terminal.written())
        assert time.monotonic() - began < 1
        watch.begins("silver.dlq_records", 3, 31)
        watch.finds("12 files, 45.2 MB")
        until(lambda: "stage 3 of 31: silver.dlq_records, 0 s, 12 files, 45.2 MB" in on_terminal.written())
        watch.ended(ran("silver.dlq_records", read=7))
        print("afterlog: amid it", file=sys.stderr)
    last = on_terminal.written().rpartition("amid it")[2]
    assert "silver.dlq_records: passed" not in on_terminal.written()
    assert "\x1b[?25l" not in on_terminal.written()  # a killed process could not show the cursor again
    assert last.endswith("\x1b[2K")


def test_what_was_done_is_said_where_the_command_fails(attach: Callable[[], Terminal]) -> None:
    on_terminal = attach()
    watch = display.Display("Starting Spark.")
    watch.__enter__()
    watch.ended(ran("bronze.dlq_records", read=7))
    watch.ended(ran("bronze.producers", "idle"))
    watch.__exit__(ValueError, ValueError("x"), None)
    assert on_terminal.written().count("bronze.dlq_records: passed: read 7") == 1
    assert "bronze.producers" not in on_terminal.written()


def test_a_log_stays_above_the_line(attach: Callable[[], Terminal]) -> None:
    on_terminal = attach()
    with display.Display("Looking.", log=True) as watch:
        watch.ended(ran("bronze.dlq_records", read=7))
        watch.ended(ran("bronze.producers", "idle"))
    assert on_terminal.written().count("bronze.dlq_records: passed: read 7") == 1
    assert "bronze.producers" not in on_terminal.written()


def test_names_obey_no_terminal_and_take_one_line(attach: Callable[[], Terminal]) -> None:
    on_terminal = attach()
    with display.Display("Looking.") as watch:
        watch.finds("\x1b[31m\n" + "x" * 500)
        until(lambda: "\\u001b[31m\\nxx" in on_terminal.written())
    assert "\x1b[31m" not in on_terminal.written()
    assert "x" * 80 not in on_terminal.written()


class Stages:
    """Running Spark stages, as Spark's status store lists them."""

    def __init__(self, *stages: tuple[int, int, int, int]) -> None:
        self.stages = stages
        self.sparkContext = self._jsc = self

    def sc(self) -> Stages:
        return self

    statusStore = activeStages = sc

    def size(self) -> int:
        return len(self.stages)

    def apply(self, place: int) -> Any:
        names = ("inputBytes", "inputRecords", "numCompleteTasks", "numTasks")
        return type("Stage", (), {name: lambda _, n=n: n for name, n in zip(names, self.stages[place], strict=True)})()


@pytest.mark.parametrize(
    ("stages", "said"),
    [
        pytest.param([], "", id="none"),
        pytest.param([(45_200_000, 12_345, 3, 8)], "45.2 MB and 12,345 rows read, task 4 of 8", id="one"),
        pytest.param([(0, 0, 0, 2)], "task 1 of 2", id="of a shuffle"),
        pytest.param([(900, 1, 2, 2), (100, 1, 0, 1)], "1.0 kB and 2 rows read, task 3 of 3", id="two"),
    ],
)
def test_how_far_spark_is(stages: list[tuple[int, int, int, int]], said: str) -> None:
    assert display.read_by(Stages(*stages)) == said  # type: ignore[arg-type]


def test_how_far_spark_is_shown_and_no_failure_to_ask_it(attach: Callable[[], Terminal]) -> None:
    on_terminal = attach()
    with display.Display("Starting Spark.") as watch:
        watch.asks(object())  # type: ignore[arg-type]  # a session that ended
        watch.begins("bronze.dlq_records", 1, 1)
        time.sleep(0.4)
        watch.asks(Stages((45_200_000, 12_345, 3, 8)))  # type: ignore[arg-type]
        until(lambda: "s, 45.2 MB and 12,345 rows read, task" in on_terminal.written())
    assert "Traceback" not in on_terminal.written()


def test_elsewhere_it_is_a_line_a_stage_and_one_for_what_takes_long(capsys: pytest.CaptureFixture[str]) -> None:
    with display.Display("Looking for what is new.", quiet=True) as watch:
        time.sleep(0.8)
        watch.says("Starting Spark: 45.2 MB wait.")
        time.sleep(1.2)
        watch.says("soon over")
        watch.begins("bronze.dlq_records", 1, 2)
        watch.ended(ran("bronze.dlq_records", read=7, accepted=7))
        watch.begins("silver.dlq_records", 2, 2)
        watch.ended(ran("silver.dlq_records", "idle"))
    assert capsys.readouterr() == (
        "",
        "afterlog: Starting Spark: 45.2 MB wait.\n"
        "bronze.dlq_records: passed: read 7, accepted 7, quarantined 0, duplicates 0, skipped 0, written 7, 0.0 s\n",
    )


@pytest.mark.parametrize("term", ["dumb", ""])
def test_a_terminal_that_cannot_draw_a_line_again_has_none(
    attach: Callable[[], Terminal], monkeypatch: pytest.MonkeyPatch, term: str
) -> None:
    attach()
    assert display.on_terminal()
    monkeypatch.setenv("TERM", term)
    assert not display.on_terminal()


def test_what_spark_logs_is_not_written_amid_the_line(
    attach: Callable[[], Terminal], monkeypatch: pytest.MonkeyPatch
) -> None:
    attach()
    monkeypatch.setattr(jvm_log, "_to_terminal", False)
    jvm_log.show()
    assert not display.on_terminal()


def test_tables_without_news_are_one_line(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "120")
    idle = [ran(f"silver.t{number}", "idle") for number in range(31)]
    display.stage_runs([ran("bronze.dlq_records", read=7), *idle])
    shown = capsys.readouterr().out.splitlines()
    assert len(shown) == 4
    assert shown[2].startswith("bronze.dlq_records")
    assert shown[3] == "31 tables had nothing new."

    display.stage_runs(idle[:1])
    assert capsys.readouterr().out == "silver.t0 had nothing new.\n"


def test_ctrl_c_leaves_no_line_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    script = (
        "import time; from pipelines.run import interrupt\n"
        "with interrupt.heard():\n"
        " from pipelines.commands import display\n"
        " with display.Display('Starting Spark.') as watch:\n"
        "  watch.begins('a.b', 1, 1); print('up', flush=True); time.sleep(60)\n"
    )
    with terminal() as shown:
        process = subprocess.Popen(
            [sys.executable, "-c", script],
            env=os.environ | {"PYTHONPATH": str(ROOT), "TERM": "xterm"},
            stdout=subprocess.PIPE,
            stderr=shown.stream,
        )
        assert process.stdout
        process.stdout.readline()
        until(lambda: "stage 1 of 1" in shown.written())
        process.send_signal(2)
        assert process.wait(20) == interrupt.EXIT_CODE
        assert shown.written().endswith(f"\r\x1b[2K{interrupt.SENTENCE}\r\n")


def test_what_the_jvm_logged_is_kept_where_a_command_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jvm_log, "_to_terminal", False)
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)
    options = jvm_log.options(tmp_path)
    assert "-Dafterlog.log=file" in options
    assert "-Dafterlog.log.exceptions=none" in options  # exceptions may quote a record
    assert jvm_log.kept() is None
    (tmp_path / jvm_log.NAME).write_text("ERROR TaskSetManager: Task 0 failed\n")
    kept = jvm_log.kept()
    assert kept
    assert kept.parent == tmp_path
    assert kept.read_text() == "ERROR TaskSetManager: Task 0 failed\n"
    assert kept.stat().st_mode & 0o077 == 0

    jvm_log.show()
    assert "-Dafterlog.log=stderr" in jvm_log.options(tmp_path)
    assert jvm_log.kept() is None


def test_a_message_of_several_lines_is_told_once_to_whoever_reads_both_outputs(
    capsys: pytest.CaptureFixture[str],
) -> None:
    broken = ran("silver.dlq_records", "broken", held=20, message="It broke.\nAccept it.")
    with display.Display("Looking", quiet=True, live=False) as shown:
        shown.ended(broken)
    display.stage_runs([broken, broken])
    said = capsys.readouterr()
    assert said.err.endswith("It broke.\n")
    assert said.out.count("Accept it.") == 1
    with display.Display("Looking", quiet=True, log=True, live=False) as shown:  # it follows: no table comes
        shown.ended(broken)
    assert "Accept it." in capsys.readouterr().err
