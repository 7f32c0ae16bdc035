"""Runs tell a collector of OpenTelemetry what their tables say; one that is away, slow or refuses changes no run."""

from __future__ import annotations

import io
import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from pipelines.cli import main
from pipelines.settings import ROOT, Settings
from pipelines.warehouse import jvmless
from pipelines.warehouse.tables import Warehouse
from tests.testing import collector
from tests.testing.builders import kip_1191, land, line, warehouse_of
from tests.testing.receiver import Receiver

SECRET = "canary-9f86d081884c"
PARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
MAIN = "from pipelines.cli import main; main()"
SILENT = "it cannot be reached, or does not answer within 3 seconds"
LOOK = "import atexit, sys; atexit.register(lambda: print([m for m in sys.modules if 'opentelemetry' in m]))"


@dataclass
class Ran:
    """A run of a process, which ended."""

    code: int
    output: str
    said: str
    seconds: float


def run(settings: Settings, *before: str, **environment: str) -> Ran:
    command = [sys.executable, "-c", "\n".join([*before, MAIN]), "run", "--feed", "dlq"]
    command += ["--warehouse", settings.warehouse, "--landing", settings.landing]
    clean = {name: value for name, value in os.environ.items() if not name.startswith("OTEL_")}
    began = time.monotonic()
    ended = subprocess.run(
        command, env=clean | {"PYTHONPATH": str(ROOT)} | environment, capture_output=True, text=True, timeout=300
    )
    return Ran(ended.returncode, ended.stdout, ended.stderr, time.monotonic() - began)


def here(settings: Settings, **environment: str) -> Ran:
    """Run in this process: a run with nothing new starts no session, and none of these runs has news."""
    output, said = io.StringIO(), io.StringIO()
    arguments = ["afterlog", "run", "--feed", "dlq", "--warehouse", settings.warehouse, "--landing", settings.landing]
    began = time.monotonic()
    with pytest.MonkeyPatch.context() as patched, redirect_stdout(output), redirect_stderr(said):
        for name in [name for name in os.environ if name.startswith("OTEL_")]:
            patched.delenv(name)
        for name, value in environment.items():
            patched.setenv(name, value)
        patched.setattr(sys, "argv", arguments)
        with pytest.raises(SystemExit) as ended:
            main()
    return Ran(int(ended.value.code or 0), output.getvalue(), said.getvalue(), time.monotonic() - began)


@dataclass
class First:
    """The first run, of which one topic breaks its contract, and what a collector got of it."""

    settings: Settings
    ran: Ran
    server: Receiver
    exposition: Path


