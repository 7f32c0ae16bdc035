"""gold.incident_suspects: which producers are suspects, and of which kind."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from pipelines.warehouse import jvmless
from pipelines.warehouse.tables import Warehouse
from tests.testing.builders import run, warehouse_of
from tests.testing.deliveries import store

TABLE = "gold.incident_suspects"
FIRST = datetime(2026, 11, 21, 12, 40, tzinfo=UTC)
HOUR = timedelta(hours=1)
OURS = {"cluster": "default"}


def stated(client: str, at: datetime, mode: str = "enabled", topic: str = "orders") -> dict[str, Any]:
    settings = {"broker_version": "3.9", "message_format_version": "3.0", "client_version": "3.9"}
    return {**OURS, "client_id": client, "topic": topic, "stated_at": at, "requested_mode": mode, **settings}


def test_a_client_is_new_if_its_first_settings_came_shortly_before(
    spark: SparkSession, empty_warehouse: Path, tmp_path: Path
) -> None:
    settings = warehouse_of(empty_warehouse, tmp_path)
    incident = {"incident_id": "one", "original_topic": "orders", "consumer_group": "workers", "record_count": 3}
    store(settings, "gold.dlq_incidents", {**OURS, **incident, "first_at": FIRST})
    store(
        settings,
        "silver.producers",
        stated("new", FIRST - HOUR),
        stated("known", FIRST - 90 * HOUR),
        stated("known", FIRST - HOUR),
        stated("changed", FIRST - 90 * HOUR),
        stated("changed", FIRST - HOUR, mode="disabled"),
        stated("both", FIRST - 3 * HOUR),
        stated("both", FIRST - 2 * HOUR, mode="disabled"),
        stated("later", FIRST + HOUR),
        stated("elsewhere", FIRST - HOUR, topic="payments"),
    )
    assert run(spark, settings, TABLE)[TABLE].status == "passed"
    rows = sorted(jvmless.rows(Warehouse(settings), TABLE, OURS), key=lambda row: row["rank"])
    assert [(row["kind"], row["name"], row["score"], row["sentence"]) for row in rows] == [
        ("producer", "changed", 0.4, "changed settings of producer changed came 60 minutes before"),
        ("new_client", "new", 0.3, "the first settings of producer new came 60 minutes before"),
        ("producer", "both", 0.2, "changed settings of producer both came 2 hours before"),
        ("new_client", "both", 0.075, "the first settings of producer both came 3 hours before"),
    ]
