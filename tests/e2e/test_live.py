"""A live broker from end to end: the tables hold exactly what share groups and Streams members did."""

from __future__ import annotations

import io
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from rich.console import Console

from local import live
from local.bundled import put
from local.demo import _show_live
from local.kafka_client import Action, Message, Record
from local.kafka_requests import Connection
from pipelines.broker import Broker
from pipelines.kafka import records as kafka_records
from pipelines.settings import ROOT, Settings, load
from pipelines.warehouse import jvmless
from pipelines.warehouse.tables import Warehouse
from tests.testing.broker import SOON_BACK, SecuredBroker
from tests.testing.builders import kip_1191, run, warehouse_of
from tests.testing.kafka import KafkaAdmin
from tests.testing.requests import passing

BRONZE, SILVER, QUARANTINE = "bronze.dlq_records", "silver.dlq_records", "quarantine.dlq_records"
REJECTED, EXCEEDED = "CLIENT_REJECTED", "MAX_DELIVERY_ATTEMPTS_REACHED"
SECRET = 'a "secret" \\ of a reader'


def rows(settings: Settings, table: str) -> list[dict[str, Any]]:
    return jvmless.rows(Warehouse(settings), table, {"cluster": settings.cluster})


def of_bronze(settings: Settings) -> list[Record]:
    return sorted(map(live.consumed, rows(settings, BRONZE)), key=place)


def place(record: Record) -> tuple[str, int, int]:
    return record.topic, record.partition, record.offset


# --- dead letters --------------------------------------------------------------------------------------------------

COMMITTED = [Message(b"committed", b"k0", [("trace", b"1")]), Message(None, b"k1"), Message(b"", None)]
ABORTED = [Message(f"aborted {number}".encode(), b"k") for number in range(3)]
PLAIN = [Message(b"\xff\x00 no text", b"\xfe"), Message(None, None), Message(b"x" * 10_000, b"", [("a", None)])]
COMMIT, ABORT = Message(b"\0" * 6, b"\0\0\0\1"), Message(b"\0" * 6, b"\0\0\0\0")
LOG = dict(enumerate([*COMMITTED, COMMIT, *ABORTED, ABORT, *PLAIN]))
"""What the source topic holds, by offset; its transactions' markers are at 3 and 7."""
MARKERS = {3, 7}
GROUPS = {
    f"proof-{action.value.lower()}-{'copied' if copied else 'headers'}": (action, copied)
    for action, copied in product((Action.REJECT, Action.RELEASE, Action.EXPIRE), (True, False))
}


@dataclass(frozen=True)
class Proof:
    """What a plain consumer reads from the dead-letter topic, and the place of a record that no group wrote."""

    records: list[Record]
    foreign: tuple[int, int]


def dead_lettered(kafka: KafkaAdmin) -> Proof:
    """Let six groups fail on all records of a topic, with each action and with and without copied payload."""
    kafka.create_topic("proof")
    kafka.create_dead_letter_topic("dlq.proof", 2)
    with kafka.transaction("proof") as transaction:
        transaction.send("proof", COMMITTED)
    with kafka.transaction("proof") as transaction:
        transaction.send("proof", ABORTED)
        transaction.abort()
    kafka.produce("proof", PLAIN)
    (foreign,) = kafka.produce("dlq.proof", [Message(b"of nobody's group", partition=1)])
    data = len(LOG) - len(MARKERS)
    expected = 1
    for group, (action, copied) in GROUPS.items():
        kafka.dead_letter(group, "dlq.proof", copy=copied, limit=2, lock_ms=1000)
        deliveries = data if action is Action.REJECT else 2 * data
        kafka.share(group, ["proof"], lambda _, action=action: action, expected=deliveries)  # type: ignore[misc]
        expected += len(dead(action))
    return Proof(kafka.read("dlq.proof", expected=expected, committed=True), foreign)


def dead(action: Action) -> set[int]:
    """Return the dead-lettered offsets: if locks expire also markers, because no consumer acknowledges them."""
    return set(LOG) if action is Action.EXPIRE else set(LOG) - MARKERS


@pytest.fixture(scope="module")
def proof(kafka: KafkaAdmin) -> Proof:
    return dead_lettered(kafka)


@pytest.fixture(scope="module")
def landed(
    spark: SparkSession,
    empty_warehouse: Path,
    broker: Broker,
    proof: Proof,
    tmp_path_factory: pytest.TempPathFactory,
) -> Settings:
    """Settings of a warehouse after the dead letters landed and were split."""
    settings = warehouse_of(
        empty_warehouse,
        tmp_path_factory.mktemp("proof"),
        kafka={"bootstrap_servers": broker.bootstrap_servers},
        dlq={"source": "kafka", "subscribe_pattern": r"dlq\.proof"},
    )
    done = run(spark, settings, BRONZE, SILVER)
    assert {table: stage_run.status for table, stage_run in done.items()} == dict.fromkeys(done, "passed")
    return settings


