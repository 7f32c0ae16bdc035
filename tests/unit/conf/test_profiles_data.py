"""The header profiles that are shipped as data: their form, and that each reads a record as its framework writes it."""

from __future__ import annotations

import json
import re
import tomllib
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from expectations.silver.dlq_records import CONTRACT
from expectations.silver.dlq_records import PROFILES as BUILT_IN
from pipelines.settings import ROOT

DIRECTORY = ROOT / "conf" / "profiles"
RECORDS = ROOT / "tests" / "data" / "writers"
PATHS = sorted(DIRECTORY.glob("*.toml"))
COLUMNS = {column.name for column in CONTRACT.columns}
FIELDS = {
    *("original_topic", "original_partition", "original_offset", "original_timestamp", "original_timestamp_type"),
    *("consumer_group", "application", "disposition", "delivery_count", "routed_at"),
    *("error_message", "exception_class", "exception_cause_class", "exception_stacktrace"),
    *("connector_name", "task_id", "stage", "stage_class"),
}
ENCODINGS = {"text", "throwable", "int32", "int64", "integer"}
UNKNOWN = ("", "null", "-1")
ANYBODYS = {
    "traceparent",
    "tracestate",
    "baggage",
    "content-type",
    "contentType",
    "__TypeId__",
    "topic",
    "url",
    "payload",
}

each_profile = pytest.mark.parametrize("path", PATHS, ids=lambda path: path.stem)
each_record = pytest.mark.parametrize("record", sorted(RECORDS.glob("*.json")), ids=lambda path: path.stem)


def profile_at(path: Path) -> dict[str, Any]:
    (profile,) = tomllib.loads(path.read_text())["dlq"]["profile"]
    assert isinstance(profile, dict)
    return profile


def told_by(profile: dict[str, Any]) -> set[str]:
    return {header.get("name") or header["path"] for header in profile["headers"] if header.get("mandatory")}


def content(value: Any) -> bytes | None:
    """Return a header's bytes, as its framework writes them."""
    if value is None or isinstance(value, str):
        return value.encode() if value is not None else None
    ((encoding, number),) = value.items()
    size = {"int32": 4, "int64": 8, "integer": number.bit_length() // 8 + 1}[encoding]
    return int(number).to_bytes(size, "big", signed=True)


def decoded(written: bytes | None, encoding: str) -> str | None:
    if written is None or encoding == "text":
        return written.decode() if written is not None else None
    if encoding == "throwable":
        return written.decode().split(": ", 1)[0]
    size = {"int32": 4, "int64": 8}.get(encoding, len(written))
    assert len(written) == size <= 8
    return str(int.from_bytes(written, "big", signed=True))


def followed(path: str, value: Any) -> str | None:
    """Follow a path with keys, indexes and * for the only key."""
    for key, index in re.findall(r"\.([^.\[\]]+)|\[([0-9]+)\]", path):
        if index:
            value = value[int(index)]
        elif key == "*":
            (value,) = value.values()
        else:
            value = value.get(key)
    return None if value is None else str(value)


def read(record: dict[str, Any], profile: dict[str, Any]) -> dict[str, str]:
    """Return the fields of a record with one set of the profile, as text."""
    place = 0 if profile.get("newest") == "first" else -1
    fields: dict[str, str] = {}
    for header in profile["headers"]:
        if "field" not in header:
            continue
        if "path" in header:
            text = followed(header["path"], json.loads(record["value"]))
        else:
            values = [content(value) for name, value in record["headers"] if name == header["name"]]
            text = decoded(values[place], header.get("encoding", "text")) if values else None
        if text is not None and text not in UNKNOWN:
            fields.setdefault(header["field"], text)
    return fields


def typed(field: str, text: str) -> Any:
    if field in ("original_partition", "original_offset", "delivery_count"):
        return int(text)
    if field in ("original_timestamp", "routed_at"):
        epoch = datetime(1970, 1, 1, tzinfo=UTC)
        return epoch + timedelta(milliseconds=int(text)) if text.isdigit() else datetime.fromisoformat(text)
    return text


@each_profile
def test_a_file_has_the_form_of_a_profile(path: Path) -> None:
    profile = profile_at(path)
    assert profile["name"] == path.stem
    assert profile["name"] not in BUILT_IN
    assert set(profile) <= {"name", "writer", "topic", "default_topic", "newest", "tells_more", "headers"}
    assert profile["writer"]
    assert profile.get("newest", "last") in ("first", "last")
    encodings: dict[str, str] = {}
    for header in profile["headers"]:
        assert set(header) <= {"name", "path", "field", "encoding", "mandatory", "repeats"}
        assert ("name" in header) != ("path" in header)
        assert header.get("encoding", "text") in ENCODINGS
        assert "field" in header or "encoding" not in header
        assert header.get("name") not in ANYBODYS
        if "field" in header:
            assert header["field"] in FIELDS
            encoding = header.get("encoding", "text")
            assert encodings.setdefault(header["field"], encoding) == encoding
    names = [header.get("name") or header["path"] for header in profile["headers"]]
    assert len(set(names)) == len(names)


@each_profile
def test_a_file_names_its_source(path: Path) -> None:
    assert any(line.startswith("# Source: ") for line in path.read_text().splitlines())
    assert (RECORDS / f"{path.stem}.json").exists()


@each_profile
def test_what_tells_a_profile_tells_it_from_all_others(path: Path) -> None:
    told = told_by(profile_at(path))
    assert told
    for other in PATHS:
        if other != path:
            assert not told_by(profile_at(other)) <= told, f"a record of {path.stem} would also be one of {other.stem}"


@each_record
def test_a_profile_reads_what_its_framework_writes(record: Path) -> None:
    written = json.loads(record.read_text())
    profile = profile_at(DIRECTORY / f"{record.stem.removesuffix('.twice')}.toml")
    expected = written["expected"]
    assert set(expected) - {"user_headers"} <= (COLUMNS | {"application"})
    names = {name for name, _ in written["headers"]}
    assert told_by(profile) - names <= {header.get("path") for header in profile["headers"]}
    recognised = {header.get("name") for header in profile["headers"]}
    assert [name for name, _ in written["headers"] if name not in recognised] == expected.pop("user_headers")

    fields = {field: typed(field, text) for field, text in read(written, profile).items()}
    hops = written.get("earlier_hops", [])
    if hops:  # headers that only an older set has are its own, which this reading by name does not see
        fields = {field: value for field, value in fields.items() if field in expected}
    for field in ("original_timestamp", "routed_at"):
        if field in expected:
            expected[field] = datetime.fromisoformat(expected[field])
    assert fields == expected


@pytest.mark.parametrize("record", sorted(RECORDS.glob("*.twice.json")), ids=lambda path: path.stem)
def test_hops_are_those_of_the_sets_that_the_record_has(record: Path) -> None:
    written = json.loads(record.read_text())
    profile = profile_at(DIRECTORY / f"{record.stem.removesuffix('.twice')}.toml")
    (topic,) = (header["name"] for header in profile["headers"] if header.get("field") == "original_topic")
    topics = [value for name, value in written["headers"] if name == topic]
    if profile.get("newest") == "first":
        topics.reverse()
    assert topics == [*(hop[1] for hop in written["earlier_hops"]), written["expected"]["original_topic"]]
    assert {hop[0] for hop in written["earlier_hops"]} == {profile["name"]}


def test_each_record_belongs_to_a_profile() -> None:
    assert {path.stem.removesuffix(".twice") for path in RECORDS.glob("*.json")} == {path.stem for path in PATHS}
