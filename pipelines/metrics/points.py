"""Families of metrics -> OpenTelemetry's points, with the names and labels that Prometheus has."""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import TYPE_CHECKING

from prometheus_client.core import Metric

from pipelines import otlp

if TYPE_CHECKING:
    from opentelemetry.sdk.metrics.export import MetricsData

UNKNOWN = 0  # when a count began: the tables may be older than what they tell


def points(families: Iterable[Metric]) -> MetricsData:
    """Return the points of families as of now; a counter is a sum, which Prometheus calls ``<name>_total``."""
    from opentelemetry.sdk.metrics import export
    from opentelemetry.sdk.util.instrumentation import InstrumentationScope

    now = time.time_ns()
    metrics = []
    for family in families:
        values = [export.NumberDataPoint(sample.labels, UNKNOWN, now, float(sample.value)) for sample in family.samples]
        data: export.Sum | export.Gauge = (
            export.Sum(values, export.AggregationTemporality.CUMULATIVE, is_monotonic=True)
            if family.type == "counter"
            else export.Gauge(values)
        )
        if values:
            metrics.append(export.Metric(family.name, family.documentation, "", data))
    scope = export.ScopeMetrics(InstrumentationScope(otlp.SCOPE), metrics, "")
    return export.MetricsData([export.ResourceMetrics(otlp.resource(), [scope], "")])
