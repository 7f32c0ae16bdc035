"""Ctrl-C -> the process ends at once, with one sentence and exit code 130, whatever its main thread waits for.

A run can be killed anywhere and loses nothing, so the stack need not be unwound; unwinding through Py4J, Spark and
imports caused tracebacks. This module needs only the standard library, so that it works while packages load.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import sys
import threading
from collections.abc import Iterator

from pipelines import scratch

EXIT_CODE = 130
SENTENCE = "afterlog: stopped; nothing is lost, run the command again."

_hearing = threading.Event()
_unwinding = threading.Event()
_leaving = threading.Event()


@contextlib.contextmanager
def heard() -> Iterator[None]:
    """Listen to SIGINT from now on until the process ends; only the main thread can call this.

    If the main thread fails because the process is ending, it waits at the end of the context, so that it does not
    change the exit code.
    """
    reader, writer = socket.socketpair()
    writer.setblocking(False)
    # A socket passes the signal to a thread: a Python handler could run while the main thread holds a lock.
    signal.set_wakeup_fd(writer.detach(), warn_on_full_buffer=False)
    signal.signal(signal.SIGINT, _nothing)
    _hearing.set()
    threading.Thread(target=_watch, args=(reader,), daemon=True).start()
    try:
        yield
    finally:
        if _leaving.is_set():
            threading.Event().wait()


def unwind() -> None:
    """Let SIGINT raise KeyboardInterrupt from now on: the command has work to undo, such as a broker that it starts."""
    if _hearing.is_set():
        _unwinding.set()
        signal.signal(signal.SIGINT, signal.default_int_handler)


def wipe(descriptor: int = 2) -> None:
    """Clear the terminal's progress line, for a process that ends without unwinding."""
    if (os.environ.get("TERM") or "dumb") != "dumb" and os.isatty(descriptor):
        os.write(descriptor, b"\r\x1b[2K")


def _watch(reader: socket.socket) -> None:
    with reader:
        while number := reader.recv(1):
            if number[0] == signal.SIGINT and not _unwinding.is_set():
                _leave()


def _leave() -> None:
    """Print the sentence, redirect all later output to the null device, end the JVMs and the process."""
    _leaving.set()
    with contextlib.suppress(OSError):
        terminal = os.dup(2)
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, 1)
        os.dup2(nowhere, 2)
        wipe(terminal)
        os.write(terminal, f"{SENTENCE}\n".encode())
    for name in ("pipelines.jvm.session", "pipelines.jvm.small"):
        with contextlib.suppress(Exception):  # the module is not imported, or only half imported
            sys.modules[name].cut_off()
    scratch.clear()
    os._exit(EXIT_CODE)


def _nothing(_number: int, _frame: object) -> None:
    pass
