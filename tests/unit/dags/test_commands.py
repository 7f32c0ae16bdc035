"""Commands that tasks run: what a retry can mend, their log, and that no process outlives its task."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from pipelines.settings import load
from pipelines.stores import lock


@pytest.mark.parametrize(
    ("code", "answer", "error", "retried"),
    [
        (1, "", "CommandDied", True),
        (2, "", "CannotRun", False),
        (3, "", "CannotRun", False),
        (4, "", "WriterBusy", True),
        (-9, '{"tables": []}', "CommandDied", True),
        (0, "", "CommandDied", True),
        (70, "x", "CommandDied", True),
    ],
)
def test_only_what_a_retry_can_mend_is_retried(code: int, answer: str, error: str, retried: bool) -> None:
    from airflow.sdk.exceptions import AirflowFailException

    from dags import operators
    from dags.command import Ended

    with pytest.raises(getattr(operators, error), match="Somebody else") as raised:
        operators.check(Ended(code, answer, "afterlog: Somebody else writes."))
    assert isinstance(raised.value, AirflowFailException) is not retried


@pytest.mark.parametrize("code", [0, 1])
def test_an_answer_is_passed_on(code: int) -> None:
    from dags.command import Ended
    from dags.operators import check

    check(Ended(code, '{"tables": []}', ""))


def test_a_broken_gate_is_not_retried() -> None:
    from airflow.sdk.exceptions import AirflowFailException

    from dags.operators import GateBroke

    assert issubclass(GateBroke, AirflowFailException)


def test_a_busy_warehouse_is_worth_another_try(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from dags.command import Command
    from dags.operators import WriterBusy, check

    monkeypatch.setenv("AFTERLOG_LOCK__WAIT_SECONDS", "0")
    arguments = ["run", "--only", "bronze.dlq_records", "--format", "json", f"--warehouse={tmp_path}"]
    with lock.writer(load(warehouse=str(tmp_path)), "the test"):
        ended = Command(arguments).run(lambda line: None)
    with pytest.raises(WriterBusy, match="the test"):
        check(ended)


def test_an_unknown_table_is_a_setting_to_mend() -> None:
    from dags.command import Command
    from dags.operators import CannotRun, check

    with pytest.raises(CannotRun, match="No stage fills"):
        check(Command(["run", "--only", "silver.nothing", "--format", "json"]).run(lambda line: None))


def test_the_log_streams_line_by_line_and_the_last_line_is_the_answer(command: Callable[[str], None]) -> None:
    from dags.command import Command, Ended

    command(
        "import sys, time\n"
        "print('noise'); print('one', file=sys.stderr); time.sleep(0.6)\n"
        "print('\\x1b[31mtwo\\x07\\u202ered', file=sys.stderr); print(sys.argv[1:]); print(); sys.exit(1)"
    )
    lines: list[tuple[float, str]] = []
    ended = Command(["--a=$(touch x); b", "é"]).run(lambda line: lines.append((time.monotonic(), line)))
    assert ended == Ended(1, "['--a=$(touch x); b', 'é']", " [31mtwo  red")
    assert [text for _, text in lines] == ["one", " [31mtwo  red"]
    assert lines[1][0] - lines[0][0] > 0.3


STUBBORN = """
import signal, subprocess, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)  # the child inherits it
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(300)"])
print(child.pid, file=sys.stderr, flush=True)
time.sleep(300)
"""


@pytest.mark.parametrize("how", ["an exception in the task", "on_kill"])
def test_no_process_outlives_the_task(
    how: str, command: Callable[[str], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    from dags.command import Command

    monkeypatch.setattr("dags.command.GRACE_SECONDS", 0.3)
    command(STUBBORN)
    running = Command([])
    seen: list[int] = []

    def read(line: str) -> None:
        seen.append(int(line))
        time.sleep(0.5)
        if how == "on_kill":
            threading.Thread(target=running.kill).start()
        else:
            raise TimeoutError("execution_timeout")

    if how == "on_kill":
        assert running.run(read).code == -signal.SIGKILL
    else:
        with pytest.raises(TimeoutError):
            running.run(read)
    until = time.monotonic() + 5
    while psutil.pid_exists(seen[0]) and psutil.Process(seen[0]).status() != psutil.STATUS_ZOMBIE:
        assert time.monotonic() < until
        time.sleep(0.05)


def test_a_signal_ends_a_command_that_has_closed_its_log(
    command: Callable[[str], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    from dags.command import Command

    monkeypatch.setattr("dags.command.GRACE_SECONDS", 0.3)
    command("import os, time; os.close(2); time.sleep(60)")
    running = Command([])
    before = signal.signal(signal.SIGALRM, lambda *_: running.kill())
    signal.setitimer(signal.ITIMER_REAL, 1)
    try:
        assert running.run(lambda line: None).code in (-signal.SIGTERM, -signal.SIGKILL)
    finally:
        signal.signal(signal.SIGALRM, before)
