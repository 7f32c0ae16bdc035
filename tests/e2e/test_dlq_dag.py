"""The DAG `dlq` as Airflow runs it: real DAG runs, real tasks, a fresh SQLite database."""

from __future__ import annotations

import io
import json
import os
import re
import shutil
import socket
import subprocess
import sys
import time
import urllib.request
from base64 import b64encode
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from deltalake import DeltaTable
from rich.console import Console

from local.demo import Airflow, delta_log
from pipelines.catalog import FEEDS, stages
from pipelines.errors import UsageError
from pipelines.settings import ROOT
from pipelines.stores import locations
from pipelines.warehouse import backups
from tests.e2e.runs import OF_A_BROKEN_GATE, counts, states, tables, told_by_assets
from tests.testing.receiver import Receiver, receiving

COUNTS, SUMMARY = "gold.dlq_counts", "gold.dlq_summary"
SECRET = "canary-5d41402abc4b"
TABLES = [stage.table for stage in stages("dlq")]


def base64(text: str) -> str:
    return b64encode(text.encode()).decode()


def rows(warehouse: str, table: str) -> list[str]:
    batches = DeltaTable(f"{warehouse}/{table.replace('.', '/')}").scan()
    return sorted(repr(row) for batch in batches for row in batch.to_struct_array().to_pylist())


def record(offset: int, original_offset: str) -> str:
    headers = {"topic": "orders", "partition": "0", "offset": original_offset, "group": "workers"}
    return json.dumps(
        {
            "topic": "dlq.orders",
            "partition": 0,
            "offset": offset,
            "timestamp": 1795228875344,
            "timestampType": 0,
            "key": base64(SECRET),
            "value": base64(SECRET),
            "headers": [{"key": f"__dlq.errors.{name}", "value": base64(value)} for name, value in headers.items()],
        }
    )


def landed(directory: Path, records: list[str], empty: Path | None = None) -> dict[str, str]:
    """Land records beside a copy of an empty warehouse, or beside nothing."""
    if empty is not None:
        shutil.copytree(empty, directory / "warehouse")
    feed = directory / "landing" / "dlq"
    feed.mkdir(parents=True)
    (feed / "records.jsonl").write_text("\n".join(records) + "\n")
    return {"landing": str(directory / "landing"), "warehouse": str(directory / "warehouse")}


@pytest.fixture(scope="module")
def receiver() -> Iterator[Receiver]:
    """What takes the lineage events of all runs of this module."""
    with receiving() as server:
        yield server


@pytest.fixture(scope="module")
def airflow(tmp_path_factory: pytest.TempPathFactory, receiver: Receiver, command: str) -> Iterator[Airflow]:
    home = tmp_path_factory.mktemp("airflow")
    base, _, endpoint = receiver.address.rpartition("/hook/")
    transport = {"type": "http", "url": base, "endpoint": f"hook/{endpoint}", "timeout": 5, "retry": {"total": 1}}
    variables = {"AIRFLOW__OPENLINEAGE__TRANSPORT": json.dumps(transport), "AFTERLOG_COMMAND": command}
    variables["AFTERLOG_RETENTION"] = json.dumps({"tables": {COUNTS: "1 day"}})
    variables["AFTERLOG_BACKUP"] = json.dumps({"to": str(home / "backups")})
    started = Airflow(home, home / "airflow.log", Console(file=io.StringIO()), variables)
    yield started
    started.close()


@pytest.fixture(scope="module")
def good(tmp_path_factory: pytest.TempPathFactory, empty_warehouse: Path) -> dict[str, str]:
    shipping = (ROOT / "tests" / "data" / "dlq" / "dlq.shipping.jsonl").read_text().splitlines()
    return landed(tmp_path_factory.mktemp("good"), [*shipping, record(0, "-1"), record(1, "7")], empty_warehouse)


@pytest.fixture(scope="module")
def first(airflow: Airflow, good: dict[str, str]) -> dict[str, Any]:
    return airflow.run("dlq", good)


