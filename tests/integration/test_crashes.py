"""After a kill at a named point, a rerun gives the same tables as without the crash: no duplicate, no loss.

Runs are killed with -9 in a process of their own. Work that begins with rows of an earlier run stops in this process.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from pipelines.catalog import CATALOG, stages
from pipelines.run import runner
from pipelines.run.readmit import readmit, stage_with_quarantine
from pipelines.settings import Dlq, RequiredProfile, Settings, load
from pipelines.steps.held import Acceptance
from pipelines.stores import lock
from pipelines.warehouse.tables import Warehouse
from tests.integration.killed import killed_at
from tests.testing.builders import AT, BROKEN, CHAIN, HOUR, kip_1191, land, line, rows, run, run_chain, tables

SCRIPT = Path(__file__).with_name("killed.py")


def kill(point: str, settings: Settings, *command: str, **environment: str) -> None:
    where = ("--warehouse", settings.warehouse, "--landing", settings.landing)
    killed = subprocess.run(
        [sys.executable, str(SCRIPT), point, *command, *where],
        env=os.environ | {"PYTHONPATH": str(SCRIPT.parents[2])} | environment,
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert killed.returncode == -signal.SIGKILL, killed.stderr[-2000:]


def landing() -> dict[str, list[str]]:
    """Good rows over two hours, duplicates, a conflict, violations, an unreadable line."""
    good = [line(offset, timestamp=AT + HOUR * (offset % 2)) for offset in range(20)]
    bad = [line(100, headers=kip_1191(offset="+1")), line(101, headers=BROKEN), "{", line(3, value=b"other")]
    return {"a.jsonl": good, "b.jsonl": [*good[:5], *bad]}


@pytest.fixture
def landed(settings: Settings) -> Settings:
    land(settings, landing())
    return settings


@pytest.fixture(scope="module")
def undisturbed(
    spark: SparkSession, empty_warehouse: Path, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, list[dict[str, Any]]]:
    """The tables of a run over the same files without a kill."""
    place = tmp_path_factory.mktemp("undisturbed")
    shutil.copytree(empty_warehouse, place / "warehouse")
    settings = load(warehouse=str(place / "warehouse"), landing=str(place / "landing"))
    land(settings, landing())
    run_chain(spark, settings)
    return tables(settings)


@pytest.mark.parametrize(
    "point",
    [
        pytest.param("after bronze, before its progress", marks=pytest.mark.thorough),
        pytest.param("after data files, before their commit", marks=pytest.mark.thorough),
        pytest.param("between quarantine and silver", marks=pytest.mark.thorough),
        pytest.param("between silver and progress", marks=pytest.mark.thorough),
        pytest.param("during gold", marks=pytest.mark.thorough),
        pytest.param("between gold and progress", marks=pytest.mark.thorough),
    ],
)
def test_killed_run_converges(
    spark: SparkSession, landed: Settings, undisturbed: dict[str, list[dict[str, Any]]], point: str
) -> None:
    kill(point, landed, "run", "--feed", "dlq")
    run_chain(spark, landed)
    assert tables(landed) == undisturbed
    reported = Warehouse(landed, spark).read("quality.stage_runs").where("status = 'passed'")
    assert {row["table"] for row in reported.collect()} == {*CHAIN}


def readmitted(spark: SparkSession, settings: Settings) -> None:
    with lock.writer(settings, "test"):
        readmit(Warehouse(settings, spark), stage_with_quarantine("silver.dlq_records"))


@pytest.mark.parametrize(
    "point",
    [
        "readmit, before rows leave quarantine",
        pytest.param("readmit, before violations are refreshed", marks=pytest.mark.thorough),
    ],
)
def test_killed_readmit_converges(spark: SparkSession, landed: Settings, tmp_path: Path, point: str) -> None:
    required = landed.model_copy(
        update={"dlq": Dlq(require=(RequiredProfile(topic="dlq.*", profile="kip-1317"),)), "tolerance": 1.0}
    )
    run_chain(spark, required)
    assert len(rows(spark, landed, "quarantine.dlq_records")) == 24
    undisturbed = landed.model_copy(update={"warehouse": str(tmp_path / "undisturbed")})
    shutil.copytree(landed.warehouse, undisturbed.warehouse)

    with killed_at(point):
        readmitted(spark, landed)
    for settings in (landed, undisturbed):
        readmitted(spark, settings)
        run_chain(spark, settings)

    left = {tuple(row["violations"]) for row in rows(spark, landed, "quarantine.dlq_records")}
    assert left == {
        ("original_offset.decimal_int64",),
        ("original_topic.not_null",),
        ("error.readable",),
        ("grain.conflict",),
    }
    assert tables(landed) == tables(undisturbed)


@pytest.mark.parametrize(
    ("point", "accepting"),
    [
        pytest.param("after a verdict is fixed", False, marks=pytest.mark.thorough),
        pytest.param("after rows are held", False, marks=pytest.mark.thorough),
        pytest.param("before held rows are released", True, marks=pytest.mark.thorough),
        pytest.param("after held rows are released", True, marks=pytest.mark.thorough),
    ],
)
def test_killed_while_a_topic_is_held_or_accepted_converges(
    spark: SparkSession, landed: Settings, tmp_path: Path, point: str, accepting: bool
) -> None:
    def accepted(settings: Settings, *accept: str) -> None:
        with lock.writer(settings, "test"):
            runner.run(Warehouse(settings, spark), stages("dlq"), accepted=Acceptance.of(accept, CATALOG))

    bad = [line(offset, topic="dlq.bad", headers=BROKEN) for offset in range(20)]
    land(landed, {"c.jsonl": [*bad, line(30, topic="dlq.bad")]})
    topic = "silver.dlq_records:dlq.bad"
    undisturbed = landed.model_copy(update={"warehouse": str(tmp_path / "undisturbed")})
    shutil.copytree(landed.warehouse, undisturbed.warehouse)
    if accepting:
        assert run(spark, landed)["silver.dlq_records"].held == 21
    with killed_at(point):
        accepted(landed, *([topic] if accepting else []))
    for settings in (landed, undisturbed):
        accepted(settings, topic)
    assert tables(landed) == tables(undisturbed)
    assert rows(spark, landed, "held.dlq_records") == []
