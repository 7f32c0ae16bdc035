"""Commands in one process: what a command sees and says is what it would see and say in a process of its own."""

from __future__ import annotations

import contextlib
import os
import shlex
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from dags.command import Command
from local import warm
from pipelines.jvm import java
from pipelines.settings import ROOT

TOY = """
import os, socket, sys, time
from local import warm

def command():
    what, *more = sys.argv[1:]
    print(f"{what} runs in {os.getpid()}", file=sys.stderr, flush=True)
    if what == "see":
        print(os.environ.get(more[0], "nothing"), os.getcwd())
    elif what == "set":
        os.environ["TOY"] = "left behind"
        os.chdir("/")
    elif what == "exit":
        sys.exit({"none": None, "text": "a sentence"}[more[0]] if more[0].isalpha() else int(more[0]))
    elif what == "fail":
        raise ValueError("fails")
    elif what == "hang":
        time.sleep(600)
    elif what == "lose":
        import pyspark, subprocess, types
        from pipelines.jvm import session
        java = subprocess.Popen(["true"])
        java.wait()
        pyspark.SparkContext._gateway = types.SimpleNamespace(proc=java)
        sys.exit(1)

def prepare():
    raise OSError("no Java")

warm.serve(socket.socket(fileno=int(sys.argv[1])), command, prepare)
"""


@pytest.fixture
def served(tmp_path: Path) -> Iterator[tuple[subprocess.Popen[bytes], str]]:
    """A process that runs a toy command, and the text of AFTERLOG_COMMAND."""
    address = os.fspath(tmp_path / "warm.sock")
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(address)
        listening.listen()
        descriptor = listening.fileno()
        argv = [sys.executable, "-c", TOY, str(descriptor)]
        started = subprocess.Popen(argv, cwd=ROOT, pass_fds=[descriptor], start_new_session=True)
    yield started, shlex.join([sys.executable, "-m", "local.warm", "run", address])
    with contextlib.suppress(ProcessLookupError):
        os.killpg(started.pid, signal.SIGKILL)
    started.wait()


def ran(monkeypatch: pytest.MonkeyPatch, program: str, *arguments: str) -> tuple[int, str, list[str]]:
    """Run a command as a task does; return its exit code, the last line of its output, and its log."""
    monkeypatch.setenv("AFTERLOG_COMMAND", program)
    log: list[str] = []
    ended = Command(arguments).run(log.append)
    return ended.code, ended.answer, log


def test_a_command_sees_its_callers_arguments_environment_and_directory_and_no_earlier_commands(
    served: tuple[subprocess.Popen[bytes], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    process, program = served
    monkeypatch.setenv("TOY", "a wörd\udcff")
    told = [f"see runs in {process.pid}"]
    assert ran(monkeypatch, program, "see", "TOY") == (0, f"a wörd\\udcff {ROOT}", told)
    monkeypatch.delenv("TOY")
    assert ran(monkeypatch, program, "set")[0] == 0
    assert ran(monkeypatch, program, "see", "TOY") == (0, f"nothing {ROOT}", told)


@pytest.mark.parametrize(("given", "code"), [("none", 0), ("0", 0), ("1", 1), ("4", 4), ("130", 130), ("text", 1)])
def test_a_command_ends_with_its_exit_code(
    served: tuple[subprocess.Popen[bytes], str], monkeypatch: pytest.MonkeyPatch, given: str, code: int
) -> None:
    ended, _, log = ran(monkeypatch, served[1], "exit", given)
    assert (ended, log[1:]) == (code, ["a sentence"] if given == "text" else [])


def test_a_command_that_fails_is_told_and_the_next_one_runs(
    served: tuple[subprocess.Popen[bytes], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    code, _, log = ran(monkeypatch, served[1], "fail")
    assert (code, log[-1]) == (1, "ValueError: fails")
    assert ran(monkeypatch, served[1], "exit", "0")[0] == 0


def test_a_command_whose_caller_is_killed_ends_with_its_process_and_later_commands_run_by_themselves(
    served: tuple[subprocess.Popen[bytes], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    process, program = served
    monkeypatch.setenv("AFTERLOG_COMMAND", program)
    hanging = Command(["hang"])
    assert hanging.run(lambda line: hanging.kill()).code == -signal.SIGTERM
    assert process.wait(60) == -signal.SIGKILL

    code, answer, _ = ran(monkeypatch, program, "--version")
    assert code == 0
    assert answer.startswith("afterlog ")


def test_a_command_whose_process_ends_says_so_and_fails(
    served: tuple[subprocess.Popen[bytes], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    process, program = served
    monkeypatch.setenv("AFTERLOG_COMMAND", program)
    ended = Command(["hang"]).run(lambda line: process.kill())
    assert (ended.code, ended.complaint) == (
        1,
        "afterlog: The process that ran this command ended; run the command again.",
    )


def test_the_process_ends_with_its_context_and_only_its_user_can_reach_it(tmp_path: Path) -> None:
    before = set(psutil.Process().children())
    with warm.process(tmp_path / "commands.log", {}) as program:
        address = Path(shlex.split(program)[-1])
        assert address.parent.stat().st_mode & 0o077 == 0
        (server,) = set(psutil.Process().children()) - before
    assert not server.is_running()
    assert not address.exists()


def test_the_process_ends_if_the_demo_is_killed(tmp_path: Path) -> None:
    program = """
import sys, time
from pathlib import Path
from local import warm

with warm.process(Path(sys.argv[1]), {}) as command:
    print(command, flush=True)
    time.sleep(600)
"""
    argv = [sys.executable, "-c", program, os.fspath(tmp_path / "commands.log")]
    with subprocess.Popen(argv, cwd=ROOT, stdout=subprocess.PIPE, env={**os.environ, "TMPDIR": str(tmp_path)}) as demo:
        assert demo.stdout is not None
        demo.stdout.readline()
        (server,) = psutil.Process(demo.pid).children()
        demo.kill()
    try:
        assert psutil.wait_procs([server], timeout=60)[0]
    finally:
        with contextlib.suppress(psutil.NoSuchProcess):
            server.kill()


def test_commands_run_by_themselves_after_java_ended(
    served: tuple[subprocess.Popen[bytes], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    process, program = served
    assert ran(monkeypatch, program, "lose")[0] == 1
    assert process.wait(60) == -signal.SIGKILL
    assert ran(monkeypatch, program, "--version")[0] == 0


def test_the_process_ends_by_itself_when_it_is_asked_to(
    served: tuple[subprocess.Popen[bytes], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    process, program = served
    warm.end(program)
    assert process.wait(60) == 0
    warm.end(program)
    assert ran(monkeypatch, program, "--version")[0] == 0


@pytest.mark.thorough  # test_install and the test before guard the steps to it
def test_java_writes_an_archive_of_the_classes_that_commands_used(tmp_path: Path) -> None:
    archive = tmp_path / "java" / "spark-0.jsa"
    with warm.process(tmp_path / "commands.log", {}, archive) as program:
        version = [*shlex.split(program), "--version"]
        assert subprocess.run(version, capture_output=True, check=True).stdout.startswith(b"afterlog ")
    assert list(archive.parent.iterdir()) == [archive]
    java_with_it = [java.java_home() / "bin" / "java", "-Xshare:on", f"-XX:SharedArchiveFile={archive}", "-version"]
    told = subprocess.run(java_with_it, env={**os.environ, "CLASSPATH": ""}, capture_output=True, text=True)
    assert "shared class paths mismatch" in told.stdout + told.stderr  # HotSpot reads it: it is one of Spark's jars
