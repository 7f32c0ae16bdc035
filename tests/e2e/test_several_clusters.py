"""Two brokers with topics of the same name in one process or one DAG, also while one of the brokers is away."""

from __future__ import annotations

import io
import json
import os
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from rich.console import Console

from local.demo import Airflow
from local.kafka_client import Message
from pipelines.broker import Broker
from pipelines.catalog import stages
from pipelines.commands import doctor
from pipelines.errors import ClustersLeft
from pipelines.run import freshness, idleness
from pipelines.settings import ROOT, Settings, load
from pipelines.warehouse import jvmless, progress
from pipelines.warehouse.tables import Warehouse
from tests.e2e.runs import counts, states
from tests.testing.builders import CHAIN, kip_1191, land, line, run_chain, warehouse_of
from tests.testing.following import Following
from tests.testing.kafka import KafkaAdmin
from tests.testing.replays import no_rules

BRONZE, SILVER, SUMMARY = "bronze.dlq_records", "silver.dlq_records", "gold.dlq_summary"
TOPIC = "dlq.several-clusters"
NOBODY = "127.0.0.1:9"  # discard: nothing listens there


@pytest.fixture
def second(tmp_path: Path) -> Iterator[Broker]:
    """A broker of this test's own, which the test kills."""
    with Broker(tmp_path / "broker") as started:
        yield started


def values(begin: int, end: int) -> list[Message]:
    return [Message(b"v", headers=kip_1191(offset=number)) for number in range(begin, end)]


def letters(settings: Settings) -> dict[str, int]:
    """How many dead letters gold has, by cluster."""
    counts: Counter[str] = Counter()
    if Warehouse(settings).last_version(SUMMARY) is not None:
        for name in ("eu", "us"):
            for row in jvmless.rows(Warehouse(settings), SUMMARY, {"cluster": name}):
                counts[name] += row["record_count"]
    return dict(counts)


def command(file: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", "from pipelines.cli import main; main()", *arguments],
        env=os.environ | {"PYTHONPATH": str(ROOT), "AFTERLOG_SETTINGS": str(file)},
        capture_output=True,
        text=True,
        check=False,
    )


def test_one_run_reads_two_clusters_and_one_while_the_other_is_away(
    spark: SparkSession, empty_warehouse: Path, broker: Broker, kafka: KafkaAdmin, second: Broker, tmp_path: Path
) -> None:
    topic = f"{TOPIC}-once"
    servers = {"eu": broker.bootstrap_servers, "us": second.bootstrap_servers}
    entries = [{"name": name, "kafka": {"bootstrap_servers": at, "timeout_seconds": 3}} for name, at in servers.items()]
    dlq = {"source": "kafka", "subscribe_pattern": topic}
    settings = warehouse_of(empty_warehouse, tmp_path, cluster=entries, dlq=dlq)
    for (name, at), count in zip(servers.items(), (6, 4), strict=True):
        with KafkaAdmin(at, beside=kafka) as client:
            client.create_topic(topic)
            client.produce(topic, values(0, count))
            assert client.topic_id(topic), name
    run_chain(spark, settings)
    assert letters(settings) == {"eu": 6, "us": 4}
    known = progress.load(Warehouse(settings), BRONZE)
    assert known is not None
    followed = {name: [sum(item.next.values()) for item in its.followed.values()] for name, its in known.topics.items()}
    assert followed == {"eu": [6], "us": [4]}
    assert known.topics["eu"].cluster_id != known.topics["us"].cluster_id
    assert idleness.idle(Warehouse(settings), [stage for stage in stages("dlq") if stage.table in CHAIN])

    second.kill()
    kafka.produce(topic, values(6, 9))
    with pytest.raises(ClustersLeft) as left:
        run_chain(spark, settings)
    assert left.value.of_clusters.keys() == {"us"}
    assert str(left.value).startswith("Cluster us: No broker can be reached")
    assert left.value.exit_code == 3
    assert letters(settings) == {"eu": 9, "us": 4}
    checks = {check.name: check for check in doctor.diagnose(settings)}
    assert (checks["eu: topics of dlq"].state, checks["us: topics of dlq"].state) == ("ok", "error")
    fresh = {entry.cluster: entry for entry in freshness.freshness(Warehouse(settings)) if entry.table == BRONZE}
    assert (fresh["eu"].unread_offsets, fresh["us"].unread_offsets) == (0, None)