def test_every_dead_letter_is_in_bronze_as_a_plain_consumer_reads_it(proof: Proof, landed: Settings) -> None:
    assert len(proof.records) == 59
    assert of_bronze(landed) == sorted(proof.records, key=place)


def test_what_the_groups_did_stands_in_silver(landed: Settings) -> None:
    names = ("consumer_group", "original_topic", "original_partition", "original_offset", "header_profile")
    told = ("disposition", "disposition_source", "delivery_count", "payload_copied", "control_marker_suspected")
    found = [tuple(row[name] for name in (*names, *told, "key", "value")) for row in rows(landed, SILVER)]
    expected = []
    for group, (action, copied) in GROUPS.items():
        disposition, count = (REJECTED, 1) if action is Action.REJECT else (EXCEEDED, 2)
        for offset in dead(action):
            key, value = (LOG[offset].key, LOG[offset].value) if copied else (None, None)
            is_copied = (key, value) != (None, None)  # a copy of an empty payload looks like no copy
            looks_so = copied and offset in MARKERS
            says = (disposition, "message", count, is_copied, looks_so)
            expected.append((group, "proof", 0, offset, "kip-1191", *says, key, value))
    assert sorted(found, key=repr) == sorted(expected, key=repr)


def test_a_foreign_record_is_quarantined_and_nothing_else(proof: Proof, landed: Settings) -> None:
    found = [
        (row["dlq_partition"], row["dlq_offset"], row["value"], row["violations"]) for row in rows(landed, QUARANTINE)
    ]
    assert found == [(*proof.foreign, b"of nobody's group", ["header_profile.not_null"])]


def in_gold(landed: Settings) -> Counter[str]:
    found: Counter[str] = Counter()
    for row in rows(landed, "gold.dlq_summary"):
        found[row["consumer_group"]] += row["record_count"]
    return found


@pytest.mark.thorough
def test_gold_counts_dead_letters_and_no_markers_that_the_brokers_own_log_proves(
    spark: SparkSession, broker: Broker, landed: Settings
) -> None:
    done = run(spark, landed)
    assert {stage_run.status for stage_run in done.values()} <= {"passed", "idle"}
    assert in_gold(landed) == {group: len(dead(action)) for group, (action, _) in GROUPS.items()}

    shutil.copytree(
        broker.data / "proof-0", landed.landing_of("segments") / "proof-0", ignore=lambda _, names: not_logs(names)
    )
    run(spark, landed, *OF_MARKERS, feed="delivery")

    assert in_gold(landed) == {group: len(dead(action) - MARKERS) for group, (action, _) in GROUPS.items()}
    letters = rows(landed, "silver.dead_letters")
    assert {row["original_offset"] for row in letters if row["is_control_marker"]} == MARKERS
    assert not any(row["control_marker_suspected"] for row in letters)


OF_MARKERS = (
    *("bronze.record_batches", "silver.record_batches", "silver.log_files"),
    *("silver.log_copies", "silver.log_batches"),
    *("silver.log_ranges", "silver.dlq_control_markers"),
    *("gold.dlq_counts", "gold.dlq_summary", "silver.dead_letters"),
)


def not_logs(names: list[str]) -> set[str]:
    return {name for name in names if not name.endswith(".log")}


# --- topologies ----------------------------------------------------------------------------------------------------

TOPOLOGY, OTHER = passing("proof-in", "proof-out"), passing("proof-in", "proof-out", processor="another")
OF_TOPOLOGIES = (
    *("bronze.streams_requests", "silver.topology_pushes", "silver.topology_statuses", "silver.group_deletions"),
    *("silver.group_heartbeats", "gold.topology_revisions", "gold.topology_current"),
)
HEALTH = {
    "proof-stored": "OK",
    "proof-refused": "REJECTED",
    "proof-deleted": "DELETED",
    "proof-silent": "NOT_PUSHED",
    "proof-divided": "CONFLICT",
}


