"""Follow a live topic, also while its broker is down."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from local.kafka_client import Message
from pipelines.broker import Broker
from pipelines.settings import load
from pipelines.warehouse.tables import Warehouse
from tests.testing.builders import kip_1191
from tests.testing.following import Following, found
from tests.testing.kafka import KafkaAdmin

SILVER = "silver.dlq_records"


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Broker]:
    """A broker of this test's own, which the test kills."""
    with Broker(tmp_path / "broker") as started:
        yield started


def values(begin: int, end: int) -> list[Message]:
    return [Message(b"v", headers=kip_1191(offset=number)) for number in range(begin, end)]


@pytest.mark.thorough
def test_a_broker_that_goes_away_is_waited_for_and_nothing_is_lost(broker: Broker, tmp_path: Path) -> None:
    servers = broker.bootstrap_servers
    kafka = {
        "AFTERLOG_KAFKA__BOOTSTRAP_SERVERS": servers,
        "AFTERLOG_KAFKA__TIMEOUT_SECONDS": "3",
        "AFTERLOG_DLQ__SOURCE": "kafka",
    }
    settings = load(warehouse=str(tmp_path / "warehouse"), landing=str(tmp_path / "landing"))
    following = Following(settings, tmp_path / "log", **kafka)
    try:
        following.until(lambda health: (health.get("last_cycle") or {}).get("result") == "failed")
        assert "shows no topics that match" in following.log.read_text()  # a topic can still appear
        with KafkaAdmin(servers) as client:
            client.create_topic("dlq.followed")
            client.produce("dlq.followed", values(0, 10))
        following.until(lambda _: Warehouse(settings).last_version(SILVER) is not None)
        following.until_rows(SILVER, 10)

        before = Warehouse(settings).last_version("quality.stage_runs")
        broker.kill()
        following.until(lambda health: bool(health.get("failing_since")))
        since = following.health()["last_cycle"]["began_at"]
        following.until(lambda health: health["last_cycle"]["began_at"] > since)  # the next cycle tried again
        assert Warehouse(settings).last_version("quality.stage_runs") == before
        broker.start()
        assert broker.bootstrap_servers == servers
        with KafkaAdmin(servers) as client:
            client.produce("dlq.followed", values(10, 15))
        following.until_rows(SILVER, 15)

        code, lines = following.stop()
        said = following.log.read_text()
        assert code == 0, said
        assert sum(row["read"] for told in lines for row in told["tables"] if row["table"] == SILVER) == 15
        assert said.count("It works again") >= 2
        assert said.count("No broker can be reached") == 1
        assert sorted(row["dlq_offset"] for row in found(settings, SILVER)) == list(range(15))
    finally:
        following.process.kill()
        following.process.wait()
