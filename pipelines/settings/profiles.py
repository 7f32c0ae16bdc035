"""Header profiles of the settings: the dead-letter headers of a team's own code, and the profiles that topics need."""

from __future__ import annotations

import re
import tomllib
from functools import cache
from typing import Annotated, Literal

from pydantic import Field, field_validator, model_validator

from expectations import owners
from expectations.silver.dlq_records import PROFILES
from pipelines.installation import ROOT
from pipelines.settings.section import Section

MAX_PROFILES = 20
MAX_HEADERS = 60
SHIPPED = ROOT / "conf" / "profiles"
Newest = Literal["last", "first", "anywhere"]
_NAME = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]{0,62}[A-Za-z0-9])?")
_NAME_WITH_GROUP = re.compile(r"[^*?{}]*\{original_topic\}[^*?{}]+\{consumer_group\}")
# A path as Spark's parser for variants reads it: it skips space before a key, and a quoted key also ends at ?.
_PATH = re.compile(r"""\$(?:\.[^\s.\[\]'"?]+|\[[0-9]{1,9}\]|\['(?!\s)[^'?]+'\]|\["(?!\s)[^"?]+"\])+""")


class RequiredProfile(Section):
    """The header profile that every record must carry on the DLQ topics that match a glob pattern."""

    topic: Annotated[str, Field(min_length=1)]
    profile: str


class MappedHeader(Section):
    """A header (``name``), or a path into JSON in the record's value (``path``), and the field that it fills.

    A name that ends in ``*`` stands for all headers with that prefix. A header without a field only belongs to the
    profile. ``int32`` and ``int64`` are big-endian, ``integer`` too, of any length up to 8 bytes. ``throwable`` is the
    text of Java's ``Throwable.toString()``, of which the class counts; of a ``uri`` what is behind the last ``/``
    counts. In a path ``.*`` stands for an object's only key. ``repeats`` tells that one set can have the name several
    times; the last value counts.
    """

    name: str | None = None
    path: str | None = None
    field: (
        Literal[
            "original_topic",
            "original_partition",
            "original_offset",
            "original_timestamp",
            "original_timestamp_type",
            "consumer_group",
            "disposition",
            "delivery_count",
            "error_message",
            "exception_class",
            "exception_cause_class",
            "exception_stacktrace",
            "connector_name",
            "task_id",
            "stage",
            "stage_class",
            "routed_at",
            "application",
        ]
        | None
    ) = None
    encoding: Literal["text", "throwable", "int32", "int64", "integer", "uri"] = "text"
    mandatory: bool = False
    repeats: bool = False

    @field_validator("name")
    @classmethod
    def _check_name(cls, name: str | None) -> str | None:
        if name == "*":
            raise ValueError("a prefix has at least one character before the *")
        if name == "":
            raise ValueError("a header's name has at least one character")
        return name

    @field_validator("path")
    @classmethod
    def _check_path(cls, path: str | None) -> str | None:
        if path is not None and not _PATH.fullmatch(path):
            raise ValueError("write it like $.error.offset, $['a key'] or $.records[0].topic")
        return path

    @model_validator(mode="after")
    def _check_combination(self) -> MappedHeader:
        if (self.name is None) == (self.path is None):
            raise ValueError("give name, for a header, or path, for JSON in the value, and not both")
        if self.field is None and (self.path is not None or self.encoding != "text"):
            raise ValueError("it needs a field to fill")
        if self.path is not None and self.encoding != "text":
            raise ValueError("only a header has an encoding: a path leads to JSON text or a JSON number")
        return self


class OwnProfile(Section):
    """A header profile beside the built-in ones: the headers that a team's own code writes on dead-letter records.

    With ``topic``, a glob pattern, only records of the DLQ topics that match it can have the profile. ``headers`` are
    in the order in which the writer writes them. ``newest`` tells where it puts its set in a record that has older
    ones: behind the headers that it copies (``last``), before them (``first``), or ``anywhere``: the writer keeps
    headers in a map with one value a name, so it replaces its own set and may shuffle all others. ``default_topic`` is
    a glob that the default names of its DLQ topics match. If it holds ``{original_topic}`` and, at its end,
    ``{consumer_group}``, such a name tells the group. ``writer`` and ``tells_more`` are for people: its name, and which
    setting makes it tell more.
    """

    name: str
    topic: Annotated[str, Field(min_length=1)] | None = None
    newest: Newest = "last"
    default_topic: Annotated[str, Field(min_length=1)] | None = None
    writer: Annotated[str, Field(min_length=1)] | None = None
    tells_more: Annotated[str, Field(min_length=1)] | None = None
    headers: Annotated[tuple[MappedHeader, ...], Field(min_length=1, max_length=MAX_HEADERS)]

    @field_validator("name")
    @classmethod
    def _check_name(cls, name: str) -> str:
        if not _NAME.fullmatch(name):
            raise ValueError("a name has up to 64 letters, digits and . _ - between them")
        if name in PROFILES:
            raise ValueError(f"{name} is the name of a built-in profile")
        if name in owners.NAMED or name == owners.UNKNOWN:
            raise ValueError(f"{name} is a word for whom dead letters belong to")
        return name

    @field_validator("default_topic")
    @classmethod
    def _check_default_topic(cls, name: str | None) -> str | None:
        if name and "{" in name and not _NAME_WITH_GROUP.fullmatch(name):
            raise ValueError("write a name that holds the group like error.{original_topic}.{consumer_group}")
        return name

    @field_validator("headers")
    @classmethod
    def _check_headers(cls, headers: tuple[MappedHeader, ...]) -> tuple[MappedHeader, ...]:
        if not any(header.mandatory for header in headers):
            raise ValueError("at least one must be mandatory: only mandatory headers tell the profile from others")
        encodings: dict[str, str] = {}
        for header in headers:
            if header.field and encodings.setdefault(header.field, header.encoding) != header.encoding:
                raise ValueError(f"all headers and paths that fill {header.field} must have the same encoding")
        mappings = [(header.name, header.path, header.field) for header in headers]
        if len(set(mappings)) < len(mappings):
            raise ValueError("two of them are the same")
        return headers


@cache
def shipped_profiles() -> tuple[OwnProfile, ...]:
    """Return the profiles of ``conf/profiles/``, by name."""
    files = sorted(SHIPPED.glob("*.toml"))
    tables = [table for file in files for table in tomllib.loads(file.read_text("utf-8"))["dlq"]["profile"]]
    return tuple(sorted(map(OwnProfile.model_validate, tables), key=lambda profile: profile.name))
