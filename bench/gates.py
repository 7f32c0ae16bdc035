"""What it costs to hold topics apart."""

from __future__ import annotations

from statistics import median

from bench.harness import Bench, timed_run
from bench.records import dead_letters, land_lines
from pipelines.catalog import stages
from pipelines.warehouse.tables import Warehouse


def bulkheads(bench: Bench) -> None:
    """Measure bronze to silver of 1,000 topics against one topic with as many records: all good, or all held."""
    from pyspark.sql import functions as F

    count, tracker = bench.records(100_000), bench.spark.sparkContext.statusTracker()
    for kind in ("good", "held"):
        seconds: dict[int, list[float]] = {1: [], 1_000: []}
        numbers = {}
        for attempt in range(3):
            for topics in seconds:
                settings = bench.settings(f"{kind}-{topics}-{attempt}")
                topic = F.concat(F.lit("dlq.t"), (F.col("offset") % topics).cast("string"))
                records = dead_letters(bench.spark, count, 1).withColumn("topic", topic)
                if kind == "held":
                    records = records.withColumn("headers", F.slice("headers", 1, 0))
                land_lines(records, settings.landing_of("dlq") / "a")
                group = f"{kind}, {topics} topics, {attempt}"
                timed_run(Warehouse(settings, bench.spark), stages(only="bronze.dlq_records"))
                bench.spark.sparkContext.setJobGroup(group, group)
                took, (done,) = timed_run(Warehouse(settings, bench.spark), stages(only="silver.dlq_records"))
                seconds[topics].append(took)
                bench.spark.sparkContext.setJobGroup("bench", "bench")
                if (done.held, done.accepted) != ((count, 0) if kind == "held" else (0, count)):
                    raise RuntimeError("the benchmark measures something else")
                numbers[topics] = len(tracker.getJobIdsForGroup(group))
        ratio = median(many / single for single, many in zip(seconds[1][1:], seconds[1_000][1:], strict=True))
        bench.keep(f"silver of 1,000 topics against one, all {kind}", ratio, "x", 1.5, seconds=seconds, jobs=numbers)
