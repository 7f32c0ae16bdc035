"""Settings of topics and of the cluster: what they accept, what they refuse, and that secrets stay hidden."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel

from pipelines.commands import settings_checks
from pipelines.errors import UsageError
from pipelines.settings import ROOT, Settings, load
from pipelines.settings.runs import Report

SECRET = "canary-5d41402abc4b"
TOPIC = {"name": "x-topic", "field": "original_topic", "mandatory": True}

names = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=20).filter(lambda name: name != "*")


def test_files_alone_are_the_default() -> None:
    settings = load()
    assert [settings.topics_of(directory) for directory in ("dlq", "streams-requests", "acknowledgements")] == [
        None
    ] * 3


def test_topics_of_a_feed() -> None:
    settings = load(
        kafka={"bootstrap_servers": "one:9092, [::1]:9093"},
        dlq={"source": "kafka"},
        acknowledgements={"source": "kafka", "topic": "acks.v1"},
    )
    dlq, acknowledgements = settings.topics_of("dlq"), settings.topics_of("acknowledgements")
    assert dlq is not None
    assert acknowledgements is not None
    assert (dlq.pattern, dlq.isolation_level, dlq.max_records_per_batch) == (r"dlq\..*", "read_committed", 500_000)
    assert (acknowledgements.pattern, acknowledgements.wanted) == (r"acks\.v1", "topic acks.v1")
    assert settings.topics_of("segments") is None
    assert settings.kafka.addresses == (("one", 9092), ("::1", 9093))


@pytest.mark.parametrize(
    ("values", "sentence"),
    [
        pytest.param(
            {"dlq": {"source": "kafka"}},
            '[dlq] has source = "kafka": set bootstrap_servers under [kafka].',
            id="no servers",
        ),
        pytest.param(
            {"acknowledgements": {"source": "kafka"}},
            'The setting acknowledgements cannot be used: source = "kafka" needs the name of a topic.',
            id="no topic",
        ),
        pytest.param(
            {"dlq": {"subscribe_pattern": "("}}, "The setting dlq.subscribe_pattern cannot be used", id="pattern"
        ),
        pytest.param({"kafka": {"bootstrap_servers": "one"}}, "write it like host:9092,other:9092.", id="no port"),
        pytest.param({"kafka": {"bootstrap_servers": "one:99999"}}, "write it like host:9092", id="port out of range"),
        pytest.param({"kafka": {"bootstrap_servers": "http://one:9092"}}, "write it like host:9092", id="address"),
        pytest.param({"kafka": {"security_protocol": "TLS"}}, "The setting kafka.security_protocol", id="protocol"),
        pytest.param(
            {"kafka": {"password": SECRET, "password_file": "a"}},
            "give password or password_file, not both.",
            id="two passwords",
        ),
        pytest.param(
            {"kafka": {"certificate_file": "a"}}, "certificate_file and key_file go together.", id="no private key"
        ),
        pytest.param(
            {"kafka": {"options": {"isolation.level": SECRET}}}, "isolation.level cannot be set here.", id="option"
        ),
        pytest.param(
            {"lock": {"wait_second": 1}}, "The setting lock.wait_second cannot be used: there is no such key.", id="key"
        ),
        pytest.param({"kafka": {"password": [SECRET]}}, "The setting kafka.password cannot be used", id="no text"),
        *(
            pytest.param({"dlq": {"profile": [{"name": "own", "headers": headers}]}}, sentence, id=f"profile: {name}")
            for name, headers, sentence in (
                ("no headers", [], "The setting dlq.profile.0.headers cannot be used"),
                ("none mandatory", [TOPIC | {"mandatory": False}], "at least one must be mandatory"),
                ("unknown field", [TOPIC, {"name": "a", "field": "topic"}], "dlq.profile.0.headers.1.field cannot be"),
                ("unknown encoding", [TOPIC | {"encoding": "utf-16"}], "'integer' or 'uri'"),
                ("unknown key", [TOPIC | {"\x1b[2J": 1}], r"dlq.profile.0.headers.0.\u001b[2J cannot be used"),
                ("empty name", [TOPIC | {"name": ""}], "a header's name has at least one character."),
                ("empty prefix", [TOPIC | {"name": "*"}], "a prefix has at least one character before the *."),
                ("name and path", [TOPIC | {"path": "$.a"}], "give name, for a header, or path, for JSON"),
                ("neither", [{"field": "stage", "mandatory": True}], "give name, for a header, or path, for JSON"),
                ("nothing to fill", [{"name": "a", "encoding": "int32"}], "it needs a field to fill."),
                ("path with an encoding", [TOPIC, {"path": "$.a", "field": "stage", "encoding": "int32"}], "encoding"),
                ("twice", [TOPIC, TOPIC], "two of them are the same."),
                (
                    "two encodings",
                    [TOPIC, TOPIC | {"name": "a", "encoding": "int32"}],
                    "all headers and paths that fill original_topic must have the same encoding.",
                ),
                *(
                    (f"path {path}", [TOPIC, {"path": path, "field": "stage"}], "write it like $.error.offset")
                    for path in ("", "$", "a.b", "$.a..b", "$.a[", "$.a['b", "$['a?']", "$.a b", "$.a[-1]", "$.a\n")
                ),
            )
        ),
        *(
            pytest.param({"dlq": {"profile": [{"name": name, "headers": [TOPIC]}]}}, sentence, id=f"profile {name!r}")
            for name, sentence in (
                ("kip-1317", "kip-1317 is the name of a built-in profile."),
                ("", "a name has up to 64 letters"),
                ("a b", "a name has up to 64 letters"),
                ("\u202e", "a name has up to 64 letters"),
            )
        ),
        *(
            pytest.param(
                {"dlq": {"profile": [{"name": "own", "default_topic": name, "headers": [TOPIC]}]}},
                "write a name that holds the group like error.{original_topic}.{consumer_group}.",
                id=f"default topic {name}",
            )
            for name in (
                "error.{topic}",
                "error.{consumer_group}",
                "*.{original_topic}.{consumer_group}",
                "{original_topic}{consumer_group}",
                "{original_topic}.{consumer_group}.dlq",
            )
        ),
        pytest.param(
            {"dlq": {"profile": [{"name": "own", "headers": [TOPIC]}] * 2}},
            "two profiles have the name own.",
            id="two profiles of one name",
        ),
        pytest.param(
            {"dlq": {"require": [{"topic": "*", "profile": "own"}]}},
            "require.0.profile names no profile; profiles: kip-1317, kip-1191,",
            id="unknown profile required",
        ),
        *(
            pytest.param({"privacy": [mask]}, sentence, id=f"mask: {name}")
            for name, mask, sentence in (
                ("no target", {"do": "drop"}, "The setting privacy.0 cannot be used: give one of header, key, value"),
                ("two targets", {"key": True, "value": True, "do": "drop"}, "give one of header, key, value, path, er"),
                ("no", {"key": False, "do": "drop"}, "The setting privacy.0.key cannot be used"),
                ("nothing to do", {"key": True}, "The setting privacy.0.do cannot be used"),
                ("unknown deed", {"key": True, "do": "encrypt"}, "write it as drop, hash or last:4."),
                ("last of none", {"key": True, "do": "last:0"}, "write it as drop, hash or last:4."),
                ("no glob", {"header": "", "do": "drop"}, "The setting privacy.0.header cannot be used"),
                *(
                    (f"path {path}", {"path": path, "do": "drop"}, "write it like $.customer.email")
                    for path in ("", "$", "a.b", "$..a", "$.a[", "$.a['b", "$.a b", "$.a[-1]", "$.a[?(@.b)]", "$.a\n")
                ),
            )
        ),
        pytest.param(
            {"privacy": [{"key": True, "do": "hash"}]},
            '[[privacy]] has do = "hash": set hash_key_env under [privacy_key].',
            id="a hash without a key",
        ),
        pytest.param(
            {"privacy_key": {"hash_key_env": "no name"}}, "name an environment variable, such as", id="no variable"
        ),
        pytest.param(
            {"privacy_key": {"hash_key_env": "AFTERLOG_HASH_KEY"}},
            "variables that begin with AFTERLOG_ are settings, and the key is none.",
            id="a variable of settings",
        ),
        *(
            pytest.param({"schema": [schema]}, sentence, id=f"schema: {name}")
            for name, schema, sentence in (
                ("no topic", {"file": "a.avsc"}, "The setting schema.0.topic cannot be used"),
                (
                    "part",
                    {"topic": "a", "file": "a.avsc", "part": "header"},
                    "The setting schema.0.part cannot be used",
                ),
                ("no message", {"topic": "a", "file": "a.desc"}, "Protobuf needs the name of a message."),
                ("message of Avro", {"topic": "a", "file": "a.avsc", "message": "a"}, "message is for Protobuf"),
                ("id", {"topic": "a", "file": "a.avsc", "id": -1}, "The setting schema.0.id cannot be used"),
            )
        ),
        *(
            pytest.param({"report": {"url": url}}, sentence, id=f"URL {url}")
            for url, sentence in (
                *(
                    (wrong, "report.url cannot be used: write an address like https://")
                    for wrong in ("", "reports", "ftp://a/", "javascript:alert(1)", "http://", "http://a:b/")
                ),
                *((f"http://a/{wrong}", "write an address") for wrong in ("?q", "#f", "a b", "\n", "ä", "\x1b[0m")),
                ("https://me:secret@a/", "must not have a user or a password."),
            )
        ),
        *(
            pytest.param({"landing": uri}, "The setting landing cannot be used: files land in a directory", id=uri)
            for uri in ("s3a://bucket/landing", "file:///landing")
        ),
        *(
            pytest.param({name: ""}, f"The setting {name} cannot be used: it must not be empty.", id=f"empty {name}")
            for name in ("warehouse", "landing")
        ),
        *(
            pytest.param(values, f"{reason}.", id=f"{reason} in {next(iter(values))}")
            for values, reason in (
                ({"tolerance": True}, "write it as a number, not true or false"),
                ({"gates": {"silver.dlq_records": {"min_failures": True}}}, "write it as a number, not true or false"),
                ({"silence": {"after_hours": {"dlq": True}}}, "write it as a number, not true or false"),
                ({"tolerance": "5%"}, "write it as a number"),
                ({"replay": {"batch": "many"}}, "write it as a whole number"),
                ({"report": {"keep_runs": 1.5}}, "write it as a whole number"),
                ({"cluster": 5}, "write it as text in quotes"),
                ({"replay": {"by_rules": "maybe"}}, "write true or false"),
                ({"spark": 5}, "write it as a section of names and values"),
                ({"schema": [{"topic": "orders"}]}, "it must be there"),
                ({"tolerance": 5}, "it must be less than or equal to 1"),
                ({"privacy": [{"key": False, "do": "drop"}]}, "it must be true"),
                ({"kafka_connection": "a b"}, "it must match '^[A-Za-z0-9_.-]{0,200}$'"),
                (
                    {"spark": {"spark.sql.session.timeZone": "Asia/Tokyo"}},
                    "sessions run in UTC: leave out spark.sql.session.timeZone",
                ),
                ({"metrics": {"file": "afterlog.txt"}}, "the name of the file must end with .prom"),
            )
        ),
        pytest.param(
            {"dlq": {"max_records_per_batch": 0}},
            "The setting dlq.max_records_per_batch cannot be used",
            id="no records",
        ),
    ],
)
def test_what_cannot_be_used_is_said_in_a_sentence(values: dict[str, Any], sentence: str) -> None:
    with pytest.raises(UsageError) as raised:
        load(**values)
    assert sentence in str(raised.value)
    assert SECRET not in str(raised.value)


@given(names)
def test_a_header_may_have_any_name(name: str) -> None:
    mapped = [TOPIC, {"name": name, "field": "stage"}]
    profile = load(dlq={"profile": [{"name": "own", "headers": mapped}]}).dlq.profile[0]
    assert profile.headers[1].name == name


@given(st.text("$.[]'\"ab1? \n", max_size=12))
def test_a_path_is_refused_in_a_sentence_or_leads_somewhere(path: str) -> None:
    mapped = [TOPIC, {"path": path, "field": "stage"}]
    refused = ""
    try:
        load(dlq={"profile": [{"name": "own", "headers": mapped}]})
    except UsageError as error:
        refused = str(error)
    if refused:
        assert refused.startswith("The setting dlq.profile.0.headers.1.path cannot be used: ")
        assert "\n" not in refused
    else:
        assert path.startswith("$")
        assert path.count("[") == path.count("]") or "'" in path or '"' in path


def _fits(name: str, pattern: str) -> bool:
    return name.startswith(pattern[:-1]) if pattern.endswith("*") else name == pattern


def test_masks_and_schemas_can_come_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AFTERLOG_PRIVACY", '[{"path": "$.a[*][\'b c\'].d[0]", "do": "last:4"}]')
    monkeypatch.setenv("AFTERLOG_SCHEMA", '[{"topic": "orders", "file": "a.desc", "message": "Order"}]')
    monkeypatch.setenv("AFTERLOG_PRIVACY_KEY__HASH_KEY_ENV", "DLQ_HASH_KEY")
    settings = load()
    assert (settings.privacy[0].steps, settings.privacy[0].last) == (("a", None, "b c", "d", 0), 4)
    assert (settings.schemas[0].part, settings.schemas[0].is_avro) == ("value", False)
    assert settings.privacy_key.hash_key_env == "DLQ_HASH_KEY"
    assert not list(settings_checks.unknown_variables())
    monkeypatch.setenv("AFTERLOG_PRIVACY", "drop everything")
    with pytest.raises(
        UsageError, match="The setting privacy cannot be used: write it as an array, in a variable as JSON"
    ):
        load()


def test_an_array_or_a_table_of_a_section_can_come_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AFTERLOG_DLQ__REQUIRE", '[{"topic": "dlq.*", "profile": "kip-1317"}]')
    monkeypatch.setenv("AFTERLOG_SILENCE__AFTER_HOURS", '{"dlq": 48}')
    monkeypatch.setenv("AFTERLOG_SILENCE__AFTER_HOURS__SEGMENTS", "2")
    settings = load()
    assert [(item.topic, item.profile) for item in settings.dlq.require] == [("dlq.*", "kip-1317")]
    assert settings.silence.after_hours == {"dlq": 48.0, "segments": 2.0}

    monkeypatch.setenv("AFTERLOG_DLQ__REQUIRE", "dlq.*")
    with pytest.raises(UsageError, match=r"dlq\.require cannot be used: write it as an array, in a variable as JSON"):
        load()


def test_secrets_do_not_show(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AFTERLOG_KAFKA__PASSWORD", SECRET)
    monkeypatch.setenv("AFTERLOG_KAFKA__KEY_PASSWORD", SECRET)
    settings = load(kafka={"options": {"ssl.key.password": SECRET}, "key_password": SECRET, "password": SECRET})
    assert settings.kafka.password is not None
    assert settings.kafka.password.get_secret_value() == SECRET
    for shown in (repr(settings), str(settings), f"{settings.kafka}", repr(settings.model_dump())):
        assert SECRET not in shown
    assert SECRET not in settings.model_dump_json()


def test_the_password_comes_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AFTERLOG_KAFKA__PASSWORD", SECRET)
    password = load().kafka.password
    assert password is not None
    assert password.get_secret_value() == SECRET


def test_a_variable_of_one_key_hides_no_mistake_in_its_section(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AFTERLOG_KAFKA", f'{{"password": "{SECRET}"')
    monkeypatch.setenv("AFTERLOG_KAFKA__USERNAME", "afterlog")
    with pytest.raises(UsageError, match="AFTERLOG_KAFKA__USERNAME cannot be used: kafka is not a section") as raised:
        load()
    assert SECRET not in str(raised.value)


def test_the_commented_example_can_be_used(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    example = (ROOT / "conf" / "afterlog.toml").read_text(encoding="utf-8")
    written = tmp_path / "afterlog.toml"
    lines = example.splitlines()
    said = [line.removeprefix("# ") if "=" in line or line.startswith("# [") else line for line in lines[2:]]
    at = next(number for number, line in enumerate(said) if line.startswith("[[cluster]]"))
    end = said.index("", at)
    monkeypatch.setenv("AFTERLOG_SETTINGS", str(written))
    instead = ('cluster = "', 'kafka_connection = "kafka_default"')
    written.write_text("\n".join(line for line in said if not line.startswith(instead)), encoding="utf-8")
    assert [cluster.kafka.bootstrap_servers for cluster in load().of_clusters()] == ["eu-1:9092"]
    written.write_text("\n".join([*said[:at], *said[end:]]), encoding="utf-8")
    settings: Settings = load()
    assert settings.kafka.sasl_mechanism == "SCRAM-SHA-512"
    assert [
        topics.wanted
        for name in ("dlq", "streams-requests", "acknowledgements")
        if (topics := settings.topics_of(name))
    ] == [
        r"topics that match dlq\..*",
        "topic kafka-request-log",
        "topic acknowledgements",
    ]


def _names(section: type[BaseModel]) -> Iterator[str]:
    """Yield the names of all settings of a section and of the sections in it."""
    for name, field in section.model_fields.items():
        yield field.alias or name
        for part in (field.annotation, *get_args(field.annotation)):
            if isinstance(part, type) and issubclass(part, BaseModel):
                yield from _names(part)


def test_the_commented_example_names_every_setting() -> None:
    example = (ROOT / "conf" / "afterlog.toml").read_text(encoding="utf-8")
    assert [name for name in _names(Settings) if not re.search(rf"\b{name}\b", example)] == []


@pytest.mark.parametrize("url", ["https://a.example:8443/reports", "https://a.example:8443/reports//"])
def test_addresses_of_pages_are_below_the_url(url: str) -> None:
    assert Report(url=url).address_of("index.html") == "https://a.example:8443/reports/index.html"
    assert Report().address_of("index.html") is None
