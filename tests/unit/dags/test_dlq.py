"""The DAG `dlq`: derived from the catalog, light to parse, and clear about which failures are worth another try."""

from __future__ import annotations

import json
import logging
import os
import shlex
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest

from pipelines import lock
from pipelines.catalog import stages
from pipelines.settings import ROOT, load
from pipelines.stage import Stage

FEED_PARSING = """
import socket, sys, time

def forbidden(*_):
    raise AssertionError("a DAG file uses the network while it is parsed")

import airflow.sdk
socket.socket.connect = forbidden
began = time.process_time()
import dags.dlq
heavy = [name for name in ("pyspark", "py4j", "great_expectations", "pandas") if name in sys.modules]
print(heavy, time.process_time() - began)
"""


@pytest.fixture(scope="module", autouse=True)
def _airflow_home(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Airflow reads where it lives when it is first imported: never from the user's home."""
    os.environ["AIRFLOW_HOME"] = str(tmp_path_factory.mktemp("airflow"))
    os.environ["AIRFLOW__CORE__LOAD_EXAMPLES"] = "False"


@pytest.fixture(scope="module")
def bag() -> Any:
    from airflow.dag_processing.dagbag import DagBag

    return DagBag(ROOT / "dags")


@pytest.fixture
def command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Let tasks start a Python script instead of the command line, for what the real one cannot be made to do."""

    def put(script: str) -> None:
        file = tmp_path / "command.py"
        file.write_text(script)
        monkeypatch.setenv("AFTERLOG_COMMAND", shlex.join([sys.executable, os.fspath(file)]))

    return put


def edges(dag: Any) -> set[tuple[str, str]]:
    return {(task.task_id, downstream) for task in dag.tasks for downstream in task.downstream_task_ids}


def test_parsing_starts_no_spark_no_great_expectations_and_no_network(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", FEED_PARSING],
        cwd=ROOT,
        env={**os.environ, "AIRFLOW_HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        check=True,
    )
    heavy, _, seconds = done.stdout.splitlines()[-1].rpartition(" ")
    assert heavy == "[]"
    assert float(seconds) < 5


def test_dag_files_give_the_feeds_dags_and_no_errors(bag: Any) -> None:
    assert bag.import_errors == {}
    assert {stage.feed for stage in stages()} >= set(bag.dags) >= {"dlq"}
    bag.dags["dlq"].check_cycle()


def test_edges_are_the_catalogs_and_then_the_reports(bag: Any) -> None:
    between_tables = {(table, stage.table) for stage in stages("dlq") for table in stage.inputs}
    last = {stage.table for stage in stages("dlq")} - {table for table, _ in between_tables}
    ends = {(table, end) for table in last for end in ("reports", "outcome")}
    assert edges(bag.dags["dlq"]) == between_tables | ends | {("reports", "outcome")}


def test_a_catalog_with_branches_and_a_foreign_input_gives_its_edges(monkeypatch: pytest.MonkeyPatch) -> None:
    from dags import factory

    catalog = (
        Stage("bronze.a", feed="f", kind="land"),
        Stage("bronze.b", feed="f", kind="land"),
        Stage("silver.c", feed="f", kind="split", inputs=("bronze.a", "bronze.b")),
        Stage("gold.d", feed="f", kind="summarise", inputs=("silver.c", "silver.of_another_feed")),
        Stage("gold.e", feed="f", kind="summarise", inputs=("bronze.b",)),
    )
    monkeypatch.setattr(factory, "stages", lambda feed: catalog)
    dag = factory.feed_dag("f", schedule=None)
    assert edges(dag) == {
        ("bronze.a", "silver.c"),
        ("bronze.b", "silver.c"),
        ("silver.c", "gold.d"),
        ("bronze.b", "gold.e"),
        *((table, end) for table in ("gold.d", "gold.e") for end in ("reports", "outcome")),
        ("reports", "outcome"),
    }
    assert {asset.name for asset in dag.get_task("gold.d").inlets} == {"silver.c", "silver.of_another_feed"}


def test_one_writer_at_a_time_and_no_run_without_end(bag: Any) -> None:
    dag = bag.dags["dlq"]
    assert dag.max_active_runs == 1
    assert not dag.catchup
    for task in dag.tasks:
        assert task.pool == "afterlog_writer"
        assert task.execution_timeout.total_seconds() <= 3600
        assert task.on_failure_callback
    assert {task.task_id: task.retries for task in dag.tasks if task.task_id != "outcome"} == {
        **{stage.table: 2 for stage in stages("dlq")},
        "reports": 2,
    }


def test_each_table_is_an_asset(bag: Any) -> None:
    outlets = {task.task_id: [asset.name for asset in task.outlets] for task in bag.dags["dlq"].tasks if task.outlets}
    assert outlets == {**{stage.table: [stage.table] for stage in stages("dlq")}, "reports": ["reports.dlq"]}
    assert bag.dags["dlq"].get_task("silver.dlq_records").outlets[0].uri == (
        "x-afterlog://warehouse/silver/dlq_records"
    )


@pytest.mark.parametrize(
    "value",
    ["--landing=/etc", "-x", "", " ", "a\nb", "a\n", "\x00", "a\x1b[31m", "x" * 1025, 5, ["a"], {"a": 1}, True],
    ids=repr,
)
@pytest.mark.parametrize("name", ["landing", "warehouse"])
def test_hostile_parameters_are_refused(bag: Any, name: str, value: object) -> None:
    from airflow.sdk.exceptions import ParamValidationError

    with pytest.raises(ParamValidationError):
        bag.dags["dlq"].params.get_param(name).resolve(value)


@pytest.mark.parametrize(
    "value", [None, "warehouse", "/a b/c'; rm -rf $HOME", "s3a://bucket/lake", "Zürich", "a -b"], ids=repr
)
def test_ordinary_parameters_are_taken(bag: Any, value: str | None) -> None:
    assert bag.dags["dlq"].params.get_param("warehouse").resolve(value) == value


@pytest.mark.parametrize(
    ("code", "answer", "error", "retried"),
    [
        (1, "", "CommandDied", True),
        (2, "", "CannotRun", False),
        (3, "", "CannotRun", False),
        (4, "", "WriterBusy", True),
        (-9, '{"tables": []}', "CommandDied", True),
        (0, "", "CommandDied", True),
        (70, "x", "CommandDied", True),
    ],
)
def test_only_what_a_retry_can_mend_is_retried(code: int, answer: str, error: str, retried: bool) -> None:
    from airflow.sdk.exceptions import AirflowFailException

    from dags import operators
    from dags.command import Ended

    with pytest.raises(getattr(operators, error), match="Somebody else") as raised:
        operators.check(Ended(code, answer, "afterlog: Somebody else writes."))
    assert isinstance(raised.value, AirflowFailException) is not retried


@pytest.mark.parametrize("code", [0, 1])
def test_an_answer_is_passed_on(code: int) -> None:
    from dags.command import Ended
    from dags.operators import check

    check(Ended(code, '{"tables": []}', ""))


def test_a_broken_gate_is_not_retried() -> None:
    from airflow.sdk.exceptions import AirflowFailException

    from dags.operators import GateBroke

    assert issubclass(GateBroke, AirflowFailException)


def test_a_busy_warehouse_is_worth_another_try(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from dags.command import Command
    from dags.operators import WriterBusy, check

    monkeypatch.setenv("AFTERLOG_LOCK__WAIT_SECONDS", "0")
    arguments = ["run", "--only", "bronze.dlq_records", "--format", "json", f"--warehouse={tmp_path}"]
    with lock.writer(load(warehouse=str(tmp_path)), "the test"):
        ended = Command(arguments).run(lambda line: None)
    with pytest.raises(WriterBusy, match="the test"):
        check(ended)


def test_an_unknown_table_is_a_setting_to_mend() -> None:
    from dags.command import Command
    from dags.operators import CannotRun, check

    with pytest.raises(CannotRun, match="No stage fills"):
        check(Command(["run", "--only", "silver.nothing", "--format", "json"]).run(lambda line: None))


def test_the_log_streams_line_by_line_and_the_last_line_is_the_answer(command: Callable[[str], None]) -> None:
    from dags.command import Command, Ended

    command(
        "import sys, time\n"
        "print('noise'); print('one', file=sys.stderr); time.sleep(0.6)\n"
        "print('\\x1b[31mtwo\\x07\\u202ered', file=sys.stderr); print(sys.argv[1:]); print(); sys.exit(1)"
    )
    lines: list[tuple[float, str]] = []
    ended = Command(["--a=$(touch x); b", "é"]).run(lambda line: lines.append((time.monotonic(), line)))
    assert ended == Ended(1, "['--a=$(touch x); b', 'é']", " [31mtwo  red")
    assert [text for _, text in lines] == ["one", " [31mtwo  red"]
    assert lines[1][0] - lines[0][0] > 0.3


STUBBORN = """
import signal, subprocess, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)  # the child inherits it
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(300)"])
print(child.pid, file=sys.stderr, flush=True)
time.sleep(300)
"""


@pytest.mark.parametrize("how", ["an exception in the task", "on_kill"])
def test_no_process_outlives_the_task(how: str, command: Callable[[str], None]) -> None:
    from dags.command import Command

    command(STUBBORN)
    running = Command([])
    seen: list[int] = []

    def read(line: str) -> None:
        seen.append(int(line))
        time.sleep(0.5)
        if how == "on_kill":
            threading.Thread(target=running.kill).start()
        else:
            raise TimeoutError("execution_timeout")

    if how == "on_kill":
        assert running.run(read).code == -signal.SIGKILL
    else:
        with pytest.raises(TimeoutError):
            running.run(read)
    until = time.monotonic() + 5
    while psutil.pid_exists(seen[0]) and psutil.Process(seen[0]).status() != psutil.STATUS_ZOMBIE:
        assert time.monotonic() < until
        time.sleep(0.05)


def test_a_signal_ends_a_command_that_has_closed_its_log(command: Callable[[str], None]) -> None:
    from dags.command import Command

    command("import os, time; os.close(2); time.sleep(60)")
    running = Command([])
    before = signal.signal(signal.SIGALRM, lambda *_: running.kill())
    signal.setitimer(signal.ITIMER_REAL, 1)
    try:
        assert running.run(lambda line: None).code in (-signal.SIGTERM, -signal.SIGKILL)
    finally:
        signal.signal(signal.SIGALRM, before)


def test_a_table_with_two_batches_in_a_run_is_summed_up(command: Callable[[str], None]) -> None:
    from dags.command import Ended
    from dags.operators import FillTable

    batch = {"table": "silver.x", "read": 10, "accepted": 9, "quarantined": 1, "duplicates": 0, "skipped": 0}
    rows = [
        {**batch, "status": "passed", "seconds": 1.5, "verdict": {"passed": True}, "message": None},
        {**batch, "status": "broken", "seconds": 2.0, "verdict": {"passed": False}, "message": "It broke."},
    ]
    task = FillTable(task_id="x", table="silver.x")
    counts, message = task._counts(Ended(1, json.dumps({"run_id": "r", "tables": rows}), ""))
    assert counts == {
        "run_id": "r",
        "table": "silver.x",
        "status": "broken",
        "read": 20,
        "accepted": 18,
        "quarantined": 2,
        "duplicates": 0,
        "skipped": 0,
        "seconds": 3.5,
        "verdict": {"passed": False},
    }
    assert message == "It broke."


class FailedTask:
    dag_id, run_id, task_id = "dlq", "run-1", "silver.dlq_records"


def test_a_failure_is_one_sentence_in_the_log_and_goes_to_the_hook(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    from dags.operators import GateBroke, tell_failure

    told = tmp_path / "told.json"
    monkeypatch.setenv("AFTERLOG_ON_FAILURE", shlex.join(["sh", "-c", 'cat > "$0"', os.fspath(told)]))
    context: Any = {"ti": FailedTask(), "exception": GateBroke("The gate broke: 30 of 60 rows.")}
    with caplog.at_level(logging.ERROR):
        tell_failure(context)
    assert [record.getMessage() for record in caplog.records] == [
        "silver.dlq_records failed: The gate broke: 30 of 60 rows. Next: " + GateBroke.way_on
    ]
    assert json.loads(told.read_text()) == {
        "dag": "dlq",
        "run": "run-1",
        "task": "silver.dlq_records",
        "why": "The gate broke: 30 of 60 rows.",
        "next": GateBroke.way_on,
    }


def test_a_hook_that_fails_is_said_and_harms_nothing(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    from dags.operators import tell_failure

    monkeypatch.setenv("AFTERLOG_ON_FAILURE", "/nowhere/hook")
    context: Any = {"ti": FailedTask(), "exception": None}
    with caplog.at_level(logging.ERROR):
        tell_failure(context)
    assert "AFTERLOG_ON_FAILURE failed" in caplog.text
