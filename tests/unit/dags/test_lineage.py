"""Lineage events: names of datasets, rows and results of gates."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from dags import lineage
from expectations.contract import contract_of
from expectations.verdict import MOST_LISTED
from local.airflow_home import environment
from pipelines.settings import ROOT

LETTERS = "silver.dlq_records"
DLQ_FROM_KAFKA = {"AFTERLOG_DLQ__SOURCE": "kafka", "AFTERLOG_STREAMS_REQUESTS__SOURCE": "kafka"}


def told(failed: list[str], written: int = 7) -> dict[str, Any]:
    rules = [{"rule": code, "scope": "dlq.a<b>", "failing": 3, "candidates": 9} for code in failed]
    return {"written": written, "verdict": {"passed": not failed, "failed": rules}}


def results(filled: dict[str, Any]) -> dict[str, bool]:
    """Return by rule whether it held, as the facet of silver.dlq_records says."""
    found = lineage.of_layer([LETTERS], {}, {}, filled)
    (table,) = found.outputs
    facet = table.facets.get("dataQualityAssertions")
    of_facet = {assertion.name: assertion.success for assertion in facet.assertions} if facet else {}
    tests = found.run_facets["test"].tests if found.run_facets else []
    of_run = {test.name.removeprefix(f"{LETTERS}: ").partition(" ")[0]: test.status == "pass" for test in tests}
    assert of_run == of_facet
    return of_facet


@pytest.mark.parametrize(
    ("warehouse", "place"),
    [
        ("/data/warehouse", ("file", "/data/warehouse/silver/dlq_records")),
        ("s3a://key@bucket/lake/dlq/", ("s3://bucket", "lake/dlq/silver/dlq_records")),
        ("abfss://lake@account.example/x", ("abfss://lake@account.example", "x/silver/dlq_records")),
        ("file:///data/warehouse", ("file", "/data/warehouse/silver/dlq_records")),
    ],
)
def test_a_table_is_named_by_its_place(warehouse: str, place: tuple[str, str]) -> None:
    found = lineage.of_layer([LETTERS], {"warehouse": warehouse}, {}, {LETTERS: told([])})
    (table,) = found.outputs
    assert (table.namespace, table.name) == place
    assert table.outputFacets["outputStatistics"].rowCount == 7
    assert [input_.name.rpartition("/")[2] for input_ in found.inputs] == ["dlq_records"]


def test_topics_are_inputs_also_those_of_an_airflow_connection(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name, value in DLQ_FROM_KAFKA.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("AFTERLOG_STREAMS_REQUESTS__TOPIC", "logs.requests")
    tables = ["bronze.dlq_records", "bronze.streams_requests"]
    found = lineage.of_layer(tables, {"landing": str(tmp_path)}, {"AFTERLOG_KAFKA": "kafka-1:9092,kafka-2:9092"}, {})
    assert [(input_.namespace, input_.name) for input_ in found.inputs] == [
        ("file", f"{tmp_path}/dlq"),
        ("kafka://kafka-1:9092", r"dlq\..*"),
        ("file", f"{tmp_path}/streams-requests"),
        ("kafka://kafka-1:9092", "logs.requests"),
    ]


def test_each_of_several_clusters_is_an_input(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    entries = [{"name": name, "kafka": {"bootstrap_servers": f"{name}:9092"}} for name in ("eu", "us")]
    monkeypatch.setenv("AFTERLOG_CLUSTER", json.dumps(entries))
    monkeypatch.setenv("AFTERLOG_DLQ__SOURCE", "kafka")
    servers = {"AFTERLOG_CLUSTER__US__KAFKA": "us-by-airflow:9092"}
    found = lineage.of_layer(["bronze.dlq_records"], {"landing": str(tmp_path)}, servers, {})
    inputs = [(input_.namespace, input_.name) for input_ in found.inputs]
    assert inputs == [
        ("file", f"{tmp_path}/eu/dlq"),
        ("kafka://eu:9092", r"dlq\..*"),
        ("file", f"{tmp_path}/us/dlq"),
        ("kafka://us-by-airflow:9092", r"dlq\..*"),
    ]
    chosen = lineage.of_layer(["bronze.dlq_records"], {"landing": str(tmp_path)}, servers, {}, "us")
    assert [(input_.namespace, input_.name) for input_ in chosen.inputs] == inputs[2:]
    assert all(not output.outputFacets for output in found.outputs)  # the command told no counts


def test_each_rule_of_a_gate_is_a_result_where_the_verdict_tells_all_that_failed() -> None:
    codes = [rule.code for rule in contract_of(LETTERS).rules]
    assert results({LETTERS: told([])}) == dict.fromkeys(codes, True)
    assert results({LETTERS: told(codes[3:5])}) == {code: code not in codes[3:5] for code in codes}
    assert results({LETTERS: told(codes[:1] * MOST_LISTED)}) == {codes[0]: False}
    assert results({LETTERS: {"written": 0, "verdict": {"passed": False, "failed": []}}}) == {}
    assert results({LETTERS: {"written": 0, "verdict": None}}) == {}


def test_a_fact_that_failed_is_told_as_a_number_and_names_no_column() -> None:
    fact = {"rule": "grain.repeated", "scope": None, "failing": -3, "candidates": 0}
    failed = {"silver.dlq_roots": {"written": 0, "verdict": {"passed": False, "failed": [fact]}}}
    (table,) = lineage.of_layer(["silver.dlq_roots"], {}, {}, failed).outputs
    told = {assertion.name: assertion for assertion in table.facets["dataQualityAssertions"].assertions}
    named = told["grain.repeated"]
    assert (named.success, named.column, named.actual) == (False, None, "-3, not 0")
    assert told["hop_count.with_a_root"].success


def test_parsing_a_dag_imports_no_client_of_openlineage(tmp_path: Path) -> None:
    names = "[name for name in sys.modules if name.startswith('openlineage') or name == 'dags.lineage']"
    text = f"import sys, dags.dlq; print({names})"
    environment = {"AIRFLOW_HOME": str(tmp_path), "PATH": "", "PYTHONPATH": str(ROOT)}
    parsed = subprocess.run([sys.executable, "-c", text], env=environment, capture_output=True, text=True, timeout=120)
    assert parsed.stdout.splitlines()[-1] == "[]"


TASK = """
import json, sys, time
from datetime import UTC, datetime
from uuid import uuid4
from airflow.dag_processing.bundles.local import LocalDagBundle
from airflow.providers.openlineage.plugins.listener import OpenLineageListener
from airflow.sdk.api.datamodels._generated import DagRun, TIRunContext
from airflow.sdk.execution_time.task_runner import RuntimeTaskInstance
from dags.dlq import dag

