"""A server of S3 on this machine: moto, one request at a time, because its conditional puts look first, then write."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import urllib.request
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import obstore

if TYPE_CHECKING:
    from obstore.store import S3Store

_PROGRAM = """
from moto.server import DomainDispatcherApplication, create_backend_app
from werkzeug.serving import make_server
from werkzeug.test import Client

moto = DomainDispatcherApplication(create_backend_app)
mischief = {"/lose": [], "/change": []}

def due(what, path):
    found = any(part in path for part in mischief[what])
    if found:
        mischief[what].clear()
    return found

def answer(environ, start_response):
    path, method = environ["PATH_INFO"], environ["REQUEST_METHOD"]
    if path in mischief:
        mischief[path].append(environ["QUERY_STRING"])
        start_response("200 OK", [("Content-Length", "0")])
        return []
    answered = list(moto(environ, start_response))
    if method == "PUT" and due("/lose", path):
        raise ConnectionError("this answer is lost")
    if method == "HEAD" and due("/change", path):
        signed = {"Authorization": environ["HTTP_AUTHORIZATION"]}
        at = {"path": path, "base_url": f"http://127.0.0.1:{server.server_port}", "headers": signed}
        Client(moto).put(**at, data=Client(moto).get(**at).data + b" ")
    return answered

server = make_server("127.0.0.1", 0, answer, threaded=False)
print(server.server_port, flush=True)
server.serve_forever()
"""


def lose_an_answer(endpoint: str, part: str) -> None:
    """Let the server do the next put whose path has a part, and lose the answer."""
    with urllib.request.urlopen(f"{endpoint}/lose?{part}", timeout=60):
        pass


def change_after_a_look(endpoint: str, part: str) -> None:
    """Let the server add a space to the next object whose path has a part, when its size has been asked for."""
    with urllib.request.urlopen(f"{endpoint}/change?{part}", timeout=60):
        pass


def store(bucket: str, variables: Mapping[str, str]) -> S3Store:
    """Return a bucket of the server that variables name."""
    from obstore.store import S3Store

    return S3Store(
        bucket,
        endpoint=variables["AWS_ENDPOINT_URL"],
        region=variables["AWS_REGION"],
        access_key_id=variables["AWS_ACCESS_KEY_ID"],
        secret_access_key=variables["AWS_SECRET_ACCESS_KEY"],
        virtual_hosted_style_request=False,
        client_options={"allow_http": True},
    )


def upload(directory: Path, bucket: S3Store, prefix: str) -> None:
    """Make the files of a directory objects, but for locks, which are leases there."""
    for path in directory.rglob("*"):
        if path.is_file() and not path.name.endswith("lock"):
            obstore.put(bucket, f"{prefix}/{path.relative_to(directory)}", path.read_bytes())


def download(bucket: S3Store, directory: Path) -> None:
    """Make all objects of a bucket files below a directory."""
    for batch in obstore.list(bucket):
        for found in batch:
            copied = directory / found["path"]
            copied.parent.mkdir(parents=True, exist_ok=True)
            copied.write_bytes(bytes(obstore.get(bucket, found["path"]).bytes()))


@contextlib.contextmanager
def server(bucket: str) -> Iterator[dict[str, str]]:
    """Yield the variables that name a server with an empty bucket."""
    process = subprocess.Popen(
        [sys.executable, "-c", _PROGRAM], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    )
    try:
        assert process.stdout is not None
        endpoint = f"http://127.0.0.1:{process.stdout.readline().strip()}"
        with urllib.request.urlopen(urllib.request.Request(f"{endpoint}/{bucket}", method="PUT"), timeout=60):
            pass
        yield {
            "AWS_ENDPOINT_URL": endpoint,
            "AWS_ALLOW_HTTP": "true",
            "AWS_ACCESS_KEY_ID": "afterlog",
            "AWS_SECRET_ACCESS_KEY": "a-secret-key",
            "AWS_REGION": "us-east-1",
            "AWS_CONFIG_FILE": os.devnull,
            "AWS_SHARED_CREDENTIALS_FILE": os.devnull,
        }
    finally:
        process.kill()
        process.wait()
