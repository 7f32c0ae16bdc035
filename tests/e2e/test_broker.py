"""The broker of demo and tests with Java clients: what a real broker keeps, dead-letters and logs."""

from __future__ import annotations

import json
import re
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from local.kafka_client import Action, KafkaFailure, Message, Record
from local.kafka_requests import Connection
from pipelines.broker import Broker
from pipelines.cli import app
from pipelines.errors import EnvironmentLacking
from pipelines.settings import ROOT
from tests.testing.broker import SOON_BACK, SecuredBroker
from tests.testing.kafka import KafkaAdmin
from tests.testing.requests import passing

REJECTED, EXCEEDED = b"Offset rejected by client.", b"Offset delivery count exceeded the threshold."


def afterlog(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", "from pipelines.cli import main; main()", *arguments]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=180)


def here(*arguments: str) -> Any:
    """Run a command in this process: one that is not about what outlives it."""
    return CliRunner().invoke(app, ["broker", *arguments])


def test_the_command_line_starts_shows_and_stops_it(tmp_path: Path) -> None:
    place = ("--directory", str(tmp_path / "a bröker, here"))
    before = here("status", *place)
    assert (before.exit_code, before.stdout) == (1, "")
    try:
        started = afterlog("broker", "start", *place)
        assert (started.returncode, started.stderr) == (0, "")
        assert re.fullmatch(r"127\.0\.0\.1:\d+\n", started.stdout)

        again = here("start", *place)
        assert (again.exit_code, again.stdout) == (0, started.stdout)
        assert "runs already" in again.stderr

        status = here("status", "--format", "json", *place)
        assert status.exit_code == 0
        assert json.loads(status.stdout)["bootstrap_servers"] == started.stdout.strip()
    finally:
        stopped = afterlog("broker", "stop", *place)
    assert (stopped.returncode, stopped.stderr) == (0, "")
    assert (Path(place[1]) / "data" / ".kafka_cleanshutdown").exists()
    assert here("status", *place).exit_code == 1
    assert here("stop", *place).stdout == ""


@pytest.fixture(scope="module")
def own(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """A broker that tests of this module stop, kill and start."""
    broker = Broker(tmp_path_factory.mktemp("own"), options=SOON_BACK)
    yield broker
    broker.stop()


@pytest.mark.parametrize("end", [pytest.param("stop", marks=pytest.mark.thorough), "kill"])
def test_restart_keeps_data_and_address(own: Broker, kafka: KafkaAdmin, end: str) -> None:
    own.start()
    address, id_ = own.bootstrap_servers, f"kept-{end}"
    with KafkaAdmin(address, beside=kafka) as client:
        client.create_topic(id_)
        client.produce(id_, [Message(b"first")])
        getattr(own, end)()
        assert own.running is None
        assert own.start() is True
        assert own.bootstrap_servers == address
        client.produce(id_, [Message(b"second")])
        assert [record.value for record in client.read(id_, expected=2)] == [b"first", b"second"]


def test_a_port_that_was_taken_meanwhile_is_replaced(own: Broker, kafka: KafkaAdmin) -> None:
    own.start()
    address = own.bootstrap_servers
    with KafkaAdmin(address, beside=kafka) as client:
        client.create_topic("moved")
    own.stop()
    with socket.socket() as other:
        other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        other.bind(("127.0.0.1", int(address.rpartition(":")[2])))
        other.listen()
        own.start()
        assert own.bootstrap_servers != address
        with KafkaAdmin(own.bootstrap_servers, beside=kafka) as client:
            assert client.read("moved") == []
            assert client.topic_id("moved")


def test_a_context_leaves_a_broker_that_ran_before(own: Broker) -> None:
    own.start()
    with Broker(own.directory) as same:
        assert same.bootstrap_servers == own.bootstrap_servers
    assert own.running


def test_a_broker_that_cannot_start_says_where_its_log_is(tmp_path: Path) -> None:
    broker = Broker(tmp_path / "broker", options={"num.io.threads": "many"})
    with pytest.raises(EnvironmentLacking, match=r"cannot format .*; .*format\.log says why\.$"):
        broker.start()
    assert "num.io.threads" in (tmp_path / "broker" / "logs" / "format.log").read_text()
    assert not broker.data.exists()


def test_a_broker_that_ends_while_it_starts_is_one_sentence(tmp_path: Path) -> None:
    broker = Broker(tmp_path / "broker")
    broker.data.mkdir(parents=True)  # it exists, but is not formatted
    with pytest.raises(EnvironmentLacking, match=r"ended while it started; .*broker\.log says why\.$"):
        broker.start()
    assert broker.running is None


MESSAGES = [
    Message(b"\xff\x00 no text", b"k0", [("trace", b"1"), ("trace", b"2"), ("nothing", None)]),
    Message(None, b"k1"),
    Message(b"", None),
]


def test_every_byte_comes_back(kafka: KafkaAdmin) -> None:
    kafka.create_topic("bytes", 2, {"message.timestamp.type": "CreateTime"})
    message = Message(b"\x00\xff", b"", [("ü", b""), ("a", None), ("a", b"\xfe")], partition=1, timestamp=1795228875344)
    assert kafka.produce("bytes", [message, message]) == [(1, 0), (1, 1)]
    headers = (("ü", b""), ("a", None), ("a", b"\xfe"))
    assert kafka.read("bytes") == [
        Record("bytes", 1, offset, 1795228875344, 0, b"", b"\x00\xff", headers) for offset in (0, 1)
    ]


def test_what_is_not_committed_is_read_only_by_those_who_ask(kafka: KafkaAdmin) -> None:
    kafka.create_topic("transactions")
    with kafka.transaction("of-test-broker") as transaction:
        transaction.send("transactions", [Message(b"aborted")])
        assert [record.value for record in kafka.read("transactions", expected=1)] == [b"aborted"]
        assert kafka.read("transactions", committed=True) == []
        transaction.abort()
    with kafka.transaction("of-test-broker") as transaction:
        transaction.send("transactions", [Message(b"committed")])
    assert [record.value for record in kafka.read("transactions", expected=2)] == [b"aborted", b"committed"]
    assert [record.value for record in kafka.read("transactions", expected=1, committed=True)] == [b"committed"]


# tests/e2e/test_live.py takes each of these actions to silver, with and without copied payload.
@pytest.mark.parametrize(
    ("action", "deliveries", "said", "copy"),
    [
        pytest.param(Action.REJECT, 1, REJECTED, True, id="rejected, copied"),
        pytest.param(Action.REJECT, 1, REJECTED, False, id="rejected, headers only", marks=pytest.mark.thorough),
        pytest.param(Action.RELEASE, 2, EXCEEDED, True, id="released, copied", marks=pytest.mark.thorough),
        pytest.param(Action.RELEASE, 2, EXCEEDED, False, id="released, headers only", marks=pytest.mark.thorough),
        pytest.param(Action.EXPIRE, 2, EXCEEDED, True, id="lock expired, copied", marks=pytest.mark.thorough),
        pytest.param(Action.EXPIRE, 2, EXCEEDED, False, id="lock expired, headers only"),
    ],
)
def test_dead_letters(kafka: KafkaAdmin, action: Action, deliveries: int, said: bytes, copy: bool) -> None:
    name = f"{action.value.lower()}-{copy}"
    source, group, topic = f"source-{name}", f"group-{name}", f"dlq.{name}"
    kafka.create_topic(source)
    kafka.create_dead_letter_topic(topic)
    kafka.dead_letter(group, topic, copy=copy, limit=2, lock_ms=1000)
    kafka.produce(source, MESSAGES)

    done = kafka.share(group, [source], lambda _: action, expected=deliveries * len(MESSAGES))
    counts = [(delivery.record.offset, delivery.record.delivery_count) for delivery in done]
    assert sorted(counts) == [(offset, count) for offset in range(3) for count in range(1, deliveries + 1)]

    dead = kafka.read(topic, expected=len(MESSAGES))
    payloads = [(message.key, message.value) if copy else (None, None) for message in MESSAGES]
    assert [(letter.key, letter.value) for letter in dead] == payloads
    assert [letter.headers for letter in dead] == [
        (
            ("__dlq.errors.topic", source.encode()),
            ("__dlq.errors.partition", b"0"),
            ("__dlq.errors.offset", str(offset).encode()),
            ("__dlq.errors.group", group.encode()),
            ("__dlq.errors.delivery.count", str(deliveries).encode()),
            ("__dlq.errors.message", said),
        )
        for offset in range(3)
    ]


def test_what_is_accepted_in_time_is_no_dead_letter(kafka: KafkaAdmin) -> None:
    kafka.create_topic("source-mixed")
    kafka.dead_letter("group-mixed", "dlq.mixed", limit=2, lock_ms=1000)  # the broker creates the topic
    kafka.produce("source-mixed", MESSAGES)
    decisions = (Action.REJECT, Action.EXPIRE, Action.ACCEPT)
    kafka.share("group-mixed", ["source-mixed"], lambda record: decisions[record.offset])
    dead = kafka.read("dlq.mixed", expected=2)
    assert {dict(letter.headers)["__dlq.errors.offset"] for letter in dead} == {b"0", b"1"}


def exchanges(log: Path) -> Iterator[tuple[str, dict[str, Any], dict[str, Any]]]:
    """Yield the API, the request and the response of each line of a request log."""
    for line in log.read_text(encoding="utf-8").splitlines():
        found = re.fullmatch(r"\[[\d, :-]+\] DEBUG Completed request:(\{.*\}) \(kafka\.request\.logger\)", line)
        assert found, line[:200]
        exchange = json.loads(found[1])
        yield exchange["requestHeader"]["requestApiKeyName"], exchange["request"], exchange["response"]


def test_topologies_are_in_the_request_log(broker: Broker, kafka: KafkaAdmin) -> None:
    group, member, topology = "app-of-test-broker", "member-1", passing(source="in-of-test-broker")
    kafka.create_topic("in-of-test-broker")
    kafka.log_requests()
    try:
        with Connection(kafka, f"{group}-client") as connection:
            joined = connection.join(group, member, topology)
            assert (joined["errorCode"], joined["topologyDescriptionRequired"]) == (0, True)
            assert connection.push(group, member, topology, epoch=7)["errorCode"] == 42
            assert connection.push(group, member, topology)["errorCode"] == 0
            (described,) = connection.describe(group)
            assert described["topologyDescriptionStatus"] == 3
            assert described["topologyDescription"] == topology
            assert connection.leave(group, member)["errorCode"] == 0
            assert [row["errorCode"] for row in connection.delete(group)] == [0]
            assert [row["errorCode"] for row in connection.describe(group)] == [69]
    finally:
        kafka.log_requests(False)

    logged = list(exchanges(broker.request_log))
    pushes = [
        (request["topologyEpoch"], response["errorCode"], request["topologyDescription"])
        for api, request, response in logged
        if api == "STREAMS_GROUP_TOPOLOGY_DESCRIPTION_UPDATE" and request["groupId"] == group
    ]
    assert pushes == [(7, 42, topology), (0, 0, topology)]
    descriptions = [
        row["topologyDescription"]
        for api, _, response in logged
        if api == "STREAMS_GROUP_DESCRIBE"
        for row in response["groups"]
        if row["groupId"] == group
    ]
    assert descriptions == [topology, None]
    heartbeats = [
        (request["memberEpoch"], response["topologyDescriptionRequired"])
        for api, request, response in logged
        if api == "STREAMS_GROUP_HEARTBEAT" and request["groupId"] == group and response["errorCode"] == 0
    ]
    assert heartbeats == [(0, True), (-1, False)]
    assert [request["groupsNames"] for api, request, _ in logged if api == "DELETE_GROUPS"] == [[group]]


def test_users_of_the_secured_listener_may_do_what_acls_allow(secured_broker: SecuredBroker, kafka: KafkaAdmin) -> None:
    patience = {"default.api.timeout.ms": "10000", "request.timeout.ms": "8000"}
    with KafkaAdmin(secured_broker.bootstrap_servers, beside=kafka) as admin:
        admin.create_topic("dlq.secured")
        admin.produce("dlq.secured", [Message(b"for readers")])

        address, options = secured_broker.secured_servers, secured_broker.options_of("reader")
        reader = KafkaAdmin(address, options | patience, beside=admin)
        with pytest.raises(KafkaFailure) as refused:
            reader.read("dlq.secured")
        assert refused.value.reason == "TopicAuthorizationException"
        admin.allow("reader", "READ", "TOPIC", "dlq.secu", prefixed=True)
        assert [record.value for record in reader.read("dlq.secured", expected=1)] == [b"for readers"]

        wrong = {"sasl.jaas.config": options["sasl.jaas.config"].replace("a reader", "nobody")}
        with pytest.raises(KafkaFailure) as refused:
            KafkaAdmin(address, options | patience | wrong, beside=admin).read("dlq.secured")
        assert refused.value.reason == "SaslAuthenticationException"
        assert "secret" not in str(refused.value)

        untrusting = {name: value for name, value in options.items() if not name.startswith("ssl.")}
        with pytest.raises(KafkaFailure, match=r"PKIX|certification path"):
            KafkaAdmin(address, untrusting | patience, beside=admin).read("dlq.secured")
    assert all("secret" not in file.read_text() for file in secured_broker.directory.glob("*.*"))
