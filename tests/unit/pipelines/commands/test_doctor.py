"""Every finding of `afterlog doctor`, on warehouses that real runs made."""

from __future__ import annotations

import http.server
import json
import os
import shutil
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import get_args

import pytest
from deltalake import DeltaTable
from obstore.store import MemoryStore
from pyspark.sql import SparkSession
from typer.testing import CliRunner

from pipelines import moments
from pipelines.catalog import stages
from pipelines.cli import app
from pipelines.commands import doctor
from pipelines.commands.check import Check, State
from pipelines.commands.doctor import diagnose, exit_code, machine
from pipelines.jvm import jars, java
from pipelines.settings import LANDING_DIRECTORIES, SchemaFile, Settings, load
from pipelines.stores import connection, lease, lock
from pipelines.warehouse import quality
from pipelines.warehouse.tables import Warehouse
from tests.testing.builders import land, line, run

BRONZE, SILVER = "bronze.dlq_records", "silver.dlq_records"


@pytest.fixture(scope="module")
def made(spark: SparkSession, empty_warehouse: Path, tmp_path_factory: pytest.TempPathFactory) -> Settings:
    """A warehouse whose second run broke a gate; `good` beside it is a copy from before that run."""
    top = tmp_path_factory.mktemp("made")
    shutil.copytree(empty_warehouse, top / "blocked")
    settings = load(warehouse=str(top / "blocked"), landing=str(top / "landing"))
    land(settings, {"a.jsonl": [line(1), line(2)]})
    run(spark, settings)
    shutil.copytree(top / "blocked", top / "good")
    elsewhere = settings.model_copy(update={"landing": str(top / "landing of blocked")})
    land(elsewhere, {"b.jsonl": [line(offset, headers=[("trace", b"1")]) for offset in range(10, 30)]})
    run(spark, elsewhere, BRONZE, SILVER)
    return settings


@pytest.fixture
def after_runs(made: Settings, tmp_path: Path) -> Settings:
    shutil.copytree(Path(made.warehouse).with_name("good"), tmp_path / "warehouse")
    return load(warehouse=str(tmp_path / "warehouse"), landing=made.landing)


@pytest.fixture(autouse=True)
def _machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No Airflow home, no listener on Airflow's port, no AFTERLOG variables of the user."""
    monkeypatch.setattr(machine, "AIRFLOW_HOME", tmp_path / "airflow")
    for name in [name for name in os.environ if name.startswith("AFTERLOG_")]:
        monkeypatch.delenv(name)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        monkeypatch.setenv("AFTERLOG_PORT", str(free.getsockname()[1]))


def found(settings: Settings, name: str) -> Check:
    """The one finding with this name."""
    (check,) = [check for check in diagnose(settings) if check.name == name]
    return check


def change_progress(settings: Settings, table: str, **values: object) -> None:
    file = Path(settings.warehouse) / "_progress" / f"{table}.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | values))


def test_after_runs_all_is_well(after_runs: Settings) -> None:
    checks = diagnose(after_runs)
    assert [check for check in checks if check.state != "ok"] == []
    assert exit_code(checks) == 0
    assert doctor.summary(checks) == "All is ok."
    names = ["Java", "Python packages", "JVM jars", "settings", "disk"]
    names += [f"landing {feed}" for feed in LANDING_DIRECTORIES]
    names += ["writer's lock", "tables", *(stage.table for stage in stages("dlq")), "Airflow"]
    names.remove("silver.dlq_refusals")  # nothing was refused
    assert [check.name for check in checks] == names
    assert found(after_runs, SILVER).finding == "Version 1, bronze.dlq_records is read up to version 1."


def test_before_the_first_run_all_is_well(settings: Settings) -> None:
    checks = diagnose(settings)
    assert exit_code(checks) == 0
    assert "`afterlog run` creates them" in found(settings, "tables").finding
    check = found(settings, "landing dlq")
    assert check.state == "ok"
    assert check.finding.startswith("not set up: put files of dead-letter records into ")


def test_no_java(monkeypatch: pytest.MonkeyPatch, settings: Settings) -> None:
    monkeypatch.setattr(java, "SUPPORTED", (99,))
    check = found(settings, "Java")
    assert (check.state, check.finding) == (
        "error",
        "There is no Java 17 or 21; run `make setup`, which installs one, or set JAVA_HOME to one of your own.",
    )
    assert exit_code(diagnose(settings)) == 3


