"""Unity Catalog, by its REST API: the open-source server, and others that speak it."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from functools import cached_property
from typing import Any
from urllib.parse import quote, unquote, urlsplit

from expectations.text import visible
from pipelines.catalogs.base import ITSELF, Entry, differing
from pipelines.catalogs.described import Described, Field, as_uri, on_stores, refuse_other_stores
from pipelines.catalogs.statements import CLOUDS, Names
from pipelines.errors import EnvironmentLacking, UsageError

CATALOG = "afterlog"
TOKEN = "UNITY_CATALOG_TOKEN"
_API = "api/2.1/unity-catalog"
_SECONDS = 30
_MOST = 200  # characters of a server's answer that a message repeats
_UNLIKE = {"integer": "INT", "void": "NULL"}  # others are called as in the log, in capitals


@dataclass(frozen=True)
class Unity:
    """A server; the variable UNITY_CATALOG_TOKEN may hold a token for it."""

    server: str
    root: str
    names: Names

    words = "Unity Catalog"
    replaces = True

    def __post_init__(self) -> None:
        """Raise UsageError if the server is no URL, or reads no such warehouse."""
        parts = urlsplit(self.server)
        if parts.scheme not in ("http", "https") or not parts.hostname or parts.username:
            raise UsageError("--server takes the URL of a server, such as http://127.0.0.1:8080.")
        if any(character in " ./" for character in self.catalog):
            raise UsageError("--catalog: no name of Unity Catalog has a space, a dot or a slash.")
        refuse_other_stores(self.root, ("file", *CLOUDS), self.words)

    @property
    def catalog(self) -> str:
        """The name of the catalog in which the schemas are."""
        return self.names.catalog or CATALOG

    def location(self, root: str, table: str) -> str:
        """Return a table's location; the server takes and gives it as a URI."""
        return on_stores(root, table)

    def entry(self, table: Described) -> Entry | None:
        """Return what the server has under the table's name."""
        known = self._get(f"tables/{self._full(table)}")
        if known is None:
            return None
        if known.get("table_type") != "EXTERNAL" or known.get("data_source_format") != "DELTA":
            return Entry(None)
        there = {ITSELF: known.get("comment") or ""} | {
            column["name"]: (column.get("type_text"), column.get("comment") or "")
            for column in sorted(known.get("columns") or (), key=lambda column: column.get("position") or 0)
        }
        here = {ITSELF: table.comment} | {field.name: (field.sql_type, field.comment) for field in table.fields}
        return Entry(_decoded(known.get("storage_location") or ""), differing(here, there))

    def prepare(self, layers: list[str]) -> None:
        """Create the catalog and the schemas that are missing."""
        if self._get(f"catalogs/{quote(self.catalog, safe='')}") is None:
            self._post("catalogs", {"name": self.catalog, "comment": "Tables of Afterlog."})
        for schema in map(self.names.schema, layers):
            if self._get(f"schemas/{quote(f'{self.catalog}.{schema}', safe='')}") is None:
                self._post("schemas", {"name": schema, "catalog_name": self.catalog})

    def create(self, table: Described) -> None:
        """Make a table known."""
        self._post(
            "tables",
            {
                "name": table.short,
                "catalog_name": self.catalog,
                "schema_name": self.names.schema(table.layer),
                "table_type": "EXTERNAL",
                "data_source_format": "DELTA",
                "storage_location": as_uri(self.root, table.name),
                "comment": table.comment,
                "columns": [_column(field, position) for position, field in enumerate(table.fields)],
            },
        )

    def change(self, table: Described) -> None:
        """Drop an entry and create it again: the API changes none. No file is touched, as the table is external."""
        self._answer("DELETE", f"tables/{self._full(table)}")
        self.create(table)

    def _full(self, table: Described) -> str:
        return quote(f"{self.catalog}.{self.names.schema(table.layer)}.{table.short}", safe="")

    def _get(self, path: str) -> dict[str, Any] | None:
        answer = self._answer("GET", path, may_lack=True)
        return None if answer.status_code == 404 else self._object(answer)

    def _post(self, path: str, body: dict[str, Any]) -> None:
        self._answer("POST", path, body)

    @cached_property
    def _session(self) -> Any:
        import requests

        session = requests.Session()
        if token := os.environ.get(TOKEN):
            session.headers["Authorization"] = f"Bearer {token}"
        return session

    def _answer(self, method: str, path: str, body: dict[str, Any] | None = None, may_lack: bool = False) -> Any:
        import requests

        url = f"{self.server.rstrip('/')}/{_API}/{path}"
        try:
            answer = self._session.request(method, url, json=body, timeout=_SECONDS, allow_redirects=False)
        except requests.RequestException as error:
            raise EnvironmentLacking(
                f"No Unity Catalog answers at {self._named} ({type(error).__name__}): start it, or correct --server."
            ) from None
        if answer.status_code in (401, 403):
            raise EnvironmentLacking(
                f"Unity Catalog at {self._named} refuses (HTTP {answer.status_code}): put a token that may create "
                f"tables into {TOKEN}."
            )
        if answer.status_code == 200 or (may_lack and answer.status_code == 404 and self._says_what_lacks(answer)):
            return answer
        raise EnvironmentLacking(
            f"Unity Catalog at {self._named} answers {method} {path.partition('/')[0]} with HTTP {answer.status_code}"
            f"{self._reason(answer)}."
        )

    def _says_what_lacks(self, answer: Any) -> bool:
        """Tell whether it is the API that has no such thing, and not a server that has no such API."""
        try:
            return str(answer.json().get("error_code", "")).endswith(("NOT_FOUND", "DOES_NOT_EXIST"))
        except (ValueError, AttributeError):
            return False

    def _object(self, answer: Any) -> dict[str, Any]:
        try:
            content = answer.json()
        except ValueError:
            content = None
        if not isinstance(content, dict):
            raise EnvironmentLacking(f"What answers at {self._named} is no Unity Catalog: correct --server.")
        return content

    def _reason(self, answer: Any) -> str:
        try:
            said = str(answer.json()["message"])
        except (ValueError, KeyError, TypeError):
            return ""
        return f": {visible(said[:_MOST]).rstrip('.')}"

    @property
    def _named(self) -> str:
        parts = urlsplit(self.server)
        return visible(f"{parts.scheme}://{parts.netloc}")


def _column(field: Field, position: int) -> dict[str, Any]:
    kind = field.type if isinstance(field.type, str) else field.type["type"]
    return {
        "name": field.name,
        "type_text": field.sql_type,
        "type_json": json.dumps(field.logged),
        "type_name": _UNLIKE.get(kind, kind.partition("(")[0].upper()),
        "position": position,
        "comment": field.comment,
        "nullable": field.logged.get("nullable", True),
    }


def _decoded(uri: str) -> str:
    """Return a URI without the escapes that a directory's path has in it."""
    return unquote(uri) if uri.lower().startswith("file:") else uri
