"""When traces and metrics are sent over OTLP, and that collectors take them by HTTP and by gRPC."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

from pipelines import otlp
from pipelines.metrics.points import points
from pipelines.run.traces import traced
from tests.testing import collector
from tests.testing.receiver import Receiver

ENDPOINT = {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:4318"}


@pytest.fixture
def server() -> Iterator[Receiver]:
    with collector.collecting() as found:
        yield found


@pytest.mark.parametrize(
    ("variables", "signals"),
    [
        ({}, []),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": " "}, []),
        ({"OTEL_SERVICE_NAME": "afterlog", "OTEL_EXPORTER_OTLP_HEADERS": "a=b"}, []),
        (ENDPOINT, ["traces", "metrics"]),
        ({"OTEL_EXPORTER_OTLP_METRICS_ENDPOINT": "http://127.0.0.1:4318/v1/metrics"}, ["metrics"]),
        ({"OTEL_TRACES_EXPORTER": "console, otlp"}, ["traces"]),
        ({**ENDPOINT, "OTEL_TRACES_EXPORTER": "none"}, ["metrics"]),
        ({**ENDPOINT, "OTEL_METRICS_EXPORTER": "prometheus"}, ["traces"]),
        ({**ENDPOINT, "OTEL_SDK_DISABLED": "TRUE"}, []),
        ({**ENDPOINT, "OTEL_SDK_DISABLED": "false"}, ["traces", "metrics"]),
    ],
)
def test_the_standard_variables_say_what_is_sent(
    variables: dict[str, str], signals: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    both: tuple[otlp.Signal, ...] = ("traces", "metrics")
    assert [signal for signal in both if otlp.wanted(signal)] == signals


def send(variables: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Send a trace and two metrics."""
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    problems: list[str] = []
    with traced("afterlog run", {"afterlog.cluster": "a", "afterlog.feeds": ["dlq"]}, problems.append):
        pass
    count = CounterMetricFamily("afterlog_rows", "Rows.", labels=["table"])
    count.add_metric(["silver.dlq_records"], 7)
    age = GaugeMetricFamily("afterlog_newest_record_timestamp_seconds", "Newest.", labels=["feed"])
    age.add_metric(["dlq"], 1.5e9)
    assert [otlp.Sender("metrics").send(lambda: points([count, age])), *problems] == [None]


def check(server: Receiver) -> None:
    """Check that a collector got what `send` sends."""
    (root,) = collector.spans(server)
    assert root.name == "afterlog run"
    assert root.attributes == {
        "afterlog.cluster": "a",
        "afterlog.feeds": ["dlq"],
        "afterlog.outcome": "idle",
        "process.exit.code": 0,
    }
    assert root.resource["service.name"] == "afterlog"
    assert "service.instance.id" not in root.resource  # each run would make new series
    assert collector.samples(server) == {
        ("afterlog_rows_total", (("table", "silver.dlq_records"),)): 7,
        ("afterlog_newest_record_timestamp_seconds", (("feed", "dlq"),)): 1.5e9,
    }


def test_what_is_sent_by_grpc_is_the_same(server: Receiver, monkeypatch: pytest.MonkeyPatch) -> None:
    with collector.collecting_by_grpc(server) as variables:
        send({**variables, "OTEL_EXPORTER_OTLP_HEADERS": "authorization=Bearer%20key"}, monkeypatch)
    check(server)
    assert {metadata["authorization"] for metadata, _ in server.got} == {"Bearer key"}


def test_the_environment_names_the_sender(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_SERVICE_NAME", "dead-letters")
    monkeypatch.setenv("OTEL_RESOURCE_ATTRIBUTES", "service.instance.id=west,service.version=9")
    found = otlp.resource().attributes
    assert [found[f"service.{name}"] for name in ("name", "instance.id", "version")] == ["dead-letters", "west", "9"]


@pytest.mark.parametrize("protocol", ["http/protobuf", "grpc"])
def test_opentelemetrys_own_collector_takes_and_hands_on_all(
    protocol: str, server: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    with collector.otelcol(server) as variables:
        send(variables[protocol], monkeypatch)
    check(server)