def test_package_of_another_version(monkeypatch: pytest.MonkeyPatch, settings: Settings) -> None:
    monkeypatch.setattr(machine, "requires", lambda _: ["pyspark==9.9.9", "rich>=14"])
    check = found(settings, "Python packages")
    assert (check.state, check.remedy) == ("error", "Run `make setup`.")
    assert check.finding.startswith("pyspark is 4.")
    assert check.finding.endswith("not 9.9.9.")


def test_missing_jars(monkeypatch: pytest.MonkeyPatch, settings: Settings, tmp_path: Path) -> None:
    fault = jars.fault
    monkeypatch.setattr(jars, "fault", lambda: fault(tmp_path))
    assert found(settings, "JVM jars") == Check(
        "JVM jars", "error", f"The JVM jars are not in {tmp_path}.", "Run `make setup`.", lacks=True
    )


def test_variable_that_is_no_setting(monkeypatch: pytest.MonkeyPatch, settings: Settings) -> None:
    monkeypatch.setenv("AFTERLOG_TOLERENCE", "0.5")
    check = found(settings, "settings")
    assert (check.state, exit_code([check])) == ("warning", 0)
    assert check.finding == "AFTERLOG_TOLERENCE is not a setting and has no effect; did you mean AFTERLOG_TOLERANCE?"


def test_variables_that_are_settings_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AFTERLOG_LOCK__WAIT_SECONDS", "5")
    assert "AFTERLOG_LOCK__WAIT_SECONDS from the environment" in found(load(), "settings").finding


def test_a_schema_file_that_is_not_there(monkeypatch: pytest.MonkeyPatch, settings: Settings, tmp_path: Path) -> None:
    check = found(settings.model_copy(update={"schemas": (SchemaFile(topic="x", file="/nowhere.avsc"),)}), "settings")
    assert (check.state, check.finding) == (
        "error",
        "file of [[schema]] cannot be read: /nowhere.avsc: No such file or directory.",
    )
    (tmp_path / "afterlog.toml").write_text('[[schema]]\ntopic = "x"\nfile = "/nowhere.avsc"\n')
    monkeypatch.setenv("AFTERLOG_SETTINGS", str(tmp_path / "afterlog.toml"))
    for place in ("warehouse", "landing"):
        (tmp_path / place).mkdir(exist_ok=True)
    asked = ["report", "--warehouse", str(tmp_path / "warehouse"), "--landing", str(tmp_path / "landing")]
    assert "/nowhere.avsc" in str(CliRunner().invoke(app, asked).exception)


def test_gate_of_a_table_without_one() -> None:
    check = found(load(gates={"bronze.dlq_records": {"tolerance": 0.1}}), "settings")
    assert check.state == "warning"
    assert check.finding.startswith('[gates."bronze.dlq_records"] has no effect')
    assert found(load(gates={SILVER: {"tolerance": 0.1}}), "settings").state == "ok"


@pytest.mark.parametrize(("free", "state"), [(3 << 30, "ok"), (1 << 30, "warning"), (1 << 20, "error")])
def test_disk_space(monkeypatch: pytest.MonkeyPatch, settings: Settings, free: int, state: str) -> None:
    monkeypatch.setattr(machine.shutil, "disk_usage", lambda _: shutil._ntuple_diskusage(free, 0, free))
    assert found(settings, "disk").state == state


def test_warehouse_that_is_a_file(tmp_path: Path) -> None:
    (tmp_path / "warehouse").write_text("")
    settings = load(warehouse=str(tmp_path / "warehouse" / "below"), landing=str(tmp_path))
    assert found(settings, "disk").finding == f"{tmp_path / 'warehouse'} is not a directory."


def test_landed_files_that_wait(after_runs: Settings, tmp_path: Path) -> None:
    settings = after_runs.model_copy(update={"landing": str(tmp_path / "landing")})
    land(settings, {"new.jsonl": [line(9)], ".hidden": ["x"]})
    assert "1 file, " in found(settings, "landing dlq").finding
    assert found(after_runs, "landing dlq").finding.endswith("all files are read.")


