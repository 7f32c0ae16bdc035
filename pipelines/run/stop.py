"""SIGTERM, SIGINT -> a graceful stop in time, whatever the main thread waits for."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import threading
import time
from collections.abc import Callable
from types import FrameType, TracebackType
from typing import Any, Self

from pipelines.jvm import session, small
from pipelines.run import interrupt

SIGNALS = (signal.SIGTERM, signal.SIGINT)
CUT_OFF_SECONDS = 4.0
LEAVE_SECONDS = 8.0
_LOOK_SECONDS = 0.2


class Stop:
    """Whether this process was asked to end, by SIGTERM or SIGINT while the context lasts.

    Then jobs of Spark are cancelled, again and again, as the main thread may be about to start one. Where it still
    waits after `CUT_OFF_SECONDS`, for a broker that does not answer, say, the JVMs are killed. After `LEAVE_SECONDS`
    the process ends with the exit code that ``last_words`` returns. A rerun continues after any of these.
    """

    def __init__(self, last_words: Callable[[], int] = lambda: 0) -> None:
        """Take what is to be called before the process ends without having come to an end."""
        self.last_words = last_words
        self._asked = threading.Event()
        self._left = threading.Event()
        self._before: dict[int, Any] = {}

    def __enter__(self) -> Self:
        """Listen to the signals; only the main thread can."""
        self._told, self._tells = socket.socketpair()
        self._tells.setblocking(False)
        # Python code in a handler could find the main thread within a lock that it needs; this is written without any.
        self._woke = signal.set_wakeup_fd(self._tells.fileno(), warn_on_full_buffer=False)
        self._before = {number: signal.getsignal(number) for number in SIGNALS}
        self.listen()
        threading.Thread(target=self._watch, daemon=True).start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        """Listen no more."""
        self._left.set()
        for number, handler in self._before.items():
            signal.signal(number, handler)
        signal.set_wakeup_fd(self._woke)
        self._tells.close()

    def listen(self) -> None:
        """Take the signals (again): a session that starts takes SIGINT for itself."""
        for number in SIGNALS:
            signal.signal(number, _nothing)

    def asked(self) -> bool:
        """Tell whether the process was asked to end."""
        return self._asked.is_set()

    def is_why(self) -> bool:
        """Tell whether an error may come of being asked to end: a handler may raise it before `asked` knows."""
        return self._asked.wait(_LOOK_SECONDS)

    def wait(self, seconds: float) -> None:
        """Wait so long, or until the process is asked to end."""
        self._asked.wait(seconds)

    def _watch(self) -> None:
        with self._told:  # until the end: a second signal is written to it, too
            while number := self._told.recv(1):
                if number[0] in SIGNALS:
                    break
            else:
                return
            self._asked.set()
            threading.Thread(target=self._cancel, daemon=True).start()  # of its own: it may wait for the JVM, too
            began = time.monotonic()
            while not self._left.wait(_LOOK_SECONDS):
                spent = time.monotonic() - began
                if spent > LEAVE_SECONDS:
                    code = self.last_words()
                    with contextlib.suppress(OSError):
                        interrupt.wipe()
                    os._exit(code)
                if spent > CUT_OFF_SECONDS:
                    session.cut_off()
                    small.cut_off()

    def _cancel(self) -> None:
        while not self._left.wait(_LOOK_SECONDS):
            with contextlib.suppress(Exception):  # there is no session yet, or none any more
                session.cancel_jobs()


def _nothing(_number: int, _frame: FrameType | None) -> None:
    pass
