"""Two clusters in one warehouse that have the same names and lines: each has what it has alone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from pipelines.catalog import CATALOG
from pipelines.run import idleness
from pipelines.run.readmit import readmit, stage_with_quarantine
from pipelines.settings import Settings
from pipelines.stage import Land, Split
from pipelines.stores import lock
from pipelines.warehouse import jvmless
from pipelines.warehouse.tables import Warehouse
from tests.testing import logs, requests, segments, sites, statements
from tests.testing.builders import land, line, run, warehouse_of, without_the_run
from tests.testing.deliveries import acknowledgement, archived, failure, producer, started, store
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
    done = run(spark, settings, "silver.dlq_refusals", *TABLES)
    assert {stage_run.status for stage_run in done.values()} == {"passed"}, [
        stage_run.message for stage_run in done.values()
    ]
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


def test_a_log_shows_compaction_whichever_cluster_runs_next(
    spark: SparkSession, empty_warehouse: Path, tmp_path: Path
) -> None:
    first = warehouse_of(empty_warehouse, tmp_path)
    second = first.model_copy(update={"cluster": "second", "landing": str(tmp_path / "second")})
    segment = segments.batch(0, 3, record_count=2) + segments.batch(5, 1)
    logs.lands(first, "orders", {logs.segment(0): (segment, logs.T)})
    run(spark, first, *logs.OF_LOGS, feed="delivery")
    for settings in (second, first):
        run(spark, settings, "silver.topic_policies", feed="delivery")
        (policy,) = jvmless.rows(Warehouse(first), "silver.topic_policies", {"cluster": "default"})
        assert (policy["cluster"], policy["source"], policy["is_compacted"]) == ("default", "log", True)


LINES = {
    "dlq": [line(0), line(1, headers=[("x", b"y")]), "no JSON"],
    "streams-requests": [
        *(requests.push(0), requests.push(1, epoch=-1), requests.steady(2, member="m2")),
        *(requests.describe(3, requests.described()), requests.delete(4, "old"), requests.delete(5, "")),
    ],
    "acknowledgements": [acknowledgement(), acknowledgement(), failure(), acknowledgement(topic=""), "no JSON"],
    "producers": [producer(), producer(mode="sometimes"), "no JSON"],
    "changes": ['{"time": "2026-11-21T12:34:00Z", "what": "1.14"}', '{"what": "1.14"}', "no JSON"],
    "cluster-settings": [statements.topic("orders", 0), "no JSON"],
    "broker-logs": [started(0), *archived(1)],
}
SPLIT = [stage.table for stage in CATALOG if isinstance(stage, Land | Split)]
REFUSED = (
    *("dlq_records", "topology_pushes", "cluster_settings", "acknowledgements", "record_batches", "producers"),
    "changes",
)


@pytest.mark.parametrize(
    "feeds", [pytest.param(("dlq",), id="dlq"), pytest.param(tuple(LINES), id="all", marks=pytest.mark.thorough)]
)
def test_equal_lines_of_files_of_the_same_names_are_rows_of_each_cluster(
    spark: SparkSession, empty_warehouse: Path, tmp_path: Path, feeds: tuple[str, ...]
) -> None:
    directories = {stage.directory for stage in CATALOG if isinstance(stage, Land)}
    assert directories == {*LINES, "segments"}
    first = warehouse_of(empty_warehouse, tmp_path, tolerance=1.0)
    second = first.model_copy(update={"cluster": "second", "landing": str(tmp_path / "second")})
    counts = []
    for settings in (first, second):
        for feed in feeds:
            land(settings, {"a": LINES[feed]}, feed)
        if len(feeds) > 1:
            logs.lands(settings, "orders", {logs.segment(0): (logs.one(0) + b"\0" * 7 + segments.batch(9), logs.T)})
        chosen = SPLIT if len(feeds) > 1 else SPLIT[:2]
        done = run(spark, settings, *chosen, feed=None)
        counts.append(
            {
                table: (stage_run.read, stage_run.accepted, stage_run.quarantined, stage_run.skipped)
                for table, stage_run in done.items()
            }
        )
    assert counts[1] == counts[0]

    quarantines = [f"quarantine.{name}" for name in (REFUSED if len(feeds) > 1 else REFUSED[:1])]
    for table in (*chosen, *quarantines):
        assert rows_of(second, table) == rows_of(first, table) != [], table
    for settings in (first, second):
        assert idleness.idle(Warehouse(settings), [stage for stage in CATALOG if stage.table in chosen])
    with lock.writer(second, "test"):
        readmitted = readmit(Warehouse(second, spark), stage_with_quarantine("silver.dlq_records"))
    assert (readmitted.found, readmitted.readmitted) == (4, 0)
    assert len(rows_of(first, quarantines[0])) == len(rows_of(second, quarantines[0])) == 2


def rows_of(settings: Settings, table: str) -> list[str]:
    """Return the rows of the settings' cluster, without what tells the clusters apart."""
    found = jvmless.rows(Warehouse(settings), table, {"cluster": settings.cluster})
    others = {"cluster"} | ({"_bronze_id"} if table.endswith("record_batches") else set())
    return sorted(
        str({name: item for name, item in without_the_run(row).items() if name not in others}) for row in found
    )
