"""Settings of topics and of the cluster: what they accept, what they refuse, and that secrets do not show."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from pipelines.errors import UsageError
from pipelines.settings import ROOT, Settings, load

SECRET = "canary-5d41402abc4b"


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
    assert (dlq.pattern, dlq.isolation_level, dlq.most_records) == (r"dlq\..*", "read_committed", 500_000)
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
            'The setting acknowledgements cannot be used: Value error, source = "kafka" needs the name of a topic.',
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
        pytest.param({"kafka": {"password": [SECRET]}}, "The setting kafka.password cannot be used", id="no text"),
        pytest.param({"dlq": {"most_records": 0}}, "The setting dlq.most_records cannot be used", id="no records"),
    ],
)
def test_what_cannot_be_used_is_said_in_a_sentence(values: dict[str, Any], sentence: str) -> None:
    with pytest.raises(UsageError) as raised:
        load(**values)
    assert sentence in str(raised.value)
    assert SECRET not in str(raised.value)


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


def test_the_commented_example_can_be_used(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    example = (ROOT / "conf" / "afterlog.toml").read_text(encoding="utf-8")
    written = tmp_path / "afterlog.toml"
    lines = example.splitlines()
    said = [line.removeprefix("# ") if "=" in line or line.startswith("# [") else line for line in lines[2:]]
    written.write_text("\n".join(said), encoding="utf-8")
    monkeypatch.setenv("AFTERLOG_SETTINGS", str(written))
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
