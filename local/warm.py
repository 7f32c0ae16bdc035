"""Commands of the demo's tasks -> one process that runs them one after the other, so that Java starts once.

``serve`` is that process. ``AFTERLOG_COMMAND`` names this module as the program of the tasks: it passes its arguments,
its environment, its directory, its standard output and its standard error to the process, and ends with the exit code
of the command. If the process is not there, the command runs by itself. If the caller ends first, the process ends too,
with its JVM, as a command that is killed does; commands that come later run by themselves. It also ends if the
process that started it or its JVM does.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import shlex
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from pipelines import scratch
from pipelines.installation import COMMAND, ROOT

NAME = "warm.sock"
_LENGTH = 8  # bytes of a request's length, and of the exit code
_BEGUN = b"\1"  # said before a command runs
_MOST_BYTES = 16 << 20  # of a request
_MOST_SECONDS = 60  # to write an archive


@contextlib.contextmanager
def process(log: Path, variables: Mapping[str, str], archive: Path | None = None) -> Iterator[str]:
    """Start the process and yield the text of ``AFTERLOG_COMMAND`` that uses it; it ends with the context.

    ``log`` takes a line for each command, and what the JVM prints; ``variables`` are added to its environment while no
    command runs. If the context ends without an error, the JVM first writes its classes into an ``archive``, which
    takes it seconds.
    """
    from local.airflow_home import stop

    # A path of a Unix socket has 107 bytes at most. Only this user can enter the directory.
    with tempfile.TemporaryDirectory(prefix="afterlog-") as directory, log.open("wb") as out:
        address = os.path.join(directory, NAME)
        with socket.socket(socket.AF_UNIX) as listening:
            listening.bind(address)
            listening.listen()
            started = subprocess.Popen(
                [sys.executable, "-m", "local.warm", "serve", str(listening.fileno()), *([archive] if archive else [])],
                cwd=ROOT,
                env={**os.environ, **variables},
                stdin=subprocess.PIPE,  # it closes with this process, however that ends
                stdout=out,
                stderr=out,
                pass_fds=[listening.fileno()],
                start_new_session=True,
            )
        try:
            program = shlex.join([sys.executable, "-m", "local.warm", "run", address])
            yield program
            if archive:
                end(program)
                with contextlib.suppress(subprocess.TimeoutExpired):
                    started.wait(_MOST_SECONDS)
        finally:
            stop([started], seconds=1.0)
            assert started.stdin is not None
            started.stdin.close()


def end(program: str) -> None:
    """Ask the process that ``program`` names to end after the commands that it was given. It may be asked twice."""
    with contextlib.suppress(OSError, EOFError):
        _asked(shlex.split(program)[-1], {"end": True}).close()


def run(address: str, arguments: list[str]) -> int:
    """Let the process run a command; return its exit code. Without the process, become the command."""
    try:
        asked = _asked(address, {"arguments": arguments, "environment": dict(os.environ), "directory": os.getcwd()})
    except (OSError, EOFError):
        os.execv(COMMAND, [os.fspath(COMMAND), *arguments])
    with asked:
        try:
            return int.from_bytes(_received(asked, _LENGTH), "big")
        except (OSError, EOFError):
            print("afterlog: The process that ran this command ended; run the command again.", file=sys.stderr)
            return 1


def _asked(address: str, request: Mapping[str, Any]) -> socket.socket:
    """Send a request to the process; return the connection when the process has begun with it."""
    asked = socket.socket(socket.AF_UNIX)
    try:
        text = json.dumps(request).encode()  # characters of names that are no UTF-8 are escaped
        asked.connect(address)
        socket.send_fds(asked, [len(text).to_bytes(_LENGTH, "big")], [1, 2])
        asked.sendall(text)
        _received(asked, len(_BEGUN))
    except BaseException:
        asked.close()
        raise
    return asked


def serve(listening: socket.socket, command: Callable[[], object], prepare: Callable[[], object]) -> None:
    """Run the command of each connection, one after the other, after what ``prepare`` does, until one asks to end."""
    with contextlib.suppress(Exception):  # a command meets the same error, and says it
        prepare()
    ends = False
    while not ends:
        with listening.accept()[0] as asked, contextlib.suppress(OSError, ValueError, EOFError):
            _end_with_java()
            ends = _served(asked, command)
        _end_with_java()


def _served(asked: socket.socket, command: Callable[[], object]) -> bool:
    """Do what a connection asks for; tell whether that is to end."""
    flags = socket.MSG_WAITALL | getattr(socket, "MSG_CMSG_CLOEXEC", 0)  # only Linux has the second one
    head, descriptors, _, _ = socket.recv_fds(asked, _LENGTH, 2, flags)
    files = [os.fdopen(descriptor, "w", 1, encoding="utf-8", errors="backslashreplace") for descriptor in descriptors]
    try:
        length = int.from_bytes(head, "big")
        if len(head) < _LENGTH or len(files) != 2 or length > _MOST_BYTES:
            return False
        request = json.loads(_received(asked, length))
        if select.select([asked], [], [], 0)[0]:
            return False  # the caller ended while other commands ran
        asked.sendall(_BEGUN)
        if request.get("end"):
            return True
        done = threading.Event()
        threading.Thread(target=_end_with, args=(asked, done), daemon=True).start()
        began = time.monotonic()
        code = _code(request, command, *files)
        done.set()
        arguments = json.dumps(request["arguments"])
        print(f"{arguments}: exit code {code}, {time.monotonic() - began:.1f} s", flush=True)
    finally:
        for file in files:
            with contextlib.suppress(OSError):  # nobody reads it any more
                file.close()
    asked.sendall(code.to_bytes(_LENGTH, "big"))
    asked.shutdown(socket.SHUT_RDWR)
    return False


def _code(request: dict[str, Any], command: Callable[[], object], out: Any, err: Any) -> int:
    """Run a command as if it were alone in the process; return its exit code."""
    kept = (dict(os.environ), os.getcwd(), sys.argv, sys.stdout, sys.stderr)
    _enter(request["environment"])
    sys.argv = [os.fspath(COMMAND), *request["arguments"]]
    sys.stdout, sys.stderr = out, err
    try:
        os.chdir(request["directory"])
        command()
        return 0
    except SystemExit as end:
        if end.code is None or isinstance(end.code, int):
            return (end.code or 0) % 256
        print(end.code, file=err)
        return 1
    except BaseException:
        traceback.print_exc()
        return 1
    finally:
        environment, directory, sys.argv, sys.stdout, sys.stderr = kept
        _enter(environment)
        os.chdir(directory)


def _enter(environment: Mapping[str, str]) -> None:
    os.environ.clear()
    os.environ.update(environment)
    time.tzset()


def _end_with(asked: socket.socket, done: threading.Event) -> None:
    """End this process and its JVM if the caller ends while its command runs."""
    with contextlib.suppress(OSError):
        if asked.recv(1):
            return  # a caller says nothing more
    if not done.is_set():
        _end()


def _end_with_java() -> None:
    """End this process if its Java ended: PySpark would ask the dead JVM for ever. Later commands run by themselves."""
    session = sys.modules.get("pipelines.jvm.session")
    if session is not None and session.jvm_ended():
        _end()


def _end_with_starter() -> None:
    """End this process and its JVM if the process that started it ends; commands read nothing from it."""
    starter = os.dup(0)
    with open(os.devnull, "rb") as nothing:
        os.dup2(nothing.fileno(), 0)

    def watch() -> None:
        os.read(starter, 1)  # nothing is written: this returns when the other end closes
        _end()

    threading.Thread(target=watch, daemon=True).start()


def _end() -> None:
    with contextlib.suppress(Exception):
        sys.modules["pipelines.jvm.session"].cut_off()
    scratch.clear()
    os.killpg(0, signal.SIGKILL)


def _received(asked: socket.socket, length: int) -> bytes:
    """Return bytes of a length; raises EOFError if the connection ends before."""
    parts = bytearray()
    while len(parts) < length:
        if not (part := asked.recv(length - len(parts))):
            raise EOFError
        parts += part
    return bytes(parts)


def _warm_up(archive: Path | None) -> None:
    """Start Java, and import what every run of a stage needs."""
    from pipelines.commands import spark_archive
    from pipelines.jvm.session import spark_session
    from pipelines.settings import load

    options = {"spark.driver.extraJavaOptions": spark_archive.options(archive)} if archive else {}
    with spark_session(load(spark=options), short_lived=True):
        import expectations.suite
        import pipelines.cli  # noqa: F401

        assert expectations.suite


def main(arguments: list[str]) -> int:
    """Run ``serve DESCRIPTOR [ARCHIVE]`` or ``run ADDRESS ARGUMENT...``."""
    what, address, *more = arguments
    if what == "run":
        return run(address, more)
    signal.signal(signal.SIGTERM, lambda *_: _end())
    _end_with_starter()
    from pipelines.cli import main as command

    archive = Path(more[0]) if more else None
    serve(socket.socket(fileno=int(address)), command, partial(_warm_up, archive))
    if archive:
        from pipelines.commands import spark_archive

        spark_archive.write(archive)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