def pushed(broker: Broker, kafka: KafkaAdmin) -> list[str]:
    """Let members of five groups send requests to the broker; return the lines of its request log."""
    kafka.create_topic("proof-in")
    with broker.request_log.open("rb") as log, Connection(kafka, "proof-apps") as connection:
        log.seek(0, os.SEEK_END)
        kafka.log_requests()
        try:
            for group in HEALTH:
                joined = connection.join(group, "m1", TOPOLOGY)
                assert (joined["errorCode"], joined["topologyDescriptionRequired"]) == (0, True)
            for group in ("proof-stored", "proof-deleted", "proof-divided"):
                assert connection.push(group, "m1", TOPOLOGY)["errorCode"] == 0
            assert connection.push("proof-refused", "m1", TOPOLOGY, epoch=3)["errorCode"] == 42
            assert connection.join("proof-divided", "m2", OTHER)["errorCode"] == 0
            assert connection.push("proof-divided", "m2", OTHER)["errorCode"] == 0
            described = {row["groupId"]: row["topologyDescriptionStatus"] for row in connection.describe(*HEALTH)}
            assert described == dict(zip(HEALTH, (3, 1, 3, 1, 3), strict=True))
            assert connection.leave("proof-deleted", "m1")["errorCode"] == 0
            assert [row["errorCode"] for row in connection.delete("proof-deleted")] == [0]
            connection.describe("proof-stored")  # answered only after all earlier requests are logged
        finally:
            kafka.log_requests(False)
        return log.read().decode().splitlines()


@pytest.mark.thorough
def test_topologies_stand_in_gold_with_their_health(
    spark: SparkSession, broker: Broker, kafka: KafkaAdmin, empty_warehouse: Path, tmp_path: Path
) -> None:
    settings = warehouse_of(empty_warehouse, tmp_path)
    lines = pushed(broker, kafka)
    put(settings.landing_of("streams-requests") / "kafka-request.log", "".join(f"{line}\n" for line in lines).encode())
    done = run(spark, settings, *OF_TOPOLOGIES, feed="topology")
    assert {table: stage_run.status for table, stage_run in done.items()} == dict.fromkeys(OF_TOPOLOGIES, "passed")

    current = {row["group_id"]: row for row in rows(settings, "gold.topology_current")}
    assert {group: row["health"] for group, row in current.items()} == HEALTH
    described = {group: row["description"] and json.loads(row["description"]) for group, row in current.items()}
    assert described == {
        "proof-stored": TOPOLOGY,
        "proof-refused": None,
        "proof-deleted": TOPOLOGY,
        "proof-silent": None,
        "proof-divided": OTHER,
    }
    assert current["proof-refused"]["last_error_name"] == "INVALID_REQUEST"
    assert current["proof-divided"]["conflicting_members"] == ["m1", "m2"]
    pushes = [
        (row["group_id"], row["member_id"], row["error_code"]) for row in rows(settings, "silver.topology_pushes")
    ]
    assert sorted(pushes) == [
        ("proof-deleted", "m1", 0),
        ("proof-divided", "m1", 0),
        ("proof-divided", "m2", 0),
        ("proof-refused", "m1", 42),
        ("proof-stored", "m1", 0),
    ]
    deletions = [(row["group_id"], row["error_code"]) for row in rows(settings, "silver.group_deletions")]
    assert deletions == [("proof-deleted", 0)]


# --- a secured listener --------------------------------------------------------------------------------------------


def afterlog(settings: Settings, variables: dict[str, str]) -> subprocess.CompletedProcess[str]:
    """Run the command line up to bronze, with settings from the environment alone."""
    command = [sys.executable, "-c", "from pipelines.cli import main; main()", "run", "--only", BRONZE]
    return subprocess.run(
        [*command, "--warehouse", settings.warehouse, "--landing", settings.landing],
        env=os.environ | {"PYTHONPATH": str(ROOT)} | variables,
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=240,
    )


def secured(broker: SecuredBroker, **changes: str) -> dict[str, str]:
    """Return the environment of a user of the secured listener."""
    kafka = {
        "bootstrap_servers": broker.secured_servers,
        "security_protocol": "SASL_SSL",
        "sasl_mechanism": "SCRAM-SHA-512",
        "username": "reader",
        "password": SECRET,
        "ca_file": str(broker.authority),
        "timeout_seconds": "5",
        **changes,
    }
    variables = {f"AFTERLOG_KAFKA__{name.upper()}": value for name, value in kafka.items()}
    return {**variables, "AFTERLOG_DLQ__SOURCE": "kafka", "AFTERLOG_DLQ__SUBSCRIBE_PATTERN": r"dlq\.vaulted"}


