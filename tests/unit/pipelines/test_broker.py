from __future__ import annotations

import json
import os
import socket
import stat
from pathlib import Path

import pytest

from local.kafka_client import _header
from pipelines.broker import Broker
from pipelines.errors import EnvironmentLacking
from tests.testing.broker import SecuredBroker


@pytest.fixture
def broker(tmp_path: Path) -> Broker:
    return Broker(tmp_path / "broker")


def remember(broker: Broker, pid: int | None, **ports: int) -> None:
    broker.directory.mkdir(exist_ok=True)
    (broker.directory / "broker.json").write_text(json.dumps({"pid": pid, "ports": {"CONTROLLER": 2, **ports}}))


def test_asking_for_a_broker_that_never_ran_writes_nothing(broker: Broker) -> None:
    assert broker.running is None
    assert broker.stop() is False
    assert not broker.directory.exists()
    with pytest.raises(EnvironmentLacking, match=r"^No broker runs in .*; `afterlog broker start` starts one\.$"):
        _ = broker.bootstrap_servers


def test_another_process_under_its_number_is_let_alone(broker: Broker) -> None:
    remember(broker, os.getpid(), PLAINTEXT=1)
    assert broker.running is None
    assert broker.stop() is False
    assert json.loads((broker.directory / "broker.json").read_text())["pid"] is None


@pytest.mark.parametrize("text", ["", "{", "[]", '{"pid": "1"}'])
def test_a_damaged_note_is_none(broker: Broker, text: str) -> None:
    broker.directory.mkdir()
    (broker.directory / "broker.json").write_text(text)
    assert broker.running is None


def test_a_port_in_use_is_one_sentence(tmp_path: Path) -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        with pytest.raises(EnvironmentLacking) as refused:
            Broker(tmp_path / "broker", port=port).start()
    assert str(refused.value) == f"Port {port} cannot be used (Address already in use); choose another one, or none."


def test_a_directory_that_cannot_be_written_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(EnvironmentLacking, match=r"^The broker's directory .* cannot be written \(.*\): name another"):
        Broker(tmp_path / "file" / "broker").start()


def test_ports_are_those_of_last_time_where_they_are_free(broker: Broker) -> None:
    with socket.socket() as taken, socket.socket() as free:
        for each in (taken, free):
            each.bind(("127.0.0.1", 0))
        taken.listen()
        ports = [each.getsockname()[1] for each in (taken, free)]
        free.close()
        remember(broker, None, PLAINTEXT=ports[1], CONTROLLER=ports[0])
        chosen = broker._ports()
    assert chosen["PLAINTEXT"] == ports[1]
    assert chosen["CONTROLLER"] not in ports


def test_the_secured_listener_needs_users(tmp_path: Path) -> None:
    assert set(Broker(tmp_path)._ports()) == {"PLAINTEXT", "CONTROLLER"}
    assert set(SecuredBroker(tmp_path, {"reader": "secret"})._ports()) == {"PLAINTEXT", "CONTROLLER", "SASL_SSL"}


def test_settings_name_no_secret_and_can_be_overridden(tmp_path: Path) -> None:
    broker = SecuredBroker(tmp_path, {"reader": "a secret"}, options={"num.partitions": "7", "node.id": "4"})
    text = broker._properties({"PLAINTEXT": 1, "CONTROLLER": 2, "SASL_SSL": 3}, "data")
    settings = dict(line.split("=", 1) for line in text.splitlines())
    assert settings["advertised.listeners"] == "PLAINTEXT://127.0.0.1:1,SASL_SSL://127.0.0.1:3"
    assert (settings["num.partitions"], settings["node.id"]) == ("7", "4")
    assert "a secret" not in text


def test_keys_are_made_once_and_read_by_nobody_else(tmp_path: Path) -> None:
    broker = SecuredBroker(tmp_path, {"reader": "secret"})
    broker.make_keys()
    key = (tmp_path / "keys" / "server.pem").read_text()
    assert key.startswith("-----BEGIN PRIVATE KEY-----")
    assert stat.S_IMODE((tmp_path / "keys").stat().st_mode) == 0o700
    broker.make_keys()
    assert (tmp_path / "keys" / "server.pem").read_text() == key


def test_a_secret_is_quoted_for_java() -> None:
    told = SecuredBroker(Path(), {"reader": 'a "secret" \\'}).options_of("reader")["sasl.jaas.config"]
    assert told.endswith('username="reader" password="a \\"secret\\" \\\\";')


@pytest.mark.parametrize(
    ("fields", "header"),
    [
        ({"key": "a", "keyBuffer": None, "value": "/w==", "valueBuffer": None}, ("a", b"\xff")),
        ({"key": "a", "keyBuffer": None, "value": None, "valueBuffer": None}, ("a", None)),
        ({"key": None, "keyBuffer": "w7w=", "value": None, "valueBuffer": "/w=="}, ("ü", b"\xff")),
        ({"key": None, "keyBuffer": "w7w=", "value": None, "valueBuffer": ""}, ("ü", b"")),
    ],
    ids=["read", "null", "in buffers", "empty in a buffer"],
)
def test_headers_are_read_whether_they_are_still_in_buffers_or_not(
    fields: dict[str, str | None], header: tuple[str, bytes | None]
) -> None:
    assert _header(fields) == header
