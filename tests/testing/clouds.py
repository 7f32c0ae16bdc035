"""Servers of Google's and Azure's object stores on this machine: fake-gcs-server and Azurite, if they are installed."""

from __future__ import annotations

import base64
import contextlib
import hashlib
import hmac
import http.client
import json
import os
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from email.utils import formatdate
from html import unescape
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import parse_qs, quote, unquote, urlsplit

import pytest

from pipelines.settings import ROOT

ACCOUNT = "devstoreaccount1"  # Azurite's own, which anybody may know
KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
START_SECONDS = 60
_AN_OBJECT = re.compile(rb"<Contents><Key>(.*?)</Key>.*?</Contents>", re.DOTALL)
_OF_ONE_HOP = ("connection", "content-length", "date", "host", "transfer-encoding")


@contextlib.contextmanager
def google(bucket: str) -> Iterator[dict[str, str]]:
    """Yield the variables that name a server with an empty bucket; ``JSON_API`` is the address for Spark.

    fake-gcs-server knows conditional puts by Google's JSON API only, and obstore and deltalake put by the XML API. So
    they ask a server in front of it, which translates puts, and shortens lists that are to begin after a name. Buckets
    are never absent: a put makes them.
    """
    program = program_of("fake-gcs-server", "AFTERLOG_FAKE_GCS", "go install github.com/fsouza/fake-gcs-server@latest")
    port = free_port()
    at = ("-scheme", "http", "-host", "127.0.0.1", "-port", str(port), "-public-host", f"127.0.0.1:{port}")
    with running([program, "-backend", "memory", *at], port), tempfile.TemporaryDirectory() as scratch:
        made = json.dumps({"name": bucket}).encode()
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/storage/v1/b", made, timeout=60):
            pass
        # A process of its own, as deltalake can hold Python's lock while it waits for an answer.
        front = free_port()
        with running([sys.executable, "-m", __name__, str(front), str(port)], front, ROOT):
            key = Path(scratch) / "key.json"
            facts = {"gcs_base_url": f"http://127.0.0.1:{front}", "disable_oauth": True}
            key.write_text(json.dumps({**facts, "client_email": "", "private_key": "", "private_key_id": ""}))
            yield {
                "GOOGLE_SERVICE_ACCOUNT": str(key),
                "GOOGLE_ALLOW_HTTP": "true",
                "JSON_API": f"http://127.0.0.1:{port}/",
            }


@contextlib.contextmanager
def azure(container: str) -> Iterator[dict[str, str]]:
    """Yield the variables that name a server with an empty container."""
    program = program_of("azurite-blob", "AFTERLOG_AZURITE", "npm install --global azurite")
    port = free_port()
    quiet = ("--inMemoryPersistence", "--disableTelemetry", "--silent")
    with running([program, "--blobPort", str(port), *quiet], port):
        endpoint = f"http://127.0.0.1:{port}/{ACCOUNT}"
        urllib.request.urlopen(_signed(f"{endpoint}/{container}", container), timeout=60).close()
        yield {
            "AZURE_STORAGE_ENDPOINT": endpoint,
            "AZURE_ALLOW_HTTP": "true",
            "AZURE_STORAGE_ACCOUNT_NAME": ACCOUNT,
            "AZURE_STORAGE_ACCOUNT_KEY": KEY,
        }


class _Front(BaseHTTPRequestHandler):
    """Passes each request on: a put as one of the JSON API with the same condition, and a list without its begin."""

    protocol_version = "HTTP/1.1"
    behind: int

    def answer(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        headers = {name: value for name, value in self.headers.items() if name.lower() not in _OF_ONE_HOP}
        method, path = self.command, self.path
        if method == "PUT":
            bucket, _, name = urlsplit(path).path[1:].partition("/")
            method = "POST"
            path = f"/upload/storage/v1/b/{bucket}/o?uploadType=media&name={quote(unquote(name), safe='')}"
            if generation := headers.pop("x-goog-if-generation-match", None):
                path += f"&ifGenerationMatch={generation}"
        with contextlib.closing(http.client.HTTPConnection("127.0.0.1", self.behind, timeout=60)) as server:
            server.request(method, path, body, headers)
            answered = server.getresponse()
            content, told = answered.read(), dict(answered.getheaders())
        if self.command == "PUT" and answered.status == 200:
            made = json.loads(content)
            content, told = b"", {"ETag": json.dumps(made["etag"].strip('"')), "x-goog-generation": made["generation"]}
        if begin := parse_qs(urlsplit(self.path).query).get("start-after"):
            content = _AN_OBJECT.sub(lambda found: found[0] if unescape(found[1].decode()) > begin[0] else b"", content)
        length = told.get("Content-Length", "0") if self.command == "HEAD" else str(len(content))
        self.send_response(answered.status)
        for name, value in told.items():
            if name.lower() not in _OF_ONE_HOP:
                self.send_header(name, value)
        self.send_header("Content-Length", length)
        self.end_headers()
        self.wfile.write(content)

    do_GET = do_HEAD = do_PUT = do_DELETE = answer

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing."""


def program_of(name: str, variable: str, install: str) -> str:
    """Return a server's program, which a variable names or the PATH has; skip the test if it is absent."""
    program = os.environ.get(variable) or shutil.which(name)
    if program is None:
        pytest.skip(f"{name} is not on the PATH, and {variable} does not name it: `{install}` installs it")
    return program


@contextlib.contextmanager
def running(command: list[str], port: int, directory: Path | None = None) -> Iterator[None]:
    """Run a server, in a directory of its own if no other is named, from its first answer on."""
    with (
        tempfile.TemporaryDirectory() as scratch,
        subprocess.Popen(
            command, cwd=directory or scratch, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        ) as process,
    ):
        try:
            ends = time.monotonic() + START_SECONDS
            while True:
                assert process.poll() is None, f"{command[0]} ended with {process.returncode}"
                assert time.monotonic() < ends, f"{command[0]} does not answer"
                with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
                    break
                time.sleep(0.1)
            yield
        finally:
            process.kill()


def free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port: int = free.getsockname()[1]
        return port


def _signed(url: str, container: str) -> urllib.request.Request:
    """Return the request that makes a container."""
    date, version = formatdate(usegmt=True), "2021-12-02"
    place = f"/{ACCOUNT}/{ACCOUNT}/{container}\nrestype:container"
    text = "PUT" + "\n" * 12 + f"x-ms-date:{date}\nx-ms-version:{version}\n{place}"
    signature = base64.b64encode(hmac.digest(base64.b64decode(KEY), text.encode(), hashlib.sha256)).decode()
    headers = {"x-ms-date": date, "x-ms-version": version, "Authorization": f"SharedKey {ACCOUNT}:{signature}"}
    return urllib.request.Request(f"{url}?restype=container", method="PUT", headers=headers)


if __name__ == "__main__":
    _Front.behind = int(sys.argv[2])
    ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), _Front).serve_forever()