@pytest.fixture(scope="module")
def vaulted(secured_broker: SecuredBroker) -> list[Record]:
    """What a plain consumer reads from a topic that only one of the two users can read."""
    with KafkaAdmin(secured_broker.bootstrap_servers) as admin:
        admin.create_topic("dlq.vaulted", 2)
        admin.produce(
            "dlq.vaulted",
            [Message(os.urandom(50), bytes([at]), kip_1191(offset=at), partition=at % 2) for at in range(20)],
        )
        admin.allow("reader", "READ", "TOPIC", "dlq.vaulted")
        return admin.read("dlq.vaulted", expected=20)


@pytest.fixture(scope="module")
def secured_run(
    secured_broker: SecuredBroker, vaulted: list[Record], tmp_path_factory: pytest.TempPathFactory
) -> tuple[Settings, subprocess.CompletedProcess[str]]:
    """A run that reads the topic as its user, and the settings of the warehouse that it filled."""
    directory = tmp_path_factory.mktemp("vault")
    settings = load(warehouse=str(directory / "warehouse"), landing=str(directory / "landing"))
    return settings, afterlog(settings, secured(secured_broker, timeout_seconds="30"))


@pytest.mark.thorough
def test_the_secured_listener_lands_the_same(
    vaulted: list[Record], secured_run: tuple[Settings, subprocess.CompletedProcess[str]]
) -> None:
    settings, done = secured_run
    assert done.returncode == 0, done.stderr[-2000:]
    assert of_bronze(settings) == sorted(vaulted, key=place)
    shown = [done.stdout, done.stderr]
    shown += [file.read_text() for file in (Path(settings.warehouse) / "_progress").iterdir() if file.is_file()]
    assert not [text for text in shown if "secret" in text]


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        pytest.param({"password": "a wrong secret"}, 2, id="password"),
        pytest.param({"bootstrap_servers": "127.0.0.1:1"}, 3, id="unreachable"),
    ],
)
@pytest.mark.thorough
def test_what_is_wrong_is_one_line_and_an_exit_code(
    secured_broker: SecuredBroker,
    secured_run: tuple[Settings, subprocess.CompletedProcess[str]],
    changes: dict[str, str],
    code: int,
) -> None:
    ended = afterlog(secured_run[0], secured(secured_broker, **changes))
    assert (ended.returncode, ended.stdout) == (code, "")
    (said,) = ended.stderr.splitlines()
    assert said.startswith("afterlog: ")
    assert not [word for word in ("secret", "required username") if word in said]


# --- a broker that goes away ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("end", [pytest.param("stop", marks=pytest.mark.thorough), "kill"])
def test_a_broker_that_restarts_while_it_is_read_loses_nothing(
    spark: SparkSession,
    empty_warehouse: Path,
    kafka: KafkaAdmin,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    end: str,
) -> None:
    restarted: list[threading.Thread] = []
    records = kafka_records.records
    with Broker(tmp_path / "broker", options=SOON_BACK) as broker:
        settings = warehouse_of(
            empty_warehouse,
            tmp_path,
            kafka={"bootstrap_servers": broker.bootstrap_servers, "timeout_seconds": 60},
            dlq={"source": "kafka", "max_records_per_batch": 40},
        )
        with KafkaAdmin(broker.bootstrap_servers, beside=kafka) as client:
            client.create_topic("dlq.restarted", 2)
            client.produce("dlq.restarted", [Message(b"%d" % at, headers=kip_1191(offset=at)) for at in range(100)])
            read = client.read("dlq.restarted", expected=100)

        def away(spark: SparkSession, settings: Settings, topics: Any, spans: Any) -> DataFrame:
            """End the broker before the second batch is read, and start it again while Spark waits for it."""
            if spans[0].start and not restarted:
                getattr(broker, end)()
                restarted.append(threading.Timer(1, broker.start))
                restarted[0].start()
            return records(spark, settings, topics, spans)

        monkeypatch.setattr(kafka_records, "records", away)
        done = run(spark, settings, BRONZE)[BRONZE]
        restarted[0].join()
    assert (done.read, done.accepted, done.duplicates) == (100, 100, 0)
    assert of_bronze(settings) == sorted(read, key=place)
    assert rows(settings, "quality.gaps") == []