now = datetime.now(UTC)
run = DagRun(
    dag_id="dlq", run_id="r", logical_date=now, data_interval_start=now, data_interval_end=now, run_after=now,
    start_date=now, end_date=None, run_type="manual", state="running", consumed_asset_events=[], partition_key=None,
)
task = dag.get_task("bronze")
task.filled = {"bronze.dlq_records": {"written": 59, "verdict": None}}
instance = RuntimeTaskInstance.model_construct(
    id=uuid4(), task_id="bronze", dag_id="dlq", run_id="r", try_number=1, dag_version_id=uuid4(), map_index=-1,
    hostname="h", context_carrier=None, task=task, bundle_instance=LocalDagBundle(name="dags"), max_tries=1,
    start_date=now, end_date=None, state="running", is_mapped=False, rendered_map_index=None,
    _ti_context_from_server=TIRunContext(dag_run=run, max_tries=1),
)
listener = OpenLineageListener()
took = []
for tell in (
    lambda: listener.on_task_instance_running(None, instance),
    lambda: listener.on_task_instance_success(None, instance),
):
    began = time.monotonic()
    tell()
    took.append(time.monotonic() - began)
print(json.dumps(took))
"""


@pytest.mark.thorough
def test_a_receiver_that_hangs_holds_a_task_no_longer_than_airflow_allows(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0), backlog=16) as hanging:  # the kernel accepts, nobody ever answers
        transport = {"type": "http", "url": f"http://127.0.0.1:{hanging.getsockname()[1]}", "timeout": 3600}
        told = {
            "AIRFLOW__OPENLINEAGE__TRANSPORT": json.dumps(transport),
            "AIRFLOW__OPENLINEAGE__EXECUTION_TIMEOUT": "8",
            "AFTERLOG_LANDING": str(tmp_path / "landing"),
        }
        command = [sys.executable, "-c", TASK]
        ended = subprocess.run(
            command, cwd=ROOT, env=environment(tmp_path) | told, capture_output=True, text=True, timeout=300
        )
        assert ended.returncode == 0, ended.stderr
        took = json.loads(ended.stdout.splitlines()[-1])
        assert all(8 <= seconds < 60 for seconds in took), ended.stdout  # it waits as long as it may, and goes on
        hanging.settimeout(60)
        requests = []
        for _ in took:
            connection, _ = hanging.accept()
            with connection:
                requests.append(connection.recv(1 << 20))
    assert all(request.startswith(b"POST /api/v1/lineage") for request in requests)
