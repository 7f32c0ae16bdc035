"""The feeds' DAGs: derived from the catalog, quick to parse, and clear about which failures are retried."""

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
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, HTTPServer
from itertools import pairwise
from pathlib import Path
from typing import Any, ClassVar

import psutil
import pytest

from pipelines.catalog import FEEDS, LAYERS, stages
from pipelines.settings import ROOT, load
from pipelines.stage import Land, Split, Summarise
from pipelines.stores import lock
from pipelines.warehouse.quality import StageRun, Status

PARSING = """
import socket, sys, time

def forbidden(*_):
    raise AssertionError("a DAG file uses the network while it is parsed")

import airflow.sdk
socket.socket.connect = forbidden
began = time.process_time()
import dags.dlq, dags.replay, dags.topology
heavy = [name for name in ("pyspark", "py4j", "great_expectations", "pandas") if name in sys.modules]
print(heavy, time.process_time() - began)
"""


@pytest.fixture(scope="module", autouse=True)
def _airflow_home(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Give Airflow an empty home before its first import, so that it never reads the user's home."""
    os.environ["AIRFLOW_HOME"] = str(tmp_path_factory.mktemp("airflow"))
    os.environ["AIRFLOW__CORE__LOAD_EXAMPLES"] = "False"


@pytest.fixture(scope="module")
def bag() -> Any:
    from airflow.dag_processing.dagbag import DagBag

    return DagBag(ROOT / "dags")


@pytest.fixture
def command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Let tasks start a Python script instead of the command line, to simulate what the real one cannot do."""

    def put(script: str) -> None:
        file = tmp_path / "command.py"
        file.write_text(script)
        monkeypatch.setenv("AFTERLOG_COMMAND", shlex.join([sys.executable, os.fspath(file)]))

    return put


def edges(dag: Any) -> set[tuple[str, str]]:
    return {(task.task_id, downstream) for task in dag.tasks for downstream in task.downstream_task_ids}


def layers_of(feed: str) -> list[str]:
    return [layer for layer in LAYERS if stages(feed, layer=layer)]


def before(feed: str) -> list[str]:
    """The task before the layers, of the one feed that asks the cluster."""
    return ["ask"] if feed == "collect" else []


def test_parsing_starts_no_spark_no_great_expectations_and_no_network(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", PARSING],
        cwd=ROOT,
        env={**os.environ, "AIRFLOW_HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        check=True,
    )
    heavy, _, seconds = done.stdout.splitlines()[-1].rpartition(" ")
    assert heavy == "[]"
    assert float(seconds) < 5


def test_each_feed_has_a_dag_file_without_errors(bag: Any) -> None:
    assert bag.import_errors == {}
    assert set(bag.dags) - {"replay", "maintain", "backup"} == set(FEEDS) >= {"dlq", "topology", "delivery", "collect"}


@pytest.mark.parametrize("feed", FEEDS)
def test_layers_follow_each_other_and_then_the_reports(bag: Any, feed: str) -> None:
    bag.dags[feed].check_cycle()
    tasks = [*before(feed), *layers_of(feed), "reports"]
    assert edges(bag.dags[feed]) == {*pairwise(tasks), *((task, "outcome") for task in tasks)}


def test_a_catalog_with_branches_and_a_foreign_input_gives_its_edges(monkeypatch: pytest.MonkeyPatch) -> None:
    from dags import factory

    catalog = (
        Land("bronze.a", feed="f", directory="a"),
        Land("bronze.b", feed="f", directory="b"),
        Split("silver.c", feed="f", inputs=("bronze.a", "bronze.b")),
        Summarise("silver.d", feed="f", inputs=("silver.c",)),
        Summarise("gold.e", feed="f", inputs=("bronze.b", "silver.of_another_feed")),
    )
    monkeypatch.setattr(factory, "stages", lambda feed: catalog)
    dag = factory.feed_dag("f", schedule=None)
    assert edges(dag) == {
        ("bronze", "silver"),
        ("bronze", "gold"),
        *((last, "reports") for last in ("silver", "gold")),
        *((task, "outcome") for task in ("bronze", "silver", "gold", "reports")),
    }
    inlets = {task: {asset.name for asset in dag.get_task(task).inlets} for task in ("bronze", "silver", "gold")}
    assert inlets == {
        "bronze": set(),
        "silver": {"bronze.a", "bronze.b"},
        "gold": {"bronze.b", "silver.of_another_feed"},
    }


@pytest.mark.parametrize("feed", FEEDS)
def test_a_broken_gate_stops_neither_later_layers_nor_the_reports_and_turns_the_run_red(bag: Any, feed: str) -> None:
    rules = {task.task_id: task.trigger_rule.value for task in bag.dags[feed].tasks}
    assert rules == dict.fromkeys([*before(feed), *layers_of(feed), "reports", "outcome"], "all_done")


@pytest.mark.parametrize("feed", FEEDS)
def test_a_task_runs_the_layer_of_its_feed(bag: Any, feed: str) -> None:
    layers = layers_of(feed)
    assert {layer: bag.dags[feed].get_task(layer).arguments for layer in layers} == {
        layer: ["run", "--feed", feed, "--layer", layer, "--format", "json"] for layer in layers
    }


def test_the_first_task_of_collect_asks_the_cluster(bag: Any, command: Callable[[str], None]) -> None:
    from dags.operators import CannotRun, CommandDied

    ask = bag.dags["collect"].get_task("ask")
    assert ask.arguments == ["collect", "--format", "json"]
    context: Any = {"params": {}}
    command('import sys; print(\'{"changed": 2, "files": ["a"], "argv": %d}\' % len(sys.argv))')
    assert ask.work(context) == {"changed": 2, "files": ["a"], "argv": 4}
    command("print('nothing')")
    with pytest.raises(CommandDied, match="without an answer"):
        ask.work(context)
    command("import sys; print('afterlog: There is no cluster.', file=sys.stderr); sys.exit(2)")
    with pytest.raises(CannotRun, match="There is no cluster"):
        ask.work(context)


@pytest.mark.parametrize("feed", FEEDS)
def test_one_writer_at_a_time_and_no_run_without_end(bag: Any, feed: str) -> None:
    dag = bag.dags[feed]
    assert dag.max_active_runs == 1
    assert not dag.catchup
    for task in dag.tasks:
        assert task.pool == "afterlog_writer"
        assert task.execution_timeout.total_seconds() <= 3600
        assert task.on_failure_callback
    assert {task.task_id: task.retries for task in dag.tasks} == {
        **dict.fromkeys([*before(feed), *layers_of(feed), "reports"], 2),
        "outcome": 0,
    }


@pytest.mark.parametrize("feed", FEEDS)
def test_each_table_is_an_asset_and_a_line_of_the_documentation(bag: Any, feed: str) -> None:
    dag = bag.dags[feed]
    outlets = {task.task_id: [(asset.name, asset.uri) for asset in task.outlets] for task in dag.tasks if task.outlets}
    assert outlets == {
        **{
            layer: [
                (stage.table, f"x-afterlog://warehouse/{stage.table.replace('.', '/')}")
                for stage in stages(feed, layer=layer)
            ]
            for layer in layers_of(feed)
        },
        "reports": [(f"reports.{feed}", f"x-afterlog://reports/{feed}")],
    }
    assert all(f"\n| `{stage.table}` | " in dag.doc_md for stage in stages(feed))


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
def test_no_process_outlives_the_task(
    how: str, command: Callable[[str], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    from dags.command import Command

    monkeypatch.setattr("dags.command.GRACE_SECONDS", 0.3)
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


def test_a_signal_ends_a_command_that_has_closed_its_log(
    command: Callable[[str], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    from dags.command import Command

    monkeypatch.setattr("dags.command.GRACE_SECONDS", 0.3)
    command("import os, time; os.close(2); time.sleep(60)")
    running = Command([])
    before = signal.signal(signal.SIGALRM, lambda *_: running.kill())
    signal.setitimer(signal.ITIMER_REAL, 1)
    try:
        assert running.run(lambda line: None).code in (-signal.SIGTERM, -signal.SIGKILL)
    finally:
        signal.signal(signal.SIGALRM, before)


BATCH = {"read": 10, "accepted": 9, "quarantined": 1, "duplicates": 0, "skipped": 0, "held": 0, "written": 9}
PASSED = {**BATCH, "status": "passed", "seconds": 1.5, "verdict": {"passed": True}, "message": None}
BROKEN = {**BATCH, "status": "broken", "seconds": 2.0, "verdict": {"passed": False}}
NOTHING = {**dict.fromkeys(BATCH, 0), "seconds": 0.0, "verdict": None, "message": None}


def answer(*tables: dict[str, Any]) -> str:
    return json.dumps({"run_id": "r", "tables": tables})


def layer(*tables: str) -> Any:
    from dags.operators import FillLayer

    return FillLayer(task_id="silver", feed="f", layer="silver", tables=tables)


def test_a_table_with_two_batches_in_a_run_is_summed_up() -> None:
    from dags.command import Ended

    batches = [{**PASSED, "table": "silver.x"}, {**BROKEN, "table": "silver.x", "message": "It broke."}]
    filled, broke = layer("silver.x")._filled(Ended(1, answer(*batches), ""))
    assert filled == {
        "run_id": "r",
        "tables": {
            "silver.x": {
                "status": "broken",
                "read": 20,
                "accepted": 18,
                "quarantined": 2,
                "duplicates": 0,
                "skipped": 0,
                "held": 0,
                "written": 18,
                "seconds": 3.5,
                "verdict": {"passed": False},
            }
        },
    }
    assert broke == ["It broke."]


@pytest.mark.parametrize("status", ["broken", "held", "waiting"])
def test_what_a_run_prints_of_a_table_is_what_its_task_reads(status: Status) -> None:
    from dags.command import Ended

    stage_run = StageRun("r", "silver.x", status, datetime.now(UTC), datetime.now(UTC), message="silver.x waits.")
    _, broke = layer("silver.x")._filled(Ended(1, answer(stage_run.as_json()), ""))
    assert broke == ["silver.x waits."]


def test_a_table_of_which_something_is_still_held_is_red_whatever_else_passed() -> None:
    from dags.command import Ended

    batches = [{**PASSED, "table": "silver.x"}, {**NOTHING, "table": "silver.x", "status": "held", "message": "Held."}]
    filled, broke = layer("silver.x")._filled(Ended(1, answer(*batches), ""))
    assert (filled["tables"]["silver.x"]["read"], filled["tables"]["silver.x"]["verdict"]) == (10, {"passed": True})
    assert broke == ["Held."]


def test_files_that_a_gate_refused_are_red_whatever_a_later_batch_did() -> None:
    from dags.command import Ended

    refused = {**BROKEN, "table": "silver.x", "verdict": {"passed": False, "candidates": 10}, "message": "No line."}
    _, broke = layer("silver.x")._filled(Ended(1, answer(refused, {**PASSED, "table": "silver.x"}), ""))
    assert broke == ["No line."]


def test_every_gate_that_broke_is_named_and_tables_are_kept_apart() -> None:
    from dags.command import Ended

    rows = [
        {**BROKEN, "table": "silver.x", "message": "The gate of silver.x broke: a\x1b[31m.\u202e"},
        {**PASSED, "table": "silver.y"},
        {**BROKEN, "table": "silver.z", "message": "The gate of silver.z broke: b."},
        {**NOTHING, "table": "silver.of_x", "status": "waiting"},
    ]
    filled, broke = layer("silver.x", "silver.y", "silver.z", "silver.of_x")._filled(Ended(1, answer(*rows), ""))
    assert broke == ["The gate of silver.x broke: a [31m. ", "The gate of silver.z broke: b."]
    assert {table: (counts["status"], counts["read"]) for table, counts in filled["tables"].items()} == {
        "silver.x": ("broken", 10),
        "silver.y": ("passed", 10),
        "silver.z": ("broken", 10),
        "silver.of_x": ("waiting", 0),
    }


def test_a_layer_whose_tables_wait_for_another_layers_is_not_done() -> None:
    from dags.command import Ended

    rows = [{**PASSED, "table": "gold.x"}, {**NOTHING, "table": "gold.y", "status": "waiting"}]
    filled, broke = layer("gold.x", "gold.y")._filled(Ended(1, answer(*rows), ""))
    assert broke == ["gold.y waits."]
    assert filled["tables"]["gold.y"]["status"] == "waiting"


@pytest.mark.parametrize(
    ("code", "said"),
    [
        pytest.param(0, "no JSON", id="no JSON"),
        pytest.param(0, "[]", id="another JSON"),
        pytest.param(0, answer({**PASSED, "table": "silver.other"}), id="a table is missing"),
        pytest.param(0, answer({"table": "silver.x", "status": "passed"}), id="counts are missing"),
        pytest.param(1, answer({**PASSED, "table": "silver.x"}), id="exit code 1 although no gate broke"),
        pytest.param(0, answer({**BROKEN, "table": "silver.x", "message": "It broke."}), id="0 although one broke"),
    ],
)
def test_an_answer_that_is_not_counts_is_worth_another_try(code: int, said: str) -> None:
    from dags.command import Ended
    from dags.operators import CommandDied

    with pytest.raises(CommandDied, match=f"ended with exit code {code}, without counts: last words"):
        layer("silver.x")._filled(Ended(code, said, "last words"))


@pytest.mark.parametrize(
    ("counts", "sentence"),
    [
        pytest.param(
            PASSED,
            "10 read, 9 accepted, 1 quarantined, 0 duplicates, 0 skipped, 9 written; 1.5 s; the gate held",
            id="passed",
        ),
        pytest.param(
            BROKEN,
            "10 read, 9 accepted, 1 quarantined, 0 duplicates, 0 skipped, 9 written; 2.0 s; the gate broke",
            id="broken",
        ),
        pytest.param(
            {**PASSED, "read": 12345, "verdict": None},
            "12,345 read, 9 accepted, 1 quarantined, 0 duplicates, 0 skipped, 9 written; 1.5 s",
            id="landed",
        ),
        pytest.param(
            {**BROKEN, "read": 40, "held": 30},
            "40 read, 9 accepted, 1 quarantined, 0 duplicates, 0 skipped, 30 held, 9 written; 2.0 s; the gate broke",
            id="held",
        ),
        pytest.param({**NOTHING, "status": "held"}, "what broke its contract is still held", id="still held"),
        pytest.param({**NOTHING, "status": "idle"}, "nothing new", id="idle"),
        pytest.param({**NOTHING, "status": "waiting"}, "waits, as the gate of an input broke", id="waiting"),
    ],
)
def test_a_table_is_one_line_of_the_log(counts: dict[str, Any], sentence: str) -> None:
    from dags.operators import _sentence

    assert _sentence("silver.x", counts) == f"silver.x: {sentence}"


class Told:
    """The part of Airflow's task instance that operators use: pull and push XComs."""

    dag_id, run_id, task_id = "dlq", "run-1", "silver"

    def __init__(self, pulled: dict[tuple[str, str], Any] | None = None) -> None:
        self.pulled = pulled or {}
        self.pushed: dict[str, Any] = {}

    def xcom_push(self, key: str, value: Any) -> None:
        self.pushed[key] = value

    def xcom_pull(self, task_ids: str, key: str = "return_value") -> Any:
        return self.pulled.get((task_ids, key))


def executed(bag: Any, task: str, ti: Told, **parameters: Any) -> Any:
    return bag.dags["dlq"].get_task(task).execute({"ti": ti, "params": parameters, "outlet_events": {}})


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *(("tolerance", value) for value in (-0.1, 1.1, "0.5", True, [], float("inf"))),
        *(
            ("accept", value)
            for value in (
                *(
                    "--warehouse=/etc",
                    "silver.nothing",
                    "gold.dlq_summary",
                    "silver.dlq_records:",
                    "silver_dlq_records",
                ),
                *("silver.dlq_records:a\n", "silver.dlq_records:\x1b[31m", "silver.dlq_records:" + "x" * 700),
                *(["silver.dlq_records", "-x"], [5], {"a": 1}, True, ""),
            )
        ),
    ],
    ids=repr,
)
def test_what_is_accepted_or_tolerated_is_checked_before_a_run(bag: Any, name: str, value: object) -> None:
    from airflow.sdk.exceptions import ParamValidationError

    parameter = bag.dags["dlq"].params.get_param(name)
    with pytest.raises(ParamValidationError):
        parameter.resolve(value=value)