def test_landing_that_cannot_be_read(settings: Settings) -> None:
    directory = settings.landing_of("dlq")
    directory.mkdir(parents=True)
    for name in (b"\\xe9.jsonl", b"\xe9.jsonl"):
        Path(os.fsdecode(os.fsencode(directory) + b"/" + name)).write_bytes(b"{}")
    check = found(settings, "landing dlq")
    assert (check.state, exit_code([check])) == ("error", 3)
    assert "rename one" in check.finding


def test_lock_says_who_holds_it(after_runs: Settings) -> None:
    assert found(after_runs, "writer's lock").finding == "Free."
    with lock.writer(after_runs, "a test"):
        assert found(after_runs, "writer's lock").finding.startswith(f"Held by process {os.getpid()} on ")


def test_missing_table(after_runs: Settings) -> None:
    shutil.rmtree(Path(after_runs.warehouse) / "quarantine" / "dlq_records")
    check = found(after_runs, "tables")
    assert (check.state, check.finding) == ("warning", "quarantine.dlq_records missing.")


def test_blocked_batch(made: Settings) -> None:
    check = found(made, SILVER)
    assert check.state == "error"
    assert check.finding.startswith("20 rows of dlq.orders are held since 2")
    assert "afterlog run --accept silver.dlq_records:dlq.orders" in (check.remedy or "")
    assert "header_profile" in check.finding
    assert exit_code(diagnose(made)) == 1


def test_gap_in_a_log(after_runs: Settings) -> None:
    (Path(after_runs.warehouse) / "silver" / "dlq_records" / "_delta_log" / f"{0:020}.json").unlink()
    checks = [check for check in diagnose(after_runs) if check.name == SILVER]
    assert [(check.state, check.finding.partition(" in ")[0]) for check in checks] == [("error", "Commit 0 is missing")]
    assert exit_code(checks) == 1


def test_gap_before_a_checkpoint_is_no_fault(after_runs: Settings) -> None:
    table = Path(after_runs.warehouse) / "silver" / "dlq_records"
    DeltaTable(table).create_checkpoint()
    (table / "_delta_log" / f"{0:020}.json").unlink()
    assert found(after_runs, SILVER).state == "ok"


@pytest.mark.parametrize(
    ("values", "finding"),
    [
        (
            {"inputs": {BRONZE: {"table_id": None, "version": 7}}},
            "Its progress speaks of version 7 of bronze.dlq_records, which ends at 1.",
        ),
        ({"target_version": 5}, "Its progress speaks of version 5 of the table, which ends at 1."),
        ({"target_id": "other"}, "Its progress speaks of another table than the table that is there now."),
        (
            {"inputs": {BRONZE: {"table_id": "other", "version": 1}}},
            "Its progress speaks of another table than bronze.dlq_records that is there now.",
        ),
        (
            {"pending": {BRONZE: {"start": 1, "end": 9}}},
            "Its progress speaks of version 9 of bronze.dlq_records, which ends at 1.",
        ),
        ({"pending": {BRONZE: {"start": 0, "end": 1}}}, "A run ended within a batch."),
        ({"pending": 5}, "Its progress cannot be understood."),
    ],
    ids=["version", "target version", "target", "input", "pending that is gone", "pending", "unreadable"],
)
def test_progress_that_disagrees_with_its_tables(after_runs: Settings, values: dict[str, object], finding: str) -> None:
    change_progress(after_runs, SILVER, **values)
    check = found(after_runs, SILVER)
    assert (check.state, check.finding) == ("warning", finding)
    assert "next `afterlog run`" in (check.remedy or "")


def test_progress_without_table_and_table_without_progress(after_runs: Settings) -> None:
    shutil.rmtree(Path(after_runs.warehouse) / "silver")
    assert found(after_runs, SILVER).finding == "It has progress, but the table is gone."
    (Path(after_runs.warehouse) / "_progress" / "gold.dlq_summary.json").unlink()
    check = found(after_runs, "gold.dlq_summary")
    assert (check.state, check.finding) == ("warning", "Its progress is gone.")


def test_versions_that_wait(after_runs: Settings) -> None:
    change_progress(after_runs, SILVER, inputs={BRONZE: {"table_id": None, "version": 0}})
    assert found(after_runs, SILVER).finding.endswith("read up to version 0, 1 version waits.")


