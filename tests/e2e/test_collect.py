"""A real broker's settings and topologies, collected: each trap is found before a record is lost, and ends repaired."""

from __future__ import annotations

import json
import shlex
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from local.kafka_client import Action, Message, clear
from local.kafka_requests import Connection
from pipelines.broker import Broker
from pipelines.collect import state
from pipelines.collect.landing import Collector, collect
from pipelines.collect.state import asked_at
from pipelines.settings import Settings, load
from pipelines.warehouse import jvmless, progress
from pipelines.warehouse.tables import Warehouse
from tests.testing.broker import SecuredBroker
from tests.testing.builders import land, needed_by, run, warehouse_of
from tests.testing.following import Following
from tests.testing.kafka import KafkaAdmin
from tests.testing.requests import description, node, push

NAME = "errors.deadletterqueue.topic.name"
COPY = "errors.deadletterqueue.copy.record.enable"
ENABLED = {"errors.deadletterqueue.group.enable": "true"}
HOUR_MS = "3600000"
LOST = "Failed to write to DLQ, proceeding to ARCHIVED regardless."
OF_HEALTH = [stage.table for stage in needed_by("gold.topology_current")]


@pytest.fixture(scope="module")
def strict(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """A broker that does not create dead-letter topics, as Kafka's default is."""
    options = {"errors.deadletterqueue.auto.create.topics.enable": "false"}
    with Broker(tmp_path_factory.mktemp("strict"), options=options) as started:
        yield started


@pytest.fixture(scope="module")
def client(strict: Broker, kafka: KafkaAdmin) -> Iterator[KafkaAdmin]:
    with KafkaAdmin(strict.bootstrap_servers, beside=kafka) as client:
        yield client


@pytest.fixture
def settings(strict: Broker, empty_warehouse: Path, tmp_path: Path) -> Settings:
    servers = {"bootstrap_servers": strict.bootstrap_servers}
    return warehouse_of(empty_warehouse, tmp_path, kafka=servers, dlq={"source": "kafka"})


def mistakes(spark: SparkSession, settings: Settings) -> dict[tuple[str, str], str]:
    """Collect, run and return the command for each finding, by group and kind."""
    collect(settings)
    done = run(spark, settings, feed="collect")
    assert {stage_run.status for stage_run in done.values()} <= {"passed", "idle"}
    found = jvmless.rows(Warehouse(settings), "gold.dlq_misconfigurations", {"cluster": settings.cluster})
    return {(row["group_id"], row["kind"]): row["remedy"] for row in found}


def obey(client: KafkaAdmin, remedy: str) -> None:
    """Do what a command of Kafka's tools would do."""
    program, *words = shlex.split(remedy)
    options: dict[str, list[str]] = {}
    name = ""
    for word in words:
        if word.startswith("--"):
            name = word
            options.setdefault(name, [])
        else:
            options[name].append(word)
    assert options["--bootstrap-server"] == [client.bootstrap_servers]
    if program == "kafka-topics.sh":
        (partitions,) = options.get("--partitions", ["1"])
        given = dict(item.split("=", 1) for item in options["--config"])
        client.create_topic(options["--topic"][0], int(partitions), given)
        return
    assert program == "kafka-configs.sh"
    kind = {"topics": "TOPIC", "groups": "GROUP"}[options["--entity-type"][0]]
    for change in options.get("--add-config", []):
        client.configure(kind, options["--entity-name"][0], dict([change.split("=", 1)]))  # type: ignore[arg-type]
    for setting in options.get("--delete-config", []):
        client.configure(kind, options["--entity-name"][0], {setting: ""})  # type: ignore[arg-type]


def reads(client: KafkaAdmin, group: str, topic: str, action: Action = Action.ACCEPT, size: int = 1) -> None:
    """Let a group receive one new record of a topic."""
    client.produce(topic, [Message(b"x" * size)])
    client.share(group, [topic], lambda record: action, expected=1)


def await_losses(broker: Broker, number: int) -> None:
    until = time.monotonic() + 180
    while broker.log.read_text(encoding="utf-8").count(LOST) < number:
        assert time.monotonic() < until, "the broker's log tells of fewer lost dead letters"
        time.sleep(0.1)


def test_a_dead_letter_topic_that_is_missing_is_found(
    spark: SparkSession, client: KafkaAdmin, settings: Settings
) -> None:
    client.create_topic("source-lonely")
    client.dead_letter("lonely", "dlq.nowhere", committed=True)
    reads(client, "lonely", "source-lonely")
    found = mistakes(spark, settings)
    assert found.keys() == {("lonely", "DLQ_MISSING")}
    obey(client, found["lonely", "DLQ_MISSING"])
    assert mistakes(spark, settings) == {}


@pytest.mark.thorough
def test_each_trap_is_found_before_a_record_is_lost_and_the_commands_repair_it(
    spark: SparkSession, client: KafkaAdmin, strict: Broker, settings: Settings
) -> None:
    groups = {
        **{"missing": "dlq.missing", "closed": "dlq.closed", "prefixless": "other.dlq", "compacted": "dlq.compacted"},
        **{"small": "dlq.small", "looped": "dlq.looped", "short": "dlq.short", "few": "dlq.few", "late": "dlq.late"},
        **{"uncommitted": "dlq.fine", "streams": "dlq.fine"},
    }
    topics: dict[str, dict[str, str]] = {
        "dlq.closed": {},
        "other.dlq": ENABLED,
        "dlq.compacted": {**ENABLED, "cleanup.policy": "compact"},
        "dlq.small": {**ENABLED, "max.message.bytes": "1000"},
        "dlq.looped": ENABLED,
        "dlq.short": {**ENABLED, "retention.ms": HOUR_MS},
        "dlq.few": {**ENABLED, "min.insync.replicas": "2"},
        "dlq.late": {**ENABLED, "retention.ms": HOUR_MS},
        "dlq.fine": ENABLED,
    }
    for name, given in topics.items():
        client.create_topic(name, settings=given)
    sources = {group: "dlq.looped" if group == "looped" else f"source-{group}" for group in groups}
    for group, topic in sources.items():
        if topic not in topics:
            client.create_topic(topic, settings={"retention.ms": HOUR_MS} if group == "late" else None)
        client.dead_letter(group, groups[group], copy=group != "compacted", committed=group != "uncommitted")
        if group != "streams":
            reads(client, group, topic)
    with Connection(client, "streams-client") as connection:
        assert connection.join("streams", "member", JOINED)["errorCode"] == 0
        assert connection.leave("streams", "member")["errorCode"] == 0
    reads(client, "late", "source-late", Action.REJECT)
    client.read("dlq.late", expected=1)
    progress.note_read(Warehouse(settings), "bronze.dlq_records", ["dlq.late"], datetime.now(UTC) - timedelta(hours=2))

    found = mistakes(spark, settings)

    expected = {
        ("missing", "DLQ_MISSING"),
        ("closed", "DLQ_NOT_ENABLED"),
        ("prefixless", "WRONG_PREFIX"),
        *{("compacted", "COMPACTED_DLQ"), ("compacted", "COPY_OFF")},
        ("small", "SMALLER_MESSAGES"),
        ("looped", "OWN_INPUT"),
        ("short", "SHORTER_RETENTION"),
        ("few", "TOO_FEW_IN_SYNC"),
        ("late", "NOT_LANDED_IN_TIME"),
        ("uncommitted", "READS_UNCOMMITTED"),
        ("streams", "NOT_A_SHARE_GROUP"),
    }
    assert found.keys() == expected
    assert LOST not in strict.log.read_text(encoding="utf-8")

    losing = ("missing", "closed", "prefixless", "compacted")
    for group in losing:
        reads(client, group, sources[group], Action.REJECT)
    await_losses(strict, len(losing))
    reads(client, "small", "source-small", Action.REJECT, size=5000)
    assert [record.value for record in client.read("dlq.small", expected=1)] == [None]
    reads(client, "looped", "dlq.looped", Action.REJECT)
    assert len(client.read("dlq.looped", expected=3)) == 3

    for remedy in found.values():
        obey(client, remedy)
    client.create_topic("dlq.other.dlq", settings=ENABLED)
    client.create_topic("dlq.looped.2", settings=ENABLED)
    assert mistakes(spark, settings) == {}
    for group in losing:
        reads(client, group, sources[group], Action.REJECT)
    for topic in ("dlq.missing", "dlq.closed", "dlq.other.dlq", "dlq.compacted"):
        assert [record.value for record in client.read(topic, expected=1)] == [b"x"]

    features = client.jvm.org.apache.kafka.clients.admin
    kind = features.FeatureUpdate.UpgradeType
    with clear():
        change = {"share.version": features.FeatureUpdate(1, kind.valueOf("SAFE_DOWNGRADE"))}
        client.admin.updateFeatures(change, features.UpdateFeaturesOptions()).all().get()
    lower = mistakes(spark, settings)
    assert lower["closed", "SHARE_VERSION"].endswith(" upgrade --feature share.version=2")
    assert {kind for _, kind in lower} == {"SHARE_VERSION"}
    reads(client, "closed", "source-closed", Action.REJECT)
    with clear():
        change = {"share.version": features.FeatureUpdate(2, kind.valueOf("UPGRADE"))}
        client.admin.updateFeatures(change, features.UpdateFeaturesOptions()).all().get()
    assert mistakes(spark, settings) == {}
    assert len(client.read("dlq.closed")) == 1


JOINED = description([node("s", 1, ["p"], sourceTopics=["a"]), node("p", 2)])
STREAMS = description(
    [
        node("s", 1, ["p"], sourceTopics=["b", "a"]),
        node("p", 2, ["k", "d"], stores=["y", "x"]),
        node("k", 3, sinkTopic="out"),
        node("d", 3),
    ],
    [node("pattern", 1)],
    stores=[(node("g", 1, ["h"], sourceTopics=["table"]), node("h", 2, stores=["z"]))],
)


def test_topologies_come_without_the_request_log(spark: SparkSession, client: KafkaAdmin, settings: Settings) -> None:
    group = "app-of-collect"
    with Connection(client, f"{group}-client") as connection:
        assert connection.join(group, "member", JOINED)["errorCode"] == 0
        assert connection.push(group, "member", STREAMS)["errorCode"] == 0
        assert connection.leave(group, "member")["errorCode"] == 0
        first = collect(settings)
        assert any("streams-requests/collected-" in file for file in first.files)
        assert not any("streams-requests/" in file for file in collect(settings).files)

        land(settings, {"pushed.log": [push(0, group="another", topology=STREAMS)]}, "streams-requests")
        run(spark, settings, *OF_HEALTH, feed="topology")
        (pushed,) = jvmless.rows(Warehouse(settings), "silver.topology_pushes", {"cluster": settings.cluster})
        statuses = jvmless.rows(Warehouse(settings), "silver.topology_statuses", {"group_id": group})
        assert [(row["status_name"], row["topology_hash"], row["member_count"]) for row in statuses] == [
            ("AVAILABLE", pushed["topology_hash"], 0)
        ]
        assert abs((statuses[0]["described_at"] - first.asked_at).total_seconds()) < 0.002
        (current,) = jvmless.rows(Warehouse(settings), "gold.topology_current", {"group_id": group})
        assert (current["health"], current["topology_hash"]) == ("OK", pushed["topology_hash"])

        assert [row["errorCode"] for row in connection.delete(group)] == [0]
    collect(settings)
    assert not any("streams-requests/" in file for file in collect(settings).files)
    run(spark, settings, *OF_HEALTH, feed="topology")
    (current,) = jvmless.rows(Warehouse(settings), "gold.topology_current", {"group_id": group})
    assert current["health"] == "DELETED"


def statements(settings: Settings) -> dict[tuple[str, str], dict[str, Any]]:
    """The last statement on each subject that has landed: its values, and ``state``."""
    found = {}
    for file in sorted(settings.landing_of("cluster-settings").glob("*.jsonl")):
        for told in map(json.loads, file.read_text(encoding="utf-8").splitlines()):
            values = {row["name"]: row["value"] for row in told["settings"]}
            found[told["kind"], told["name"]] = {**values, "state": told["state"]}
    return found


def news(settings: Settings, seen: set[str]) -> list[tuple[str, str]]:
    """The subjects of lines in files that are not ``seen`` yet; without other tests' groups, which can expire."""
    files = sorted(file for file in settings.landing_of("cluster-settings").glob("*.jsonl") if file.name not in seen)
    seen |= {file.name for file in files}
    lines = [json.loads(line) for file in files for line in file.read_text(encoding="utf-8").splitlines()]
    return [(told["kind"], told["name"]) for told in lines if told["name"] in ("", "changing", "dlq.changing")]


def test_only_changes_land_and_what_is_gone_is_told(client: KafkaAdmin, settings: Settings) -> None:
    client.create_topic("changing")
    client.create_topic("dlq.changing", settings=ENABLED)
    client.dead_letter("changing", "dlq.changing")
    now = [0.0]
    collector = Collector(settings, 60, clock=lambda: now[0])
    seen: set[str] = set()
    assert collector.ask_if_due() == ()
    assert statements(settings)["group", "changing"][NAME] == "dlq.changing"
    assert news(settings, seen) == [
        *(("cluster", ""), ("group", "changing")),
        *(("topic", "changing"), ("topic", "dlq.changing")),
    ]
    before = asked_at(settings)

    client.configure("TOPIC", "changing", {"retention.ms": "5"})
    client.delete_topics("dlq.changing")
    now[0] = 59
    collector.ask_if_due()
    assert asked_at(settings) == before
    now[0] = 61
    collector.ask_if_due()
    assert news(settings, seen) == [("cluster", ""), ("topic", "changing"), ("topic", "dlq.changing")]
    told = statements(settings)
    assert (told["topic", "changing"]["retention.ms"], told["topic", "dlq.changing"]["state"]) == ("5", "missing")
    after = asked_at(settings)
    assert before is not None
    assert after is not None
    assert after > before

    collect(settings)
    assert [item for item in news(settings, seen) if item != ("cluster", "")] == []
    memory = settings.landing_of(state.DIRECTORY) / state.FILE
    kept = json.loads(memory.read_text(encoding="utf-8"))
    kept["default"]["landed_at"] -= 86_400_000
    memory.write_text(json.dumps(kept), encoding="utf-8")
    collect(settings)
    assert news(settings, seen) == [("cluster", "")]
    collect(settings, everything=True)
    assert ("topic", "changing") in news(settings, seen)
    passwords = {name for item in told.values() for name in item if "password" in name or "jaas" in name}
    assert passwords == set()


def as_reader(broker: SecuredBroker) -> dict[str, str]:
    """Return the settings of a connection by a user who has no rights but those that a test gives."""
    return {
        "bootstrap_servers": broker.secured_servers,
        "security_protocol": "SASL_SSL",
        "username": "reader",
        "password": 'a "secret" \\ of a reader',
        "sasl_mechanism": "SCRAM-SHA-512",
        "ca_file": str(broker.authority),
    }


@pytest.mark.thorough
def test_a_user_who_can_only_describe_sees_all_and_what_is_refused_is_unknown(
    secured_broker: SecuredBroker, empty_warehouse: Path, tmp_path: Path
) -> None:
    settings = warehouse_of(empty_warehouse, tmp_path, kafka=as_reader(secured_broker))
    with KafkaAdmin(secured_broker.bootstrap_servers) as admin:
        admin.create_topic("read-by-collect")
        admin.create_dead_letter_topic("dlq.by-collect")
        admin.dead_letter("group-of-collect", "dlq.by-collect")
        reads(admin, "group-of-collect", "read-by-collect")
        admin.allow("reader", "DESCRIBE", "GROUP", "group-of-collect")
        collect(settings)
        told = statements(settings)["group", "group-of-collect"]
        assert (told["state"], told[NAME], told["group_type"]) == ("present", None, "SHARE")
        assert ("topic", "dlq.by-collect") not in statements(settings)

        admin.allow("reader", "DESCRIBE_CONFIGS", "GROUP", "group-of-collect")
        done = collect(settings)
        told = statements(settings)["group", "group-of-collect"]
        assert (told[NAME], told[COPY]) == ("dlq.by-collect", "true")
        hidden = statements(settings)["topic", "dlq.by-collect"]
        assert (hidden["state"], hidden["cleanup.policy"]) == ("unknown", None)
        assert any("Describe on topics 'dlq.by-collect'" in remark for remark in done.remarks)

        for topic in ("dlq.by-collect", "read-by-collect"):
            admin.allow("reader", "DESCRIBE", "TOPIC", topic)
        collect(settings)
        seen = statements(settings)["topic", "dlq.by-collect"]
        assert (seen["state"], seen["partitions"], seen["cleanup.policy"]) == ("present", "1", None)
        assert statements(settings)["group", "group-of-collect"]["sources"] == "read-by-collect"
        admin.allow("reader", "DESCRIBE_CONFIGS", "TOPIC", "dlq.by-collect")
        admin.allow("reader", "DESCRIBE_CONFIGS", "CLUSTER", "kafka-cluster")
        collect(settings)
        assert statements(settings)["topic", "dlq.by-collect"]["cleanup.policy"] == "delete"
        assert statements(settings)["broker", "1"]["errors.deadletterqueue.topic.name.prefix"] == "dlq."
    kept = "".join(file.read_text() for file in settings.landing_of("cluster-settings").glob("[!.]*"))
    assert "secret" not in kept


@pytest.mark.thorough
def test_a_streams_group_that_goes_while_it_is_hidden_is_told_gone(
    secured_broker: SecuredBroker, empty_warehouse: Path, tmp_path: Path
) -> None:
    settings = warehouse_of(empty_warehouse, tmp_path, kafka=as_reader(secured_broker))
    group = "hidden-from-collect"

    def landed() -> list[int]:
        files = sorted(settings.landing_of("streams-requests").glob("*.log"))
        lines = [line for file in files for line in file.read_text(encoding="utf-8").splitlines() if group in line]
        exchanges = [json.loads(line[line.index("{") : line.rindex("}") + 1]) for line in lines]
        return [said["errorCode"] for row in exchanges for said in row["response"]["groups"]]

    with KafkaAdmin(secured_broker.bootstrap_servers) as admin:
        admin.allow("reader", "DESCRIBE", "GROUP", group)
        with Connection(admin, f"{group}-client") as connection:
            assert connection.join(group, "member", JOINED)["errorCode"] == 0
            assert connection.leave(group, "member")["errorCode"] == 0
            assert any(f"Describe on the topics of groups '{group}'" in remark for remark in collect(settings).remarks)
            admin.allow("reader", "DESCRIBE", "TOPIC", "a")
            collect(settings)
            assert landed() == [0]
            admin.disallow("reader", "GROUP", group)
            assert any(f"Describe on groups '{group}'" in remark for remark in collect(settings).remarks)
            assert [row["errorCode"] for row in connection.delete(group)] == [0]
        admin.allow("reader", "DESCRIBE", "GROUP", group)
        collect(settings)
        assert landed() == [0, 69]
        collect(settings)
        assert landed() == [0, 69]


@pytest.mark.thorough
def test_a_process_that_follows_asks_by_itself(client: KafkaAdmin, strict: Broker, tmp_path: Path) -> None:
    client.dead_letter("followed", "dlq.followed", committed=True)
    places = load(warehouse=str(tmp_path / "warehouse"), landing=str(tmp_path / "landing"))
    variables = {
        "AFTERLOG_KAFKA__BOOTSTRAP_SERVERS": strict.bootstrap_servers,
        "AFTERLOG_COLLECT__EVERY_SECONDS": "1",
    }
    following = Following(places, tmp_path / "log", "--feed", "collect", **variables)
    table = "gold.dlq_misconfigurations"
    try:
        following.until(lambda _: bool(Warehouse(places).last_version(table)))
        rows = jvmless.rows(Warehouse(places), table, {"group_id": "followed"})
        assert [row["kind"] for row in rows] == ["DLQ_MISSING"]
        code, _ = following.stop()
        assert code == 0, following.log.read_text()
    finally:
        following.process.kill()
        following.process.wait()