def test_a_run_accepts_and_tolerates_by_its_parameters(bag: Any, command: Callable[[str], None]) -> None:
    from dags.operators import CannotRun

    command("import os, sys; print(sys.argv[1:], os.environ.get('AFTERLOG_TOLERANCE'), file=sys.stderr); sys.exit(2)")
    accept = ["silver.dlq_records:dlq.a b", "silver.dlq_records"]
    for name, value in (
        ("accept", accept),
        ("accept", accept[0]),
        ("accept", None),
        ("tolerance", 1),
        ("tolerance", 0.0),
    ):
        assert bag.dags["dlq"].params.get_param(name).resolve(value=value) == value
    run = ["run", "--feed", "dlq", "--layer", "silver", "--format", "json"]
    with pytest.raises(CannotRun) as told:
        executed(bag, "silver", Told(), accept=accept, tolerance=1)
    assert str(told.value) == f"{[*run, *(f'--accept={one}' for one in accept)]} 1.0"
    with pytest.raises(CannotRun) as told:
        executed(bag, "gold", Told(), accept=accept[0])
    assert str(told.value) == f"{[*run[:4], 'gold', *run[5:]]} None"
    for wrong in (
        {"tolerance": float("nan")},
        {"tolerance": True},
        {"accept": ["silver.dlq_records:\n"]},
        {"accept": [1]},
    ):
        with pytest.raises(CannotRun, match="The parameter"):
            executed(bag, "silver", Told(), **wrong)


