from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from pipelines.errors import UsageError
from pipelines.replay.properties import properties
from pipelines.settings import Kafka

CERTIFICATE = "-----BEGIN CERTIFICATE-----\nMA==\n-----END CERTIFICATE-----\n"
SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule"


def kafka(**settings: Any) -> Kafka:
    return Kafka.model_validate({"bootstrap_servers": "a:9092", **settings})


def test_a_plain_cluster() -> None:
    found = properties(kafka(timeout_seconds=7))
    assert found["bootstrap.servers"] == "a:9092"
    assert found["security.protocol"] == "PLAINTEXT"
    assert found["socket.timeout.ms"] == "7000"
    assert not any(name.startswith(("sasl", "ssl", "default.api")) for name in found)


@pytest.mark.parametrize("password", ['a "secret" \\ one', "line\nbreak", "ümläut; x", ""])
def test_a_user_and_a_password_of_any_characters(password: str) -> None:
    secured = kafka(
        security_protocol="SASL_PLAINTEXT", sasl_mechanism="SCRAM-SHA-512", username='a "b"', password=password
    )
    found = properties(secured)
    assert (found["sasl.mechanism"], found["sasl.username"]) == ("SCRAM-SHA-512", 'a "b"')
    assert found["sasl.password"] == password


def test_a_login_given_as_an_option() -> None:
    option = {
        "sasl.mechanism": "SCRAM-SHA-256",
        "sasl.jaas.config": f'{SCRAM} required username="me" password="p\\"w";',
    }
    found = properties(kafka(security_protocol="SASL_PLAINTEXT", options=option))
    assert (found["sasl.mechanism"], found["sasl.username"], found["sasl.password"]) == ("SCRAM-SHA-256", "me", 'p"w')


def test_certificates_from_files(tmp_path: Path) -> None:
    authority = tmp_path / "ca.pem"
    authority.write_text(CERTIFICATE * 2)
    found = properties(kafka(security_protocol="SSL", ca_file=str(authority)))
    assert found["ssl.ca.location"] == str(authority)
    assert "ssl.ca.pem" not in found


def test_options_by_the_names_of_librdkafka() -> None:
    options = {
        "ssl.endpoint.identification.algorithm": "",
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": "/x/ca.pem",
        "ssl.keystore.type": "PKCS12",
        "ssl.keystore.location": "/x/me.p12",
        "ssl.keystore.password": "secret",
        "request.timeout.ms": "4000",
        "fetch.max.wait.ms": "100",
        "client.id": "me",
    }
    translated = {
        "ssl.endpoint.identification.algorithm": "none",
        "ssl.ca.location": "/x/ca.pem",
        "ssl.keystore.location": "/x/me.p12",
        "ssl.keystore.password": "secret",
        "socket.timeout.ms": "4000",
        "client.id": "me",
    }
    settings = kafka(security_protocol="SSL", options=options)
    found, of_consumer = properties(settings), properties(settings, of_consumer=True)
    assert {name: found[name] for name in translated} == translated
    assert found.keys() & options.keys() <= translated.keys()
    assert of_consumer.keys() - found.keys() == {"fetch.wait.max.ms"}


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"sasl.login.callback.handler.class": "x.Y"}, "sasl.login.callback.handler.class"),
        ({"security.providers": "x"}, "security.providers"),
        ({"sasl.jaas.config": "com.sun.security.auth.module.Krb5LoginModule required;"}, "sasl.jaas.config"),
        ({"sasl.jaas.config": f'{SCRAM} required username="a" password="p" tokenauth="true";'}, "sasl.jaas.config"),
        ({"ssl.truststore.location": "/x/ca.jks"}, "ssl.truststore.location"),
        ({"ssl.keystore.location": "/x/me.jks"}, "ssl.keystore.location"),
        ({"ssl.truststore.certificates": CERTIFICATE * 2}, "ssl.truststore.certificates"),
        ({"max.poll.records": "5"}, "max.poll.records"),
    ],
)
def test_refuses_an_option_that_librdkafka_does_not_have(options: dict[str, str], named: str) -> None:
    with pytest.raises(UsageError) as refused:
        properties(
            kafka(security_protocol="SASL_SSL", sasl_mechanism="PLAIN", username="a", password="pw", options=options)
        )
    assert f"the option {named} of [kafka]" in str(refused.value)
    assert all(value not in str(refused.value) for value in options.values() if len(value) > 4)
