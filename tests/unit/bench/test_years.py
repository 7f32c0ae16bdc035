"""Days of small runs: how figures grew, and the clock that moves while they go on."""

from __future__ import annotations

import subprocess
import sys
import time
from datetime import timedelta
from pathlib import Path

import pytest

from bench.years import Day, trends
from tests.testing import other_clock


def day(number: int) -> Day:
    sizes = {"log": (5 + number) * 2**20, "data": 2**20}
    return Day(number, 2.0, 0.1, 1.0, 100 * number, {"log": 7}, sizes, {}, 2**20, 2**21, 2**20)


def test_trends_tell_the_ends_and_what_a_thousand_runs_add() -> None:
    found = {trend.name: trend for trend in trends([day(number) for number in range(20, 30)], 4)}
    grown = found["MiB of log"]
    assert (grown.then, grown.now, grown.per_1000) == (26.5, 32.5, pytest.approx(1_000))
    assert (found["seconds of run"].then, found["seconds of run"].per_1000) == (2.0, pytest.approx(0))
    assert grown.line() == "MiB of log: 26.5, at the end 32.5; +1e+03 in 1,000 runs"
    assert found["MiB of java"].now == 2.0


def test_the_clock_moves_while_a_process_goes_on(tmp_path: Path) -> None:
    clock = other_clock.Moving(tmp_path / "clock")
    clock.move(timedelta(days=1))
    script = "import sys, time\nfor line in sys.stdin: print(time.time(), flush=True)"
    with subprocess.Popen(
        [sys.executable, "-c", script],
        env=clock.environment(other_clock.library(tmp_path)),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdin
        assert process.stdout

        def days() -> float:
            process.stdin.write("now\n")
            process.stdin.flush()
            return (float(process.stdout.readline()) - time.time()) / 86_400

        assert days() == pytest.approx(1, abs=0.01)
        clock.move(timedelta(days=2))
        assert days() == pytest.approx(3, abs=0.01)
        process.stdin.close()
    assert other_clock.Moving(tmp_path / "clock").shift == timedelta(days=3)  # the next piece goes on