def test_a_failure_is_left_for_the_outcome_with_the_reports_path(
    bag: Any, command: Callable[[str], None], tmp_path: Path
) -> None:
    from dags.operators import CannotRun

    command("import sys; print('afterlog: no such place.', file=sys.stderr); sys.exit(2)")
    ti = Told()
    with pytest.raises(CannotRun) as told:
        executed(bag, "silver", ti, warehouse=str(tmp_path / "w"))
    assert ti.pushed["failure"]["why"] == "no such place."
    assert ti.pushed["failure"]["next"].endswith("index.html")
    assert str(tmp_path) in ti.pushed["failure"]["next"]
    frame = told.value.__traceback__
    assert frame is not None
    own = [frame]
    while own[-1].tb_next:
        own.append(own[-1].tb_next)
    assert len([one for one in own if one.tb_frame.f_code.co_filename.endswith("operators.py")]) == 1


def test_the_outcome_says_what_happened(bag: Any, capsys: pytest.CaptureFixture[str]) -> None:
    from dags.operators import RunFailed

    counts = {**PASSED, "verdict": None, "held": 0}
    filled = {"run_id": "r", "tables": {"silver.dlq_records": counts}}
    good = {(task, "return_value"): filled for task in LAYERS} | {
        ("reports", "return_value"): {"report": "/r/index.html"}
    }
    executed(bag, "outcome", Told(good))
    said = capsys.readouterr().out
    assert "silver.dlq_records: 10 read" in said
    assert said.index("The report: /r/index.html") < said.index("Every gate held and the reports are built.")
    with pytest.raises(RunFailed) as told:
        executed(bag, "outcome", Told(good | {("silver", "failure"): {"why": "The gate broke.", "next": "Accept it."}}))
    assert (str(told.value), told.value.way_on) == ("silver: The gate broke.", "Accept it.")
    killed = {key: value for key, value in good.items() if key[0] != "gold"}
    with pytest.raises(RunFailed, match="gold did not say how it ended"):
        executed(bag, "outcome", Told(killed))


