"""Collectors of OpenTelemetry on this machine: one of our own, by HTTP or gRPC, and OpenTelemetry's own before it."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc
from opentelemetry.proto.collector.metrics.v1 import metrics_service_pb2_grpc
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsServiceRequest,
    ExportMetricsServiceResponse,
)
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2_grpc
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)
from opentelemetry.proto.trace.v1.trace_pb2 import Status

from tests.testing.clouds import free_port, program_of, running
from tests.testing.receiver import Receiver, receiving

REQUESTS: dict[str, type[Any]] = {"/v1/traces": ExportTraceServiceRequest, "/v1/metrics": ExportMetricsServiceRequest}


@dataclass(frozen=True)
class Span:
    """A span as the collector got it; times are nanoseconds."""

    name: str
    trace_id: str
    span_id: str
    parent_id: str
    attributes: dict[str, Any]
    is_error: bool
    message: str
    start: int
    end: int
    resource: dict[str, Any]


@contextmanager
def collecting() -> Iterator[Receiver]:
    """Yield a collector that takes traces and metrics while the context lasts."""
    with receiving(lambda path, body: REQUESTS[path[path.index("/v1/") :]].FromString(body)) as server:
        yield server


def variables(server: Receiver) -> dict[str, str]:
    """The environment of a process that sends to a collector."""
    return {"OTEL_EXPORTER_OTLP_ENDPOINT": f"http://127.0.0.1:{server.server_address[1]}"}


@contextmanager
def collecting_by_grpc(server: Receiver) -> Iterator[dict[str, str]]:
    """Let a collector also take what comes by gRPC; yield the environment of a process that sends to it so."""

    class Traces(trace_service_pb2_grpc.TraceServiceServicer):
        def Export(self, request: Any, context: Any) -> ExportTraceServiceResponse:
            server.got.append((dict(context.invocation_metadata()), request))
            return ExportTraceServiceResponse()

    class Metrics(metrics_service_pb2_grpc.MetricsServiceServicer):
        def Export(self, request: Any, context: Any) -> ExportMetricsServiceResponse:
            server.got.append((dict(context.invocation_metadata()), request))
            return ExportMetricsServiceResponse()

    front = grpc.server(ThreadPoolExecutor(1))
    trace_service_pb2_grpc.add_TraceServiceServicer_to_server(Traces(), front)
    metrics_service_pb2_grpc.add_MetricsServiceServicer_to_server(Metrics(), front)
    port = front.add_insecure_port("127.0.0.1:0")
    front.start()
    try:
        yield _environment(port, "grpc")
    finally:
        front.stop(None)


@contextmanager
def otelcol(server: Receiver) -> Iterator[dict[str, dict[str, str]]]:
    """Run OpenTelemetry's own collector, which hands all on to another one.

    Yield, by protocol, the environment of a process that sends to it.
    """
    program = program_of("otelcol", "AFTERLOG_OTELCOL", "dpkg --install otelcol_*.deb")
    ports = {"http": free_port(), "grpc": free_port()}
    behind = variables(server)["OTEL_EXPORTER_OTLP_ENDPOINT"]
    pipeline = {"receivers": ["otlp"], "exporters": ["otlp_http"]}
    told = {
        "receivers": {"otlp": {"protocols": {name: {"endpoint": f"127.0.0.1:{at}"} for name, at in ports.items()}}},
        "exporters": {"otlp_http": {"endpoint": behind, "compression": "none", "sending_queue": {"enabled": False}}},
        "service": {
            "pipelines": {"traces": pipeline, "metrics": pipeline},
            "telemetry": {"metrics": {"level": "none"}},
        },
    }
    with tempfile.TemporaryDirectory() as scratch:
        file = Path(scratch) / "config.yaml"
        file.write_text(json.dumps(told))
        with running([program, f"--config=file:{file}"], ports["http"]):
            yield {
                "http/protobuf": _environment(ports["http"], "http/protobuf"),
                "grpc": _environment(ports["grpc"], "grpc"),
            }


def _environment(port: int, protocol: str) -> dict[str, str]:
    return {
        "OTEL_EXPORTER_OTLP_ENDPOINT": f"http://127.0.0.1:{port}",
        "OTEL_EXPORTER_OTLP_PROTOCOL": protocol,
    }


def spans(server: Receiver) -> list[Span]:
    """All spans that a collector got."""
    return [
        Span(
            span.name,
            span.trace_id.hex(),
            span.span_id.hex(),
            span.parent_span_id.hex(),
            _values(span.attributes),
            span.status.code == Status.STATUS_CODE_ERROR,
            span.status.message,
            span.start_time_unix_nano,
            span.end_time_unix_nano,
            _values(found.resource.attributes),
        )
        for _, request in [*server.got]
        if isinstance(request, ExportTraceServiceRequest)
        for found in request.resource_spans
        for scope in found.scope_spans
        for span in scope.spans
    ]


def samples(server: Receiver) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    """The points that a collector got last, by the name and the labels that Prometheus has for them."""
    *_, last = (request for _, request in [*server.got] if isinstance(request, ExportMetricsServiceRequest))
    points: dict[tuple[str, tuple[tuple[str, str], ...]], float] = {}
    for metric in (
        metric for found in last.resource_metrics for scope in found.scope_metrics for metric in scope.metrics
    ):
        is_sum = metric.HasField("sum")
        assert not is_sum or (metric.sum.is_monotonic and metric.sum.aggregation_temporality == 2)
        for point in (metric.sum if is_sum else metric.gauge).data_points:
            name = f"{metric.name}_total" if is_sum else metric.name
            points[name, tuple(sorted(_values(point.attributes).items()))] = point.as_double
    return points


def _values(attributes: Any) -> dict[str, Any]:
    return {attribute.key: _value(attribute.value) for attribute in attributes}


def _value(value: Any) -> Any:
    kind = value.WhichOneof("value")
    return (
        [_value(value_of_these) for value_of_these in value.array_value.values]
        if kind == "array_value"
        else getattr(value, kind)
    )
