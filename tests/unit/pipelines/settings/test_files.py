"""A file that a setting names and that cannot be read is one sentence and exit code 2, whichever setting it is."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pipelines.errors import UsageError
from pipelines.kafka.properties import properties
from pipelines.payloads import Reader
from pipelines.replay import rules, transform
from pipelines.settings import Settings, load, s3
from pipelines.settings.files import text_of

SASL = {"bootstrap_servers": "b:1", "security_protocol": "SASL_SSL", "sasl_mechanism": "PLAIN", "username": "u"}
SSL = {"bootstrap_servers": "b:1", "security_protocol": "SSL"}


def _decodes(settings: Settings) -> None:
    Reader(settings.schemas).read(b"x", ["orders"], "value")


NAMED: dict[str, tuple[Callable[[str], dict[str, Any]], Callable[[Settings], object]]] = {
    "rules of replays": (lambda file: {"replay": {"rules": file}}, rules.of),
    "password_file": (lambda file: {"kafka": SASL | {"password_file": file}}, lambda item: properties(item.kafka)),
    "ca_file": (lambda file: {"kafka": SSL | {"ca_file": file}}, lambda item: properties(item.kafka)),
    "certificate_file": (
        lambda file: {"kafka": SSL | {"certificate_file": file, "key_file": file}},
        lambda item: properties(item.kafka),
    ),
    "Avro schema": (lambda file: {"schemas": [{"topic": "*", "file": f"{file}.avsc"}]}, _decodes),
    "Protobuf schema": (lambda file: {"schemas": [{"topic": "*", "file": file, "message": "M"}]}, _decodes),
}


@pytest.mark.parametrize("is_directory", [False, True], ids=["absent", "a directory"])
@pytest.mark.parametrize("name", NAMED)
def test_a_named_file_that_cannot_be_read_is_one_sentence(name: str, is_directory: bool, tmp_path: Path) -> None:
    given, use = NAMED[name]
    file = tmp_path / "named"
    if is_directory:
        file.mkdir()
        (tmp_path / "named.avsc").mkdir()
    values = given(str(file))
    values = {"schema": values["schemas"]} if "schemas" in values else values
    with pytest.raises(UsageError) as told:
        use(load(**values))
    assert str(file) in str(told.value)
    assert str(told.value).count("\n") == 0
    assert told.value.exit_code == 2


def test_a_settings_file_that_is_a_directory_is_one_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AFTERLOG_SETTINGS", str(tmp_path))
    with pytest.raises(UsageError, match=r"The settings file cannot be read: .*: Is a directory\."):
        load()


@pytest.mark.parametrize("variable", ["AWS_CONFIG_FILE", "AWS_SHARED_CREDENTIALS_FILE"])
def test_a_file_of_aws_that_a_variable_names_must_be_there(
    variable: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for item in ("AWS_CONFIG_FILE", "AWS_SHARED_CREDENTIALS_FILE"):
        monkeypatch.setenv(item, os.devnull)
    monkeypatch.setenv(variable, str(tmp_path / "none"))
    with pytest.raises(UsageError, match=f"{variable} cannot be read: .*none: No such file"):
        s3.connection()


def test_a_transform_that_is_not_there_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"The transform cannot be read: .*x\.sql: No such file or directory\."):
        transform.read(tmp_path / "x.sql")


def test_what_is_no_text_is_said_without_its_bytes(tmp_path: Path) -> None:
    file = tmp_path / "a\x1b[31m"
    file.write_bytes(b"secret \xff")
    with pytest.raises(UsageError) as told:
        text_of(file, "ca_file of [kafka]")
    assert "\x1b" not in str(told.value)
    assert "secret" not in str(told.value)
    assert str(told.value).endswith("it is not UTF-8 text.")
