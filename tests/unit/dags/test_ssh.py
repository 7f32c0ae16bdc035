"""A task's command on another host: a real server of OpenSSH, which this user reaches on this machine."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from dags.command import Ended, Unreachable
from dags.operators import CannotRun, check
from dags.ssh import SshCommand
from pipelines.errors import UsageError
from pipelines.installation import COMMAND
from pipelines.settings import ROOT
from pipelines.settings.airflow import Ssh
from tests.testing import sshd

pytestmark = pytest.mark.skipif(not sshd.SSHD, reason=sshd.MISSING)


@pytest.fixture(scope="module", autouse=True)
def connection(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with sshd.server(tmp_path_factory.mktemp("sshd")) as text, pytest.MonkeyPatch.context() as patched:
        patched.setenv("AIRFLOW_CONN_THERE", text)
        yield


def ran(command: str, *arguments: str, directory: Path | None = None, **variables: str) -> tuple[Ended, list[str]]:
    log: list[str] = []
    host = Ssh(connection="there", command=command, directory=directory and str(directory))
    return SshCommand(host, arguments, variables).run(log.append), log


def script(directory: Path, text: str) -> str:
    """Return a command that runs a script."""
    (directory / "script").write_text(text)
    return f"sh {directory}/script"


def test_output_log_and_exit_code_stay_apart(tmp_path: Path) -> None:
    command = script(tmp_path, r"echo first; printf 'one\n\033[1mtwo\377\n' >&2; pwd; echo $AFTERLOG_TOLERANCE; exit 4")
    ended, log = ran(command, directory=tmp_path, AFTERLOG_TOLERANCE="0.25")
    assert ended == Ended(4, "0.25", log[-1])
    assert log[0] == "one"
    assert log[1].startswith(" [1mtwo")
    assert ran(script(tmp_path, "pwd"), directory=tmp_path)[0].answer == str(tmp_path)


def test_no_shell_reads_an_argument(tmp_path: Path) -> None:
    hostile = f"--accept=silver.dlq_records:a 'b\" $(touch {tmp_path}/made) ; \\"
    assert ran("printf '%s|'", hostile, "x")[0].answer == f"{hostile}|x|"
    assert not (tmp_path / "made").exists()


def test_much_output_and_much_log_do_not_wait_for_each_other(tmp_path: Path) -> None:
    program = "import sys; print('x' * 5_000_000); [print('y' * 99, file=sys.stderr) for _ in range(50_000)]"
    ended, log = ran(f"{sys.executable} -c", program)
    assert (ended.code, len(ended.answer), len(log)) == (0, 5_000_000, 50_000)


def test_afterlogs_own_exit_codes_mean_what_they_mean_here() -> None:
    ended, _ = ran(str(COMMAND), "run", "--feed", "none", directory=ROOT)
    assert ended.code == 2
    with pytest.raises(CannotRun, match="There is no feed 'none'"):
        check(ended)


@pytest.mark.parametrize(("command", "directory"), [("no-such-command", None), ("true", Path("/no/such/directory"))])
def test_what_cannot_start_is_not_retried(command: str, directory: Path | None) -> None:
    ended, _ = ran(command, directory=directory)
    with pytest.raises(CannotRun, match=r"no.such"):
        check(ended)


SLEEPS = "trap 'echo ended >ended; exit' TERM; echo begun >&2; sleep 60 & wait"


def test_a_command_that_is_killed_ends_there(tmp_path: Path) -> None:
    host = Ssh(connection="there", command=script(tmp_path, SLEEPS), directory=str(tmp_path))
    run = SshCommand(host, [], {})
    with pytest.raises(Unreachable, match="ended before the command did"):
        run.run(lambda line: threading.Timer(0.1, run.kill).start())
    has(tmp_path / "ended")


def test_the_command_ends_with_a_worker_that_is_killed(tmp_path: Path) -> None:
    command = script(tmp_path, SLEEPS)
    program = (
        "from dags.ssh import SshCommand; from pipelines.settings.airflow import Ssh\n"
        f"host = Ssh(connection='there', command={command!r}, directory={str(tmp_path)!r})\n"
        "SshCommand(host, [], {}).run(lambda line: print(line, flush=True))"
    )
    worker = subprocess.Popen([sys.executable, "-c", program], cwd=ROOT, stdout=subprocess.PIPE, text=True)
    assert worker.stdout
    assert "begun\n" in iter(worker.stdout.readline, "")
    worker.send_signal(signal.SIGKILL)
    worker.wait()
    has(tmp_path / "ended")


def test_nothing_is_left_of_a_command_that_ended(tmp_path: Path) -> None:
    ran(script(tmp_path, "echo done"), directory=tmp_path, AFTERLOG_MARK=str(tmp_path))
    until = time.monotonic() + 10
    while [process for process in psutil.process_iter() if str(tmp_path) in " ".join(_line(process))]:
        assert time.monotonic() < until
        time.sleep(0.1)


def test_a_connection_that_is_lost_or_leads_nowhere_is_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    command = script(tmp_path, "echo begun >&2; kill $(ps -o ppid= -p $PPID); sleep 60")
    with pytest.raises(Unreachable, match="there ended before the command did"):
        ran(command, directory=tmp_path)
    monkeypatch.setenv("AIRFLOW_CONN_AWAY", os.environ["AIRFLOW_CONN_THERE"].replace("127.0.0.1", "127.0.0.2"))
    with pytest.raises(Unreachable, match="connection away cannot be reached"):
        SshCommand(Ssh(connection="away"), [], {}).run(print)
    with pytest.raises(UsageError, match="There is no Airflow connection nowhere"):
        SshCommand(Ssh(connection="nowhere"), [], {}).run(print)


def has(file: Path) -> None:
    until = time.monotonic() + 10
    while not file.exists():
        assert time.monotonic() < until
        time.sleep(0.05)


def _line(process: psutil.Process) -> list[str]:
    try:
        return process.cmdline()
    except psutil.Error:
        return []
