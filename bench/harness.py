"""What benchmarks share: a session, a scratch directory, figures with targets."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bench import peers
from pipelines.catalog import stages
from pipelines.commands.generate import generate
from pipelines.run import runner
from pipelines.settings import Settings, load
from pipelines.stage import Stage
from pipelines.stores import lock
from pipelines.warehouse.quality import StageRun
from pipelines.warehouse.tables import Warehouse

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def timed_run(warehouse: Warehouse, of_stages: Sequence[Stage]) -> tuple[float, list[StageRun]]:
    """Run stages once; return the seconds, the lock included, and what each did."""
    began = time.perf_counter()
    with lock.writer(warehouse.settings, "bench"):
        done = runner.run(warehouse, of_stages)
    return time.perf_counter() - began, done


@dataclass
class Finding:
    """A measured figure and its target."""

    name: str
    value: float
    unit: str
    target: str = ""
    met: bool | None = None
    parts: dict[str, Any] = field(default_factory=dict)


class Bench:
    """A Spark session, a scratch directory and the figures found so far."""

    def __init__(self, spark: SparkSession, scratch: Path, scale: float) -> None:
        """Keep what the benchmarks share; ``scale`` multiplies the numbers of records."""
        self.spark = spark
        self.scratch = scratch
        self.scale = scale
        self.findings: list[Finding] = []

    def settings(self, name: str, **more: Any) -> Settings:
        """Return settings with a warehouse and a landing directory of their own."""
        directory = self.scratch / name
        return load(warehouse=str(directory / "warehouse"), landing=str(directory / "landing"), **more)

    def records(self, count: int) -> int:
        """Return a number of records, multiplied by the scale, at least 100."""
        return max(100, int(count * self.scale))

    def keep(self, name: str, value: float, unit: str, target: float | None = None, **parts: Any) -> None:
        """Keep a figure; ``target`` is the highest value that meets the target."""
        met = None if target is None else value <= target
        self.findings.append(Finding(name, value, unit, "" if target is None else f"<= {target:g} {unit}", met, parts))

    def run(self, settings: Settings, feed: str = "dlq") -> float:
        """Run a feed's stages once and return the seconds, the lock included."""
        seconds, done = timed_run(Warehouse(settings, self.spark), stages(feed))
        if any(stage_run.status == "broken" for stage_run in done):
            raise RuntimeError("a gate broke: the benchmark measures nothing")
        return seconds

    def warm_up(self) -> None:
        """Run both sides once, so that the JVM compiles them before the measurements."""
        settings = self.settings("warm-up")
        generate(self.records(20_000), 7, Path(settings.landing))
        self.run(settings)
        peers.landing_to_gold(self.spark, settings, self.scratch / "warm-up-peer")
