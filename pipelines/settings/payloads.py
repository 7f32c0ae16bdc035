"""Settings of payloads: the schema files that decode them, and the masks that hide parts of dead letters."""

from __future__ import annotations

import re
from typing import Annotated, Literal

from pydantic import Field, field_validator, model_validator

from pipelines.settings.section import Section

_STEP = r"""\.([^\s.\[\]'"*]+)|\[([0-9]{1,9}|\*)\]|\['([^'*]+)'\]|\["([^"*]+)"\]"""
_PATH = re.compile(rf"\$(?:{_STEP})+")
_DO = re.compile(r"drop|hash|last:([1-9][0-9]?)")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_TARGETS = ("header", "key", "value", "path", "error")

Glob = Annotated[str, Field(min_length=1)]
Step = str | int | None
"""A step of a path: a name, an index, or None for all elements."""


class SchemaFile(Section):
    """The schema of the keys or values of the source topics that match a glob pattern.

    ``file`` is an Avro schema (``.avsc``). Any other file is a FileDescriptorSet, as ``protoc --include_imports
    --descriptor_set_out`` writes it, and needs ``message``. With ``id``, only payloads in Confluent's wire format that
    have this schema id are decoded with it.
    """

    topic: Glob
    part: Literal["key", "value"] = "value"
    file: Annotated[str, Field(min_length=1)]
    message: Annotated[str, Field(min_length=1)] | None = None
    id: Annotated[int, Field(ge=0, lt=1 << 31)] | None = None

    @property
    def is_avro(self) -> bool:
        """Tell whether the file is an Avro schema."""
        return self.file.lower().endswith(".avsc")

    @model_validator(mode="after")
    def _check_message(self) -> SchemaFile:
        if self.is_avro and self.message is not None:
            raise ValueError("message is for Protobuf, and a file .avsc is an Avro schema")
        if not self.is_avro and self.message is None:
            raise ValueError("an Avro schema is a file .avsc, and Protobuf needs the name of a message")
        return self


class Mask(Section):
    """What to hide of dead letters whose source topic matches a glob pattern, and how.

    A mask has one target: headers whose name matches a glob pattern, the key, the value, a path into the value, or
    error messages and stack traces. ``at`` tells when it hides: whenever Afterlog shows the record, or before it is
    written to any table.
    """

    topic: Glob = "*"
    header: Glob | None = None
    key: Literal[True] | None = None
    value: Literal[True] | None = None
    path: str | None = None
    error: Literal[True] | None = None
    do: str
    at: Literal["showing", "landing"] = "showing"

    @property
    def target(self) -> str:
        """What it hides, as the column ``masked`` of dead letters names it."""
        if self.header is not None:
            return f"header {self.header}"
        return self.path or next(name for name in ("key", "value", "error") if getattr(self, name))

    @property
    def last(self) -> int | None:
        """How many of the last characters stay visible; None if all are hidden."""
        found = _DO.fullmatch(self.do)
        return int(found[1]) if found and found[1] else None

    @property
    def steps(self) -> tuple[Step, ...]:
        """The steps of the path; empty if the target is another one."""
        return steps_of(self.path or "")

    @field_validator("do")
    @classmethod
    def _check_do(cls, do: str) -> str:
        if not _DO.fullmatch(do):
            raise ValueError("write it as drop, hash or last:4")
        return do

    @field_validator("path")
    @classmethod
    def _check_path(cls, path: str | None) -> str | None:
        if path is not None and not _PATH.fullmatch(path):
            raise ValueError("write it like $.customer.email, $['a key'] or $.items[*].owner")
        return path

    @model_validator(mode="after")
    def _check_target(self) -> Mask:
        if sum(getattr(self, target) is not None for target in _TARGETS) != 1:
            raise ValueError(f"give one of {', '.join(_TARGETS)}")
        return self


class PrivacyKey(Section):
    """The environment variable with the key of hashes; the key itself is never a setting."""

    hash_key_env: str | None = None

    @field_validator("hash_key_env")
    @classmethod
    def _check_variable(cls, name: str | None) -> str | None:
        if name is not None and not _VARIABLE.fullmatch(name):
            raise ValueError("name an environment variable, such as DLQ_HASH_KEY")
        if name is not None and name.upper().startswith("AFTERLOG_"):
            raise ValueError("variables that begin with AFTERLOG_ are settings, and the key is none")
        return name


def steps_of(path: str) -> tuple[Step, ...]:
    """Return the steps of a JSON path."""
    steps: list[Step] = []
    for name, index, single, double in re.findall(_STEP, path):
        steps.append((None if index == "*" else int(index)) if index else name or single or double)
    return tuple(steps)