class Api(BaseHTTPRequestHandler):
    """The part of Airflow's public API that a note needs."""

    asked: ClassVar[list[tuple[str, Any]]] = []
    status = 201

    def do_GET(self) -> None:
        self.answer(self.status, {"access_token": "t"})

    def do_PATCH(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.asked.append((self.path, body["note"]))
        self.answer(200, {})

    def answer(self, status: int, body: dict[str, Any]) -> None:
        self.send_response(status)
        self.end_headers()
        self.wfile.write(json.dumps(body).encode())

    def log_message(self, *_: Any) -> None:
        pass


def test_a_failure_is_the_note_of_its_task_where_nobody_has_to_log_in(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    from dags.operators import GateBroke, tell_failure

    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    with HTTPServer(("127.0.0.1", 0), Api) as server:
        threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
        monkeypatch.setenv("AIRFLOW__API__BASE_URL", f"http://127.0.0.1:{server.server_port}/")
        ti: Any = Told()
        ti.run_id = "manual__2026/+00:00"
        tell_failure({"ti": ti, "exception": GateBroke("It broke. " + "x" * 2_000)})
        monkeypatch.setattr(Api, "status", 401)
        with caplog.at_level(logging.INFO):
            tell_failure({"ti": ti, "exception": GateBroke("It broke.")})
        server.shutdown()
    ((path, note),) = Api.asked
    assert path == "/api/v2/dags/dlq/dagRuns/manual__2026%2F%2B00%3A00/taskInstances/silver?update_mask=note"
    assert note.startswith("It broke. xx")
    assert note.endswith(f"… Next: {GateBroke.way_on}")
    assert len(note) == 1000
    assert "This task has no note: Airflow's API answers 401" in caplog.messages[-2]
    assert caplog.messages[-1].startswith("silver failed: It broke. Next: ")


def test_a_traceback_in_the_log_is_one_frame_where_the_error_says_it_all() -> None:
    import structlog

    from dags import failures
    from dags.operators import TOLD, GateBroke

    failures.shorten_tracebacks(TOLD)
    failures.shorten_tracebacks(TOLD)
    shorten, *others = structlog.get_config()["processors"]
    assert not any(getattr(one, "kinds", None) for one in others)

    def deeper(kind: type[Exception], depth: int) -> None:
        if depth:
            deeper(kind, depth - 1)
        raise kind("It broke.")

    for kind, is_short in ((GateBroke, True), (ValueError, False)):
        try:
            deeper(kind, 5)
        except Exception:
            event = shorten(None, "exception", {"exc_info": True})
        assert (event["exc_info"] is not True) == is_short
        if is_short:
            assert event["exc_info"][2].tb_next is None
    structlog.get_config()["processors"].remove(shorten)


class FailedTask:
    dag_id, run_id, task_id = "dlq", "run-1", "silver"


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
        "silver failed: The gate broke: 30 of 60 rows. Next: " + GateBroke.way_on
    ]
    assert json.loads(told.read_text()) == {
        "dag": "dlq",
        "run": "run-1",
        "task": "silver",
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
