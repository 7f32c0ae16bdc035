"""Where the settings say that tasks run the command."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any, cast

import pytest
from airflow.sdk import Context

from dags.command import Command
from dags.operators import CannotRun, FillLayer, _where
from dags.ssh import SshCommand
from pipelines.errors import UsageError
from pipelines.settings import ROOT, tasks_run_elsewhere
from pipelines.settings.airflow import Pod, Ssh

POD = {"image": "registry.example.com/afterlog:0.1.0", "namespace": "afterlog"}
SSH = {"connection": "afterlog_host"}
SILVER = "silver.dlq_records"


def context(**params: Any) -> Context:
    return cast(Context, {"params": params})


def test_tasks_run_beside_the_worker_unless_the_settings_say_another_place(monkeypatch: pytest.MonkeyPatch) -> None:
    assert tasks_run_elsewhere() is None
    assert isinstance(_where(context(), [], None), Command)
    monkeypatch.setenv("AFTERLOG_AIRFLOW", json.dumps({"pod": POD}))
    assert tasks_run_elsewhere() == Pod(**POD)
    monkeypatch.setenv("AFTERLOG_AIRFLOW", json.dumps({"ssh": SSH}))
    assert tasks_run_elsewhere() == Ssh(**SSH)
    over_ssh = _where(context(tolerance=0.25), ["run", "--only", SILVER], None)
    assert isinstance(over_ssh, SshCommand)
    assert over_ssh.argv == ["afterlog", "run", "--only", SILVER]
    assert over_ssh._variables["AFTERLOG_TOLERANCE"] == "0.25"
    monkeypatch.setenv("AFTERLOG_DLQ__SOURCE", "kafka")  # an error of other settings, which the command tells
    assert tasks_run_elsewhere() == Ssh(**SSH)


@pytest.mark.parametrize(
    ("section", "sentence"),
    [
        ({"pod": POD, "ssh": SSH}, "leave out one of [airflow.pod] and [airflow.ssh]."),
        ({"pod": {"image": "x"}}, "airflow.pod.namespace cannot be used: it must be there."),
        ({"pod": {**POD, "namespace": "a b"}}, "airflow.pod.namespace cannot be used"),
        ({"ssh": {**SSH, "comand": "x"}}, "airflow.ssh.comand cannot be used: there is no such key."),
        ({"ssh": {**SSH, "command": " "}}, "airflow.ssh.command cannot be used"),
        ({"ssh": {**SSH, "directory": "/srv\n/x"}}, "airflow.ssh.directory cannot be used"),
    ],
)
def test_a_place_that_cannot_be_used_is_said_in_one_sentence(
    section: dict[str, Any], sentence: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AFTERLOG_AIRFLOW", json.dumps(section))
    with pytest.raises(UsageError) as raised:
        tasks_run_elsewhere()
    assert str(raised.value).startswith("The setting airflow")
    assert sentence in str(raised.value)
    with pytest.raises(CannotRun, match="The setting airflow"):
        _where(context(), [], None)


def test_no_secret_of_an_airflow_connection_leaves_the_worker(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AFTERLOG_AIRFLOW", json.dumps({"ssh": SSH}))
    task = FillLayer(task_id="silver", feed="dlq", layer="silver", tables=[])
    with pytest.raises(CannotRun, match="leave out kafka_connection"):
        task._run(context(kafka_connection="kafka_default"))


@pytest.mark.parametrize(
    ("section", "module", "provider"),
    [({"pod": POD}, "dags.pods", "cncf-kubernetes"), ({"ssh": SSH}, "dags.ssh", "ssh")],
)
def test_a_provider_that_is_missing_is_named(
    section: dict[str, Any], module: str, provider: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AFTERLOG_AIRFLOW", json.dumps(section))
    monkeypatch.setitem(sys.modules, module, None)  # an import of it fails, as one of the provider would
    with pytest.raises(CannotRun, match=f"Install apache-airflow-providers-{provider} for Airflow's workers"):
        _where(context(), [], None)


def test_the_command_continues_the_trace_of_its_task_if_airflow_sends_traces() -> None:
    code = """
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from dags.operators import _where
told = lambda: _where({"params": {"tolerance": 0.5}}, [], None)._variables
carrier = trace.SpanContext(1, 2, is_remote=True)  # as Airflow hands it to each task, also if it sends nothing
with trace.use_span(trace.NonRecordingSpan(carrier)):
    assert told() == {"AFTERLOG_TOLERANCE": "0.5"}
trace.set_tracer_provider(TracerProvider())
with trace.get_tracer("airflow").start_as_current_span("task") as span:
    found = span.get_span_context()
    parent = f"00-{found.trace_id:032x}-{found.span_id:016x}-{found.trace_flags:02x}"
    assert told() == {"AFTERLOG_TOLERANCE": "0.5", "TRACEPARENT": parent}
"""
    ended = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert ended.returncode == 0, ended.stderr