@pytest.fixture(scope="module")
def broken(airflow: Airflow, tmp_path_factory: pytest.TempPathFactory, empty_warehouse: Path) -> dict[str, Any]:
    records = [record(offset, str(offset) if offset < 30 else f"{SECRET}{offset}") for offset in range(60)]
    parameters = landed(tmp_path_factory.mktemp("broken"), records, empty_warehouse)
    said = airflow.log.stat().st_size
    run = airflow.run("dlq", parameters)
    with airflow.log.open(encoding="utf-8") as log:
        log.seek(said)
        return {**run, "log": log.read(), "warehouse": parameters["warehouse"]}


def test_a_run_fills_every_table(first: dict[str, Any]) -> None:
    assert first["state"] == "success"
    assert {task: found["state"] for task, found in first["tasks"].items()} == dict.fromkeys(
        ["bronze", "silver", "gold", "reports", "outcome"], "success"
    )
    assert counts(first, "bronze.dlq_records") == [59, 59, 0, 0, 0]
    assert counts(first, "silver.dlq_records") == [59, 58, 1, 0, 0]


def test_counts_and_verdict_are_the_xcom_and_the_assets_extra(first: dict[str, Any]) -> None:
    assert tables(first)["silver.dlq_records"]["verdict"] == {
        "table": "silver.dlq_records",
        "passed": True,
        "candidates": 59,
        "failed": [],
    }
    assert first["assets"].keys() == {*TABLES, "reports.dlq"}
    assert {name: first["assets"][name] for name in TABLES} == told_by_assets(first)
    assert first["assets"]["reports.dlq"]["tables"] == told_by_assets(first)


def test_the_report_is_built(first: dict[str, Any]) -> None:
    assert Path(first["xcoms"]["reports"]["report"]).is_file()


def test_a_second_run_changes_nothing_and_a_receiver_of_lineage_that_fails_does_not_matter(
    airflow: Airflow, first: dict[str, Any], good: dict[str, str], receiver: Receiver
) -> None:
    before, asked = delta_log(Path(good["warehouse"])), len(receiver.got)
    receiver.behaviours = ["500"]
    run = airflow.run("dlq", good)
    receiver.behaviours = ["200"]
    assert len(receiver.got) > asked
    assert run["state"] == "success"
    assert [counts(run, table) for table in TABLES] == [[0, 0, 0, 0, 0]] * len(TABLES)
    assert {table: found["status"] for table, found in tables(run).items()} == dict.fromkeys(TABLES, "idle")
    assert len(before) >= len(TABLES)
    assert delta_log(Path(good["warehouse"])) == before


def test_a_broken_gate_fails_the_run_at_once_and_the_reports_are_built(broken: dict[str, Any]) -> None:
    assert broken["state"] == "failed"
    assert states(broken) == OF_A_BROKEN_GATE
    assert counts(broken, "gold.dlq_summary") == [0, 0, 0, 0, 0]
    assert Path(broken["xcoms"]["reports"]["report"]).is_file()


def test_a_broken_gate_shows_its_verdict_in_xcom_and_asset(broken: dict[str, Any]) -> None:
    verdict = tables(broken)["silver.dlq_records"]["verdict"]
    assert not verdict["passed"]
    assert {"rule": "original_offset.decimal_int64", "failing": 30} in [
        {name: failed[name] for name in ("rule", "failing")} for failed in verdict["failed"]
    ]
    assert broken["assets"]["reports.dlq"]["tables"]["silver.dlq_records"]["verdict"] == verdict
    of_the_failed_task = {table for table in TABLES if table.startswith("silver.")}
    assert broken["assets"].keys() == {*TABLES, "reports.dlq"} - of_the_failed_task


def test_a_broken_gate_is_said_in_one_sentence(broken: dict[str, Any]) -> None:
    said = re.findall(r"silver failed: (.*?The report: [^\n]*)", broken["log"], re.DOTALL)
    assert len(said) == 1
    assert "original_offset.decimal_int64 fails in 30 of 60 rows" in said[0]
    assert "The gate of silver.dlq_records broke for dlq.orders: its rows are held" in said[0]
    assert (
        "30 records had an offset that is no decimal int64 of at least 0 (records.jsonl 30 rows, lines 31-60" in said[0]
    )
    assert "Next: See the report" in said[0]
    assert f"The report: {broken['warehouse']}/_reports/index.html" in said[0]
    (outcome,) = re.findall(r"outcome failed: silver: (60 rows of dlq.orders are held.*)", broken["log"])
    assert "index.html" in outcome
    frames = re.findall(r"Task failed with exception(.*?)GateBroke: ", broken["log"], re.DOTALL)
    assert [frame.count('  File "') for frame in frames] == [1]