@pytest.fixture(scope="module")
def first(empty_warehouse: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[First]:
    place = tmp_path_factory.mktemp("telemetry")
    settings = warehouse_of(empty_warehouse, place)
    payload = {"key": SECRET.encode(), "value": SECRET.encode()}
    good = [line(number, headers=[*kip_1191(offset=number), ("x", SECRET.encode())], **payload) for number in range(20)]
    bad = [line(number, topic="dlq.bad", headers=kip_1191(offset=SECRET), **payload) for number in range(20)]
    land(settings, {"a.jsonl": good, "b.jsonl": bad})
    with collector.collecting() as server:
        ran = run(
            settings,
            TRACEPARENT=PARENT,
            OTEL_EXPORTER_OTLP_HEADERS="authorization=Bearer%20key",
            OTEL_RESOURCE_ATTRIBUTES="deployment.environment.name=test",
            AFTERLOG_METRICS__FILE=str(place / "afterlog.prom"),
            **collector.variables(server),
        )
        yield First(settings, ran, server, place / "afterlog.prom")


def nanos(at: datetime) -> int:
    return (at - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1) * 1000


def test_spans_are_the_rows_of_stage_runs(first: First) -> None:
    assert first.ran.code == 1, first.ran.said
    rows: list[dict[str, Any]] = jvmless.rows(
        Warehouse(first.settings), "quality.stage_runs", {"cluster": first.settings.cluster}
    )
    root, *children = sorted(collector.spans(first.server), key=lambda item: item.parent_id != PARENT.split("-")[2])
    assert root.name == "afterlog run"
    assert {item.trace_id for item in (root, *children)} == {PARENT.split("-")[1]}
    assert {child.parent_id for child in children} == {root.span_id}
    assert root.attributes == {
        "afterlog.cluster": "default",
        "afterlog.feeds": ["dlq"],
        "afterlog.run_id": rows[0]["run_id"],
        "afterlog.outcome": "broken",
        "process.exit.code": 1,
        "error.type": "broken",
    }
    assert root.is_error
    assert root.message.startswith("silver.dlq_records: ")
    assert root.resource["service.name"] == "afterlog"
    assert root.resource["deployment.environment.name"] == "test"

    def told(row: dict[str, Any]) -> dict[str, Any]:
        values = {f"afterlog.{name}": value for name, value in row.items() if value is not None}
        for name in ("started_at", "finished_at", "seconds"):
            del values[f"afterlog.{name}"]
        return values | ({"error.type": row["status"]} if row["status"] != "passed" else {})

    def order(item: tuple[Any, ...]) -> Any:
        return item[0], item[1]

    found = [
        (child.name, child.start, child.end, child.is_error, child.message, child.attributes) for child in children
    ]
    expected = [
        (
            row["table"],
            nanos(row["started_at"]),
            nanos(row["finished_at"]),
            row["status"] != "passed",
            row["message"] if row["status"] != "passed" else "",
            told(row),
        )
        for row in rows
    ]
    assert sorted(found, key=order) == sorted(expected, key=order)
    assert {"passed", "broken"} == {row["status"] for row in rows}
    assert root.start <= min(child.start for child in children)
    assert root.end >= max(child.end for child in children)


def test_metrics_are_those_of_prometheus(first: First) -> None:
    exposed = {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(first.exposition.read_text())
        for sample in family.samples
    }
    assert len(exposed) > 30
    assert collector.samples(first.server) == exposed


def test_what_a_collector_gets_has_the_key_in_a_header_and_nothing_of_a_record(first: First) -> None:
    assert [headers["authorization"] for headers, _ in first.server.got] == ["Bearer key"] * 2
    assert all(SECRET.encode() not in request.SerializeToString() for _, request in first.server.got)


OFF: list[dict[str, str]] = [
    {},
    {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:9", "OTEL_SDK_DISABLED": "true"},
    {
        "OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:9",
        "OTEL_TRACES_EXPORTER": "none",
        "OTEL_METRICS_EXPORTER": "none",
    },
]
OF_ALL = f"""
import os
for variables in {OFF}:
    for name in [name for name in os.environ if name.startswith("OTEL_")]:
        del os.environ[name]
    os.environ.update(variables)
    try:
        main()
    except SystemExit as ended:
        assert ended.code == 1, ended.code
"""


def test_nothing_of_opentelemetry_is_imported_unless_it_is_configured(first: First) -> None:
    ran = run(
        first.settings, LOOK, "from pipelines.cli import main", OF_ALL, AFTERLOG_METRICS__FILE=str(first.exposition)
    )
    assert ran.code == 1
    assert ran.output.splitlines()[-1] == "[]"
    assert "OpenTelemetry" not in ran.said


@pytest.mark.parametrize(
    ("behaviour", "why"),
    [
        ("500", "it answered 500"),
        ("302 Location: http://127.0.0.1:9/", "it answered 302"),
        ("503 Retry-After: 3600", "it answered 503"),
        ("hang", SILENT),
        pytest.param("drip", SILENT, marks=pytest.mark.thorough),
        ("away", SILENT),
    ],
)
def test_a_collector_that_does_not_take_it_changes_no_run(first: First, behaviour: str, why: str) -> None:
    with collector.collecting() as server, socket.create_server(("127.0.0.1", 0)) as free:
        server.behaviours = [behaviour]
        port = server.server_address[1] if behaviour != "away" else free.getsockname()[1]
        free.close()
        # Only a process shows that a request that hangs keeps none from its end.
        ran = (run if behaviour in ("hang", "drip") else here)(
            first.settings,
            OTEL_EXPORTER_OTLP_ENDPOINT=f"http://user:{SECRET}@127.0.0.1:{port}/{SECRET}",
            OTEL_EXPORTER_OTLP_HEADERS=f"authorization={SECRET}, {SECRET} is no header",
        )
    assert ran.code == 1  # a topic is still held
    sentences = [line for line in ran.said.splitlines() if "OpenTelemetry" in line]
    assert sentences == [
        f"afterlog: {signal} did not reach OpenTelemetry's collector at 127.0.0.1:{port}: {why}."
        for signal in ("Metrics", "Traces")
    ]
    assert SECRET not in ran.said + ran.output
    assert ran.seconds < 25


@pytest.mark.parametrize(
    ("variables", "before", "why"),
    [
        (
            {"OTEL_EXPORTER_OTLP_PROTOCOL": "http/json"},
            "",
            "OTEL_EXPORTER_OTLP_PROTOCOL must be one of http/protobuf, grpc.",
        ),
        (
            {},
            "import sys; sys.modules['opentelemetry.sdk'] = None",
            "opentelemetry is not installed here; run `make setup`.",
        ),
    ],
)
def test_what_cannot_be_sent_is_one_sentence(first: First, variables: dict[str, str], before: str, why: str) -> None:
    ran = run(first.settings, before, OTEL_TRACES_EXPORTER="otlp", **variables)
    assert ran.code == 1
    assert [line for line in ran.said.splitlines() if "OpenTelemetry" in line] == [
        f"afterlog: Traces are not sent to OpenTelemetry. {why}"
    ]
    assert "Traceback" not in ran.said


def test_a_held_topic_is_the_outcome_of_a_run_with_nothing_new(first: First) -> None:
    with collector.collecting() as server:
        ran = here(first.settings, OTEL_SERVICE_NAME="dead-letters", **collector.variables(server))
        assert ran.code == 1
        (root,) = collector.spans(server)
    assert (root.parent_id, root.attributes["afterlog.outcome"], root.is_error) == ("", "broken", True)
    assert root.message.startswith("silver.dlq_records: ")
    assert root.resource["service.name"] == "dead-letters"


def test_a_run_that_cannot_begin_tells_why(first: First) -> None:
    from pipelines.stores import lock

    with collector.collecting() as server, lock.writer(first.settings, "another writer"):
        ran = run(first.settings, AFTERLOG_LOCK__WAIT_SECONDS="0", **collector.variables(server))
        assert ran.code == 4
        (root,) = collector.spans(server)
    assert {name: root.attributes[name] for name in ("error.type", "afterlog.outcome", "process.exit.code")} == {
        "error.type": "WriterBusy",
        "afterlog.outcome": "failed",
        "process.exit.code": 4,
    }
    assert f"afterlog: {root.message}" in ran.said
    assert json.dumps(root.attributes)
