"""Sends alerts in a thread of its own while another thread follows, so that a slow receiver delays no cycle."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence

from pipelines.alerts import sender
from pipelines.errors import readable
from pipelines.run.follow import Cycle
from pipelines.settings import Settings
from pipelines.warehouse.quality import StageRun

IDLE_SECONDS = 30.0  # from look to look while nothing is read: time alone makes news, too


class Courier:
    """Is called after each cycle; sends after cycles that did something, and now and then after others."""

    def __init__(self, settings: Settings, say: Callable[[str], None]) -> None:
        """Take the settings, and what says a sentence."""
        self.settings = settings
        self.say = say
        self.said: tuple[str, ...] = ()
        self.called = threading.Event()
        self.looked_at = float("-inf")
        threading.Thread(target=self._work, daemon=True).start()

    def __call__(self, cycle: Cycle, done: Sequence[StageRun]) -> None:
        """Take note of a cycle that ended."""
        if cycle.result != "idle" or time.monotonic() - self.looked_at >= IDLE_SECONDS:
            self.looked_at = time.monotonic()
            self.called.set()

    def _work(self) -> None:
        while True:
            self.called.wait()
            self.called.clear()
            try:
                problems = sender.send(self.settings).problems
            except Exception as error:
                problems = (str(readable(error)),)
            for sentence in problems:
                if sentence not in self.said:
                    self.say(f"{sentence} It is tried again.")
            self.said = problems