@pytest.mark.thorough
def test_a_dag_run_fills_the_tables_of_a_cluster_while_another_is_away_and_names_that_one(
    empty_warehouse: Path, tmp_path: Path, command: str
) -> None:
    settings = warehouse_of(empty_warehouse, tmp_path, cluster=[{"name": "eu"}, {"name": "us"}])
    for own, count in zip(settings.of_clusters(), (3, 2), strict=True):
        land(own, {"a.jsonl": [line(number) for number in range(count)]})
    file = tmp_path / "afterlog.toml"
    file.write_text(f"""
        warehouse = "{settings.warehouse}"
        landing = "{settings.landing}"
        [[cluster]]
        name = "us"
        kafka = {{ bootstrap_servers = "{NOBODY}", timeout_seconds = 1 }}
        dlq.source = "kafka"
        [[cluster]]
        name = "eu"
    """)
    variables = {"AFTERLOG_COMMAND": command, "AFTERLOG_SETTINGS": str(file)}
    airflow = Airflow(tmp_path / "airflow", tmp_path / "airflow.log", Console(file=io.StringIO()), variables)
    try:
        ran = airflow.run("dlq", {})
    finally:
        airflow.close()
    later = dict.fromkeys(("silver", "gold", "reports"), ("success", 1))
    assert states(ran) == {"bronze": ("failed", 1), **later, "outcome": ("failed", 1)}
    assert ran["state"] == "failed"
    assert counts(ran, SILVER) == [5, 5, 0, 0, 0]
    assert letters(settings) == {"eu": 3, "us": 2}
    said = airflow.log.read_text(encoding="utf-8")
    for task, start in (("bronze", ""), ("outcome", "bronze: ")):
        (why,) = re.findall(rf"{task} failed: (.*)", said)
        assert why.startswith(f"{start}Cluster us: No broker can be reached ({NOBODY}")
        assert "Cluster eu" not in why


@pytest.mark.thorough
def test_each_cluster_gets_its_own_records_back_and_once(
    spark: SparkSession, empty_warehouse: Path, broker: Broker, second: Broker, tmp_path: Path
) -> None:
    source, topic = "several-clusters-orders", f"{TOPIC}-replayed"
    servers = {"eu": broker.bootstrap_servers, "us": second.bootstrap_servers}
    of_it = {"eu": ("a", "b", "c"), "us": ("d", "e")}
    file = tmp_path / "afterlog.toml"
    file.write_text(f"""
        warehouse = "{tmp_path}/warehouse"
        landing = "{tmp_path}/landing"
        [dlq]
        source = "kafka"
        subscribe_pattern = '{topic}'
        [replay]
        rules = "{no_rules(tmp_path)}"
        [[cluster]]
        name = "eu"
        kafka.bootstrap_servers = "{servers["eu"]}"
        [[cluster]]
        name = "us"
        kafka.bootstrap_servers = "{servers["us"]}"
    """)
    entries = [{"name": name, "kafka": {"bootstrap_servers": at}} for name, at in servers.items()]
    dlq = {"source": "kafka", "subscribe_pattern": topic}
    settings = warehouse_of(empty_warehouse, tmp_path, cluster=entries, dlq=dlq)
    for name, at in servers.items():
        with KafkaAdmin(at) as client:
            client.create_topic(source)
            client.create_topic(topic)
            sent = [Message(value.encode()) for value in of_it[name]]
            client.produce(source, sent)
            client.produce(topic, [replace(item, headers=kip_1191(source, 0, at)) for at, item in enumerate(sent)])
    run_chain(spark, settings, *CHAIN[:2])

    def standing(name: str) -> list[str]:
        with KafkaAdmin(servers[name]) as client:
            return [(record.value or b"").decode() for record in client.read(source)]

    for done, name in enumerate(servers):
        where = f"original_topic = '{source}'"
        planned = command(file, "replay", "plan", "--cluster", name, "--where", where, "--format", "json")
        assert planned.returncode == 0, planned.stdout + planned.stderr
        plan = json.loads(planned.stdout)["plan"]
        for _ in range(2):  # the second run finds all of them there
            ran = command(file, "replay", "run", plan, "--cluster", name)
            assert ran.returncode == 0, ran.stderr
            got = {known: sorted(standing(known)) for known in servers}
            times = {known: 2 if index <= done else 1 for index, known in enumerate(servers)}
            assert got == {known: sorted(of_it[known] * times[known]) for known in servers}


