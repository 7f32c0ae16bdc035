"""The DAG `replay` as Airflow runs it: a person approves, or not; the outcome is in XCom."""

from __future__ import annotations

import contextlib
import io
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from rich.console import Console

from local.airflow_home import environment
from local.demo import Airflow
from local.kafka_client import Message
from pipelines.broker import Broker
from pipelines.replay import actions
from pipelines.replay.choice import Choice
from pipelines.replay.judge import Options
from pipelines.settings import ROOT, Settings
from pipelines.warehouse.tables import Warehouse
from tests.testing.builders import run, warehouse_of
from tests.testing.kafka import KafkaAdmin
from tests.testing.replays import no_rules

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TOPIC, LETTERS = "approved", "dlq.approved"


@pytest.fixture(scope="module")
def settings(
    spark: SparkSession,
    empty_warehouse: Path,
    tmp_path_factory: pytest.TempPathFactory,
    broker: Broker,
    kafka: KafkaAdmin,
) -> Settings:
    place = tmp_path_factory.mktemp("approved")
    found = warehouse_of(
        empty_warehouse,
        place,
        kafka={"bootstrap_servers": broker.bootstrap_servers},
        dlq={"source": "kafka", "subscribe_pattern": r"dlq\.approved"},
        replay={"rules": no_rules(place)},
    )
    kafka.create_topic(TOPIC)
    kafka.create_topic(LETTERS)
    kafka.produce(TOPIC, [Message(f"{number}".encode(), b"k") for number in range(6)])
    kafka.produce(
        LETTERS,
        [
            Message(
                f"{number}".encode(),
                b"k",
                [
                    ("kafka_dlt-original-topic", TOPIC.encode()),
                    ("kafka_dlt-original-partition", (0).to_bytes(4, "big")),
                    ("kafka_dlt-original-offset", number.to_bytes(8, "big")),
                    ("kafka_dlt-exception-fqcn", b"com.acme.Refused"),
                ],
            )
            for number in range(6)
        ],
    )
    run(spark, found, "bronze.dlq_records", "silver.dlq_records")
    return found


@pytest.fixture(scope="module")
def airflow(tmp_path_factory: pytest.TempPathFactory, settings: Settings) -> Iterator[Airflow]:
    home = tmp_path_factory.mktemp("airflow")
    variables = {
        "AFTERLOG_KAFKA__BOOTSTRAP_SERVERS": settings.kafka.bootstrap_servers,
        "AFTERLOG_REPLAY__RULES": settings.replay.rules,
    }
    started = Airflow(home, home / "airflow.log", Console(file=io.StringIO()), variables)
    yield started
    started.close()


@contextlib.contextmanager
def answering(airflow: Airflow, option: str) -> Iterator[subprocess.Popen[str]]:
    """Be the person who chooses an option as soon as Airflow asks; the process prints what was asked."""
    person = subprocess.Popen(
        [sys.executable, "-m", "tests.e2e.person", option],
        cwd=ROOT,
        env=environment(airflow.log.parent),
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        yield person
    finally:
        person.kill()
        person.wait()


def planned(settings: Settings, more: str) -> str:
    draft = json.loads(
        actions.plan(
            Warehouse(settings), Choice(where=f"dlq_topic = '{LETTERS}' AND {more}"), Options(), form="json"
        ).result
    )
    return str(draft["plan"])


def states(run: dict[str, Any]) -> dict[str, str]:
    return {task: state["state"] for task, state in run["tasks"].items()}


def test_without_a_plan_rules_must_be_allowed_to_choose(airflow: Airflow, settings: Settings) -> None:
    done = airflow.run("replay", {"warehouse": settings.warehouse})
    assert states(done)["choose"] == "failed"
    assert "set by_rules = true under [replay]" in airflow.log.read_text(encoding="utf-8")


def test_a_person_approves_and_each_record_goes_back_once(
    airflow: Airflow, settings: Settings, kafka: KafkaAdmin
) -> None:
    plan = planned(settings, "original_offset < 4")
    parameters = {"plan": plan, "warehouse": settings.warehouse}
    with answering(airflow, "Approve") as person:
        done = airflow.run("replay", parameters)
        asked, _ = person.communicate(timeout=60)
    assert done["state"] == "success", states(done)
    assert f"Replay plan {plan}?" in asked
    assert done["xcoms"]["run"]["replayed"] == 4
    assert done["xcoms"]["outcome"]["outcomes"] == {"UNKNOWN": 4}
    assert [record.value for record in kafka.read(TOPIC, expected=10, committed=True)][6:] == [b"0", b"1", b"2", b"3"]

    again = airflow.run("replay", parameters)
    assert states(again)["choose"] == "skipped"
    assert len(kafka.read(TOPIC)) == len(kafka.read(TOPIC, expected=10))


@pytest.mark.thorough
def test_nothing_goes_back_that_a_person_rejects(airflow: Airflow, settings: Settings, kafka: KafkaAdmin) -> None:
    before = kafka.read(TOPIC)
    plan = planned(settings, "original_offset >= 4")
    with answering(airflow, "Reject"):
        done = airflow.run("replay", {"plan": plan, "warehouse": settings.warehouse})
    assert states(done)["run"] == "skipped"
    assert kafka.read(TOPIC) == before
