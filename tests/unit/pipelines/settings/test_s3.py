"""What the usual variables of AWS and its files say about S3."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from pipelines.errors import EnvironmentLacking, UsageError
from pipelines.jvm import jars, session
from pipelines.jvm.properties import for_s3
from pipelines.settings import load, s3

CREDENTIALS = """
[default]
aws_access_key_id = of-default
aws_secret_access_key = s3cret-of-default

[team]
aws_access_key_id = of-team
aws_secret_access_key = s3cret-of-team
aws_session_token = t0ken-of-team
"""
CONFIG = """
[default]
region = eu-west-1

[profile team]
region = eu-central-1

[profile empty]

[profile role]
role_arn = arn:aws:iam::1:role/writer
"""


@pytest.fixture
def files(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """AWS's two files, and no variable of AWS but those that name them."""
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    for variable, name, text in (
        ("AWS_SHARED_CREDENTIALS_FILE", "credentials", CREDENTIALS),
        ("AWS_CONFIG_FILE", "config", CONFIG),
    ):
        (tmp_path / name).write_text(text)
        monkeypatch.setenv(variable, str(tmp_path / name))
    return tmp_path


@pytest.mark.parametrize(
    "warehouse", ["s3://b/a/w", "s3a://b/a/w", "S3://b/a/w", "S3A://b/a/w/"], ids=["s3", "s3a", "upper case", "slash"]
)
def test_all_names_of_a_warehouse_on_s3_are_one(warehouse: str) -> None:
    assert load(warehouse=warehouse).warehouse == "s3a://b/a/w"


@pytest.mark.parametrize("warehouse", ["gs://b/w", "abfss://c@a/w", "hdfs://n/w"])
@pytest.mark.parametrize("end", ["", "/"])
def test_other_warehouses_keep_their_names_without_a_slash_at_their_end(warehouse: str, end: str) -> None:
    assert load(warehouse=warehouse + end).warehouse == warehouse


@pytest.mark.parametrize("warehouse", ["s3://b/a%20b", "gs://b/a#b", "abfss://c@a/w?x"])
def test_a_uri_that_readers_take_for_different_places_is_refused(warehouse: str) -> None:
    with pytest.raises(UsageError, match="a URI has none of % # "):
        load(warehouse=warehouse)


@pytest.mark.parametrize(
    ("variables", "region", "key"),
    [
        ({}, "eu-west-1", "of-default"),
        ({"AWS_PROFILE": "default"}, "eu-west-1", "of-default"),
        ({"AWS_PROFILE": "team"}, "eu-central-1", "of-team"),
        ({"AWS_PROFILE": "team", "AWS_DEFAULT_REGION": "us-west-2"}, "us-west-2", "of-team"),
        ({"AWS_REGION": "us-east-2", "AWS_DEFAULT_REGION": "us-west-2"}, "us-east-2", "of-default"),
        ({"AWS_ACCESS_KEY_ID": "of-the-environment"}, "eu-west-1", None),
        ({"AWS_WEB_IDENTITY_TOKEN_FILE": "/run/token"}, "eu-west-1", None),
        ({"AWS_PROFILE": "empty"}, None, None),
    ],
)
def test_region_and_keys(
    files: Path, monkeypatch: pytest.MonkeyPatch, variables: dict[str, str], region: str | None, key: str | None
) -> None:
    """Without keys of a profile, those that read S3 look into the environment and at the machine's role themselves."""
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    found = s3.connection()
    assert (found.endpoint, found.region, found.keys and found.keys.access_key_id) == (None, region, key)


def test_secrets_never_show(files: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_PROFILE", "team")
    monkeypatch.setenv("AWS_ENDPOINT_URL", "https://s3.example.com")
    found = s3.connection()
    assert found.keys is not None
    assert (found.keys.secret_access_key, found.keys.token) == ("s3cret-of-team", "t0ken-of-team")
    shown = f"{found!r} {found} {for_s3()}"
    assert [secret for secret in ("s3cret", "t0ken") if secret in shown] == []


def test_a_session_has_the_endpoint_its_paths_and_our_log_store(files: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "spark.hadoop.fs.s3a.endpoint" not in for_s3()
    monkeypatch.setenv("AWS_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("AWS_ENDPOINT_URL", "https://s3.example.com:9000")
    told = for_s3()
    assert told["spark.delta.logStore.s3a.impl"] == "afterlog.S3LogStore"
    assert {name.removeprefix("spark.hadoop.fs.s3a."): value for name, value in told.items() if "fs.s3a" in name} == {
        "aws.credentials.provider": "software.amazon.awssdk.auth.credentials.DefaultCredentialsProvider",
        "endpoint": "https://s3.example.com:9000",
        "endpoint.region": "us-east-1",
        "path.style.access": "true",
    }


@pytest.mark.parametrize(
    ("variables", "sentence"),
    [
        ({"AWS_ENDPOINT_URL": "http://minio:9000"}, "set AWS_ALLOW_HTTP=true"),
        ({"AWS_ENDPOINT_URL": "minio:9000"}, "has to begin with https:// or http://"),
        ({"AWS_PROFILE": "absent"}, "AWS_PROFILE names a profile that"),
        ({"AWS_PROFILE": "role"}, "does not hold keys but says how to get them"),
    ],
    ids=["not encrypted", "no address", "no profile", "a profile of a role"],
)
def test_variables_that_cannot_be_used(
    files: Path, monkeypatch: pytest.MonkeyPatch, variables: dict[str, str], sentence: str
) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(UsageError, match=sentence):
        s3.connection()


def test_a_damaged_file_of_profiles_is_named_without_its_text(files: Path) -> None:
    (files / "credentials").write_text("[default]\naws_secret_access_key s3cret\n")
    with pytest.raises(UsageError, match=r"credentials cannot be read") as refused:
        s3.connection()
    assert "s3cret" not in str(refused.value)


def test_a_session_without_the_jars_names_their_command(files: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    missing = {"s3": "A warehouse on S3 needs jars that are not in .jars/s3"}
    monkeypatch.setattr(jars, "fault_of", lambda conf, *_: missing.get(conf))
    with pytest.raises(EnvironmentLacking, match=r"\.jars/s3; run `make setup-s3`\.$"):
        session.start(load(warehouse="s3://b/w"))


@pytest.mark.parametrize(
    ("address", "shown"),
    [("s3a://b/w", "s3://b/w"), ("s3://b/w", "s3://b/w"), ("gs://b/w", "gs://b/w"), ("/srv/s3a", "/srv/s3a")],
)
def test_messages_say_an_address_as_people_write_it(address: str, shown: str) -> None:
    assert s3.shown(address) == shown