@pytest.mark.thorough
def test_one_process_reads_two_clusters_and_waits_for_one_alone(
    broker: Broker, second: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "afterlog.toml"
    file.write_text(f"""
        warehouse = "{tmp_path}/warehouse"
        landing = "{tmp_path}/landing"
        [kafka]
        timeout_seconds = 3
        [dlq]
        source = "kafka"
        subscribe_pattern = '{TOPIC}'
        [[cluster]]
        name = "eu"
        kafka.bootstrap_servers = "{broker.bootstrap_servers}"
        [[cluster]]
        name = "us"
        kafka.bootstrap_servers = "{second.bootstrap_servers}"
    """)
    monkeypatch.setenv("AFTERLOG_SETTINGS", str(file))
    settings = load()
    servers = [broker.bootstrap_servers, second.bootstrap_servers]
    for at, count in zip(servers, (6, 4), strict=True):
        with KafkaAdmin(at) as client:
            client.create_topic(TOPIC)
            client.produce(TOPIC, values(0, count))
    following = Following(settings, tmp_path / "log")
    try:
        following.until(lambda _: letters(settings) == {"eu": 6, "us": 4})
        second.kill()
        health = following.until(lambda health: bool(health.get("away")))
        assert [row["cluster"] for row in health["away"]] == ["us"]
        with KafkaAdmin(servers[0]) as client:
            client.produce(TOPIC, values(6, 9))
        following.until(lambda _: letters(settings) == {"eu": 9, "us": 4})
        health = following.health()
        assert health["failing_since"] is None
        assert health["away"][0]["message"].startswith("No broker can be reached")
        code, _ = following.stop()
        said = following.log.read_text()
        assert code == 0, said
        assert said.count("afterlog: Cluster us: No broker can be reached") == 1
        assert "Cluster eu" not in said
    finally:
        following.process.kill()
        following.process.wait()

    with KafkaAdmin(servers[0]) as client:
        client.produce(TOPIC, values(9, 10))
    ran = command(file, "run", "--feed", "dlq", "--format", "json")
    assert (ran.returncode, letters(settings)) == (3, {"eu": 10, "us": 4}), ran.stderr
    assert ran.stderr.splitlines()[-1].startswith("afterlog: Cluster us: No broker can be reached")
    told: list[dict[str, Any]] = json.loads(ran.stdout)["tables"]
    assert [(row["cluster"], row["status"]) for row in told if row["table"] == BRONZE] == [
        ("eu", "passed"),
        ("us", "failed"),
    ]
    asked = command(file, "doctor", "--format", "json")
    checks = {row["name"]: row for row in map(json.loads, asked.stdout.splitlines())}
    assert asked.returncode == 3, asked.stderr
    assert (checks["eu: topics of dlq"]["state"], checks["us: topics of dlq"]["state"]) == ("ok", "error")

    second.start()
    assert second.bootstrap_servers == servers[1]
    with KafkaAdmin(servers[1]) as client:
        client.produce(TOPIC, values(4, 5))
    ran = command(file, "run", "--feed", "dlq", "--cluster", "us")
    assert (ran.returncode, letters(settings)) == (0, {"eu": 10, "us": 5}), ran.stderr
    places = {
        (row["cluster"], row["dlq_offset"])
        for name in ("eu", "us")
        for row in jvmless.rows(Warehouse(settings), SILVER, {"cluster": name})
    }
    assert places == {*(("eu", number) for number in range(10)), *(("us", number) for number in range(5))}