def test_run_that_did_not_report(after_runs: Settings) -> None:
    at = moments.now()
    quality.note(Warehouse(after_runs), quality.StageRun("a run", SILVER, "failed", at, at))
    assert found(after_runs, "quality reports").state == "warning"


@pytest.mark.parametrize("text", ["[{", "[1]"], ids=["no JSON", "other JSON"])
def test_state_file_that_is_damaged_is_a_finding(after_runs: Settings, text: str) -> None:
    (Path(after_runs.warehouse) / "_progress" / "unreported.json").write_text(text)
    assert found(after_runs, "quality reports").state == "error"


@pytest.mark.parametrize(
    ("warehouse", "properties", "states"),
    [
        ("s3a://b/w", {}, ["ok"]),
        ("S3://b/w", {}, ["ok"]),
        ("s3a://b/w", {"spark.delta.logStore.s3a.impl": "io.delta.storage.S3SingleDriverLogStore"}, ["error"]),
        ("abfss://c@a.dfs.core.windows.net/w", {"spark.jars": "hadoop-azure.jar"}, ["ok"]),
        (
            "abfss://c@a.dfs.core.windows.net/w",
            {
                "spark.delta.logStore.class": "org.apache.spark.sql.delta.storage.S3SingleDriverLogStore",
                "spark.jars": "hadoop-azure.jar",
            },
            ["error"],
        ),
        ("gs://b/w", {}, ["ok", "warning"]),
        ("hdfs://name/w", {}, ["ok"]),
        ("swift://b/w", {}, ["error"]),
        ("swift://b/w", {"spark.delta.logStore.swift.impl": "org.example.CommitsOnce"}, ["ok"]),
    ],
    ids=[
        "s3a",
        "s3",
        "s3 by a store of one process",
        "azure",
        "azure by S3's store",
        "gs without connector",
        "hdfs",
        "swift",
        "swift with a store that its user names",
    ],
)
def test_log_store_of_an_object_store(
    warehouse: str, properties: dict[str, str], states: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    memory = MemoryStore()
    monkeypatch.setattr(connection, "opened", lambda root: memory)
    monkeypatch.setattr(jars, "fault_of", lambda conf: None if conf == jars.S3 else "no jars")
    checks = diagnose(load(warehouse=warehouse, spark=properties))
    assert [check.state for check in checks if check.name == "log store"] == states
    only_spark = warehouse.startswith(("hdfs", "swift"))
    assert [check.state for check in checks if check.name == "tables"] == ["warning" if only_spark else "ok"]


def test_missing_jars_of_s3_name_their_command(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(connection, "opened", lambda root: MemoryStore())
    fault = jars.fault_of
    monkeypatch.setattr(jars, "fault_of", lambda conf: fault(conf, tmp_path))
    checks = diagnose(load(warehouse="s3://b/w"))
    finding = f"A warehouse on S3 needs jars that are not in {tmp_path / 's3'}."
    assert Check("log store", "error", finding, "Run `make setup-s3`.", lacks=True) in checks
    assert exit_code(checks) == 3


def test_why_a_store_cannot_be_reached_is_said_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:1")
    monkeypatch.delenv("AWS_ALLOW_HTTP", raising=False)
    checks = diagnose(load(warehouse="s3://b/w", cluster=[{"name": "eu"}, {"name": "us"}]))
    assert [check.name for check in checks if "AWS_ALLOW_HTTP" in check.finding] == ["warehouse"]
    assert exit_code(checks) == 3


def test_holder_of_a_lease_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jars, "fault_of", lambda conf: None if conf == jars.S3 else "no jars")
    holder = {"pid": 7, "host": "here", "command": "afterlog run", "since": "2026-11-29T10:00:00+00:00"}
    monkeypatch.setattr(connection, "opened", lambda root: MemoryStore())
    seen = lease.Seen(lease.State(3, "token", 30.0, holder), "etag", 0.0)
    monkeypatch.setattr(lease, "seen", lambda root: seen)
    assert found(load(warehouse="s3://b/w"), "writer's lock").finding == (
        "Held by process 7 on here (afterlog run), since 2026-11-29T10:00:00+00:00; its lease was renewed at "
        "1970-01-01 00:00:00 UTC and ends 30 s after the last renewal."
    )


class Api(http.server.BaseHTTPRequestHandler):
    answer = b""

    def do_GET(self) -> None:
        self.send_response(200)
        self.end_headers()
        self.wfile.write(self.answer)

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def api(monkeypatch: pytest.MonkeyPatch) -> Iterator[type[Api]]:
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), type("Answering", (Api,), {}))
    threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
    monkeypatch.setenv("AFTERLOG_PORT", str(server.server_port))
    yield server.RequestHandlerClass  # type: ignore[misc]
    server.shutdown()
    server.server_close()


