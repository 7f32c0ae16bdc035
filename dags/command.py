"""Run the command line as a child process: stream its log, return its last line of output."""

from __future__ import annotations

import contextlib
import os
import shlex
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from pipelines.installation import COMMAND, PROJECT

GRACE_SECONDS = 3.0
"""How long the command may take to end by itself; Airflow kills a task five seconds after it asked it to end."""

TOLD_PLAINLY = {"COLUMNS": "1000", "NO_COLOR": "1", "PYTHONUNBUFFERED": "1", "TERM": "dumb"}
"""Variables of a command whose log a task shows."""


class Unreachable(Exception):
    """What runs the command cannot be reached, or did not say how it ended."""


@dataclass(frozen=True)
class Ended:
    """How a command ended: its exit code (negative: the signal), its last line of output, its last line of log."""

    code: int
    answer: str
    complaint: str


class Runs(Protocol):
    """One run of the command line, here or elsewhere."""

    argv: list[str]

    def run(self, log: Callable[[str], None], /) -> Ended:
        """Run the command to its end, passing on each line of its log as it comes."""

    def kill(self) -> None:
        """End the command."""


def program() -> list[str]:
    """Return the command that tasks start: ``AFTERLOG_COMMAND``, or ``afterlog`` beside this Python."""
    named = os.environ.get("AFTERLOG_COMMAND")
    return shlex.split(named) if named else [os.fspath(COMMAND)]


class Command:
    """One run of the command line in its own process group, which ends with ``run`` in every case."""

    def __init__(
        self,
        arguments: Sequence[str],
        cluster: Mapping[str, str] | None = None,
        variables: Mapping[str, str] | None = None,
    ) -> None:
        """Take the arguments after the program's name, a cluster's variables and other variables.

        A variable of ``cluster``, such as ``AFTERLOG_KAFKA``, replaces all ``AFTERLOG_KAFKA__*`` of this process.
        """
        self.argv = [*program(), *arguments]
        self._cluster = cluster
        self._variables = variables or {}
        self._process: subprocess.Popen[str] | None = None

    def run(self, log: Callable[[str], None]) -> Ended:
        """Run the command to its end, passing on each line of its log as it comes.

        Raises OSError: the command cannot be started.
        """
        complaint = ""
        with tempfile.TemporaryFile() as output:
            self._process = process = subprocess.Popen(
                self.argv,
                cwd=PROJECT,
                env={**self._environment(), **TOLD_PLAINLY},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.PIPE,
                text=True,
                encoding="utf-8",
                errors="replace",
                start_new_session=True,
            )
            try:
                assert process.stderr is not None
                for line in process.stderr:
                    if text := printable(line).rstrip():
                        complaint = text
                        log(text)
                code = process.wait()
            finally:
                self.kill()
            output.seek(0)
            return Ended(code, last_line(output.read()), complaint)

    def kill(self) -> None:
        """End the command and all processes of its group: TERM first, then KILL."""
        process = self._process
        if process is None:
            return
        if process.poll() is None:
            self._signal(signal.SIGTERM)
            until = time.monotonic() + GRACE_SECONDS
            while process.poll() is None and time.monotonic() < until:
                time.sleep(0.05)
        self._signal(signal.SIGKILL)
        # Airflow calls this from a signal handler. Without a timeout it would deadlock with the wait that it
        # interrupts.
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(timeout=1)

    def _environment(self) -> dict[str, str]:
        if self._cluster is None:
            return {**os.environ, **self._variables}
        replaced = tuple(f"{variable}__" for variable in self._cluster)
        others = {name: text for name, text in os.environ.items() if not name.startswith(replaced)}
        return {**others, **self._variables, **self._cluster}

    def _signal(self, number: signal.Signals) -> None:
        assert self._process is not None
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, number)


def printable(text: str) -> str:
    """Return the text without characters that could forge or hide lines of a log."""
    return "".join(character if character.isprintable() or character == "\t" else " " for character in text)


def last_line(output: bytes) -> str:
    """Return the last line of a command's output that is not blank."""
    lines = output.decode("utf-8", "replace").split("\n")
    return next((line.strip() for line in reversed(lines) if line.strip()), "")
