"""SIGTERM, SIGINT -> a graceful stop in time, whatever the main thread waits for."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable
from types import FrameType, TracebackType
from typing import Any, Self

from pipelines import scratch
from pipelines.jvm import session, small
from pipelines.run import interrupt

SIGNALS = (signal.SIGTERM, signal.SIGINT)
CUT_OFF_SECONDS = 4.0
LEAVE_SECONDS = 8.0
_LOOK_SECONDS = 0.2


class Stop:
    """Tells whether SIGTERM or SIGINT asked this process to end while the context lasts.

    After the signal, Spark's jobs and DuckDB's queries are cancelled again and again, as the main thread may be about
    to start another one. If the main thread still waits after `CUT_OFF_SECONDS`, for example for a broker that does
    not answer, the JVMs are killed. After `LEAVE_SECONDS` the process ends with the exit code that ``last_words``
    returns. A rerun continues after any of these.
    """

    def __init__(self, last_words: Callable[[], int] = lambda: 0) -> None:
        """Take the function to call before the process is ended after `LEAVE_SECONDS`; it returns the exit code."""
        self.last_words = last_words
        self._asked = threading.Event()
        self._left = threading.Event()
        self._before: dict[int, Any] = {}

    def __enter__(self) -> Self:
        """Listen to the signals; only the main thread can call this."""
        self._told, self._tells = socket.socketpair()
        self._tells.setblocking(False)
        # Python code in a handler could need a lock that the main thread holds; the wakeup fd is written without locks.
        self._woke = signal.set_wakeup_fd(self._tells.fileno(), warn_on_full_buffer=False)
        self._before = {number: signal.getsignal(number) for number in SIGNALS}
        self.listen()
        threading.Thread(target=self._watch, daemon=True).start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        """Stop listening to the signals."""
        self._left.set()
        for number, handler in self._before.items():
            signal.signal(number, handler)
        signal.set_wakeup_fd(self._woke)
        self._tells.close()

    def listen(self) -> None:
        """Install the signal handlers, again after a session has started: it installs its own handler for SIGINT."""
        for number in SIGNALS:
            signal.signal(number, _nothing)

    def asked(self) -> bool:
        """Tell whether the process was asked to end."""
        return self._asked.is_set()

    def is_why(self) -> bool:
        """Tell whether an error may follow from the stop; wait a moment, as the error can come before `asked` knows."""
        return self._asked.wait(_LOOK_SECONDS)

    def wait(self, seconds: float) -> None:
        """Wait so many seconds, or until the process is asked to end."""
        self._asked.wait(seconds)

    def _watch(self) -> None:
        with self._told:  # open until the end, as a second signal is written to it, too
            while number := self._told.recv(1):
                if number[0] in SIGNALS:
                    break
            else:
                return
            self._asked.set()
            threading.Thread(target=self._cancel, daemon=True).start()  # in its own thread: it may wait for the JVM
            began = time.monotonic()
            while not self._left.wait(_LOOK_SECONDS):
                spent = time.monotonic() - began
                if spent > LEAVE_SECONDS:
                    code = self.last_words()
                    with contextlib.suppress(OSError):
                        interrupt.wipe()
                    scratch.clear()
                    os._exit(code)
                if spent > CUT_OFF_SECONDS:
                    session.cut_off()
                    small.cut_off()

    def _cancel(self) -> None:
        while not self._left.wait(_LOOK_SECONDS):
            with contextlib.suppress(Exception):  # no session exists yet, or it has ended
                session.cancel_jobs()
            with contextlib.suppress(Exception):  # no session of DuckDB was opened yet, or it is being closed
                sys.modules["pipelines.engines.duckdb.sessions"].cancel()


def _nothing(_number: int, _frame: FrameType | None) -> None:
    pass