@pytest.mark.parametrize(
    ("scheduler", "state"), [({"status": "healthy"}, "ok"), ({"status": "unhealthy"}, "error"), (None, "error")]
)
def test_airflow_that_serves(settings: Settings, api: type[Api], scheduler: dict[str, str] | None, state: str) -> None:
    healthy = {"status": "healthy"}
    api.answer = json.dumps({"metadatabase": healthy, "dag_processor": healthy, "scheduler": scheduler}).encode()
    check = found(settings, "Airflow")
    assert check.state == state
    assert ("healthy at http://127.0.0.1:" if state == "ok" else "not healthy: scheduler.") in check.finding


def test_port_of_airflow_in_use_by_another(settings: Settings, api: type[Api]) -> None:
    api.answer = b"<html>"
    check = found(settings, "Airflow")
    assert (check.state, check.remedy) == ("warning", "Choose another port: AFTERLOG_PORT=8081 make up.")


def test_airflow_home_of_another_version(settings: Settings) -> None:
    machine.AIRFLOW_HOME.mkdir()
    (machine.AIRFLOW_HOME / ".prepared").write_text("2.9.0")
    checks = [check for check in diagnose(settings) if check.name == "Airflow"]
    assert [check.state for check in checks] == ["warning", "ok"]
    assert "was prepared by Airflow 2.9.0" in checks[0].finding


def test_json_is_one_object_a_check(capsys: pytest.CaptureFixture[str]) -> None:
    doctor.show([Check("disk", "ok", "9 GB"), Check("Java", "error", "none", "get one")], as_json=True)
    assert [json.loads(text) for text in capsys.readouterr().out.splitlines()] == [
        {"name": "disk", "state": "ok", "finding": "9 GB", "remedy": None},
        {"name": "Java", "state": "error", "finding": "none", "remedy": "get one"},
    ]


def test_table_shows_hostile_names_as_text(capsys: pytest.CaptureFixture[str]) -> None:
    doctor.show([Check("landing", "error", "a\x1b[2Jb [red]c\u202e", "fix")])
    out = capsys.readouterr().out
    assert "a\\u001b[2Jb [red]c\\u202e" in out
    assert "\x1b" not in out


@pytest.mark.parametrize(
    ("states", "lacks", "code"),
    [
        pytest.param(["ok", "warning"], False, 0, id="warnings"),
        pytest.param(["ok", "error"], False, 1, id="an error of data"),
        pytest.param(["error", "ok"], True, 3, id="an error of the environment beside one of data"),
    ],
)
def test_exit_code(states: list[State], lacks: bool, code: int) -> None:
    checks = [Check("x", state, "") for state in states]
    assert exit_code([*checks, *([Check("Java", "error", "", lacks=True)] if lacks else [])]) == code


def test_findings_are_printed_last_for_people_and_in_order_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    checks = [Check(f"{state}{place}", state, "-") for place in (1, 2) for state in get_args(State)]

    doctor.show(checks[::-1])
    words = capsys.readouterr().out.split()
    doctor.show(checks[::-1], as_json=True)
    objects = [json.loads(text) for text in capsys.readouterr().out.splitlines()]

    order = ["ok2", "ok1", "error2", "error1", "warning2", "warning1"]
    assert [word for word in words if word in order] == order
    assert " ".join(words).endswith("Errors in error2, error1; 2 warnings.")
    assert [row["name"] for row in objects] == [check.name for check in checks[::-1]]


def test_diagnosis_needs_neither_spark_nor_great_expectations(after_runs: Settings) -> None:
    script = (
        "import sys; from pipelines import settings; from pipelines.commands import doctor\n"
        f"checks = doctor.diagnose(settings.load(warehouse={after_runs.warehouse!r}))\n"
        "print(sorted({'pyspark', 'py4j', 'great_expectations', 'airflow', 'pandas'} & set(sys.modules)))"
    )
    told = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert told.stdout == "[]\n"
