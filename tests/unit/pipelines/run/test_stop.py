"""Signals to a real process: it ends in time, whatever its main thread waits for."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time

import pytest

from pipelines.run import stop as stops
from pipelines.settings import ROOT

# What the main thread does until the stop. Python's own sleep continues after a signal whose handler returns.
WAITS = {
    "for the stop": "stop.wait(60)",
    "by small steps": "while not stop.asked(): time.sleep(0.05)",
    "for a JVM that is cut off": "other.wait()",
    "for DuckDB": """
    with sessions.session("/nowhere") as connection, contextlib.suppress(duckdb.InterruptException):
        connection.execute("SELECT count(*) FROM range(1000000000000) AS made(i) WHERE hash(i) = 3")
""",
    "for ever": "time.sleep(60)",
}
BEFORE = {
    "for DuckDB": "import contextlib, duckdb; from pipelines.engines.duckdb import sessions; "
    "sessions._shared('/nowhere')"
}
SCRIPT = """
import subprocess, sys, time
{before}
from pipelines.jvm import session
from pipelines.run import stop as stops
stops.CUT_OFF_SECONDS, stops.LEAVE_SECONDS = 0.5, 1.5
other = subprocess.Popen(["sleep", "60"])
session.cut_off = other.kill
cancelled = []
session.cancel_jobs = lambda: cancelled.append(time.monotonic())
def last_words():
    print("left", flush=True)
    return 7
with stops.Stop(last_words) as stop:
    print("ready", flush=True)
    {wait}
    assert stop.asked()
    time.sleep(0.3)
other.kill()
print("ended", len(cancelled) > 0, flush=True)
"""


WAITS_AND_ENDS = [
    ("for the stop", 0, ["ended True"]),
    ("by small steps", 0, ["ended True"]),
    ("for a JVM that is cut off", 0, ["ended True"]),
    ("for DuckDB", 0, ["ended True"]),
    ("for ever", 7, ["left"]),
]


@pytest.mark.parametrize(
    ("wait", "code", "said", "number"),
    [
        *((*item, signal.SIGTERM) for item in WAITS_AND_ENDS),
        (*WAITS_AND_ENDS[0], signal.SIGINT),
        *(pytest.param(*item, signal.SIGINT, marks=pytest.mark.thorough) for item in WAITS_AND_ENDS[1:]),
    ],
)
def test_a_signal_ends_it(number: signal.Signals, wait: str, code: int, said: list[str]) -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", SCRIPT.format(before=BEFORE.get(wait, ""), wait=WAITS[wait])],
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    began = time.monotonic()
    process.send_signal(number)
    process.send_signal(number)  # a second signal changes nothing
    lines, _ = process.communicate(timeout=30)
    assert lines.splitlines() == said
    assert process.returncode == code
    assert time.monotonic() - began < 10


def test_what_a_handler_raises_at_once_is_known_to_come_of_the_signal() -> None:
    def amid_a_call(_number: int, _frame: object) -> None:
        raise RuntimeError

    with stops.Stop() as stop:
        signal.signal(signal.SIGINT, amid_a_call)  # as PySpark does
        with pytest.raises(RuntimeError):
            signal.raise_signal(signal.SIGINT)
        assert stop.is_why()
    with stops.Stop() as stop:
        assert not stop.is_why()


def test_afterwards_signals_mean_what_they_meant_before() -> None:
    before = [signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)]
    with stops.Stop() as stop:
        assert not stop.asked()
        assert signal.getsignal(signal.SIGTERM) is not before[0]
    assert [signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)] == before
    assert signal.set_wakeup_fd(-1) == -1
