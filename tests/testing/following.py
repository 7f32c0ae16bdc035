"""A process that runs ``afterlog run --follow``, and its health file."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from pipelines.run.follow import health_file
from pipelines.settings import ROOT, Settings
from pipelines.warehouse import jvmless
from pipelines.warehouse.tables import Warehouse

START_SECONDS = 180.0
STOP_SECONDS = 10.0


class Following:
    """A process that follows a feed, with one second between cycles."""

    def __init__(self, settings: Settings, log: Path, *arguments: str, feed: str = "dlq", **environment: str) -> None:
        self.settings = settings
        self.log = log
        Path(settings.landing).mkdir(exist_ok=True)
        places = ["--warehouse", settings.warehouse, "--landing", settings.landing]
        self.process = subprocess.Popen(
            [
                *(sys.executable, "-c", "from pipelines.cli import main; main()"),
                *("run", "--follow", "--every", "1", "--feed", feed, "--format", "json", *places, *arguments),
            ],
            env=os.environ | {"PYTHONPATH": str(ROOT)} | environment,
            stdout=subprocess.PIPE,
            stderr=log.open("wb"),
            text=True,
        )

    def health(self) -> dict[str, Any]:
        try:
            found: dict[str, Any] = json.loads(health_file(Warehouse(self.settings)).read_text())
        except FileNotFoundError:
            return {}
        return found if found["pid"] == self.process.pid else {}

    def until(self, holds: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
        """Wait until a condition holds for the health file."""
        end = time.monotonic() + START_SECONDS
        while not holds(health := self.health()):
            assert self.process.poll() is None, self.log.read_text()
            assert time.monotonic() < end, (health, self.log.read_text())
            time.sleep(0.05)
        return health

    def until_rows(self, table: str, count: int) -> None:
        """Wait until a table has this many rows, then for a cycle that finds nothing new."""
        self.until(lambda _: len(found(self.settings, table)) == count)
        self.until_idle()

    def until_idle(self) -> None:
        """Wait for a cycle that begins now or later and finds nothing new."""
        since = datetime.now(UTC).isoformat(timespec="milliseconds")

        def is_idle(health: dict[str, Any]) -> bool:
            last = health.get("last_cycle")
            return bool(last and last["began_at"] >= since and last["result"] == "idle")

        self.until(is_idle)

    def stop(self, number: signal.Signals = signal.SIGTERM) -> tuple[int, list[dict[str, Any]]]:
        """Stop the process with a signal; return its exit code and the JSON lines that it printed."""
        began = time.monotonic()
        self.process.send_signal(number)
        output, _ = self.process.communicate(timeout=30)
        assert time.monotonic() - began < STOP_SECONDS, self.log.read_text()
        return self.process.returncode, [json.loads(line) for line in output.splitlines()]


def found(settings: Settings, table: str) -> list[dict[str, Any]]:
    return jvmless.rows(Warehouse(settings), table, {"cluster": settings.cluster})
