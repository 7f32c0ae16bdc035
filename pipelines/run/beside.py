"""Work beside a process that follows: in a thread of its own, so that it delays no cycle."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence

from pipelines.errors import readable
from pipelines.run.follow import Cycle
from pipelines.warehouse.quality import StageRun

LEAVE_SECONDS = 3.0  # that the end waits for work that has begun
IDLE_SECONDS = 30.0  # from call to call while nothing is read: time alone makes news, too


class Beside:
    """Is called after each cycle; works after cycles that did something, and now and then after others."""

    def __init__(self, work: Callable[[], Sequence[str]], say: Callable[[str], None]) -> None:
        """Take the work, which returns sentences on what went wrong, and what says a sentence; each is said once."""
        self.work = work
        self.say = say
        self.said: Sequence[str] = ()
        self.called = threading.Event()
        self.left = threading.Event()
        self.called_at = float("-inf")
        self.thread = threading.Thread(target=self._go_on, daemon=True)
        self.thread.start()

    def __call__(self, cycle: Cycle, done: Sequence[StageRun]) -> None:
        """Take note of a cycle that ended."""
        if cycle.result != "idle" or time.monotonic() - self.called_at >= IDLE_SECONDS:
            self.called_at = time.monotonic()
            self.called.set()

    def close(self) -> None:
        """Begin no more work, and wait a moment for work that has begun."""
        self.left.set()
        self.called.set()
        self.thread.join(LEAVE_SECONDS)

    def _go_on(self) -> None:
        while True:
            self.called.wait()
            self.called.clear()
            if self.left.is_set():
                return
            try:
                problems = self.work()
            except Exception as error:
                problems = (str(readable(error)),)
            for sentence in problems:
                if sentence not in self.said:
                    self.say(f"{sentence} It is tried again.")
            self.said = problems
