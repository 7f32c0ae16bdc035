"""Several clusters of one settings file: one run lands all, and what is of one of them is told of that one only."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from pipelines import cli
from pipelines.catalog import stages
from pipelines.commands import clusters, doctor
from pipelines.commands.incidents import reading
from pipelines.commands.incidents.front import top
from pipelines.errors import ClustersLeft, UsageError
from pipelines.metrics.families import of_several
from pipelines.run import freshness, idleness, runner
from pipelines.settings import Settings, load
from pipelines.site import report
from pipelines.stores import lock
from pipelines.warehouse import jvmless, progress
from pipelines.warehouse.tables import Warehouse
from tests.testing.builders import BROKEN, land, line, run, warehouse_of

BRONZE, SILVER, INCIDENTS = "bronze.dlq_records", "silver.dlq_records", "gold.dlq_incidents"
FREE_PORT = "127.0.0.1:9"  # discard: nothing listens there


def rows(settings: Settings, table: str) -> dict[str | None, list[dict[str, Any]]]:
    """All rows of a table by cluster."""
    found: dict[str | None, list[dict[str, Any]]] = {}
    for row in jvmless.query(Warehouse(settings), table, "SELECT * FROM rows", {"cluster": "eu"}, or_null=True):
        found.setdefault(row["cluster"], []).append(row)
    found["us"] = jvmless.rows(Warehouse(settings), table, {"cluster": "us"})
    return found


def test_one_run_lands_all_clusters_and_mixes_none(
    spark: SparkSession, empty_warehouse: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    settings = warehouse_of(empty_warehouse, tmp_path, cluster=[{"name": "eu"}, {"name": "us"}])
    eu, us = settings.of_clusters()
    land(eu, {"same.jsonl": [line(offset) for offset in range(5)]})
    land(us, {"same.jsonl": [line(offset) for offset in range(7)]})

    with lock.writer(settings, "test"):
        done = runner.run(Warehouse(settings, spark), stages("dlq"))

    landed = [stage_run for stage_run in done if stage_run.table == BRONZE]
    assert [(stage_run.cluster, stage_run.read, stage_run.accepted, stage_run.name) for stage_run in landed] == [
        ("eu", 5, 5, f"{BRONZE} (eu)"),
        ("us", 7, 7, f"{BRONZE} (us)"),
    ]
    assert [(row.as_json()["cluster"], row.as_json()["table"]) for row in landed] == [("eu", BRONZE), ("us", BRONZE)]
    (judged,) = (stage_run for stage_run in done if stage_run.table == SILVER)
    assert (judged.read, judged.accepted, judged.cluster) == (12, 12, None)
    assert "cluster" not in judged.as_json()
    for table in (BRONZE, SILVER):
        assert [len(rows(settings, table)[name]) for name in ("eu", "us")] == [5, 7]
    found = rows(settings, INCIDENTS)
    assert [[row["record_count"] for row in found[name]] for name in ("eu", "us")] == [[5], [7]]
    assert found["eu"][0]["incident_id"] != found["us"][0]["incident_id"]

    ran = rows(settings, "quality.stage_runs")
    assert {row["table"] for row in ran["eu"]} == {row["table"] for row in ran["us"]} == {BRONZE}
    assert SILVER in {row["table"] for row in ran[None]}
    known = progress.load(Warehouse(settings), BRONZE)
    assert known is not None
    assert [len(known.files_in(own.landing_of("dlq"))) for own in (eu, us)] == [1, 1]
    assert idleness.idle(Warehouse(settings), stages("dlq"))

    # One topic breaks its contract in one of the clusters: only that one is held, accepted, and told of.
    land(us, {"broken.jsonl": [line(100 + offset, headers=BROKEN) for offset in range(20)]})
    land(eu, {"more.jsonl": [line(100 + offset) for offset in range(2)]})
    assert run(spark, settings, BRONZE, SILVER)[SILVER].held == 20
    assert len(rows(settings, SILVER)["eu"]) == 7
    entries = {(entry.cluster, entry.table): entry for entry in freshness.freshness(Warehouse(settings))}
    assert entries["us", SILVER].held_scopes == ("cluster:us/dlq.orders",)
    assert entries["eu", SILVER].held_scopes == ()
    assert entries["eu", BRONZE].unread_files == entries["us", BRONZE].unread_files == 0
    checks = {check.name: check for check in doctor.diagnose(settings)}
    assert "cluster:us/dlq.orders" in checks[SILVER].finding
    assert checks["eu: landing dlq"].state == "ok"
    assert checks["us: landing dlq"].state == "ok"

    # What is asked of one thing finds its cluster; what is in both is not guessed.
    whole = Warehouse(settings)
    for name in ("eu", "us"):
        wanted = found[name][0]["incident_id"]
        its = clusters.that_knows(
            whole, wanted, lambda own, id=wanted: reading.Incidents(own, reading.now_of(None)).of(id)
        )
        assert its.cluster == name

    def said(*arguments: str) -> tuple[int, str, str]:
        code = _code(cli.app, [*arguments])
        output = capsys.readouterr()
        return code, output.out, output.err

    with pytest.MonkeyPatch.context() as changed:
        changed.setenv("AFTERLOG_CLUSTER", json.dumps([{"name": "eu"}, {"name": "us"}]))
        changed.setenv("AFTERLOG_WAREHOUSE", settings.warehouse)
        changed.setenv("AFTERLOG_LANDING", settings.landing)
        code, out, _ = said("incidents")
        assert re.findall(r"^Cluster (\w+)$", out, re.MULTILINE) == ["eu", "us"]
        code, out, _ = said("incidents", "--cluster", "us")
        assert found["us"][0]["incident_id"] in out
        assert found["eu"][0]["incident_id"] not in out
        code, out, _ = said("show", "dlq.orders:0:6", "--format", "json")
        assert (code, json.loads(out)["offset"]) == (0, 6)
        with pytest.raises(UsageError, match="is in the clusters eu and us: name one with --cluster"):
            said("show", "dlq.orders:0:3")
        with pytest.raises(UsageError, match="is of one cluster: name it with --cluster; clusters: eu, us"):
            said("replay", "plan", "--where", "true", "--dry-run")
        with pytest.raises(UsageError, match=r"There is no cluster 'usa'; clusters: eu, us"):
            said("top", "--cluster", "usa")

        code, out, _ = said("ask", "blocked_tables", "--format", "json")
        (blocked,) = map(json.loads, out.splitlines())
        assert (blocked["cluster"], blocked["table"], blocked["last_status"]) == ("us", SILVER, "broken")
        for name, count in (("us", 1), ("eu", 0)):
            code, out, _ = said("ask", "blocked_tables", "--format", "json", "--cluster", name)
            assert (code, len(out.splitlines())) == (0, count)
        code, out, _ = said("ask", "gate_history", "--format", "json")
        assert {row["broken_count"] for row in map(json.loads, out.splitlines())} == {1}

    told = {family.name: family for family in of_several(whole)}
    letters = {sample.labels["cluster"]: sample.value for sample in told["afterlog_dead_letters"].samples}
    assert letters == {"eu": 5, "us": 7}
    by_table = {
        (sample.labels["table"], sample.labels.get("cluster")) for sample in told["afterlog_stage_runs"].samples
    }
    assert {(BRONZE, "eu"), (BRONZE, "us"), (SILVER, None)} <= by_table
    assert (SILVER, "eu") not in by_table

    fronts = [report.build(own, siblings=report.siblings_of(whole, own)) for own in whole.of_clusters()]
    assert fronts[0] == settings.reports() / "index.html"
    assert fronts[1] == settings.reports() / "clusters" / "us" / "index.html"
    for front, other in zip(fronts, reversed(fronts), strict=True):
        (link,) = re.findall(r'<li><a href="([^"]*)">\w\w</a>: ', front.read_text())
        assert (front.parent / link).resolve() == other
        docs = re.findall(r'href="([^"]*data_docs/index.html)"', (front.parent / "quality.html").read_text())
        assert (front.parent / docs[0]).exists()
    own = found["us"][0]["incident_id"]
    assert [(front.parent / "incidents" / f"{own}.html").exists() for front in fronts] == [False, True]


def _code(app: Any, arguments: list[str]) -> int:
    return int(app(arguments, standalone_mode=False) or 0)


def test_a_cluster_that_is_away_keeps_no_other_from_landing(
    spark: SparkSession, empty_warehouse: Path, tmp_path: Path
) -> None:
    away = {"kafka": {"bootstrap_servers": FREE_PORT, "timeout_seconds": 1}, "dlq": {"source": "kafka"}}
    settings = warehouse_of(empty_warehouse, tmp_path, cluster=[{"name": "us", **away}, {"name": "eu"}])
    us, eu = settings.of_clusters()
    land(eu, {"a.jsonl": [line(0)]})
    land(us, {"a.jsonl": [line(0), line(1)]})
    chosen = [stage for stage in stages("dlq") if stage.table in (BRONZE, SILVER)]
    reported: list[Any] = []
    with lock.writer(settings, "test"), pytest.raises(ClustersLeft) as left:
        runner.run(Warehouse(settings, spark), chosen, reported.append)
    assert re.fullmatch(r"Cluster us: No broker can be reached \(127\.0\.0\.1:9: .*\.", str(left.value))
    assert left.value.exit_code == 3
    assert [(stage_run.name, stage_run.status, stage_run.accepted) for stage_run in reported] == [
        (f"{BRONZE} (us)", "passed", 2),
        (f"{BRONZE} (us)", "failed", 0),
        (f"{BRONZE} (eu)", "passed", 1),
        (SILVER, "passed", 3),
    ]
    failed = [row for row in rows(settings, "quality.stage_runs")["us"] if row["status"] == "failed"]
    assert len(failed) == 1
    with pytest.raises(ClustersLeft):
        idleness.idle(Warehouse(settings), chosen)
    assert idleness.idle(Warehouse(settings.without_topics({"us"})), chosen)
    land(eu, {"b.jsonl": [line(1)]})
    assert not idleness.idle(Warehouse(settings), chosen)
    checks = {check.name: check for check in doctor.diagnose(settings)}
    assert (checks["us: topics of dlq"].state, checks["us: topics of dlq"].lacks) == ("error", True)
    assert "eu: topics of dlq" not in checks
    assert load(cluster=[{"name": "eu"}]).sole_cluster == "eu"


@pytest.mark.thorough
def test_damaged_tables_are_unknown_on_the_pages_of_each_cluster_and_the_rest_is_told(
    spark: SparkSession, empty_warehouse: Path, tmp_path: Path
) -> None:
    settings = warehouse_of(empty_warehouse, tmp_path, cluster=[{"name": "eu"}, {"name": "us"}])
    eu, us = settings.of_clusters()
    land(eu, {"a.jsonl": [line(offset) for offset in range(5)]})
    land(us, {"a.jsonl": [line(offset) for offset in range(3)], "b.jsonl": [line(9, headers=BROKEN)] * 20})
    land(us, {"c.jsonl": [line(100 + offset, topic="dlq.held", headers=BROKEN) for offset in range(20)]})
    run(spark, settings)
    damaged = ("held.dlq_records", "quarantine.dlq_records", "gold.message_ledger", "quality.gaps")
    for table in damaged:
        log = Path(Warehouse(settings).location(table), "_delta_log")
        sorted(log.glob("*.json"))[-1].write_text("{")
    found = {check.name for check in doctor.diagnose(settings) if check.state == "error"}
    assert found >= {*damaged}
    for own in settings.of_clusters():
        page = report.build(Warehouse(own))
        told = page.read_text(encoding="utf-8")
        assert [table for table in damaged if f"{table} cannot be read" not in told] == []
        assert "1 incident open" in told
        assert "Unknown: quarantine.dlq_records cannot be read." in told
    tops = clusters.of_each(Warehouse(settings), "text", top)
    assert "".join(answer.result for answer in tops).count("1 incident open") == 2
