"""The DAG `collect` as Airflow runs it: it asks a real broker, and a setting that loses dead letters is a finding."""

from __future__ import annotations

import io
import json
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from local.demo import Airflow, delta_log
from local.kafka_client import Action, Message
from pipelines.broker import Broker
from pipelines.catalog import LAYERS, stages
from pipelines.settings import load
from pipelines.warehouse import jvmless
from pipelines.warehouse.tables import Warehouse
from tests.e2e.runs import counts, states, tables, told_by_assets
from tests.testing.kafka import KafkaAdmin

# test_feeds has the tasks, their order and what they tell, the DAG `dlq` also runs, and test_collect asks a cluster.
pytestmark = pytest.mark.thorough
TABLES = [stage.table for stage in stages("collect")]
GROUP, TOPIC, LETTERS = "loses-letters", "orders", "dlq.nowhere"


@pytest.fixture(scope="module")
def asked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """A broker whose only share group has a dead-letter topic that neither exists nor would be created."""
    options = {"errors.deadletterqueue.auto.create.topics.enable": "false"}
    with Broker(tmp_path_factory.mktemp("asked"), options=options) as started:
        with KafkaAdmin(started.bootstrap_servers) as client:
            client.create_topic(TOPIC)
            client.dead_letter(GROUP, LETTERS, committed=True)
            client.produce(TOPIC, [Message(b"x")])
            client.share(GROUP, [TOPIC], lambda record: Action.ACCEPT, expected=1)
        yield started


@pytest.fixture(scope="module")
def airflow(tmp_path_factory: pytest.TempPathFactory, asked: Broker, command: str) -> Iterator[Airflow]:
    home = tmp_path_factory.mktemp("airflow")
    variables = {
        "AFTERLOG_KAFKA__BOOTSTRAP_SERVERS": asked.bootstrap_servers,
        "AFTERLOG_KAFKA__TIMEOUT_SECONDS": "10",
        "AFTERLOG_COMMAND": command,
    }
    started = Airflow(home, home / "airflow.log", Console(file=io.StringIO()), variables)
    yield started
    started.close()


@pytest.fixture(scope="module")
def places(tmp_path_factory: pytest.TempPathFactory, empty_warehouse: Path) -> dict[str, str]:
    directory = tmp_path_factory.mktemp("collected")
    (directory / "landing").mkdir()
    shutil.copytree(empty_warehouse, directory / "warehouse")
    return {name: str(directory / name) for name in ("landing", "warehouse")}


@pytest.fixture(scope="module")
def first(airflow: Airflow, places: dict[str, str]) -> dict[str, Any]:
    return airflow.run("collect", places)


def findings(places: dict[str, str]) -> list[dict[str, Any]]:
    settings = load(**places)
    return jvmless.rows(Warehouse(settings), "gold.dlq_misconfigurations", {"cluster": settings.cluster})


def test_what_the_cluster_says_lands_and_becomes_a_finding(
    first: dict[str, Any], places: dict[str, str], asked: Broker
) -> None:
    assert first["state"] == "success"
    assert states(first) == dict.fromkeys(["ask", *LAYERS, "reports", "outcome"], ("success", 1))
    told = first["xcoms"]["ask"]
    assert (told["groups"], told["brokers"], told["remarks"]) == (1, 1, [])
    (file,) = told["files"]
    lines = [json.loads(line) for line in Path(file).read_text(encoding="utf-8").splitlines()]
    assert {(row["kind"], row["name"]) for row in lines} >= {("group", GROUP), ("topic", TOPIC), ("topic", LETTERS)}
    assert counts(first, "bronze.cluster_settings") == [len(lines), len(lines), 0, 0, 0]
    (row,) = findings(places)
    assert (row["group_id"], row["dlq_topic"], row["kind"]) == (GROUP, LETTERS, "DLQ_MISSING")
    assert f"--bootstrap-server {asked.bootstrap_servers} --create --topic '{LETTERS}' " in row["remedy"]


def test_each_table_is_an_asset_with_its_own_counts(first: dict[str, Any]) -> None:
    assert first["assets"].keys() == {*TABLES, "reports.collect"}
    assert {name: first["assets"][name] for name in TABLES} == told_by_assets(first)


def test_a_second_run_of_a_cluster_that_did_not_change_writes_nothing(
    airflow: Airflow, first: dict[str, Any], places: dict[str, str]
) -> None:
    before, landed = delta_log(Path(places["warehouse"])), sorted(Path(places["landing"]).rglob("*.*"))
    run = airflow.run("collect", places)
    assert run["state"] == "success"
    assert (run["xcoms"]["ask"]["changed"], run["xcoms"]["ask"]["files"]) == (0, [])
    assert sorted(Path(places["landing"]).rglob("*.*")) == landed
    assert {table: found["status"] for table, found in tables(run).items()} == dict.fromkeys(TABLES, "idle")
    assert len(before) >= len(TABLES)
    assert delta_log(Path(places["warehouse"])) == before


def test_a_broker_that_is_away_fails_the_run_and_what_was_known_stays(
    airflow: Airflow, first: dict[str, Any], places: dict[str, str], asked: Broker
) -> None:
    before, known, said = delta_log(Path(places["warehouse"])), findings(places), airflow.log.stat().st_size
    servers = asked.bootstrap_servers
    asked.stop()
    run = airflow.run("collect", places)
    assert run["state"] == "failed"
    assert states(run) == {
        "ask": ("failed", 1),
        **dict.fromkeys([*LAYERS, "reports"], ("success", 1)),
        "outcome": ("failed", 1),
    }
    with airflow.log.open(encoding="utf-8") as log:
        log.seek(said)
        text = log.read()
    (why,) = re.findall(r"ask failed: (.*)", text)
    assert why.startswith(f"No broker can be reached ({servers}")
    assert "Next: Fix it, check with `afterlog doctor`" in why
    (outcome,) = re.findall(r"outcome failed: (.*)", text)
    assert outcome.startswith(f"ask: No broker can be reached ({servers}")
    assert (delta_log(Path(places["warehouse"])), findings(places)) == (before, known)
