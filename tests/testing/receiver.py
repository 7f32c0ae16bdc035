"""A server on this machine that takes requests and answers, refuses, hangs, drips or closes, as a test tells it."""

from __future__ import annotations

import json
import signal
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

Read = Callable[[str, bytes], Any]
"""Path and body of a request -> what a test looks at."""


class Receiver(ThreadingHTTPServer):
    """Answers as it is told, one behaviour for each request; the last one stays."""

    daemon_threads = True

    def __init__(self, read: Read) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.read = read
        self.behaviours = ["200"]
        self.got: list[tuple[dict[str, str], Any]] = []
        self.victim: subprocess.Popen[str] | None = None
        self.ends = threading.Event()

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}/hook/secret-path"


class Handler(BaseHTTPRequestHandler):
    server: Receiver

    def do_POST(self) -> None:
        body = self.server.read(self.path, self.rfile.read(int(self.headers["Content-Length"])))
        self.server.got.append((dict(self.headers), body))
        behaviour = self.server.behaviours.pop(0) if len(self.server.behaviours) > 1 else self.server.behaviours[0]
        if behaviour == "hang":
            self.server.ends.wait(30)
        elif behaviour == "close":
            self.connection.close()
        elif behaviour == "kill":
            assert self.server.victim is not None
            self.server.victim.send_signal(signal.SIGKILL)
            self.server.victim.wait(10)
        elif behaviour == "drip":
            for byte in b"HTTP/1.1 200 OK\r\n" + b"X: y\r\n" * 100:
                if self.server.ends.wait(0.2):
                    return
                self.wfile.write(bytes([byte]))
        else:
            code, _, header = behaviour.partition(" ")
            self.send_response(int(code))
            if header:
                name, _, value = header.partition(": ")
                self.send_header(name, value)
            self.send_header("Content-Length", "0")
            self.end_headers()

    do_PUT = do_POST

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing."""


@contextmanager
def receiving(read: Read = lambda _, body: json.loads(body)) -> Iterator[Receiver]:
    """Yield a receiver that answers while the context lasts."""
    server = Receiver(read)
    threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
    try:
        yield server
    finally:
        server.ends.set()
        server.shutdown()
        server.server_close()
