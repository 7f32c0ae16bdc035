"""An Airflow connection becomes cluster settings, which reach the command in its environment and stay secret."""

from __future__ import annotations

import json
import logging
import os
import re
import shlex
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from dags.connections import Cluster, cluster_of
from pipelines.errors import UsageError
from pipelines.kafka.properties import properties
from pipelines.settings import ROOT, load

SECRET = "canary-5d41402abc4b"
SCRAM = {
    "bootstrap.servers": "one:9093,two:9093",
    "security.protocol": "sasl_ssl",
    "sasl.mechanisms": "SCRAM-SHA-512",
    "sasl.username": "afterlog",
    "sasl.password": SECRET,
    "ssl.ca.location": "/etc/kafka/ca.pem",
}


def values(cluster: Cluster) -> dict[str, Any]:
    """The settings that the command gets."""
    (text,) = cluster.environment().values()
    found: dict[str, Any] = json.loads(text)
    return found


@pytest.mark.parametrize(
    ("extra", "others", "expected"),
    [
        pytest.param({"bootstrap.servers": "one:9092"}, {}, {"bootstrap_servers": "one:9092"}, id="plain"),
        pytest.param({"metadata.broker.list": "one:9092"}, {}, {"bootstrap_servers": "one:9092"}, id="older name"),
        pytest.param({}, {"host": "one", "port": 9092}, {"bootstrap_servers": "one:9092"}, id="host and port"),
        pytest.param(
            {"bootstrap.servers": "one:9092"},
            {"host": "two", "port": 1, "login": "x", "password": SECRET},
            {"bootstrap_servers": "one:9092"},
            id="the extra says where; without SASL nobody logs in",
        ),
        pytest.param(
            SCRAM,
            {"login": "other", "password": "other"},
            {
                "bootstrap_servers": "one:9093,two:9093",
                "security_protocol": "SASL_SSL",
                "sasl_mechanism": "SCRAM-SHA-512",
                "username": "afterlog",
                "password": SECRET,
                "ca_file": "/etc/kafka/ca.pem",
            },
            id="SCRAM",
        ),
        pytest.param(
            {"bootstrap.servers": "one:9092", "security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "plain"},
            {"login": "me", "password": SECRET},
            {
                "bootstrap_servers": "one:9092",
                "security_protocol": "SASL_PLAINTEXT",
                "sasl_mechanism": "PLAIN",
                "username": "me",
                "password": SECRET,
            },
            id="login and password",
        ),
        pytest.param(
            {
                "bootstrap.servers": "one:9093",
                "security.protocol": "SSL",
                "ssl.certificate.location": "me.pem",
                "ssl.key.location": "me.key",
                "ssl.key.password": SECRET,
                "ssl.endpoint.identification.algorithm": "none",
            },
            {},
            {
                "bootstrap_servers": "one:9093",
                "security_protocol": "SSL",
                "certificate_file": "me.pem",
                "key_file": "me.key",
                "key_password": SECRET,
                "options": {"ssl.endpoint.identification.algorithm": ""},
            },
            id="a certificate",
        ),
        pytest.param(
            {"bootstrap.servers": "one:9093", "security.protocol": "SSL", "ssl.ca.pem": "CA", "ssl.key.pem": SECRET},
            {},
            {
                "bootstrap_servers": "one:9093",
                "security_protocol": "SSL",
                "options": {
                    "ssl.truststore.type": "PEM",
                    "ssl.truststore.certificates": "CA",
                    "ssl.keystore.type": "PEM",
                    "ssl.keystore.key": SECRET,
                },
            },
            id="texts instead of files",
        ),
        pytest.param(
            {
                "bootstrap.servers": "one:9092",
                "security.protocol": "SASL_SSL",
                "sasl.mechanism": "OAUTHBEARER",
                "sasl.jaas.config": SECRET,
            },
            {},
            {
                "bootstrap_servers": "one:9092",
                "security_protocol": "SASL_SSL",
                "options": {"sasl.mechanism": "OAUTHBEARER", "sasl.jaas.config": SECRET},
            },
            id="what only the Java clients know",
        ),
        pytest.param(
            {"bootstrap.servers": "one:9092", "client.id": 5, "fetch.max.bytes": 1000, "enable.ssl.x": True},
            {},
            {"bootstrap_servers": "one:9092", "options": {"client.id": "5", "fetch.max.bytes": "1000"}},
            id="numbers",
        ),
    ],
)
def test_a_connection_becomes_settings(extra: dict[str, Any], others: dict[str, Any], expected: dict[str, Any]) -> None:
    assert values(cluster_of("kafka_default", extra, **others)) == expected


def test_the_extra_that_the_documents_show_can_be_used() -> None:
    shown = re.search(r"```json5\n(.+?)```", (ROOT / "docs" / "operate.md").read_text("utf-8"), re.DOTALL)
    assert shown
    cluster = cluster_of("kafka_default", json.loads(shown[1]))
    assert cluster.left_out == ()
    assert set(values(cluster)) == set(values(cluster_of("kafka_default", SCRAM)))


def test_keys_of_a_consumer_are_left_out() -> None:
    mine = {"group.id": "x", "auto.offset.reset": "earliest", "error_cb": "a.b", "isolation.level": "read_uncommitted"}
    cluster = cluster_of("kafka_default", {"bootstrap.servers": "one:9092", **mine})
    assert cluster.left_out == ("auto.offset.reset", "error_cb", "group.id", "isolation.level")
    assert values(cluster) == {"bootstrap_servers": "one:9092"}


@pytest.mark.parametrize(
    ("extra", "sentence"),
    [
        ([SECRET], "its extra is no JSON object."),
        ({}, "its extra names no bootstrap.servers."),
        ({"bootstrap.servers": f"one {SECRET}"}, "write it like host:9092,other:9092."),
        ({"bootstrap.servers": "one:1", "sasl.password": [SECRET]}, "sasl.password in its extra is neither text nor"),
        ({"bootstrap.servers": "one:1", "security.protocol": SECRET}, "security_protocol cannot be used"),
        ({"bootstrap.servers": "one:1", "security.protocol": "SASL_SSL"}, "its extra names no sasl.mechanism."),
        (
            {"bootstrap.servers": "one:1", "security.protocol": "SASL_SSL", "sasl.mechanism": "PLAIN"},
            "PLAIN needs sasl.username and sasl.password in its extra.",
        ),
        ({"bootstrap.servers": "one:1", "ssl.key.location": SECRET}, "certificate_file and key_file go together."),
        ({"bootstrap.servers": "one:1", "enable.ssl.certificate.verification": False}, "Afterlog checks certificates"),
    ],
)
def test_what_cannot_be_used_is_one_sentence_without_values(extra: Any, sentence: str) -> None:
    with pytest.raises(UsageError) as raised:
        cluster_of("kafka_default", extra)
    assert str(raised.value).startswith("The Airflow connection kafka_default cannot be used: ")
    assert sentence in str(raised.value)
    assert SECRET not in str(raised.value)


def test_secrets_do_not_show_and_are_known() -> None:
    options = {"ssl.ca.pem": SECRET + "2", "ssl.key.pem": SECRET + "3", "ssl.truststore.password": SECRET + "4"}
    cluster = cluster_of("kafka_default", SCRAM | options)
    assert SECRET not in repr(cluster) + str(cluster) + f"{cluster}"
    assert set(cluster.secrets()) == {SECRET, SECRET + "2", SECRET + "3", SECRET + "4"}


def test_the_command_has_the_cluster_of_the_connection_and_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AFTERLOG_KAFKA", cluster_of("kafka_default", SCRAM).environment()["AFTERLOG_KAFKA"])
    monkeypatch.setenv("AFTERLOG_KAFKA__TIMEOUT_SECONDS", "5")
    found = load().kafka
    assert found.bootstrap_servers == "one:9093,two:9093"
    assert found.timeout_seconds == 5  # a variable for one value overrides the variable for all
    assert found.password is not None
    assert found.password.get_secret_value() == SECRET
    given = properties(found.model_copy(update={"ca_file": None}))
    assert given["sasl.mechanism"] == "SCRAM-SHA-512"
    assert f'username="afterlog" password="{SECRET}"' in given["sasl.jaas.config"]
    assert SECRET not in repr(load())


def test_a_cluster_in_the_environment_that_is_no_object_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AFTERLOG_KAFKA", f'{{"password": "{SECRET}"')
    with pytest.raises(UsageError, match="The setting kafka cannot be used") as raised:
        load()
    assert SECRET not in str(raised.value)


# Tasks

LOOK = """
import json, os, sys
told = {name: text for name, text in os.environ.items() if name.startswith(("AFTERLOG_KAFKA", "AFTERLOG_CLUSTER__"))}
(place,) = [one.removeprefix("--warehouse=") for one in sys.argv if one.startswith("--warehouse=")]
with open(place, "w") as file:
    json.dump({"told": told, "argv": sys.argv}, file)
print("done")
"""


@pytest.fixture
def look(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., dict[str, Any]]:
    """Run a task whose command records its arguments and environment."""
    (tmp_path / "command.py").write_text(LOOK)
    monkeypatch.setenv("AFTERLOG_COMMAND", shlex.join([sys.executable, os.fspath(tmp_path / "command.py")]))
    monkeypatch.setenv("AFTERLOG_KAFKA__PASSWORD", "another cluster's")
    monkeypatch.setenv("AIRFLOW_CONN_KAFKA_DEFAULT", json.dumps({"conn_type": "generic", "extra": SCRAM}))
    monkeypatch.setenv("AIRFLOW_CONN_BAD", json.dumps({"conn_type": "generic", "extra": {"sasl.password": SECRET}}))

    def run(**params: str) -> dict[str, Any]:
        from dags.operators import BuildReports

        task = BuildReports(task_id="reports", layers={})
        context: Any = {"params": {"landing": None, "warehouse": os.fspath(tmp_path / "told.json"), **params}}
        task._run(context)
        found: dict[str, Any] = json.loads((tmp_path / "told.json").read_text())
        return found

    return run


def test_a_task_hands_the_cluster_to_its_command_by_environment_alone(
    look: Callable[..., dict[str, Any]], caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    with caplog.at_level(logging.DEBUG):
        found = look(kafka_connection="kafka_default")
    (name, text), *others = found["told"].items()
    assert (name, others) == ("AFTERLOG_KAFKA", [])
    assert json.loads(text)["password"] == SECRET
    assert SECRET not in json.dumps(found["argv"])
    output = capfd.readouterr()
    assert SECRET not in caplog.text + output.out + output.err


def test_the_settings_name_a_connection_too(
    look: Callable[..., dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AFTERLOG_KAFKA_CONNECTION", "kafka_default")
    assert json.loads(look()["told"]["AFTERLOG_KAFKA"])["username"] == "afterlog"


def test_each_of_several_clusters_gets_its_own_connection(
    look: Callable[..., dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    from dags.operators import CannotRun

    entries = [{"name": "eu", "kafka_connection": "kafka_default"}, {"name": "us-1", "kafka_connection": "us"}]
    monkeypatch.setenv("AFTERLOG_CLUSTER", json.dumps(entries))
    monkeypatch.setenv("AFTERLOG_CLUSTER__EU__KAFKA__PASSWORD", "to be replaced")
    monkeypatch.setenv("AIRFLOW_CONN_US", json.dumps({"conn_type": "generic", "host": "us", "port": 9092}))
    file = look()["told"]
    eu, us = (json.loads(file.pop(f"AFTERLOG_CLUSTER__{name}__KAFKA")) for name in ("EU", "US_1"))
    assert file == {"AFTERLOG_KAFKA__PASSWORD": "another cluster's"}
    assert (eu["password"], us["password"], us["bootstrap_servers"]) == (SECRET, None, "us:9092")
    for name, text in {"AFTERLOG_CLUSTER__EU__KAFKA": eu, "AFTERLOG_CLUSTER__US_1__KAFKA": us}.items():
        monkeypatch.setenv(name, json.dumps(text))
    monkeypatch.delenv("AFTERLOG_CLUSTER__EU__KAFKA__PASSWORD")
    of_eu, of_us = (own.kafka for own in load().of_clusters())
    assert of_eu.password is not None
    assert (of_eu.password.get_secret_value(), of_us.password, of_us.username) == (SECRET, None, None)

    chosen = look(cluster="us-1", kafka_connection="kafka_default")
    assert json.loads(chosen["told"]["AFTERLOG_CLUSTER__US_1__KAFKA"])["password"] == SECRET
    assert "--cluster=us-1" in chosen["argv"]
    with pytest.raises(CannotRun, match="kafka_connection is that of one cluster: say by cluster which one"):
        look(kafka_connection="kafka_default")


def test_without_a_connection_the_environment_stays_as_it_is(look: Callable[..., dict[str, Any]]) -> None:
    assert look()["told"] == {"AFTERLOG_KAFKA__PASSWORD": "another cluster's"}


def test_a_connection_that_cannot_be_used_is_nothing_that_a_retry_mends(look: Callable[..., dict[str, Any]]) -> None:
    from dags.operators import CannotRun

    with pytest.raises(CannotRun, match="connection bad cannot be used: its extra names no bootstrap") as raised:
        look(kafka_connection="bad")
    assert SECRET not in str(raised.value)


def test_a_connection_that_is_not_there_is_one_sentence(look: Callable[..., dict[str, Any]]) -> None:
    from dags.operators import CannotRun

    with pytest.raises(CannotRun, match="There is no Airflow connection nowhere: add it"):
        look(kafka_connection="nowhere")


@pytest.mark.parametrize("value", ["", " ", "a b", "a\n", "--x y", "é", "x" * 201, 5, ["a"]], ids=repr)
def test_hostile_names_are_refused(value: object) -> None:
    from airflow.sdk.exceptions import ParamValidationError

    from dags.factory import feed_dag

    param = feed_dag("dlq", schedule=None).params.get_param("kafka_connection")
    with pytest.raises(ParamValidationError):
        param.resolve(value)
    assert param.resolve("kafka_default.eu-1") == "kafka_default.eu-1"
    assert param.resolve(None) is None
