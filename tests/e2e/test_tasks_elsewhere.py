"""The DAG `dlq` with tasks that run the command on another host, or in pods: they tell what they always tell."""

from __future__ import annotations

import io
import json
import os
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from rich.console import Console

from local.demo import Airflow
from pipelines.settings import ROOT
from tests.e2e.runs import OF_A_BROKEN_GATE, counts, states, tables, told_by_assets
from tests.e2e.test_dlq_dag import SECRET, landed, record
from tests.testing import sshd
from tests.testing.kubernetes import cluster


@pytest.fixture(
    scope="module",
    params=[
        "pod",
        pytest.param("ssh", marks=[pytest.mark.thorough, pytest.mark.skipif(not sshd.SSHD, reason=sshd.MISSING)]),
    ],
)
def airflow(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, command: str
) -> Iterator[Airflow]:
    home = tmp_path_factory.mktemp("airflow")
    with ExitStack() as stack:
        if request.param == "ssh":
            connection = stack.enter_context(sshd.server(tmp_path_factory.mktemp("sshd")))
            section: dict[str, str] = {"connection": "there", "command": command, "directory": str(ROOT)}
        else:
            image = tmp_path_factory.mktemp("image")
            (image / "afterlog").write_text(f'#!/bin/sh\ncd {ROOT} && exec {command} "$@"\n')
            (image / "afterlog").chmod(0o755)
            path = os.pathsep.join((str(image), os.environ["PATH"]))
            _, connection = stack.enter_context(cluster(tmp_path_factory.mktemp("cluster"), path))
            section = {"connection": "there", "image": "afterlog", "namespace": "afterlog"}
        variables = {"AIRFLOW_CONN_THERE": connection, "AFTERLOG_AIRFLOW": json.dumps({request.param: section})}
        started = Airflow(home, home / "airflow.log", Console(file=io.StringIO()), variables)
        stack.callback(started.close)
        yield started


def test_a_run_fills_the_tables(airflow: Airflow, tmp_path: Path, empty_warehouse: Path) -> None:
    run = airflow.run("dlq", landed(tmp_path, [record(offset, str(offset)) for offset in range(30)], empty_warehouse))
    assert (run["state"], counts(run, "silver.dlq_records")) == ("success", [30, 30, 0, 0, 0])
    assert run["assets"]["silver.dlq_records"] == told_by_assets(run)["silver.dlq_records"]
    assert Path(run["xcoms"]["reports"]["report"]).is_file()


@pytest.mark.thorough
def test_a_broken_gate_is_not_tried_again(airflow: Airflow, tmp_path: Path, empty_warehouse: Path) -> None:
    records = [record(offset, f"{SECRET}{offset}") for offset in range(30)]
    broken = airflow.run("dlq", landed(tmp_path, records, empty_warehouse))
    assert states(broken) == OF_A_BROKEN_GATE
    assert tables(broken)["silver.dlq_records"]["status"] == "broken"
    log = airflow.log.read_text(encoding="utf-8")
    assert "The gate of silver.dlq_records broke for dlq.orders: its rows are held" in log
    assert SECRET not in log
