"""One Airflow for each test module and one Kafka broker for all tests, each started once."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from local import warm
from local.demo import Airflow
from pipelines.broker import Broker
from pipelines.settings import Settings
from tests.testing.broker import SecuredBroker
from tests.testing.builders import warehouse_of
from tests.testing.kafka import KafkaAdmin


@pytest.fixture(scope="module")
def airflow(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Airflow]:
    home = tmp_path_factory.mktemp("airflow")
    started = Airflow(home, home / "airflow.log", Console(file=io.StringIO()))
    yield started
    started.close()


@pytest.fixture(scope="session")
def command(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The text of AFTERLOG_COMMAND for an Airflow whose tasks share one process, so that Java starts once for them.

    The tasks of the DAG `replay` start processes of their own.
    """
    with warm.process(tmp_path_factory.mktemp("commands") / "commands.log", {}) as command:
        yield command


@pytest.fixture(scope="session")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """A broker that tests share; each test uses topics and groups with names of its own."""
    with Broker(tmp_path_factory.mktemp("broker")) as started:
        yield started


@pytest.fixture(scope="session")
def kafka(broker: Broker) -> Iterator[KafkaAdmin]:
    """Clients of the shared broker."""
    with KafkaAdmin(broker.bootstrap_servers) as client:
        yield client


@pytest.fixture(scope="session")
def secured_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredBroker]:
    """A broker with a SASL_SSL listener, and users who can do nothing until an ACL allows it."""
    users = {"reader": 'a "secret" \\ of a reader', "stranger": "a stranger's"}
    broker = SecuredBroker(tmp_path_factory.mktemp("secured"), users)
    with broker:
        yield broker


@pytest.fixture(scope="session")
def secured_kafka(secured_broker: SecuredBroker, kafka: KafkaAdmin) -> Iterator[KafkaAdmin]:
    """Clients of the broker with users who may do all."""
    with KafkaAdmin(secured_broker.bootstrap_servers, beside=kafka) as client:
        yield client


@pytest.fixture
def following(tmp_path: Path, empty_warehouse: Path, broker: Broker) -> Callable[..., Settings]:
    """Return a maker of settings that read the dead-letter topics of a pattern."""

    def settings(pattern: str, **dlq: Any) -> Settings:
        return warehouse_of(
            empty_warehouse,
            tmp_path,
            kafka={"bootstrap_servers": broker.bootstrap_servers},
            dlq={"source": "kafka", "subscribe_pattern": pattern, **dlq},
        )

    return settings
