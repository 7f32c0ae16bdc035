"""Families of metrics -> a file for the node exporter's textfile collector, a port that Prometheus scrapes, and OTLP.

OpenTelemetry's standard variables say whether metrics are sent over OTLP.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

from prometheus_client import CollectorRegistry, generate_latest, start_http_server
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.registry import Collector

from expectations.text import visible
from pipelines import otlp
from pipelines.errors import EnvironmentLacking, UsageError
from pipelines.metrics.families import of_cluster, of_several
from pipelines.metrics.points import points
from pipelines.run.follow import Cycle
from pipelines.settings import Settings, located
from pipelines.stores.directory import replace_text
from pipelines.warehouse.quality import StageRun
from pipelines.warehouse.tables import Warehouse

INFO = "afterlog_build_info{"


class Meter(Collector):
    """The metrics as they were when they were last read, so that a scrape waits for nothing, and counts of cycles."""

    def __init__(self, settings: Settings) -> None:
        """Take the settings.

        Raises UsageError: only Spark opens the warehouse.
        """
        settings = settings.widened()  # metrics are those of the warehouse, whatever a run is narrowed to
        self.warehouse = Warehouse(settings)
        self.warehouse.refuse_spark_only("metrics are read")
        self.settings = settings
        self.read: list[Metric] = []
        self.cycles: Counter[str] = Counter()
        self.ended_at: float | None = None
        self.lock = threading.Lock()
        self.sender = otlp.Sender("metrics") if otlp.wanted("metrics") else None

    def count(self, cycle: Cycle, done: Sequence[StageRun]) -> None:
        """Count a cycle that ended."""
        with self.lock:
            self.cycles[cycle.result] += 1
            self.ended_at = time.time()

    def refresh(self) -> Sequence[str]:
        """Read the metrics anew, write and send them if settings and environment ask; return what went wrong."""
        with self.warehouse.store.pinned():
            self.read = of_several(self.warehouse)
        problems: list[str] = []
        if self.settings.metrics.file is not None:
            try:
                self.write()
            except (EnvironmentLacking, UsageError) as error:
                problems.append(str(error))
        if self.sender is not None and (problem := self.sender.send(lambda: points(self.collect()))):
            problems.append(problem)
        return tuple(problems)

    def collect(self) -> Iterator[Metric]:
        """Return the families, for the library's registry."""
        yield from self.read
        with self.lock:
            cycles, ended_at = dict(self.cycles), self.ended_at
        cluster = self.settings.sole_cluster
        if ended_at is not None:
            total = CounterMetricFamily("afterlog_cycles", "Cycles since this process began.", labels=["result"])
            for result, count in sorted(cycles.items()):
                total.add_metric([result], count)
            yield of_cluster(total, cluster)
            at = GaugeMetricFamily("afterlog_cycle_ended_timestamp_seconds", "When the last cycle ended.")
            at.add_metric([], ended_at)
            yield of_cluster(at, cluster)

    def text(self) -> str:
        """Return the metrics in Prometheus' text format."""
        return generate_latest(self._registry()).decode()

    def write(self) -> None:
        """Replace the settings' file in one step.

        Raises EnvironmentLacking: it cannot be written. UsageError: it has the metrics of another cluster.
        """
        file = located(self.settings.metrics.file or "")
        names = self.settings.names
        if others := [name for name in _clusters_of(file) if name not in names]:
            own = " and ".join(f"'{visible(name)}'" for name in names)
            raise UsageError(
                f"{visible(str(file))} has the metrics of cluster '{visible(others[0])}': set [metrics] file to one of "
                f"its own for cluster {own}, or remove it."
            )
        try:
            file.parent.mkdir(parents=True, exist_ok=True)
            replace_text(file, self.text(), durable=False)
        except OSError as error:
            raise EnvironmentLacking(
                f"The metrics cannot be written to {visible(str(file))} ({error.strerror}): see [metrics] file."
            ) from None

    @contextlib.contextmanager
    def served(self, host: str, port: int) -> Iterator[int]:
        """Answer scrapes while the context lasts; yield the port.

        Raises EnvironmentLacking: the port is taken, or the host is none of this machine.
        """
        try:
            server, thread = start_http_server(port, host, self._registry())
        except (OSError, OverflowError) as error:
            reason = getattr(error, "strerror", None) or str(error)
            raise EnvironmentLacking(
                f"Metrics cannot be shown at {visible(host)}:{port} ({reason}): "
                "name another with --metrics-host and --metrics-port."
            ) from None
        try:
            yield server.server_port
        finally:
            server.shutdown()
            server.server_close()
            thread.join(5)

    def _registry(self) -> CollectorRegistry:
        registry = CollectorRegistry(auto_describe=False)
        registry.register(self)
        return registry


def _clusters_of(file: Path) -> list[str]:
    """Return the clusters whose metrics a file has; none if it has no metrics, or does not say it."""
    try:
        text = file.read_text(encoding="utf-8")
        info = "".join(f"{line}\n" for line in text.split("\n") if line.startswith(INFO))
        names = [
            sample.labels.get("cluster") for each in text_string_to_metric_families(info) for sample in each.samples
        ]
    except (OSError, ValueError):
        return []
    return [name for name in names if name is not None]
