"""What a batch costs if its rows are not spread evenly: over topics, or over incidents of a group."""

from __future__ import annotations

import shutil
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from bench.records import dead_letters, land_lines
from pipelines.catalog import stages
from pipelines.run import runner
from pipelines.settings import Settings
from pipelines.stores import lock
from pipelines.warehouse.quality import StageRun
from pipelines.warehouse.tables import Warehouse

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

EVEN = "100 topics alike"
MOST_SHOWN = 6


@dataclass(frozen=True)
class Shape:
    """Where the records are: SQL over ``id``, the number of a record, for the DLQ topic and for headers."""

    dlq_topic: str
    named: Mapping[str, str] = field(default_factory=dict)


def _alike(number: str) -> Shape:
    """Return a shape in which a number says the DLQ topic, the source topic and the group."""
    return Shape(
        f"concat('dlq.t', {number})",
        {"topic": f"concat('t', {number})", "group": f"concat('g', {number})"},
    )


SHAPES = {
    EVEN: _alike("id % 100"),
    "one topic with 90 % of the rows": _alike("if(id % 10 < 9, 0, id % 100)"),
    "100,000 topics": _alike("id % 100000"),
    "one group with 50,000 incidents": Shape(
        "concat('dlq.t', id % 100)", {"topic": "concat('t', id % 50000)", "group": "'g'"}
    ),
}


@dataclass
class Cost:
    """The seconds of a batch and of its slowest tables, and how many incidents it is."""

    shape: str
    records: int
    seconds: float
    slowest: dict[str, float]
    incidents: int


def measured(spark: SparkSession, settings: Settings, shape: str, records: int) -> Cost:
    """Return what a batch of a shape costs from its files to gold, and remove the warehouse."""
    shaped, took = SHAPES[shape], {}
    land_lines(
        dead_letters(spark, records, 1, milliseconds=10, dlq_topic=shaped.dlq_topic, **shaped.named),
        settings.landing_of("dlq") / "a",
    )

    def report(done: StageRun) -> None:
        took[done.table] = round((done.finished_at - done.started_at).total_seconds(), 1)

    warehouse = Warehouse(settings, spark)
    with lock.writer(settings, "bench"):
        began = time.perf_counter()
        runner.run(warehouse, stages("dlq"), report)
        seconds = time.perf_counter() - began
    slowest = dict(sorted(took.items(), key=lambda pair: -pair[1])[:MOST_SHOWN])
    incidents = spark.read.format("delta").load(warehouse.location("gold.dlq_incidents")).count()
    shutil.rmtree(Path(settings.warehouse).parent)
    return Cost(shape, records, seconds, slowest, incidents)