def ended(receiver: Receiver, run: dict[str, Any], task: str) -> dict[str, Any]:
    """Return the lineage event about the end of a run's task."""
    (event,) = [
        body
        for _, body in receiver.got
        if body["eventType"] in ("COMPLETE", "FAIL")
        and body["job"]["name"] == f"dlq.{task}"
        and body["run"]["facets"]["airflow"]["dagRun"]["run_id"] == run["run"]
    ]
    return event


def test_lineage_has_what_a_task_read_and_filled_and_the_rows_that_it_wrote(
    first: dict[str, Any], good: dict[str, str], receiver: Receiver
) -> None:
    bronze, silver = ended(receiver, first, "bronze"), ended(receiver, first, "silver")
    warehouse = good["warehouse"]
    assert bronze["eventType"] == silver["eventType"] == "COMPLETE"
    assert [(row["namespace"], row["name"]) for row in bronze["inputs"]] == [("file", f"{good['landing']}/dlq")]
    (table,) = bronze["outputs"]
    assert (table["namespace"], table["name"]) == ("file", f"{warehouse}/bronze/dlq_records")
    assert table["facets"]["symlinks"]["identifiers"][0]["name"] == "bronze.dlq_records"
    assert table["outputFacets"]["outputStatistics"]["rowCount"] == 59
    assert f"{warehouse}/bronze/dlq_records" in [row["name"] for row in silver["inputs"]]
    written = {row["name"]: row["outputFacets"]["outputStatistics"]["rowCount"] for row in silver["outputs"]}
    assert written[f"{warehouse}/silver/dlq_records"] == tables(first)["silver.dlq_records"]["written"] > 0
    assert {test["status"] for test in silver["run"]["facets"]["test"]["tests"]} == {"pass"}


def test_lineage_has_the_results_of_a_gate_by_rule(broken: dict[str, Any], receiver: Receiver) -> None:
    event = ended(receiver, broken, "silver")
    assert event["eventType"] == "FAIL"
    found = {row["facets"]["symlinks"]["identifiers"][0]["name"]: row["facets"] for row in event["outputs"]}
    rules = {row["name"]: row for row in found["silver.dlq_records"]["dataQualityAssertions"]["assertions"]}
    failed = rules["original_offset.decimal_int64"]
    assert (failed["success"], failed["column"], failed["actual"]) == (False, "original_offset", "30 rows failed")
    assert rules["dlq_topic.not_null"]["success"]


def test_no_value_of_a_record_is_in_log_xcom_asset_or_lineage(
    broken: dict[str, Any], airflow: Airflow, first: dict[str, Any], receiver: Receiver
) -> None:
    assert receiver.got
    everything = json.dumps([broken, first, receiver.got]) + airflow.log.read_text(encoding="utf-8")
    assert SECRET not in everything
    assert base64(SECRET) not in everything


def test_hostile_parameters_start_no_run(airflow: Airflow, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="warehouse"):
        airflow.run("dlq", {"warehouse": f"--landing={tmp_path}"})


