"""Ctrl-C at any moment of a real command: one sentence, exit code 130, and the next run continues."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from pipelines.run import interrupt
from pipelines.settings import ROOT, Settings
from pipelines.warehouse import jvmless
from pipelines.warehouse.tables import Warehouse
from tests.testing.builders import land, line

COMMANDS = {
    "run": ["run", "--feed", "dlq"],
    "sql": ["sql", "SELECT java_method('java.lang.Thread', 'sleep', id * 60000L) FROM range(1, 3)"],  # computes nothing
    "report": ["report"],
    "trace": ["trace", "orders:0:1"],
}


def started(settings: Settings, command: list[str]) -> subprocess.Popen[str]:
    """Start a command in a process group of its own, as a terminal does."""
    places = ["--warehouse", settings.warehouse, "--landing", settings.landing]
    return subprocess.Popen(
        [sys.executable, "-m", "pipelines.start", *command, *places],
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def interrupted(process: subprocess.Popen[str], after: float) -> tuple[int, list[str], float]:
    """Send SIGINT to the group after some seconds; return exit code, standard error and the seconds to the end."""
    time.sleep(after)
    began = time.monotonic()
    os.killpg(process.pid, signal.SIGINT)
    _, told = process.communicate(timeout=60)
    return process.returncode, told.splitlines(), time.monotonic() - began


@pytest.mark.thorough
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_a_run_is_interrupted_at_random_moments_and_loses_nothing(settings: Settings, seed: int) -> None:
    moments = random.Random(seed)
    land(settings, {"a.jsonl": [line(offset) for offset in range(50)]})
    codes = []
    for after in sorted(moments.uniform(0.3, 14) for _ in range(3)):
        code, told, seconds = interrupted(started(settings, COMMANDS["run"]), after)
        codes.append(code)
        if code == interrupt.EXIT_CODE:
            assert told[-1] == interrupt.SENTENCE
            assert not [said for said in told if "Traceback" in said or "Error" in said or "ERROR" in said]
            assert seconds < 5
        else:  # the command ended before the signal
            assert code == 0

    assert interrupt.EXIT_CODE in codes
    done = started(settings, COMMANDS["run"])
    done.communicate(timeout=120)
    assert done.returncode == 0
    assert len(jvmless.rows(Warehouse(settings), "silver.dlq_records", {"cluster": settings.cluster})) == 50


@pytest.mark.parametrize("name", ["sql", "report", "trace"])
def test_all_commands_end_alike(settings: Settings, name: str) -> None:
    Path(settings.warehouse).mkdir()
    Path(settings.landing).mkdir()
    command = COMMANDS[name]
    process = started(settings, command)
    code, told, _ = interrupted(process, {"sql": 9.0, "report": 0.6, "trace": 0.25}[name])

    if code != 0 and not (name == "trace" and code in (1, 2)):  # otherwise the command ended before the signal
        assert (code, told[-1:]) == (interrupt.EXIT_CODE, [interrupt.SENTENCE])
    assert not any("Traceback" in said for said in told)
    assert Warehouse(settings).last_version("silver.dlq_records") is None
