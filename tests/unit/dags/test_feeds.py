"""The feeds' DAGs: derived from the catalog, quick to parse, and clear about which failures are retried."""

from __future__ import annotations

import json
import logging
import os
import shlex
import subprocess
import sys
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, HTTPServer
from itertools import pairwise
from pathlib import Path
from typing import Any, ClassVar

import pytest

from pipelines.catalog import FEEDS, LAYERS, stages
from pipelines.settings import ROOT
from pipelines.stage import Land, Split, Summarise

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


@pytest.fixture(scope="module")
def bag() -> Any:
    from airflow.dag_processing.dagbag import DagBag

    return DagBag(ROOT / "dags")


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
    assert bag.dags["collect"].get_task("outcome").before == ["ask"]
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


BATCH = {"read": 10, "accepted": 9, "quarantined": 1, "duplicates": 0, "skipped": 0, "held": 0, "written": 9}
PASSED = {**BATCH, "status": "passed", "seconds": 1.5, "verdict": {"passed": True}, "message": None}


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
    with pytest.raises(CannotRun) as raised:
        executed(bag, "silver", Told(), accept=accept, tolerance=1)
    assert str(raised.value) == f"{[*run, *(f'--accept={scope}' for scope in accept)]} 1.0"
    with pytest.raises(CannotRun) as raised:
        executed(bag, "gold", Told(), accept=accept[0])
    assert str(raised.value) == f"{[*run[:4], 'gold', *run[5:]]} None"
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
    with pytest.raises(CannotRun) as raised:
        executed(bag, "silver", ti, warehouse=str(tmp_path / "w"))
    assert ti.pushed["failure"]["why"] == "no such place."
    assert ti.pushed["failure"]["next"].endswith("index.html")
    assert str(tmp_path) in ti.pushed["failure"]["next"]
    frame = raised.value.__traceback__
    assert frame is not None
    own = [frame]
    while own[-1].tb_next:
        own.append(own[-1].tb_next)
    assert len([frame for frame in own if frame.tb_frame.f_code.co_filename.endswith("operators.py")]) == 1


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
    with pytest.raises(RunFailed) as raised:
        executed(bag, "outcome", Told(good | {("silver", "failure"): {"why": "The gate broke.", "next": "Accept it."}}))
    assert (str(raised.value), raised.value.way_on) == ("silver: The gate broke.", "Accept it.")
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
    assert not any(getattr(other_table, "kinds", None) for other_table in others)

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

    file = tmp_path / "told.json"
    monkeypatch.setenv("AFTERLOG_ON_FAILURE", shlex.join(["sh", "-c", 'cat > "$0"', os.fspath(file)]))
    context: Any = {"ti": FailedTask(), "exception": GateBroke("The gate broke: 30 of 60 rows.")}
    with caplog.at_level(logging.ERROR):
        tell_failure(context)
    assert [record.getMessage() for record in caplog.records] == [
        "silver failed: The gate broke: 30 of 60 rows. Next: " + GateBroke.way_on
    ]
    assert json.loads(file.read_text()) == {
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
