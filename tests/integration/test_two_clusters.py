"""Tables about incidents, with two clusters in one warehouse that have the same names: neither is told of the other."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from pipelines.settings import Settings
from pipelines.warehouse import jvmless
from pipelines.warehouse.tables import Warehouse
from tests.testing import sites
from tests.testing.builders import run, warehouse_of
from tests.testing.deliveries import store
from tests.testing.sites import HOUR, NOW, hour, incident, letter

TABLES = ("gold.incident_suspects", "gold.blast_radius", "gold.trust_findings")
FIRST = NOW - 3 * HOUR


def fill(settings: Settings, cluster: str, *, is_changed: bool) -> None:
    """Store an incident; and, if ``is_changed``, all that makes suspects, a blast radius and findings, of that name."""

    def stored(table: str, *rows: dict[str, Any]) -> None:
        store(settings, table, *(row | {"cluster": cluster} for row in rows))

    stored("gold.dlq_incidents", incident(1), incident(2, consumer_group=None))
    stored("gold.dlq_summary", hour(NOW, 10))
    if not is_changed:
        return
    for name in ("orders-workers", "reader"):
        for table, rows in sites.rows_of_application(name, "orders", "totals", health="LOST", lost_at=NOW).items():
            if table != "gold.push_health":
                stored(table, *rows)
    settled = {"client_id": "p", "topic": "orders", "requested_mode": "enabled"}
    stored("silver.producers", settled | {"stated_at": FIRST - HOUR, "_bronze_id": "a"})
    stored("silver.broker_starts", {"node_id": 7, "started_at": FIRST - HOUR, "component": "BrokerServer"})
    failure = {"consumer_group": "orders-workers", "original_topic": "orders", "failed_at": FIRST - HOUR}
    stored("silver.dlq_write_failures", failure | {"dlq_topic": "dlq.orders"})
    refused = letter(9, violations=["header_profile.not_null"], routed_at=FIRST - HOUR)
    stored("quarantine.dlq_records", refused)
    stored("gold.reconciliation", {"hour": NOW, "topic": "orders", "lost_count": 3})


def test_what_one_cluster_has_is_not_told_of_the_other(
    spark: SparkSession, empty_warehouse: Path, tmp_path: Path
) -> None:
    settings = warehouse_of(empty_warehouse, tmp_path)
    fill(settings, "default", is_changed=False)
    fill(settings, "second", is_changed=True)
    done = run(spark, settings, *TABLES)
    assert {one.status for one in done.values()} == {"passed"}, [one.message for one in done.values()]
    found = {
        (table, cluster): jvmless.rows(Warehouse(settings), table, {"cluster": cluster})
        for table in TABLES
        for cluster in ("default", "second")
    }
    assert [row["kind"] for row in found[TABLES[0], "default"]] == []
    assert {row["direction"] for row in found[TABLES[1], "default"]} == {"origin"}
    assert [row["kind"] for row in found[TABLES[2], "default"]] == []
    assert {row["kind"] for row in found[TABLES[0], "second"]} >= {"topology", "new_client", "broker_restart"}
    assert {row["direction"] for row in found[TABLES[1], "second"]} >= {"downstream"}
    assert {row["kind"] for row in found[TABLES[2], "second"]} >= {"LOST_MESSAGES", "QUARANTINED", "TOPOLOGY_LOST"}
    assert {row["name"] for row in found[TABLES[0], "second"] if row["incident_id"] == sites.incident_id(2)} >= {
        "reader"
    }  # a group that is not known can be any reader