@pytest.mark.thorough
@pytest.mark.parametrize("end", ["stop", "kill"])
def test_a_leader_that_moves_while_it_is_read_loses_nothing(
    spark: SparkSession, empty_warehouse: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, end: str
) -> None:
    moved: list[tuple[set[int], set[int]]] = []
    records = kafka_records.records
    first = Broker(tmp_path / "first", options={"broker.session.timeout.ms": "3000"})
    second = Broker(tmp_path / "second", node=2, joins=first)
    with first, second, KafkaAdmin(first.bootstrap_servers) as client:
        client.create_topic("dlq.moved", 4, replicas=2)
        client.produce("dlq.moved", [Message(b"%d" % at, headers=kip_1191(offset=at)) for at in range(200)])
        settings = warehouse_of(
            empty_warehouse,
            tmp_path,
            kafka={"bootstrap_servers": f"{second.bootstrap_servers},{first.bootstrap_servers}"},
            dlq={"source": "kafka", "max_records_per_batch": 80},
        )

        def led_by_another(spark: SparkSession, settings: Settings, topics: Any, spans: Any) -> DataFrame:
            """End a leader before the second batch is read, and add records under the new leader."""
            if spans[0].start and not moved:
                before = set(client.leaders("dlq.moved").values())
                getattr(second, end)()
                until = time.monotonic() + 60
                while (after := set(client.leaders("dlq.moved").values())) != {1} and time.monotonic() < until:
                    time.sleep(0.2)
                moved.append((before, after))
                client.produce("dlq.moved", [Message(b"late", headers=kip_1191(offset=200))] * 20)
            return records(spark, settings, topics, spans)

        monkeypatch.setattr(kafka_records, "records", led_by_another)
        done = run(spark, settings, BRONZE)[BRONZE]
        assert moved == [({1, 2}, {1})]
        second.start()
        client.produce("dlq.moved", [Message(b"last", headers=kip_1191(offset=201))] * 20)
        last = run(spark, settings, BRONZE)[BRONZE]
        read = client.read("dlq.moved", expected=240)
    assert (done.duplicates, last.duplicates, done.accepted + last.accepted) == (0, 0, 240)
    assert of_bronze(settings) == sorted(read, key=place)
    assert rows(settings, "quality.gaps") == []


# --- the demo ------------------------------------------------------------------------------------------------------


@pytest.fixture
def demo_broker(tmp_path: Path) -> Iterator[Broker]:
    broker = Broker(tmp_path / "broker")
    yield broker
    broker.stop()


@pytest.mark.thorough
def test_what_the_demo_lets_happen_lands_also_the_second_time(
    spark: SparkSession, demo_broker: Broker, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    for dead_letters in (32, 64):
        happened = live.play(demo_broker)
        assert len(happened.letters) == dead_letters
        assert happened.health == {"live-orders-app": "OK", "live-hops-app": "REJECTED", "live-globals-app": "DELETED"}
        put(settings.landing_of("streams-requests") / f"{dead_letters}.log", happened.request_log.encode())
        for name, value in happened.variables.items():
            monkeypatch.setenv(name, value)
        following = load(warehouse=settings.warehouse, landing=settings.landing)
        done = run(spark, following)
        assert (done[BRONZE].read, done[SILVER].accepted, done[SILVER].quarantined) == (32, 32, 0)
        demo_broker.stop()
    run(spark, following, feed="topology")
    said = io.StringIO()
    _show_live(following, happened, Console(file=said, width=80))
    assert "reads: 64 records." in said.getvalue()


@pytest.mark.parametrize("number", [signal.SIGINT, pytest.param(signal.SIGTERM, marks=pytest.mark.thorough)])
def test_a_demo_that_is_stopped_leaves_no_broker(demo_broker: Broker, tmp_path: Path, number: signal.Signals) -> None:
    script = (
        "import sys; from pathlib import Path; from local import demo, live;"
        "live.DIRECTORY = Path(sys.argv[1]); demo.AIRFLOW_HOME = live.DIRECTORY.parent; sys.exit(demo.main())"
    )
    places = {"AFTERLOG_WAREHOUSE": str(tmp_path / "warehouse"), "AFTERLOG_LANDING": str(tmp_path / "landing")}
    demo = subprocess.Popen(
        [sys.executable, "-c", script, str(demo_broker.directory)],
        env=os.environ | {"PYTHONPATH": str(ROOT), "PYTHONFAULTHANDLER": "1"} | places,
        cwd=ROOT,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    until = time.monotonic() + 120
    while not demo_broker.running:
        assert time.monotonic() < until
        assert demo.poll() is None
        time.sleep(0.2)
    while not list(demo_broker.data.glob("live.*-0")):  # its clients have started
        assert time.monotonic() < until
        assert demo.poll() is None
        time.sleep(0.05)
    os.killpg(demo.pid, number)  # as a terminal does
    try:
        _, said = demo.communicate(timeout=120)
    except subprocess.TimeoutExpired:
        os.kill(demo.pid, signal.SIGABRT)  # it says what it was doing
        _, said = demo.communicate(timeout=60)
    assert (demo.returncode, said) == (130, "The demo is stopped; what it wrote so far is kept.\n")
    assert demo_broker.running is None
