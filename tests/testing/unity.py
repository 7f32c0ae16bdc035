"""A server with the part of Unity Catalog's REST API that Afterlog calls.

The project's own server is in no package registry. What this one answers was compared with it: names, refusals, codes,
the forms of locations, and that a table cannot be changed. UNITY_CATALOG_TEST_SERVER names a real one for tests to use.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import unquote

API = "/api/2.1/unity-catalog/"
KINDS = {"catalogs": "CATALOG", "schemas": "SCHEMA", "tables": "TABLE"}
TYPES = ("ARRAY", "BINARY", "BOOLEAN", "DATE", "DOUBLE", "INT", "LONG", "STRING", "STRUCT", "TIMESTAMP")  # of contracts
SCHEMES = ("file", "s3", "gs", "abfs", "abfss")


class Refused(Exception):
    """A request that is answered with an error: its status, and its code."""

    def __init__(self, status: int, code: str, message: str) -> None:
        super().__init__(message)
        self.status, self.code = status, code


class Handler(BaseHTTPRequestHandler):
    """Answers a request; ``kept`` has what was created, by kind and full name, ``asked`` the requests."""

    kept: dict[str, dict[str, dict[str, Any]]]
    asked: list[tuple[str, str]]
    token: str | None

    def do_GET(self) -> None:
        self.answer()

    def do_POST(self) -> None:
        self.answer()

    def do_DELETE(self) -> None:
        self.answer()

    def answer(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        self.asked.append((self.command, self.path))
        try:
            if self.token and self.headers.get("Authorization") != f"Bearer {self.token}":
                raise Refused(401, "UNAUTHENTICATED", "No token.")
            if not self.path.startswith(API):
                raise Refused(404, "", "")
            kind, _, name = self.path.removeprefix(API).partition("/")
            found = self.create(kind, json.loads(body)) if self.command == "POST" else self.found(kind, unquote(name))
            status, said = 200, json.dumps(found)
        except Refused as error:
            status, said = error.status, json.dumps({"error_code": error.code, "message": str(error)})
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(said.encode())))
        self.end_headers()
        self.wfile.write(said.encode())

    def found(self, kind: str, name: str) -> dict[str, Any]:
        if kind == "tables" and name.count(".") != 2:
            raise Refused(400, "INVALID_ARGUMENT", f"Invalid table name: {name}")
        parts = name.split(".")
        for depth, above in enumerate(KINDS, start=1):
            full = ".".join(parts[:depth])
            if full not in self.kept[above]:  # what is missing first, from the catalog on
                raise Refused(404, f"{KINDS[above]}_NOT_FOUND", f"{KINDS[above].capitalize()} not found: {full}")
            if above == kind:
                break
        return self.kept[kind].pop(name) if self.command == "DELETE" else self.kept[kind][name]

    def create(self, kind: str, given: dict[str, Any]) -> dict[str, Any]:
        if re.search(r"[\s./\x00-\x1f\x7f]", given["name"]):
            raise Refused(400, "INVALID_ARGUMENT", "Name cannot contain a period, space, forward-slash")
        parents = [given[item] for item in ("catalog_name", "schema_name") if item in given]
        for depth, above in enumerate(("catalogs", "schemas")[: len(parents)], start=1):
            if ".".join(parents[:depth]) not in self.kept[above]:
                raise Refused(404, f"{KINDS[above]}_NOT_FOUND", "Not found")
        name = ".".join([*parents, given["name"]])
        if name in self.kept[kind]:
            raise Refused(400, f"{KINDS[kind]}_ALREADY_EXISTS", f"Already exists: {name}")
        if kind == "tables":
            assert (given["table_type"], given["data_source_format"]) == ("EXTERNAL", "DELTA")
            scheme = given["storage_location"].partition(":")[0]
            if scheme not in SCHEMES:
                raise Refused(400, "INVALID_ARGUMENT", f"Unsupported URI scheme: {scheme}")
            for position, column in enumerate(given["columns"]):
                assert column["position"] == position
                assert column["type_name"] in TYPES
                assert json.loads(column["type_json"])["name"] == column["name"]
        self.kept[kind][name] = given
        return given

    def log_message(self, format: str, *args: Any) -> None:
        """Say nothing."""


@contextlib.contextmanager
def server(token: str | None = None) -> Iterator[tuple[str, type[Handler]]]:
    """Yield the URL of an empty server that asks for a token (None: for none), and what it was asked."""

    class Own(Handler):
        pass

    Own.kept, Own.asked, Own.token = {kind: {} for kind in KINDS}, [], token
    with ThreadingHTTPServer(("127.0.0.1", 0), Own) as serving:
        thread = threading.Thread(target=serving.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{serving.server_port}", Own
        finally:
            serving.shutdown()
            thread.join()


def real() -> str | None:
    """Return the URL of a real server, if the environment names one."""
    return os.environ.get("UNITY_CATALOG_TEST_SERVER")