@pytest.mark.thorough
def test_up_serves_runs_the_schedule_notes_failures_and_leaves_no_process(tmp_path: Path) -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    landed(tmp_path, [record(0, "7")])
    alike = os.fsencode(tmp_path / "landing" / "acknowledgements")
    os.mkdir(alike)
    for name in (b"\xff.jsonl", rb"\xff.jsonl"):  # both names look the same, so the feed cannot be read
        Path(os.fsdecode(alike + b"/" + name)).touch()
    script = (
        f"from pathlib import Path; from local.airflow_home import up; up({port}, Path({str(tmp_path / 'home')!r}))"
    )
    places = {"AFTERLOG_LANDING": str(tmp_path / "landing"), "AFTERLOG_WAREHOUSE": str(tmp_path / "warehouse")}
    served = subprocess.Popen(
        [sys.executable, "-c", script],
        cwd=ROOT,
        env={**os.environ, **places},
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    family: list[psutil.Process] = []
    try:
        assert served.stdout is not None
        assert any(f"http://127.0.0.1:{port}" in line for line in served.stdout)
        token = _get(port, "/auth/token")["access_token"]
        assert [(dag["dag_id"], dag["is_paused"]) for dag in _get(port, "/api/v2/dags", token)["dags"]] == [
            (feed, False) for feed in sorted(FEEDS)
        ]
        until = time.monotonic() + 300
        path = "/api/v2/dags/dlq/dagRuns/~/taskInstances?task_id=bronze"
        while [task["state"] for task in _get(port, path, token)["task_instances"]] != ["success"]:
            assert time.monotonic() < until
            time.sleep(1)
        path = "/api/v2/dags/delivery/dagRuns/~/taskInstances?task_id=bronze"
        while [task["state"] for task in _get(port, path, token)["task_instances"]] != ["failed"]:
            assert time.monotonic() < until
            time.sleep(1)
        (noted,) = _get(port, path, token)["task_instances"]
        assert noted["note"].startswith("Two files in ")
        assert noted["note"].endswith("index.html")
        (log,) = (tmp_path / "home" / "logs").glob("dag_id=delivery/*/task_id=bronze/attempt=1.log")
        events: list[dict[str, Any]] = []
        while not any(event["event"] == "Task failed with exception" for event in events[:-1]):
            assert time.monotonic() < until  # the log is complete a moment after the state changes
            time.sleep(0.2)
            events = [json.loads(line) for line in log.read_text(encoding="utf-8").splitlines()]
        (raised,) = [event for event in events if event["event"] == "Task failed with exception"]
        assert [len(row["frames"]) for row in raised["error_detail"]] == [1]
        (said,) = [event["event"] for event in events[-3:] if event["level"] == "error"]
        assert said.startswith("bronze failed: Two files in ")
        assert said.endswith("index.html")
        family = psutil.Process(served.pid).children(recursive=True)
    finally:
        served.terminate()
        served.wait(timeout=60)
    assert family
    assert [process.pid for process in family if process.is_running()] == []
    with socket.socket() as probe:
        assert probe.connect_ex(("127.0.0.1", port)) != 0


def _get(port: int, path: str, token: str | None = None) -> Any:
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    request = urllib.request.Request(f"http://127.0.0.1:{port}{path}", headers=headers)
    with opener.open(request, timeout=30) as answer:
        return json.load(answer)


def test_maintenance_says_what_went(airflow: Airflow, good: dict[str, str], first: dict[str, Any]) -> None:
    assert first["state"] == "success"
    left = Path(good["warehouse"], "gold", "dlq_summary", "part-of-a-crash.parquet")
    left.write_bytes(b"half")
    os.utime(left, (0, 0))
    counted, summary = (rows(good["warehouse"], table) for table in (COUNTS, SUMMARY))
    run = airflow.run("maintain", {"warehouse": good["warehouse"]})
    assert states(run) == {"maintain": ("success", 1)}
    assert run["xcoms"]["maintain"] == {"files": 1, "log_files": 0, "bytes": 4, "rows": len(counted)}
    assert not left.exists()
    assert counted
    assert rows(good["warehouse"], COUNTS) == []
    assert rows(good["warehouse"], SUMMARY) == summary


def test_a_backup_says_what_was_copied(airflow: Airflow, good: dict[str, str], first: dict[str, Any]) -> None:
    assert first["state"] == "success"
    run = airflow.run("backup", {"warehouse": good["warehouse"]})
    assert states(run) == {"backup": ("success", 1)}
    made = run["xcoms"]["backup"]
    assert backups.last_of(locations.of(good["warehouse"])).backup == made["backup"]  # type: ignore[union-attr]
    assert made["copied_files"] > 100
